//! Files that outputs must equal. `LINERATE_BLESS=1` (what `make bless` sets) writes them instead.

use std::{env, fs, path::Path};

/// Whether goldens are being written; compiled-in copies may then be older.
pub(crate) fn blessing() -> bool {
    env::var_os("LINERATE_BLESS").is_some()
}

/// Compares an output with a committed file, whose path is relative to the crate.
pub(crate) fn assert_golden(path: &str, output: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if blessing() {
        fs::create_dir_all(file.parent().expect("a folder")).expect("folder for goldens");
        fs::write(&file, output).expect("golden written");
        return;
    }
    let golden = fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("cannot read {path}: {error}; `make bless` writes it"));
    if let Some((at, (wanted, got))) =
        golden.lines().zip(output.lines()).enumerate().find(|(_, (wanted, got))| wanted != got)
    {
        panic!(
            "{path} line {}:\n  golden: {wanted}\n  output: {got}\n`make bless` accepts the output",
            at + 1
        );
    }
    assert_eq!(golden, output, "{path}: one is longer; `make bless` accepts the output");
}
