//! The apu4d4 document's sequence on a real multi-queue card: senders, receivers, interrupt moderation, indirection
//! table and ring change one after the other, as in the document.
//!
//! The receiving card stays in this namespace, so that its journal can restore it after a kill; the sending card moves to
//! a namespace of its own and returns when that ends. Every row is a trial like a lab's, with a ledger and a receipt. UDP
//! traffic from elsewhere to this host would be in its counters, too.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use measure::{CpuShare, Figure, Point, PublishedFigure, Trial, median};
use nic::{LentInterface, NicError, Sample, Session, SessionError, Setting, Steering, restore_lent};
use serde::Serialize;
use serde_json::json;
use sys::{
    NetlinkError,
    netns::NetNs,
    rtnetlink::{RouteSocket, flag},
};
use thiserror::Error;
use traffic::{Departures, Limit, ReceiverPlan, RxTraffic, SenderPlan, TxTraffic, TxWorkerPlan};
use trial::{
    CpuPlan, EngineEnds, EngineSetup, Location, Locations, TrialError, TrialRun, TrialSettings, WatchPlan,
    run_trial, rx_endpoint, tx_endpoint,
};
use wire::{FlowKey, FrameSpec};

/// The two ends of the cable, and the length of each row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Apu4d4Plan {
    /// The interface that receives; its settings are changed and restored.
    pub rx_interface: String,
    /// The interface that sends.
    pub tx_interface: String,
    /// Length of each row.
    pub row_ns: u64,
    /// Folder of the receiving card's journal.
    #[serde(skip)]
    pub state: std::path::PathBuf,
}

/// One row of the document.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Apu4d4Step {
    /// Name of the row.
    pub name: &'static str,
    /// Sending threads, each to its own address if there are several.
    pub senders: u8,
    /// Destination addresses.
    pub addresses: u8,
    /// Receiving threads on one socket.
    pub receivers: usize,
    /// Settings that change before the row.
    pub settings: &'static [&'static str],
    /// Name of the document's figure in `scenarios/published.toml`.
    pub published: &'static str,
}

impl Apu4d4Step {
    /// The document's figure, in kpps: least and most.
    pub fn published_kpps(&self) -> (f64, f64) {
        PublishedFigure::shipped(self.published).range()
    }
}

/// The initial state of the document's card: two queues, the lower half of the table to the first.
const BASE: [&str; 5] = [
    "channels.combined=2",
    "ring.rx=256",
    "coalesce.rx-usecs=3",
    "rss.fields.udp4=sd",
    "rss.table=weights:1,1",
];

/// The document's sequence.
pub const APU4D4: [Apu4d4Step; 7] = [
    Apu4d4Step {
        name: "1 sender, 1 receiver",
        senders: 1,
        addresses: 1,
        receivers: 1,
        settings: &[],
        published: "apu4d4.1x1",
    },
    Apu4d4Step {
        name: "2 senders, 1 receiver",
        senders: 2,
        addresses: 1,
        receivers: 1,
        settings: &[],
        published: "apu4d4.2x1",
    },
    Apu4d4Step {
        name: "the same, rx-usecs 0",
        senders: 2,
        addresses: 1,
        receivers: 1,
        settings: &["coalesce.rx-usecs=0"],
        published: "apu4d4.usecs-0",
    },
    Apu4d4Step {
        name: "2 senders to 2 addresses, 2 receivers",
        senders: 2,
        addresses: 2,
        receivers: 2,
        settings: &["coalesce.rx-usecs=3"],
        published: "apu4d4.2x2",
    },
    Apu4d4Step {
        name: "the same, table equal 2",
        senders: 2,
        addresses: 2,
        receivers: 2,
        settings: &["rss.table=equal:2"],
        published: "apu4d4.2x2-equal",
    },
    Apu4d4Step {
        name: "4 senders to 4 addresses, 2 receivers",
        senders: 4,
        addresses: 4,
        receivers: 2,
        settings: &[],
        published: "apu4d4.4x2",
    },
    Apu4d4Step {
        name: "the same, ring 4096",
        senders: 4,
        addresses: 4,
        receivers: 2,
        settings: &["ring.rx=4096"],
        published: "apu4d4.4x2-ring",
    },
];

/// The result of one row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Apu4d4Row {
    /// The row.
    pub step: Apu4d4Step,
    /// Packets per second that the senders handed to the kernel.
    pub sent_pps: f64,
    /// Packets per second that the receivers got.
    pub delivered_pps: f64,
    /// Packets sent and not received.
    pub lost: u64,
    /// Share of the packets on each receive queue, ascending.
    pub queue_shares: Vec<f64>,
    /// Interrupts per second of all receive queues together.
    pub interrupts_per_s: f64,
    /// CPU time of each CPU.
    pub cpus: Vec<CpuShare>,
    /// Share of a CPU's time that a sending thread spent in the kernel, including the softirqs of its calls.
    pub sender_system_ratio: f64,
    /// The same for a receiving thread.
    pub receiver_system_ratio: f64,
}

/// Why the sequence could not run.
#[derive(Debug, Error)]
pub enum Apu4d4Error {
    /// The card could not be read.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The card could not be set.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Interfaces, addresses or neighbours.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A row's trial.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The sending interface's namespace.
    #[error("cannot make a network namespace for the sending interface")]
    Namespace(#[source] std::io::Error),
    /// The receiving interface has addresses.
    #[error("{interface} has addresses: it is in use")]
    InUse {
        /// The interface's name.
        interface: String,
    },
    /// No hardware address.
    #[error("{interface} has no Ethernet address")]
    NoMac {
        /// The interface's name.
        interface: String,
    },
    /// No carrier.
    #[error("{interface} has no carrier: are the two interfaces wired to each other?")]
    NoCarrier {
        /// The interface's name.
        interface: String,
    },
}

const SENDER: Ipv4Addr = Ipv4Addr::new(192, 168, 6, 1);
const PORT: u16 = 4321;
/// The longest time for a link to come up.
const CARRIER: Duration = Duration::from_secs(15);
/// Batch and payload of udpreceiver and udpsender.
const RX_BATCH: usize = 512;
const TX_BATCH: usize = 1024;
const PAYLOAD_BYTES: u32 = 32;
/// Ethernet header, IPv4, UDP and FCS around the payload.
const FRAME_SIZE_BYTES: u32 = 14 + 20 + 8 + PAYLOAD_BYTES + 4;

/// Four addresses as in the document: its first table takes all of them to queue 0, both queues in turn takes them to both.
///
/// If the card's key allows no prediction, the document's own addresses.
fn receiver_addresses(steering: &Steering) -> [Ipv4Addr; 4] {
    let address = |last: u8| Ipv4Addr::new(192, 168, 6, last);
    let bucket = |last: u8| {
        let flow = FlowKey::udp((SENDER, 0).into(), (address(last), PORT).into())?;
        steering.predict(&flow).ok().filter(|found| found.queue == Some(0))?.bucket
    };
    let of_parity = |odd: usize| (2..=254).filter(move |last| bucket(*last).is_some_and(|at| at % 2 == odd));
    let (mut even, mut odd) = (of_parity(0), of_parity(1));
    let mut next = || Some([even.next()?, odd.next()?]);
    let pairs = next().zip(next());
    let last = pairs.map_or([2, 3, 4, 5], |([a, b], [c, d])| [a, b, c, d]);
    last.map(address)
}

/// Runs the sequence; `each` gets every row with its trial, and returns whether to go on. A row with a failed worker is the
/// last one.
///
/// # Errors
/// The cause of an early end; the card's settings are restored first.
pub fn run_apu4d4(
    plan: &Apu4d4Plan,
    mut each: impl FnMut(&Apu4d4Row, &Trial) -> bool,
) -> Result<(), Apu4d4Error> {
    // A card that was never up may have no table yet: the journal needs settings that work.
    restore_lent(&plan.state)?;
    let mut lent = LentInterface::bring_up(&plan.state, &plan.rx_interface)?;
    let mut session = Session::begin(&plan.rx_interface, &plan.state)?;
    let base: Result<Vec<Setting>, NicError> = BASE.iter().map(|text| text.parse()).collect();
    session.apply(&base?)?;
    let addresses = receiver_addresses(&Steering::read(session.card())?);
    let outside = wire_up(plan, addresses, &mut lent)?;
    let tx = Location::new(outside, &plan.tx_interface);
    let at = Locations { tx, rx: Location::here(&plan.rx_interface)? };
    for step in APU4D4 {
        let settings: Result<Vec<Setting>, NicError> =
            step.settings.iter().map(|text| text.parse()).collect();
        session.apply(&settings?)?;
        let sender = sender_plan(plan, step, addresses);
        let (row, run) = run_step(sender, step, &mut session, at.clone())?;
        let goes_on = each(&row, &run.trial);
        if let Some(error) = run.error {
            return Err(error.into());
        }
        if !goes_on {
            break;
        }
    }
    let left = session.undo()?.left;
    debug_assert!(left.is_empty(), "unrestored settings stay in the journal: {left:?}");
    Ok(())
}

/// Sets addresses and neighbours of both ends, with the sending one in a namespace of its own.
fn wire_up(
    plan: &Apu4d4Plan,
    addresses: [Ipv4Addr; 4],
    lent: &mut LentInterface,
) -> Result<Arc<NetNs>, Apu4d4Error> {
    let mut route = RouteSocket::open()?;
    let rx = route.link_by_name(&plan.rx_interface)?;
    let tx = route.link_by_name(&plan.tx_interface)?;
    let mac = |interface: &str, mac: Option<[u8; 6]>| {
        mac.ok_or_else(|| Apu4d4Error::NoMac { interface: interface.to_owned() })
    };
    let (rx_mac, tx_mac) = (mac(&rx.name, rx.mac)?, mac(&tx.name, tx.mac)?);
    for link in [&rx, &tx] {
        if route.addresses(link.index)?.iter().any(IpAddr::is_ipv4) {
            return Err(Apu4d4Error::InUse { interface: link.name.clone() });
        }
    }
    let outside = NetNs::create().map_err(Apu4d4Error::Namespace)?;
    route.move_to(tx.index, outside.as_fd())?;
    let mut there = outside.run(RouteSocket::open).map_err(Apu4d4Error::Namespace)??;
    let tx = there.link_by_name(&plan.tx_interface)?;
    there.add_address(tx.index, SENDER.into(), 24)?;
    there.change_flags(tx.index, flag::UP, flag::UP)?;
    for address in addresses {
        lent.add_address(address.into(), 24)?;
        there.add_neighbour(tx.index, address.into(), rx_mac)?;
    }
    route.add_neighbour(rx.index, SENDER.into(), tx_mac)?;
    let deadline = Instant::now() + CARRIER;
    let up = route.wait_until_up(rx.index, deadline)? && there.wait_until_up(tx.index, deadline)?;
    if up { Ok(Arc::new(outside)) } else { Err(Apu4d4Error::NoCarrier { interface: rx.name }) }
}

fn run_step(
    sender: SenderPlan,
    step: Apu4d4Step,
    session: &mut Session,
    at: Locations,
) -> Result<(Apu4d4Row, TrialRun), Apu4d4Error> {
    let receiver = receiver_plan(step);
    let threads = sender.traffic.workers.len();
    let duration_ns = sender.traffic.limit.duration_ns.unwrap_or(0);
    let watch = WatchPlan { duration_ns, interval_ns: None };
    let settings = TrialSettings {
        trial: 1,
        tx: tx_endpoint(&sender.engine, threads, &[], TX_BATCH, threads),
        frame_size_bytes: FRAME_SIZE_BYTES,
        payload_bytes: PAYLOAD_BYTES,
        asked_pps: None,
    };
    let rx = rx_endpoint(&receiver.engine, &receiver.traffic, &[]);
    let setup = EngineSetup { settings, rx, receiver, cpus: CpuPlan::default(), at };
    let ends = EngineEnds::prepare(setup, |_| sender)?;
    let before = Sample::take(session.card())?;
    let began = Instant::now();
    let mut run = run_trial(ends, watch, None, |_, _| true)?;
    let rates = Sample::take(session.card())?.since(&before);
    // The samples were taken before the counters were read and after the drain.
    let stretch = began.elapsed().as_secs_f64() / run.trial.duration_s.max(1e-9);
    let all: f64 = rates.queues.iter().map(|queue| queue.rx_pps).sum();
    let interrupts_per_s: f64 = rates.queues.iter().filter_map(|queue| queue.interrupts_per_s).sum();
    let trial = &mut run.trial;
    trial.parameters.insert("row".into(), json!(step.name));
    let row = Apu4d4Row {
        step,
        sent_pps: trial.sent_pps,
        delivered_pps: trial.delivered_pps,
        lost: trial.ledger.lost(),
        queue_shares: rates.queues.iter().map(|queue| queue.rx_pps / all.max(1.0)).collect(),
        interrupts_per_s: interrupts_per_s * stretch,
        cpus: trial.cpus.clone(),
        sender_system_ratio: of_a_cpu(trial.tx_cost.system_s, threads, trial.duration_s),
        receiver_system_ratio: of_a_cpu(trial.rx_cost.system_s, step.receivers, trial.duration_s),
    };
    Ok((row, run))
}

/// The CPU share of each of these threads.
fn of_a_cpu(cpu_s: f64, threads: usize, duration_s: f64) -> f64 {
    cpu_s / threads.max(1) as f64 / duration_s.max(1e-9)
}

/// The document's statements about interrupts and CPUs, next to the rows.
pub fn apu4d4_figures(rows: &[Apu4d4Row]) -> Vec<Figure> {
    let figure = |id: &str, row: &str, of: fn(&Apu4d4Row) -> f64, what: &str| {
        let row = rows.iter().find(|measured| measured.step.published == row);
        Figure {
            measured: row.map(of),
            measured_at: row.map_or_else(String::new, |row| format!("{}{what}", row.step.name)),
            ..Figure::of(PublishedFigure::shipped(id))
        }
    };
    let softirq = |row: &Apu4d4Row| row.cpus.iter().map(|cpu| cpu.softirq_ratio).sum::<f64>() * 100.0;
    vec![
        figure("apu4d4.interrupts", "apu4d4.2x1", Apu4d4Row::interrupts_per_packet, ""),
        figure("apu4d4.interrupts-usecs-0", "apu4d4.usecs-0", Apu4d4Row::interrupts_per_packet, ""),
        figure("apu4d4.sender-system", "apu4d4.1x1", |row| row.sender_system_ratio * 100.0, ""),
        figure("apu4d4.receiver-system", "apu4d4.1x1", |row| row.receiver_system_ratio * 100.0, ""),
        figure("apu4d4.receiver-softirq", "apu4d4.1x1", softirq, ", all CPUs of both ends"),
    ]
}

fn receiver_plan(step: Apu4d4Step) -> ReceiverPlan {
    ReceiverPlan {
        engine: "udp".parse().expect("an engine of the registry"),
        traffic: RxTraffic {
            local: SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
            interface: None,
            workers: step.receivers,
            spin: false,
            batch_size: RX_BATCH,
            statistics: None,
            reflect: false,
            work_ns: 0,
        },
    }
}

fn sender_plan(plan: &Apu4d4Plan, step: Apu4d4Step, addresses: [Ipv4Addr; 4]) -> SenderPlan {
    let worker = |number: u8| TxWorkerPlan {
        target: (addresses[usize::from(number % step.addresses)], PORT).into(),
        local: (SENDER, 0).into(),
        flows: 1,
        stream: number.into(),
    };
    SenderPlan {
        engine: "udp".parse().expect("an engine of the registry"),
        traffic: TxTraffic {
            workers: (0..step.senders).map(worker).collect(),
            interface: None,
            frames: FrameSpec {
                sizes: wire::Sizes::Payload(wire::SizeMix::Values(wire::Values::Fixed(PAYLOAD_BYTES))),
                ..FrameSpec::default()
            },
            rate_pps: None,
            departures: Departures::Constant,
            limit: Limit { count: None, duration_ns: Some(plan.row_ns) },
            batch_size: TX_BATCH,
            seed: 1,
        },
    }
}

impl Apu4d4Row {
    /// The row as a point of a run.
    pub fn point(&self) -> Point {
        let busy = |part: fn(&CpuShare) -> f64| -> f64 { self.cpus.iter().map(part).sum() };
        let values = [
            ("row", json!(self.step.name)),
            ("senders", json!(self.step.senders)),
            ("addresses", json!(self.step.addresses)),
            ("receivers", json!(self.step.receivers)),
            ("set", json!(self.step.settings.join(" "))),
            ("published_least_pps", json!(self.step.published_kpps().0 * 1000.0)),
            ("published_most_pps", json!(self.step.published_kpps().1 * 1000.0)),
            ("sent_pps", json!(self.sent_pps)),
            ("delivered_pps", json!(self.delivered_pps)),
            ("lost_packets", json!(self.lost)),
            ("queue_share_ratios", json!(self.queue_shares)),
            ("interrupts_per_s", json!(self.interrupts_per_s)),
            ("interrupts_per_packet", json!(self.interrupts_per_packet())),
            ("user_cpus", json!(busy(|cpu| cpu.user_ratio))),
            ("system_cpus", json!(busy(|cpu| cpu.system_ratio))),
            ("softirq_cpus", json!(busy(|cpu| cpu.softirq_ratio))),
            ("irq_cpus", json!(busy(|cpu| cpu.irq_ratio))),
            ("sender_system_ratio", json!(self.sender_system_ratio)),
            ("receiver_system_ratio", json!(self.receiver_system_ratio)),
        ];
        Point { values: values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }

    /// Receive interrupts for each packet that the receivers got.
    pub fn interrupts_per_packet(&self) -> f64 {
        self.interrupts_per_s / self.delivered_pps.max(1.0)
    }

    /// This row's rate relative to another's, and the same ratio of the document.
    pub fn ratio_to(&self, first: &Self) -> (f64, f64) {
        let published = |row: &Self| {
            let (least, most) = row.step.published_kpps();
            median(&[least, most]).unwrap_or(least)
        };
        (self.delivered_pps / first.delivered_pps.max(1.0), published(self) / published(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_the_sequence_can_be_read() {
        for text in APU4D4.iter().flat_map(|step| step.settings).chain(&BASE) {
            assert!(text.parse::<Setting>().is_ok(), "{text}");
        }
    }

    #[test]
    fn senders_share_the_addresses() {
        let plan = Apu4d4Plan {
            rx_interface: "a".into(),
            tx_interface: "b".into(),
            row_ns: 1,
            state: std::path::PathBuf::new(),
        };
        let targets = |step: Apu4d4Step| -> Vec<String> {
            let addresses = [2, 3, 4, 5].map(|last| Ipv4Addr::new(192, 168, 6, last));
            sender_plan(&plan, step, addresses)
                .traffic
                .workers
                .iter()
                .map(|worker| worker.target.to_string())
                .collect()
        };
        assert_eq!(targets(APU4D4[1]), ["192.168.6.2:4321", "192.168.6.2:4321"]);
        assert_eq!(targets(APU4D4[3]), ["192.168.6.2:4321", "192.168.6.3:4321"]);
    }

    #[test]
    fn missing_interfaces_are_named() {
        let state = tempfile::tempdir().unwrap();
        let plan = Apu4d4Plan {
            rx_interface: "nope0".into(),
            tx_interface: "nope1".into(),
            row_ns: 1,
            state: state.path().into(),
        };
        let error = run_apu4d4(&plan, |_, _| true).unwrap_err().to_string();
        assert_eq!(error, "cannot read interface nope0");
    }
}
