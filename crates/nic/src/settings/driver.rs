//! `driver.*`: parameters of the driver's module that bear on packet rates and can be changed while it runs. They are the
//! same for all cards of that driver.

use std::path::{Path, PathBuf};

use super::kind::{Kind, Wrong, number};
use crate::{Card, NicError, card};

pub(super) struct Driver;

/// Parameters that are offered. `copybreak`: the longest frame that is copied into a small buffer, so that the card keeps
/// the large one.
const KNOWN: [&str; 1] = ["copybreak"];

/// A parameter below an interface's folder in sysfs.
fn path(interface: &Path, key: &str) -> PathBuf {
    interface.join("device/driver/module/parameters").join(key)
}

fn parameters(interface: &Path) -> Vec<(String, String)> {
    let value = |key: &&str| Some(((*key).to_owned(), card::read(&path(interface, key)).ok()?));
    KNOWN.iter().filter_map(value).collect()
}

impl Kind for Driver {
    fn prefix(&self) -> &'static str {
        "driver"
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        Ok(parameters(&card.folder()?))
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        let folder = card.folder().map_err(Wrong::Unreadable)?;
        let is_here = KNOWN.contains(&key) && path(&folder, key).exists();
        if is_here { number(value, Some(u32::MAX.into())) } else { Err(Wrong::NoSuchKey) }
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        let folder = card.folder()?;
        changes.iter().try_for_each(|(key, value)| card::write(&path(&folder, key), value))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_driver_s_parameters_are_read_where_it_has_them() {
        let interface = tempfile::tempdir().unwrap();
        assert_eq!(parameters(interface.path()), []);
        let file = path(interface.path(), "copybreak");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "256\n").unwrap();
        assert_eq!(parameters(interface.path()), [("copybreak".to_owned(), "256".to_owned())]);
    }
}
