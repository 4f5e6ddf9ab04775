//! The plan of a ladder run: complete, valid and printable.

use std::collections::BTreeMap;

use measure::Skipped;
use search::Goal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use traffic::{RxLayer, RxSpec, TxSpec};
use trial::{Pair, PeerPair, TrialPlan};
use wire::Rate;

use crate::{row::Row, scale_plan::ScalePlan};

/// A ladder in the lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchPlan {
    /// Sender and receiver of each pair, in the order of the table.
    pub pairs: Vec<Pair>,
    /// Other generators and their receivers, after ours in the table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerPair>,
    /// Engines left out, and why.
    pub skipped: Vec<Skipped>,
    /// Parameters of a sweep by name; empty outside of sweeps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
    /// Trials of each pair; pairs take turns, so that drift of the machine does not look like a difference.
    pub trials: u32,
    /// The rate as given.
    pub rate: Rate,
    /// Settings of a borrowed sending interface, in the syntax of `linerate nic apply`; restored afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tx_settings: Vec<String>,
    /// Settings of a borrowed receiving interface, in the syntax of `linerate nic apply`; restored
    /// afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_settings: Vec<String>,
    /// Folder of the journal of those settings.
    #[serde(skip)]
    pub state: std::path::PathBuf,
    /// A short search for each receiver's highest rate without loss, after the ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossless: Option<Goal>,
    /// The best sender towards each receiver with more and more threads, after the ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScalePlan>,
    /// The plan of each trial.
    #[serde(flatten)]
    pub trial: TrialPlan,
}

impl BenchPlan {
    /// Every sender against every receiver that can receive from it.
    pub fn pair_up(tx: &[TxSpec], rx: &[RxSpec]) -> Vec<Pair> {
        let all = tx.iter().flat_map(|tx| rx.iter().map(|rx| Pair { tx: tx.clone(), rx: rx.clone() }));
        all.filter(|pair| pair.is_stream() == (pair.rx.facts().reads == RxLayer::Stream)).collect()
    }

    /// Seconds of one trial of each pair, without making labs and draining.
    pub fn seconds(&self) -> f64 {
        let TrialPlan { duration_ns, omit_ns, .. } = self.trial;
        (duration_ns + omit_ns) as f64 / 1e9 * (self.pairs.len() + self.peers.len()) as f64
    }

    /// A row of the table: pairs first, then peers.
    pub(crate) fn row(&self, number: usize) -> Row<'_> {
        match self.pairs.get(number) {
            Some(pair) => Row::Ours(pair),
            None => Row::Peer(&self.peers[number - self.pairs.len()]),
        }
    }

    /// The ladder's label of a receiver of the scaling stage.
    pub(crate) fn in_ladder(&self, scaled: &str) -> String {
        let mut receivers = self.scale.iter().flat_map(|scale| &scale.receivers);
        let found = receivers.find(|receiver| receiver.rx.to_string() == scaled);
        found.map_or_else(|| scaled.to_owned(), |receiver| receiver.ladder.to_string())
    }

    /// The parameters of a sweep as text: `threads=2, mtu=9000`; empty outside of sweeps.
    pub(crate) fn parameters_in_words(&self) -> String {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let words = self.parameters.iter().map(|(name, value)| format!("{name}={}", word(value)));
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
impl BenchPlan {
    /// A plan of one pair, for tests of the code that uses plans.
    pub(crate) fn sample() -> Self {
        Self {
            pairs: vec![Pair { tx: "udp".parse().unwrap(), rx: "udp".parse().unwrap() }],
            peers: Vec::new(),
            skipped: Vec::new(),
            parameters: BTreeMap::new(),
            trials: 1,
            rate: Rate::Max,
            tx_settings: Vec::new(),
            rx_settings: Vec::new(),
            state: std::path::PathBuf::new(),
            lossless: None,
            scale: None,
            trial: TrialPlan {
                duration_ns: 100_000_000,
                count: None,
                omit_ns: 0,
                rate_pps: None,
                departures: traffic::Departures::Constant,
                frame_size_bytes: 64,
                payload_bytes: 18,
                tagged: true,
                ipv6: false,
                tx_threads: 1,
                rx_threads: 1,
                flows: 1,
                tx_batch_size: 1024,
                rx_batch_size: 512,
                spin: false,
                work_ns: 0,
                statistics: None,
                cpus: trial::CpuPlan::default(),
                lab: lab::LabPlan::default(),
                frames: wire::FrameSpec::default(),
                interval_ns: 500_000_000,
                seed: 1,
                separate_softirq: None,
                profile: false,
            },
        }
    }
}
