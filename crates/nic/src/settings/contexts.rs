//! `context.*`: further tables of receive side scaling, which flow rules can select. `context.new` creates one, and
//! `none` deletes one.

use sys::ethtool::{Rss, RssChange};

use super::{
    kind::{Kind, Wrong},
    rss::{scaling, table_from, table_text},
};
use crate::{Card, NicError};

pub(super) struct Contexts;

/// Contexts have numbers from 1; drivers have fewer than these, or a kernel without a list assigns no more.
const MOST_TRIED: u32 = 32;

fn tried(card: &Card) -> Vec<Rss> {
    // A driver without contexts returns its only table for every number, or refuses.
    let own = card.ethtool.rss(card.name(), 0).ok();
    let answers = (1..=MOST_TRIED).map_while(|number| match card.ethtool.rss(card.name(), number) {
        Ok(rss) => Some(Some(rss)),
        Err(error) => (!NicError::from(error).is_unsupported()).then_some(None),
    });
    let found: Vec<Rss> = answers.flatten().collect();
    let is_deaf = found.len() == MOST_TRIED as usize
        && found.iter().all(|rss| own.as_ref().is_some_and(|own| own.table == rss.table));
    if is_deaf { Vec::new() } else { found }
}

impl Kind for Contexts {
    fn prefix(&self) -> &'static str {
        "context"
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        // A card without a main table has no contexts.
        scaling(card)?;
        let index = card.index();
        let listed = card.netlink.as_mut().and_then(|netlink| netlink.rss_contexts(index).ok());
        // Kernels before 6.11 cannot list contexts, but answer queries for each number.
        let listed = listed.unwrap_or_else(|| tried(card));
        let contexts = listed.into_iter().filter(|rss| rss.context != 0);
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
                // The kernel chooses the number of a context that is created again.
                None => card.ethtool.create_rss_context(&name, &change).map(|_| ())?,
            }
        }
        Ok(())
    }
}
