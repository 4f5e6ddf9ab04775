//! What a card hashes, with which key, and the table for the hash.

use std::{fmt, path::Path};

use serde::Serialize;
use sys::ethtool::{FlowType, Rss, field_letters};
use wire::{FlowKey, HashFields, RssKey, Toeplitz};

use super::prediction::{Prediction, Step, flow_type, hash_fields};
use crate::{Card, NicError, card, settings::scaling as read_scaling};

/// Why queues cannot be predicted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Unpredictable {
    /// The driver has no table.
    NoTable,
    /// The driver hashes otherwise.
    Function {
        /// The function's name.
        name: String,
    },
    /// The driver does not report its key, and the key's source is unknown.
    NoKey {
        /// The driver.
        driver: String,
    },
    /// The driver does not report what it hashes for this kind of packet.
    NoFields {
        /// The kind of packet.
        flow: &'static str,
    },
    /// Fields other than addresses, or addresses and ports.
    Fields {
        /// The kind of packet.
        flow: &'static str,
        /// ethtool's letters; empty for none.
        letters: String,
    },
    /// The driver changes the hash's input.
    Symmetric,
    /// Neither UDP nor TCP.
    Protocol,
    /// A rule that selects a context which the driver or the kernel does not report (before Linux 6.12).
    Context {
        /// The rule.
        rule: String,
    },
}

impl fmt::Display for Unpredictable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable => f.write_str("its driver has no indirection table, so no hash decides the queue"),
            Self::Function { name } => write!(f, "it hashes by {name}, not by Toeplitz"),
            Self::NoKey { driver } => write!(f, "driver {driver} does not report its hash key"),
            Self::NoFields { flow } => {
                write!(f, "its driver does not report what it hashes for {flow} packets")
            }
            Self::Fields { flow, letters } if letters.is_empty() => {
                write!(f, "it does not hash {flow} packets")
            }
            Self::Fields { flow, letters } => {
                write!(
                    f,
                    "it hashes the fields '{letters}' of {flow} packets, but only sd and sdfn are supported"
                )
            }
            Self::Symmetric => f.write_str("it hashes both directions of a flow alike (symmetric)"),
            Self::Protocol => f.write_str("only UDP and TCP are supported"),
            Self::Context { rule } => {
                write!(f, "the rule '{rule}' selects an RSS context whose table is unknown")
            }
        }
    }
}

/// A card's receive side scaling, ready to predict with.
#[derive(Debug, Clone)]
pub struct Scaling {
    /// The queue of each bucket.
    pub table: Vec<u32>,
    /// The key, and its source.
    pub key: RssKey,
    key_source: String,
    key_is_told: bool,
    fields: Vec<(FlowType, u64)>,
    toeplitz: Toeplitz,
}

/// Drivers that do not report their key but copy the kernel's (`netdev_rss_key_fill` in their sources).
const KEY_FROM_KERNEL: [&str; 6] = ["igb", "igc", "igbvf", "e1000e", "tg3", "alx"];
const KERNEL_KEY: &str = "/proc/sys/net/core/netdev_rss_key";

pub(super) fn read(card: &mut Card) -> Result<Result<Scaling, Unpredictable>, NicError> {
    let rss = match read_scaling(card) {
        Ok(rss) if !rss.table.is_empty() => rss,
        Ok(_) => return Ok(Err(Unpredictable::NoTable)),
        Err(error) if error.is_unsupported() => return Ok(Err(Unpredictable::NoTable)),
        Err(error) => return Err(error),
    };
    if let Some(function) = rss.function.filter(|function| *function != 1) {
        return Ok(Err(Unpredictable::Function { name: crate::settings::function_name(function) }));
    }
    if rss.transform != 0 {
        return Ok(Err(Unpredictable::Symmetric));
    }
    let driver = card.ethtool.driver(card.name()).map(|driver| driver.name).unwrap_or_default();
    let (key, key_source) = match key_of(&rss.key, &driver) {
        Some(found) => found,
        None => return Ok(Err(Unpredictable::NoKey { driver })),
    };
    let fields = FlowType::ALL
        .into_iter()
        .filter_map(|flow| Some((flow, card.ethtool.hash_fields(card.name(), flow).ok()?)))
        .collect();
    let toeplitz = Toeplitz::new(&key);
    let key_is_told = !rss.key.is_empty();
    Ok(Ok(Scaling { table: rss.table, key, key_source, key_is_told, fields, toeplitz }))
}

fn key_of(told: &[u8], driver: &str) -> Option<(RssKey, String)> {
    if let Ok(key) = RssKey::new(told) {
        return Some((key, "the driver".into()));
    }
    if !KEY_FROM_KERNEL.contains(&driver) {
        return None;
    }
    // 52 bytes, and more in later kernels; these cards have room for 40.
    let text = card::read(Path::new(KERNEL_KEY)).ok()?;
    let bytes: Option<Vec<u8>> =
        text.split(':').take(40).map(|pair| u8::from_str_radix(pair, 16).ok()).collect();
    let key = RssKey::new(&bytes?).ok()?;
    Some((key, format!("{KERNEL_KEY}, from which {driver} fills its key")))
}

impl Scaling {
    pub(super) fn predict(&self, flow: &FlowKey) -> Result<Prediction, Unpredictable> {
        let kind = flow_type(flow).ok_or(Unpredictable::Protocol)?;
        let told = self.fields.iter().find(|(known, _)| *known == kind);
        let (_, bits) = told.ok_or(Unpredictable::NoFields { flow: kind.name() })?;
        let fields = hash_fields(*bits)
            .ok_or_else(|| Unpredictable::Fields { flow: kind.name(), letters: field_letters(*bits) })?;
        let hash = self.toeplitz.hash(flow, fields);
        let mut prediction = prediction(flow, hash, &self.table).ok_or(Unpredictable::NoTable)?;
        let found = [
            Step {
                what: "fields",
                value: format!("{fields} of {}", kind.name()),
                source: "the driver's answer to ETHTOOL_GRXFH".into(),
            },
            Step { what: "key", value: self.key.to_string(), source: self.key_source.clone() },
        ];
        prediction.steps.splice(0..0, found);
        Ok(prediction)
    }

    /// The same card's with a context's table, and the context's key if it has one.
    pub(super) fn of_context(&self, told: &Rss) -> Self {
        let own = RssKey::new(&told.key).ok();
        let source = format!("context {}", told.context);
        let (key, key_source) =
            own.map_or_else(|| (self.key.clone(), self.key_source.clone()), |key| (key, source));
        let toeplitz = Toeplitz::new(&key);
        Self { table: told.table.clone(), key, key_source, toeplitz, ..self.clone() }
    }

    /// Whether the driver reports its key, and so may accept another.
    pub fn key_is_told(&self) -> bool {
        self.key_is_told
    }

    /// The hashed fields of packets like this flow's.
    pub fn fields_of(&self, flow: &FlowKey) -> Option<HashFields> {
        let kind = flow_type(flow)?;
        hash_fields(self.fields.iter().find(|(known, _)| *known == kind)?.1)
    }

    /// ethtool's name for packets like this flow's.
    pub fn kind_of(&self, flow: &FlowKey) -> Option<&'static str> {
        flow_type(flow).map(FlowType::name)
    }

    /// The queue of a flow; `None` when its kind of packet cannot be predicted.
    pub fn queue(&self, flow: &FlowKey) -> Option<u32> {
        let hash = self.toeplitz.hash(flow, self.fields_of(flow)?);
        Some(self.table[bucket(hash, &self.table)])
    }
}

/// The low bits of the hash, or the remainder when the table's length is not a power of two.
fn bucket(hash: u32, table: &[u32]) -> usize {
    hash as usize % table.len()
}

/// `None` for a table without buckets.
pub(super) fn prediction(flow: &FlowKey, hash: u32, table: &[u32]) -> Option<Prediction> {
    let bucket = (!table.is_empty()).then(|| bucket(hash, table))?;
    let queue = table[bucket];
    let hash_hex = format!("{hash:08x}");
    let steps = vec![
        Step {
            what: "hash",
            value: hash_hex.clone(),
            source: "Toeplitz hash of the fields with the key".into(),
        },
        Step {
            what: "bucket",
            value: format!("{bucket} of {}", table.len()),
            source: "the hash's low bits".into(),
        },
        Step { what: "queue", value: queue.to_string(), source: "the indirection table".into() },
    ];
    Some(Prediction {
        flow: flow.to_string(),
        hash: Some(hash),
        hash_hex: Some(hash_hex),
        bucket: Some(bucket),
        queue: Some(queue),
        interrupt: None,
        cpu: None,
        numa_node: None,
        steps,
    })
}

/// A card that does not exist, for tests.
#[cfg(test)]
pub(crate) fn scaling_of(key: RssKey, fields: HashFields, table: Vec<u32>, key_is_told: bool) -> Scaling {
    let toeplitz = Toeplitz::new(&key);
    let bits = sys::ethtool::fields_from_letters(&fields.to_string()).unwrap();
    let fields = FlowType::ALL.map(|flow| (flow, bits)).to_vec();
    Scaling { table, key, key_source: String::new(), key_is_told, fields, toeplitz }
}
