//! `context.*`: further tables of receive side scaling, to which flow rules can lead. `context.new` makes one, and
//! `none` ends one.

use sys::ethtool::RssChange;

use super::{
    kind::{Kind, Wrong},
    rss::{scaling, table_from, table_text},
};
use crate::{Card, NicError};

pub(super) struct Contexts;

impl Kind for Contexts {
    fn prefix(&self) -> &'static str {
        "context"
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        // Without a table of its own a card has no further ones.
        scaling(card)?;
        let index = card.index();
        let listed = card.netlink.as_mut().and_then(|netlink| netlink.rss_contexts(index).ok());
        let contexts = listed.unwrap_or_default().into_iter().filter(|rss| rss.context != 0);
        Ok(contexts.map(|rss| (rss.context.to_string(), table_text(&rss.table))).collect())
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        if key != "new" && key.parse::<u32>().is_err() {
            return Err(Wrong::NoSuchKey);
        }
        if value == "none" {
            return Ok(value.into());
        }
        let buckets = scaling(card).map_err(Wrong::Unreadable)?.table.len();
        if buckets == 0 {
            return Err(Wrong::NoSuchKey);
        }
        Ok(table_text(&table_from(value, buckets).map_err(Wrong::Expected)?))
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        let name = card.name().to_owned();
        let existing: Vec<String> = self.read(card)?.into_iter().map(|(key, _)| key).collect();
        for (key, value) in changes {
            let number = key.parse().ok().filter(|_| existing.iter().any(|known| known == key));
            if *value == "none" {
                number.map_or(Ok(()), |number| card.ethtool.delete_rss_context(&name, number))?;
                continue;
            }
            let buckets = scaling(card)?.table.len();
            let table = table_from(value, buckets).map_err(|expected| NicError::BadValue {
                name: format!("context.{key}"),
                value: (*value).into(),
                expected,
            })?;
            let change = RssChange { table: Some(&table), ..RssChange::default() };
            match number {
                Some(number) => card.ethtool.set_rss(&name, number, &change)?,
                // One that was deleted comes back under a number of the kernel's choice.
                None => card.ethtool.create_rss_context(&name, &change).map(|_| ())?,
            }
        }
        Ok(())
    }
}
