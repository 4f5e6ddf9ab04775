//! `link.*`: properties of the link itself.

use super::kind::{Kind, Wrong, number};
use crate::{Card, NicError};

pub(super) struct Link;

/// The files in the interface's folder, and the key of each.
const FILES: [(&str, &str); 2] = [("mtu", "mtu"), ("tx-queue-len", "tx_queue_len")];

impl Kind for Link {
    fn prefix(&self) -> &'static str {
        "link"
    }

    fn interrupts_the_link(&self) -> bool {
        true
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        FILES.iter().map(|(key, file)| Ok(((*key).to_owned(), card.read(file)?))).collect()
    }

    fn resolve(&self, _: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        FILES.iter().find(|(known, _)| *known == key).ok_or(Wrong::NoSuchKey)?;
        number(value, Some(u32::MAX.into()))
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        for (key, value) in changes {
            let file = FILES.iter().find(|(known, _)| known == key).map_or(*key, |(_, file)| file);
            card.write(file, value)?;
        }
        Ok(())
    }
}
