//! `rss.*`: the queue for a packet's hash: function, key, fields of each kind of packet, table.

use sys::ethtool::{FlowType, Rss as Scaling, RssChange, field_letters, fields_from_letters};
use wire::{IndirectionTable, Spread};

use super::kind::{Kind, Wrong};
use crate::{Card, NicError};

pub(super) struct Rss;

/// Hash functions by number (`ETH_RSS_HASH_*_BIT` in `linux/ethtool.h`).
const FUNCTIONS: [(u32, &str); 3] = [(1, "toeplitz"), (2, "xor"), (4, "crc32")];

/// Receive side scaling of the interface's own context: by netlink if the kernel supports it.
pub(crate) fn scaling(card: &mut Card) -> Result<Scaling, NicError> {
    let index = card.index();
    let by_netlink = card.netlink.as_mut().and_then(|netlink| netlink.rss(index).ok());
    match by_netlink {
        Some(rss) => Ok(rss),
        None => Ok(card.ethtool.rss(card.name(), 0)?),
    }
}

/// The function's name, or its number.
pub(crate) fn function_name(function: u32) -> String {
    let known = FUNCTIONS.iter().find(|(number, _)| *number == function);
    known.map_or_else(|| function.to_string(), |(_, name)| (*name).to_owned())
}

/// The shortest exact text of a table.
pub(crate) fn table_text(table: &[u32]) -> String {
    let queues = table.iter().max().map_or(0, |most| most + 1);
    let equal = (0..queues).cycle().take(table.len()).eq(table.iter().copied());
    if equal { Spread::Equal(queues).to_string() } else { Spread::Queues(table.to_vec()).to_string() }
}

/// The table for a text, as long as the card's.
pub(crate) fn table_from(text: &str, buckets: usize) -> Result<Vec<u32>, String> {
    let spread: Spread = text.parse().map_err(|_| "equal:4, weights:6,2 or queues:0,0,1,1".to_owned())?;
    match &spread {
        Spread::Queues(queues) if queues.len() == buckets => Ok(queues.clone()),
        // Some cards have a number of buckets that is not a power of two; the pattern still repeats.
        _ => {
            let whole = IndirectionTable::new(&spread, buckets.next_power_of_two());
            let mut table: Vec<u32> = whole.map_err(|error| error.to_string())?.into();
            table.truncate(buckets);
            Ok(table)
        }
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn key_from(text: &str) -> Option<Vec<u8>> {
    let byte = |pair: &str| (pair.len() == 2).then(|| u8::from_str_radix(pair, 16).ok()).flatten();
    text.split(':').map(byte).collect()
}

fn flow(key: &str) -> Option<FlowType> {
    let name = key.strip_prefix("fields.")?;
    FlowType::ALL.into_iter().find(|flow| flow.name() == name)
}

impl Kind for Rss {
    fn prefix(&self) -> &'static str {
        "rss"
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        let rss = scaling(card)?;
        let mut values = Vec::new();
        if let Some(function) = rss.function {
            values.push(("function".to_owned(), function_name(function)));
        }
        if !rss.key.is_empty() {
            values.push(("key".to_owned(), hex(&rss.key)));
        }
        for flow in FlowType::ALL {
            if let Ok(fields) = card.ethtool.hash_fields(card.name(), flow) {
                let letters = field_letters(fields);
                let letters = if letters.is_empty() { "none".into() } else { letters };
                values.push((format!("fields.{}", flow.name()), letters));
            }
        }
        if !rss.table.is_empty() {
            values.push(("table".to_owned(), table_text(&rss.table)));
        }
        Ok(values)
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        if flow(key).is_some() {
            let letters = if value == "none" { "" } else { value };
            let fields = fields_from_letters(letters);
            let expected = || Wrong::Expected("sd, sdfn, none or other letters of ethtool".into());
            let letters = field_letters(fields.ok_or_else(expected)?);
            return Ok(if letters.is_empty() { "none".into() } else { letters });
        }
        let rss = scaling(card).map_err(Wrong::Unreadable)?;
        match key {
            "function" => {
                let known = FUNCTIONS.iter().any(|(_, name)| *name == value);
                if known { Ok(value.into()) } else { Err(Wrong::Expected("toeplitz, xor or crc32".into())) }
            }
            "key" if !rss.key.is_empty() => {
                let wanted = key_from(value).filter(|wanted| wanted.len() == rss.key.len());
                let expected = || format!("{} pairs of hex digits: 6d:5a:56 and so on", rss.key.len());
                wanted.map(|key| hex(&key)).ok_or_else(|| Wrong::Expected(expected()))
            }
            "table" if !rss.table.is_empty() => {
                let table = table_from(value, rss.table.len()).map_err(Wrong::Expected)?;
                Ok(table_text(&table))
            }
            _ => Err(Wrong::NoSuchKey),
        }
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        let name = card.name().to_owned();
        for (key, value) in changes {
            if let Some(flow) = flow(key) {
                let letters = if *value == "none" { "" } else { value };
                card.ethtool.set_hash_fields(&name, flow, fields_from_letters(letters).unwrap_or(0))?;
            }
        }
        let wanted = |wanted: &str| changes.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
        let key = wanted("key").and_then(key_from);
        let function = wanted("function")
            .and_then(|name| FUNCTIONS.iter().find(|(_, known)| *known == name))
            .map(|(number, _)| *number as u8);
        if key.is_some() || function.is_some() {
            let change = RssChange { table: None, key: key.as_deref(), function };
            card.ethtool.set_rss(&name, 0, &change)?;
        }
        if let Some(text) = wanted("table") {
            let buckets = scaling(card)?.table.len();
            let table = table_from(text, buckets).map_err(|expected| NicError::BadValue {
                name: "rss.table".into(),
                value: text.into(),
                expected,
            })?;
            card.ethtool.set_rss(&name, 0, &RssChange { table: Some(&table), ..RssChange::default() })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_said_briefly_and_exactly() {
        assert_eq!(table_text(&[0, 1, 2, 0, 1, 2, 0, 1]), "equal:3");
        assert_eq!(table_text(&[0, 0, 1, 1]), "queues:0,0,1,1");
        assert_eq!(table_text(&[]), "equal:0");
        for table in [vec![0, 1, 0, 1], vec![1, 1, 3, 3], vec![0; 4]] {
            assert_eq!(table_from(&table_text(&table), 4), Ok(table));
        }
        assert_eq!(table_from("weights:0,1,0,3", 8), Ok(vec![1, 1, 3, 3, 3, 3, 3, 3]));
        assert_eq!(table_from("queues:0,0,1", 6), Ok(vec![0, 0, 1, 0, 0, 1]), "not a power of two");
        assert!(table_from("equal:0", 4).unwrap_err().contains("leaves no queue"));
        assert!(table_from("even", 4).unwrap_err().contains("equal:4"));
    }

    #[test]
    fn keys_are_pairs_of_hex_digits() {
        assert_eq!(key_from("6d:5a").map(|key| hex(&key)), Some("6d:5a".into()));
        assert_eq!(key_from("6d:5"), None);
    }
}
