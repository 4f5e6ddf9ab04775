//! The scenarios that are part of the program, available from any folder.

/// A scenario that ships: a file of `scenarios/` in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// Its name: `linerate bench NAME` runs it.
    pub name: &'static str,
    /// The file's text.
    pub text: &'static str,
}

/// One line per file.
macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../../../../scenarios/", $name, ".toml")) }),*]
    };
}

const SHIPPED: &[Shipped] =
    shipped!["10gbe", "apu4d4", "ndr", "pacing", "peers", "pktgen-rx", "rdr", "single-rx-queue", "xmit-more"];

/// Every scenario that ships, by name.
pub fn shipped() -> &'static [Shipped] {
    SHIPPED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_ships_under_its_name() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<String> =
            files.map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        // the published figures are not a scenario; `measure` has them
        names.retain(|name| name != "published");
        names.sort();
        assert_eq!(names, SHIPPED.iter().map(|shipped| shipped.name).collect::<Vec<_>>());
    }
}
