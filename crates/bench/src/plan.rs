//! What a ladder run will do: complete, valid and printable.

use engine::{Departures, Limit, ReceiverPlan, RxEngine, SenderPlan, StatisticsPlan, TxEngine, TxWorkerPlan};
use lab::{LabError, LabPlan, Side};
use measure::{Endpoint, Skipped};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt, net::SocketAddr};
use wire::{FrameSpec, MacAddr, Rate};

use crate::{
    cpus::CpuPlan,
    peers::PeerPair,
    recorder::Row,
    spec::{RxSpec, TxSpec},
};

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
    /// What a sweep sets, by name; empty outside of sweeps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
    /// Trials of each pair; pairs take turns, so that drift of the machine does not look like a difference.
    pub trials: u32,
    /// Nanoseconds a trial.
    pub duration_ns: u64,
    /// Packets a trial, all threads together; `None` sends until the time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Nanoseconds of traffic through the same lab before a trial, of which nothing is counted.
    #[serde(default)]
    pub omit_ns: u64,
    /// The rate as asked.
    pub rate: Rate,
    /// The same in packets per second, all threads together; `None` is the maximum.
    pub rate_pps: Option<f64>,
    /// The pattern of departures.
    pub departures: Departures,
    /// Mean frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// Mean UDP payload.
    pub payload_bytes: u32,
    /// Whether every payload has room for a stream tag; without, all threads are one stream.
    pub tagged: bool,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Sending threads.
    pub tx_threads: usize,
    /// Receiving threads.
    pub rx_threads: usize,
    /// Flows in all.
    pub flows: usize,
    /// Packets a sending call, at most.
    pub tx_batch_size: usize,
    /// Packets a receiving call, at most.
    pub rx_batch_size: usize,
    /// Receivers spin instead of sleeping.
    pub spin: bool,
    /// Nanoseconds that each packet keeps its reader busy, in place of an application.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub work_ns: u32,
    /// Where workers run.
    pub cpus: CpuPlan,
    /// The lab; offloads are set for each pair as its engines need.
    pub lab: LabPlan,
    /// Settings of the receiving interface, where it is a real one, in the words of `linerate nic apply`; put back
    /// afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_settings: Vec<String>,
    /// Where the journal of those settings goes.
    #[serde(skip)]
    pub state: std::path::PathBuf,
    /// The packets; addresses and ports are filled in for each trial.
    pub frames: FrameSpec,
    /// Nanoseconds between recorded intervals.
    pub interval_ns: u64,
    /// Seed of all that is random.
    pub seed: u64,
    /// Whether CPUs are looked at, to see where receiving takes its time.
    pub profile: bool,
    /// What receivers measure besides their counters; `None` is nothing.
    #[serde(default)]
    pub statistics: Option<StatisticsPlan>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One row of the ladder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The sender.
    pub tx: TxSpec,
    /// The receiver.
    pub rx: RxSpec,
}

/// What a trial needs to know of a lab's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabEnd {
    /// Its interface.
    pub interface: String,
    /// The interface's MAC address.
    pub mac: MacAddr,
    /// Its addresses, with the receivers' port on the receiving end.
    pub addresses: Vec<SocketAddr>,
}

/// Flows of one sending worker, at least one each.
pub fn share_of_flows(flows: usize, workers: usize, worker: usize) -> usize {
    (flows / workers + usize::from(worker < flows % workers)).max(1)
}

/// The UDP port of the lab's receivers.
pub(crate) const LAB_PORT: u16 = 4321;

impl Pair {
    /// Whether it moves streams; its packets are messages then.
    pub fn is_stream(&self) -> bool {
        matches!(self.tx.0, TxEngine::Tcp(_))
    }

    /// Whether the receiver takes a message of many packets for one, where the interface is to cut it (TSO): a veth does
    /// not, and a packet socket sees what passes.
    pub fn takes_messages_for_packets(&self) -> bool {
        matches!(&self.tx.0, TxEngine::Udp(udp) if udp.gso) && matches!(self.rx.0, RxEngine::Packet(_))
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.tx, self.rx)
    }
}

impl BenchPlan {
    /// Every sender against every receiver that can receive from it.
    pub fn pair_up(tx: &[TxSpec], rx: &[RxSpec]) -> Vec<Pair> {
        let all = tx.iter().flat_map(|tx| rx.iter().map(|rx| Pair { tx: tx.clone(), rx: rx.clone() }));
        all.filter(|pair| pair.is_stream() == matches!(pair.rx.0, RxEngine::Tcp(_))).collect()
    }

    /// Seconds that one trial of each pair takes, without making labs and draining.
    pub fn seconds(&self) -> f64 {
        (self.duration_ns + self.omit_ns) as f64 / 1e9 * (self.pairs.len() + self.peers.len()) as f64
    }

    /// A row of the table: pairs first, then peers.
    pub(crate) fn row(&self, number: usize) -> Row<'_> {
        match self.pairs.get(number) {
            Some(pair) => Row::Ours(pair),
            None => Row::Peer(&self.peers[number - self.pairs.len()]),
        }
    }

    /// What a sweep sets, in words: `threads=2, mtu=9000`; empty outside of sweeps.
    pub(crate) fn parameters_in_words(&self) -> String {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let words = self.parameters.iter().map(|(name, value)| format!("{name}={}", word(value)));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The lab for a pair, as its engines need it.
    pub fn lab_for(&self, pair: &Pair) -> LabPlan {
        if self.lab.interfaces.is_some() {
            return self.lab.clone();
        }
        let joins = matches!(&pair.rx.0, RxEngine::Udp(udp) if udp.gro);
        // Frames of XDP find no ring at a veth that has neither NAPI (on with GRO) nor a program; plain datagrams
        // are not joined by it.
        let needs_rings = matches!(pair.tx.0, TxEngine::Xdp(_)) && !matches!(pair.rx.0, RxEngine::Xdp(_));
        let per_queue = matches!(pair.tx.0, TxEngine::Xsk(_)) || matches!(pair.rx.0, RxEngine::Xsk(_));
        LabPlan {
            gro: self.lab.gro || joins || needs_rings,
            queues: if per_queue { self.tx_threads.max(self.rx_threads) as u32 } else { self.lab.queues },
            ..self.lab.clone()
        }
    }

    /// The same plan with the receiving side's queues as they turned out to be.
    pub(crate) fn with_queues_of(&self, rx: &Side) -> Result<Self, LabError> {
        let mut plan = self.clone();
        if plan.lab.interfaces.is_some() {
            plan.lab.queues = rx.rx_queues()?;
        }
        Ok(plan)
    }

    /// Receiving workers of a pair: AF_XDP needs one a queue.
    fn rx_workers(&self, pair: &Pair) -> usize {
        match pair.rx.0 {
            RxEngine::Xsk(_) => self.lab_for(pair).queues as usize,
            RxEngine::Xdp(_) => 1,
            _ => self.rx_threads,
        }
    }

    /// The sender of a pair's trial, from the lab's sending to its receiving addresses.
    pub fn sender(&self, pair: &Pair, from: &LabEnd, to: &LabEnd) -> SenderPlan {
        let workers = (0..self.tx_threads)
            .map(|worker| TxWorkerPlan {
                target: to.addresses[worker % to.addresses.len()],
                local: from.addresses[worker % from.addresses.len()],
                flows: share_of_flows(self.flows, self.tx_threads, worker),
                stream: if self.tagged { worker as u16 + 1 } else { 0 },
            })
            .collect();
        SenderPlan {
            engine: pair.tx.0.clone(),
            workers,
            interface: pair.tx.0.makes_frames().then(|| from.interface.clone()),
            frames: FrameSpec { src_mac: from.mac, dst_mac: to.mac, ..self.frames.clone() },
            rate_pps: self.rate_pps,
            departures: self.departures,
            limit: Limit { count: self.count, duration_ns: Some(self.duration_ns) },
            batch_size: self.tx_batch_size,
            seed: self.seed,
        }
    }

    /// The receiver of a pair's trial.
    pub fn receiver(&self, pair: &Pair, interface: &str) -> ReceiverPlan {
        let any: std::net::IpAddr = if self.ipv6 {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        };
        ReceiverPlan {
            engine: pair.rx.0.clone(),
            local: (any, LAB_PORT).into(),
            interface: (!matches!(pair.rx.0, RxEngine::Udp(_))).then(|| interface.into()),
            workers: self.rx_workers(pair),
            spin: self.spin,
            batch_size: self.rx_batch_size,
            statistics: self.statistics,
            reflect: false,
            work_ns: self.work_ns,
        }
    }

    /// The sending side as the record names it.
    pub fn tx_endpoint(&self, pair: &Pair) -> Endpoint {
        pair.tx.endpoint(self.tx_threads, &self.cpus.tx, self.tx_batch_size, self.flows)
    }

    /// The receiving side as the record names it.
    pub fn rx_endpoint(&self, pair: &Pair) -> Endpoint {
        let mut options = BTreeMap::from([("threaded_napi".into(), json!(self.lab.threaded_napi))]);
        match &pair.rx.0 {
            RxEngine::Udp(udp) => {
                options.insert("batch_size".into(), json!(self.rx_batch_size));
                options.insert("gro".into(), json!(udp.gro));
                options.insert("reuse_port".into(), json!(udp.reuse_port));
                options.insert("receive_buffer_bytes".into(), json!(udp.receive_buffer_bytes));
                options.insert("spin".into(), json!(self.spin));
                if let Some(micros) = udp.busy_poll_micros {
                    options.insert("busy_poll_micros".into(), json!(micros));
                }
            }
            RxEngine::Packet(_) => {
                options.insert("ring_bytes".into(), json!(engine::PACKET_RING_BYTES));
                options.insert("spin".into(), json!(self.spin));
            }
            RxEngine::Xsk(xsk) => {
                options.insert("busy_poll".into(), json!(xsk.busy_poll));
                options.insert("shared_umem".into(), json!(xsk.shared_umem));
                options.insert("spin".into(), json!(self.spin));
            }
            RxEngine::Tcp(tcp) => {
                options.insert("truncate".into(), json!(tcp.truncate));
                options.insert("receive_buffer_bytes".into(), json!(tcp.receive_buffer_bytes));
            }
            RxEngine::Xdp(xdp) => {
                options.insert("generic".into(), json!(xdp.generic));
            }
        }
        if self.work_ns > 0 {
            options.insert("work_ns".into(), json!(self.work_ns));
        }
        Endpoint {
            engine: pair.rx.engine().into(),
            label: pair.rx.to_string(),
            threads: self.rx_workers(pair) as u32,
            cpus: self.cpus.rx.clone(),
            options,
        }
    }
}

#[cfg(test)]
impl BenchPlan {
    /// A plan of one pair, for tests of what is built on plans.
    pub(crate) fn sample() -> Self {
        Self {
            pairs: vec![Pair { tx: "udp".parse().unwrap(), rx: "udp".parse().unwrap() }],
            peers: Vec::new(),
            skipped: Vec::new(),
            parameters: BTreeMap::new(),
            trials: 1,
            duration_ns: 100_000_000,
            count: None,
            omit_ns: 0,
            rate: Rate::Max,
            rate_pps: None,
            departures: Departures::Constant,
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
            cpus: CpuPlan::default(),
            lab: LabPlan::default(),
            rx_settings: Vec::new(),
            state: std::path::PathBuf::new(),
            frames: FrameSpec::default(),
            interval_ns: 500_000_000,
            seed: 1,
            profile: false,
        }
    }
}
