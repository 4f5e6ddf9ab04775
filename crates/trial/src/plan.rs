//! The plan of one trial: complete, valid and printable.

use lab::{Interfaces, LabError, LabPlan, Side, Taken};
use measure::Endpoint;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};
use traffic::{
    Departures, Limit, ReceiverPlan, RxLayer, RxSpec, RxTraffic, RxWorkers, SenderPlan, StatisticsPlan,
    TxSpec, TxTraffic, TxWorkerPlan,
};
use wire::{FrameSpec, MacAddr};

use crate::{
    cpus::CpuPlan,
    endpoint::{rx_endpoint, tx_endpoint},
    record::TrialSettings,
};

/// A trial in the lab, whatever its engines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialPlan {
    /// Nanoseconds per trial.
    pub duration_ns: u64,
    /// Packets per trial, all threads together; `None` sends until the time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Nanoseconds of uncounted traffic through the same lab before a trial.
    #[serde(default)]
    pub omit_ns: u64,
    /// Packets per second, all threads together; `None` is the maximum.
    pub rate_pps: Option<f64>,
    /// The pattern of departures.
    pub departures: Departures,
    /// Mean frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// Mean UDP payload.
    pub payload_bytes: u32,
    /// Whether every payload has room for a stream tag; otherwise all threads are one stream.
    pub tagged: bool,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Sending threads.
    pub tx_threads: usize,
    /// Receiving threads.
    pub rx_threads: usize,
    /// Total flows.
    pub flows: usize,
    /// Packets per sending call, at most.
    pub tx_batch_size: usize,
    /// Packets per receiving call, at most.
    pub rx_batch_size: usize,
    /// Receivers spin instead of sleeping.
    pub spin: bool,
    /// Nanoseconds of work per packet in the reader, to imitate an application.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub work_ns: u32,
    /// The workers' CPUs.
    pub cpus: CpuPlan,
    /// Process the receiving side's packets on its own CPUs, by kernel threads (threaded NAPI) on these, if sender and
    /// receiver can have separate CPUs: the embedded pair models two machines. Without CPUs the scheduler places the
    /// threads. `None` processes them in the sender's system calls, unless the lab's plan says otherwise.
    #[serde(default)]
    pub separate_softirq: Option<Vec<u32>>,
    /// The lab; offloads are set for each pair as its engines need.
    pub lab: LabPlan,
    /// The packets; addresses and ports are filled in for each trial.
    pub frames: FrameSpec,
    /// Nanoseconds between recorded intervals.
    pub interval_ns: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether CPUs are sampled, for a profile of receiving.
    pub profile: bool,
    /// Measurements of receivers in addition to their counters; `None` is nothing.
    #[serde(default)]
    pub statistics: Option<StatisticsPlan>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A sender and a receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The sender.
    pub tx: TxSpec,
    /// The receiver.
    pub rx: RxSpec,
}

/// A lab's end for a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabEnd {
    /// Its interface.
    pub interface: String,
    /// The interface's MAC address.
    pub mac: MacAddr,
    /// Its addresses, with the receivers' port on the receiving end.
    pub addresses: Vec<SocketAddr>,
}

/// An XDP program works only in softirq.
fn counts_in_softirq(pair: &Pair) -> bool {
    pair.rx.facts().reads == RxLayer::XdpProgram
}

/// Any address of the same version.
pub fn any_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Workers that send from `local` to receivers on other hosts, which number the streams: one target after another, the
/// flows divided among the workers.
pub fn workers_towards(
    targets: &[SocketAddr],
    local: IpAddr,
    flows: usize,
    workers: usize,
) -> Vec<TxWorkerPlan> {
    let worker = |worker| TxWorkerPlan {
        target: targets[worker % targets.len()],
        local: (local, 0).into(),
        flows: share_of_flows(flows, workers, worker),
        stream: 0,
    };
    (0..workers).map(worker).collect()
}

/// Flows of one sending worker, at least one each.
fn share_of_flows(flows: usize, workers: usize, worker: usize) -> usize {
    (flows / workers + usize::from(worker < flows % workers)).max(1)
}

/// The UDP port of the lab's receivers.
pub(crate) const LAB_PORT: u16 = 4321;

impl Pair {
    /// Whether it moves streams; then its packets are messages.
    pub fn is_stream(&self) -> bool {
        self.tx.facts().message_bytes.is_some()
    }

    /// Whether the receiver takes a message of many packets for one, if the interface is to cut it (TSO): a veth does
    /// not cut, and a packet socket sees what passes.
    pub fn takes_messages_for_packets(&self) -> bool {
        self.tx.facts().hands_over_many && self.rx.facts().reads == RxLayer::Copies
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.tx, self.rx)
    }
}

impl TrialPlan {
    /// The lab for a pair, as its engines need it.
    pub fn lab_for(&self, pair: &Pair) -> LabPlan {
        let (tx, rx) = (pair.tx.facts(), pair.rx.facts());
        if let Some(interfaces) = &self.lab.interfaces {
            let taken = Taken { tx: tx.takes_device, rx: rx.reads == RxLayer::Card };
            return LabPlan {
                interfaces: Some(Interfaces { taken, ..interfaces.clone() }),
                ..self.lab.clone()
            };
        }
        // Plain datagrams are not joined by the GRO that is on for its NAPI.
        let needs_rings = tx.needs_ring_at_peer && !rx.brings_ring;
        let per_queue = tx.queue_per_worker || rx.workers == RxWorkers::PerQueue;
        let separate = self.separate_softirq.as_ref().filter(|_| self.is_apart(pair));
        LabPlan {
            threaded_napi: self.lab.threaded_napi || separate.is_some(),
            napi_cpus: separate.unwrap_or(&self.lab.napi_cpus).clone(),
            gro: self.lab.gro || rx.joins_datagrams || needs_rings,
            queues: if per_queue { self.tx_threads.max(self.rx_threads) as u32 } else { self.lab.queues },
            ..self.lab.clone()
        }
    }

    /// The same plan with the actual number of receive queues.
    pub(crate) fn with_queues_of(&self, rx: &Side) -> Result<Self, LabError> {
        let mut plan = self.clone();
        if plan.lab.interfaces.is_some() {
            plan.lab.queues = rx.rx_queues()?;
        }
        Ok(plan)
    }

    /// Receiving workers of a pair.
    fn rx_workers(&self, pair: &Pair) -> usize {
        match pair.rx.facts().workers {
            RxWorkers::PerQueue => self.lab_for(pair).queues as usize,
            RxWorkers::One => 1,
            RxWorkers::Asked => self.rx_threads,
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
            engine: pair.tx.clone(),
            traffic: TxTraffic {
                workers,
                interface: pair.tx.facts().makes_frames.then(|| from.interface.clone()),
                frames: FrameSpec { src_mac: from.mac, dst_mac: to.mac, ..self.frames.clone() },
                rate_pps: self.rate_pps,
                departures: self.departures,
                limit: Limit { count: self.count, duration_ns: Some(self.duration_ns) },
                batch_size: self.tx_batch_size,
                seed: self.seed,
            },
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
            engine: pair.rx.clone(),
            traffic: RxTraffic {
                local: (any, LAB_PORT).into(),
                interface: pair.rx.facts().needs_interface.then(|| interface.into()),
                workers: self.rx_workers(pair),
                spin: self.spin,
                batch_size: self.rx_batch_size,
                statistics: self.statistics,
                reflect: false,
                work_ns: self.work_ns,
            },
        }
    }

    /// The sending side in the record.
    pub fn tx_endpoint(&self, pair: &Pair) -> Endpoint {
        tx_endpoint(&pair.tx, self.tx_threads, &self.cpus_for(pair).tx, self.tx_batch_size, self.flows)
    }

    /// The CPUs of a pair's workers. An XDP program counts in softirq of the CPUs that send into a veth, unless NAPI has
    /// threads of its own, and takes no CPU from the sender.
    pub fn cpus_for(&self, pair: &Pair) -> CpuPlan {
        let in_sender_s =
            counts_in_softirq(pair) && !self.lab_for(pair).threaded_napi && self.lab.interfaces.is_none();
        CpuPlan::fixed(self.cpus.sending(!in_sender_s).to_vec(), self.cpus.rx.clone())
    }

    /// Whether both sides of a pair have CPUs of their own, softirq included. A receiver that needs none in the sender's
    /// softirq takes none that a sending thread could have. NAPI's threads need GRO, which would merge a stream's segments.
    fn is_apart(&self, pair: &Pair) -> bool {
        let takes_from_sender = self.cpus.tx.len() < self.cpus.sending(false).len();
        self.cpus.is_apart() && !pair.is_stream() && !(counts_in_softirq(pair) && takes_from_sender)
    }

    /// The receiving side in the record.
    pub fn rx_endpoint(&self, pair: &Pair) -> Endpoint {
        let traffic = self.receiver(pair, "").traffic;
        let mut endpoint = rx_endpoint(&pair.rx, &traffic, &self.cpus.rx);
        let LabPlan { threaded_napi, napi_cpus, .. } = self.lab_for(pair);
        endpoint.options.insert("threaded_napi".into(), json!(threaded_napi));
        if threaded_napi {
            endpoint.options.insert("napi_cpus".into(), json!(napi_cpus));
        }
        endpoint
    }

    /// The settings of this plan for the record of a pair's trial.
    pub(crate) fn settings(&self, pair: &Pair, number: u32) -> TrialSettings {
        TrialSettings {
            trial: number,
            tx: self.tx_endpoint(pair),
            // A stream's largest frames, and its messages.
            frame_size_bytes: if pair.is_stream() { self.lab.mtu + 18 } else { self.frame_size_bytes },
            payload_bytes: pair.tx.facts().message_bytes.unwrap_or(self.payload_bytes),
            asked_pps: self.rate_pps,
        }
    }
}
