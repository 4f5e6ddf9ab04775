//! Flows that cover all queues evenly, and changes that spread given flows.

use std::collections::BTreeMap;

use serde::Serialize;
use thiserror::Error;
use wire::{FlowKey, HashFields, RssKey, Toeplitz};

use crate::{Scaling, Setting, settings::table_text};

/// Why no flows were found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpreadError {
    /// Too few of the offered flows reach a queue.
    #[error("only {found} of the offered flows reach queue {queue}, but {needed} are needed")]
    TooFew {
        /// The queue with the fewest flows.
        queue: u32,
        /// Flows that reach it.
        found: usize,
        /// Flows needed.
        needed: usize,
    },
    /// This kind of flow cannot be predicted.
    #[error("cannot predict the queue of flow {flow}")]
    Unpredictable {
        /// The flow.
        flow: String,
    },
}

/// Picks `count` of the offered flows so that each queue in the table gets as many as every other, or one
/// more.
///
/// # Errors
/// [`SpreadError::TooFew`] when the flows offered do not suffice.
pub fn spread_flows(
    scaling: &Scaling,
    offered: impl Iterator<Item = FlowKey>,
    count: usize,
) -> Result<Vec<(FlowKey, u32)>, SpreadError> {
    let mut room: BTreeMap<u32, usize> = scaling.table.iter().map(|queue| (*queue, 0)).collect();
    let queues = room.len().max(1);
    for (place, room) in room.values_mut().enumerate() {
        *room = count / queues + usize::from(place < count % queues);
    }
    let wanted = room.clone();
    let mut picked = Vec::with_capacity(count.min(1 << 16));
    for flow in offered {
        if picked.len() == count {
            break;
        }
        let queue =
            scaling.queue(&flow).ok_or_else(|| SpreadError::Unpredictable { flow: flow.to_string() })?;
        if let Some(left) = room.get_mut(&queue).filter(|left| **left > 0) {
            *left -= 1;
            picked.push((flow, queue));
        }
    }
    match room.iter().max_by_key(|(_, left)| **left).filter(|(_, left)| **left > 0) {
        Some((queue, left)) => {
            let needed = wanted[queue];
            Err(SpreadError::TooFew { queue: *queue, found: needed - left, needed })
        }
        None => Ok(picked),
    }
}

/// The busiest queue's multiple of an even share: 1 is even, the number of queues means all on one.
pub fn imbalance(shares: &[u64]) -> f64 {
    let total: u64 = shares.iter().sum();
    let most = shares.iter().max().copied().unwrap_or(0);
    if total == 0 { 1.0 } else { most as f64 * shares.len() as f64 / total as f64 }
}

/// A change that would spread given flows, and its effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remedy {
    /// The settings to change.
    pub settings: Vec<Setting>,
    /// Their effect as text.
    pub what: String,
    /// The imbalance after it.
    pub imbalance: f64,
    /// Flows on each queue after the change, from queue 0 on.
    pub flows_per_queue: Vec<u64>,
}

/// Changes of table, hashed fields and key that spread these flows over the first `queues` queues, the best first;
/// the present spread comes first, as a remedy without settings.
pub fn remedies(scaling: &Scaling, flows: &[FlowKey], queues: u32) -> Vec<Remedy> {
    let queues = queues.max(1);
    let (key, buckets) = (&scaling.key, scaling.table.len());
    let now: Vec<u32> = flows.iter().filter_map(|flow| scaling.queue(flow)).collect();
    let of = |settings: Vec<Setting>, what: &str, taken: &[u32]| {
        let mut shares = vec![0u64; queues as usize];
        taken
            .iter()
            .filter_map(|queue| shares.get_mut(*queue as usize).map(|share| *share += 1))
            .for_each(drop);
        Remedy { settings, what: what.into(), imbalance: imbalance(&shares), flows_per_queue: shares }
    };
    let before = of(Vec::new(), "as it is", &now);
    let mut found = Vec::new();
    let equal: Vec<u32> = (0..queues).cycle().take(buckets).collect();
    let fields = flows.first().and_then(|flow| scaling.fields_of(flow));
    let family = flows.first().and_then(|flow| scaling.kind_of(flow)).unwrap_or("udp4");
    let hashes = |key: &RssKey, fields: HashFields| -> Vec<u32> {
        let toeplitz = Toeplitz::new(key);
        flows.iter().map(|flow| toeplitz.hash(flow, fields)).collect()
    };
    let queues_of = |hashes: &[u32], table: &[u32]| -> Vec<u32> {
        hashes.iter().map(|hash| table[*hash as usize % table.len()]).collect()
    };
    let set_table = |table: &[u32]| Setting::new("rss.table", table_text(table));
    if let Some(fields) = fields.filter(|_| buckets > 0) {
        let here = hashes(key, fields);
        found.push(of(vec![set_table(&equal)], "the queues in turn", &queues_of(&here, &equal)));
        let fitted = fit_table(&here, buckets, queues);
        found.push(of(
            vec![set_table(&fitted)],
            "a table for exactly these flows",
            &queues_of(&here, &fitted),
        ));
        if fields == HashFields::Addresses {
            let with_ports = hashes(key, HashFields::AddressesAndPorts);
            let ports = Setting::new(format!("rss.fields.{family}"), "sdfn");
            found.push(of(
                vec![ports.clone()],
                "hash the ports too",
                &queues_of(&with_ports, &scaling.table),
            ));
            found.push(of(
                vec![ports, set_table(&equal)],
                "hash the ports too, queues in turn",
                &queues_of(&with_ports, &equal),
            ));
        }
        if scaling.key_is_told() {
            let (best, taken) = best_key(key, |key| queues_of(&hashes(key, fields), &equal), queues);
            let settings = vec![Setting::new("rss.key", &best), set_table(&equal)];
            found.push(of(settings, "another key, queues in turn", &taken));
        }
    }
    found.retain(|remedy| remedy.imbalance < before.imbalance);
    found.sort_by(|one, other| {
        one.imbalance.total_cmp(&other.imbalance).then(one.settings.len().cmp(&other.settings.len()))
    });
    found.insert(0, before);
    found
}

/// The fullest buckets first, each to the emptiest queue; buckets without a flow round robin.
fn fit_table(hashes: &[u32], buckets: usize, queues: u32) -> Vec<u32> {
    let mut flows = vec![0u64; buckets];
    hashes.iter().for_each(|hash| flows[*hash as usize % buckets] += 1);
    let mut order: Vec<usize> = (0..buckets).collect();
    order.sort_by_key(|bucket| std::cmp::Reverse(flows[*bucket]));
    let mut load = vec![0u64; queues as usize];
    let mut table = vec![0; buckets];
    for (place, bucket) in order.into_iter().enumerate() {
        let emptiest = (0..queues).min_by_key(|queue| load[*queue as usize]).unwrap_or(0);
        let queue = if flows[bucket] > 0 { emptiest } else { (place % queues as usize) as u32 };
        load[queue as usize] += flows[bucket];
        table[bucket] = queue;
    }
    table
}

/// Keys tried: each costs one hash per flow.
const KEYS: u64 = 64;

/// The best of some keys derived from the present one; deterministic.
fn best_key(key: &RssKey, queues_of: impl Fn(&RssKey) -> Vec<u32>, queues: u32) -> (RssKey, Vec<u32>) {
    let shares = |taken: &[u32]| {
        let mut shares = vec![0u64; queues as usize];
        taken
            .iter()
            .filter_map(|queue| shares.get_mut(*queue as usize).map(|share| *share += 1))
            .for_each(drop);
        imbalance(&shares)
    };
    let tried = (1..=KEYS).filter_map(|round| {
        let key = scrambled(key, round)?;
        let taken = queues_of(&key);
        Some((shares(&taken), key, taken))
    });
    let best = tried.min_by(|one, other| one.0.total_cmp(&other.0));
    best.map_or_else(|| (key.clone(), queues_of(key)), |(_, key, taken)| (key, taken))
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators) over the key's bytes.
fn scrambled(key: &RssKey, round: u64) -> Option<RssKey> {
    let mut state = round;
    let bytes: Vec<u8> = key
        .bytes()
        .iter()
        .map(|byte| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (state ^ u64::from(*byte)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed >> 56) as u8
        })
        .collect();
    RssKey::new(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow::scaling_of;

    fn flows(count: u16) -> impl Iterator<Item = FlowKey> {
        let dst = "198.19.0.1:9".parse().unwrap();
        (0..count).map(move |n| FlowKey::udp(([198, 18, 0, 1], 1024 + n).into(), dst).unwrap())
    }

    fn scaling(fields: HashFields, table: &[u32]) -> Scaling {
        scaling_of(RssKey::microsoft(), fields, table.to_vec(), true)
    }

    #[test]
    fn each_queue_gets_as_many_as_the_next() {
        let table: Vec<u32> = (0..128).map(|bucket| bucket / 32).collect();
        let scaling = scaling(HashFields::AddressesAndPorts, &table);
        let picked = spread_flows(&scaling, flows(1000), 10).unwrap();
        let mut shares = [0; 4];
        for (flow, queue) in &picked {
            assert_eq!(scaling.queue(flow), Some(*queue));
            shares[*queue as usize] += 1;
        }
        assert_eq!(shares, [3, 3, 2, 2]);
    }

    #[test]
    fn flows_that_all_hash_alike_are_too_few() {
        let scaling = scaling(HashFields::Addresses, &[0, 1, 2, 3]);
        let error = spread_flows(&scaling, flows(1000), 8).unwrap_err();
        assert!(matches!(error, SpreadError::TooFew { found: 0, needed: 2, .. }), "{error}");
    }

    #[test]
    fn hashing_the_ports_spreads_what_addresses_do_not() {
        let table: Vec<u32> = (0..128).map(|bucket| bucket / 32).collect();
        let scaling = scaling(HashFields::Addresses, &table);
        let flows: Vec<FlowKey> = flows(400).collect();
        let remedies = remedies(&scaling, &flows, 4);
        assert_eq!((remedies[0].what.as_str(), remedies[0].imbalance), ("as it is", 4.0));
        let best = &remedies[1];
        assert!(best.imbalance < 1.2, "{best:?}");
        assert!(best.settings.contains(&Setting::new("rss.fields.udp4", "sdfn")), "{best:?}");
    }

    proptest! {
        #[test]
        fn every_remedy_is_better_and_keeps_every_flow(
            ports in prop::collection::vec(any::<u16>(), 1..200), queues in 1u32..9,
            table in prop::collection::vec(0u32..8, 128),
        ) {
            let scaling = scaling(HashFields::AddressesAndPorts, &table);
            let dst = "198.19.0.1:9".parse().unwrap();
            let flows: Vec<FlowKey> =
                ports.iter().map(|port| FlowKey::udp(([198, 18, 0, 1], *port).into(), dst).unwrap()).collect();
            let remedies = remedies(&scaling, &flows, queues);
            for remedy in &remedies[1..] {
                prop_assert!(remedy.imbalance < remedies[0].imbalance);
                prop_assert_eq!(remedy.flows_per_queue.iter().sum::<u64>(), flows.len() as u64);
            }
        }
    }
}
