//! The bodies of the fuzz targets that read files, on their seeds and on a few mutations of each; `make fuzz` takes a minute
//! for each target.

use std::{fs, path::Path};

use mutate::Shape;

#[path = "../../../../fuzz/src/files.rs"]
#[expect(unreachable_pub, reason = "the fuzz crate exports it")]
mod files;
#[path = "../../../../fuzz/src/mutate.rs"]
#[expect(unreachable_pub, dead_code, reason = "the fuzz crate exports it, and has targets of other shapes")]
mod mutate;

/// Where a target's seeds are, their shape, and its body.
type Target = (&'static str, Shape, fn(&[u8]));

/// The files of a folder of the repository, or the one file.
fn seeds(place: &str) -> Vec<Vec<u8>> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(place);
    if place.is_file() {
        return vec![fs::read(place).unwrap()];
    }
    let files = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    let is_seed =
        |file: &std::path::PathBuf| file.is_file() && file.extension().is_none_or(|it| it != "required");
    files.filter(is_seed).map(|file| fs::read(file).unwrap()).collect()
}

#[test]
fn files_of_strangers_are_refused_or_read() {
    const MUTATIONS: u32 = 30;
    // The same each time: make fuzz looks for more.
    let seed = std::env::var("LINERATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    eprintln!("LINERATE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let targets: [Target; 6] = [
        ("crates/ledger/drivers.toml", Shape::Toml, files::drivers),
        ("crates/report/tests/records/0.1.0", Shape::Json, files::record),
        ("fuzz/seeds/record", Shape::Json, files::record),
        ("packaging/arp-icmp.rules", Shape::Words, files::rules),
        ("scenarios", Shape::Toml, files::scenario),
        ("fuzz/seeds/settings", Shape::Toml, files::settings),
    ];
    for (place, shape, body) in targets {
        let seeds = seeds(place);
        assert!(!seeds.is_empty(), "{place}");
        seeds.iter().for_each(|seed| body(seed));
        (0..MUTATIONS).for_each(|_| body(&mutate::mutate(shape, &seeds, &mut random)));
    }
}
