//! What a ledger of a live machine says: the document that JSON shows, and views are drawn from.

use std::{cell::RefCell, collections::BTreeMap};

use ledger::{Drivers, Dropped, MachineGrowth, Place, SocketGrowth, flow_words};
use measure::{CpuShare, InterruptAccounting, Unit};
use serde::Serialize;
use serde_json::json;
use sys::{
    cycles::HardwareCounts,
    procfs::{Owner, socket_owners},
};

/// The schema's name.
const SCHEMA: &str = "linerate.ledger/1";
/// The most drop reasons, and the most sockets, that are shown.
const TOP: usize = 10;

/// Everything about one stretch of time.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Document {
    pub(super) schema: &'static str,
    /// `None`: all interfaces but loopback.
    pub(super) interface: Option<String>,
    pub(super) drivers: Vec<String>,
    /// The flows that were asked for.
    pub(super) flow: Option<String>,
    pub(super) duration_s: f64,
    pub(super) rx_packets: u64,
    pub(super) tx_packets: u64,
    pub(super) rx_pps: f64,
    pub(super) tx_pps: f64,
    pub(super) lost_packets: u64,
    pub(super) lost_pps: f64,
    pub(super) lines: Vec<Line>,
    /// The most frequent reasons the kernel gave; `None` when it was not asked.
    pub(super) reasons: Option<Vec<Reason>>,
    /// UDP sockets of the namespace that hold datagrams unread or dropped some.
    pub(super) sockets: Vec<UdpSocket>,
    /// Whether the kernel tells what AF_XDP sockets lose; those losses are lines.
    pub(super) sees_af_xdp: bool,
    pub(super) unknown_counters: Vec<Unknown>,
    /// How each CPU spent the time.
    pub(super) cpus: Vec<CpuShare>,
    pub(super) interrupt_accounting: InterruptAccounting,
    /// What all CPUs did, by packets received and sent; `None` where nothing was counted or nothing moved.
    pub(super) hardware: Option<PerPacket>,
    /// Why nothing was counted, in words.
    pub(super) no_hardware_counters: Option<String>,
    pub(super) cost: Cost,
}

#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Line {
    pub(super) id: Option<&'static str>,
    pub(super) place: String,
    pub(super) packets: u64,
    pub(super) pps: f64,
    /// What the counter itself counts; `packets` is already in packets.
    pub(super) unit: Unit,
    pub(super) source: String,
    pub(super) meaning: Option<&'static str>,
    pub(super) remedy: Option<String>,
    /// Whether these packets did not arrive: a copy or a repetition is no loss.
    pub(super) is_loss: bool,
}

#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Reason {
    pub(super) reason: String,
    pub(super) function: String,
    pub(super) buffers: u64,
    pub(super) packets: u64,
    pub(super) pps: f64,
    /// One of the packets.
    pub(super) flow: Option<String>,
    /// The socket's local port.
    pub(super) port: Option<u16>,
    pub(super) pid: Option<u32>,
    pub(super) process: Option<String>,
}

/// A UDP socket and its application.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct UdpSocket {
    pub(super) port: u16,
    /// Memory that datagrams hold that the application has not read yet.
    pub(super) unread_bytes: u64,
    /// Buffers that it had no room for, or refused.
    pub(super) dropped: u64,
    pub(super) pid: Option<u32>,
    pub(super) process: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Unknown {
    pub(super) interface: String,
    pub(super) counter: String,
    pub(super) grown_by: u64,
}

/// What the CPUs did for each packet, everything else that they did included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PerPacket {
    pub(super) cycles: f64,
    pub(super) instructions: Option<f64>,
    pub(super) cache_misses: Option<f64>,
}

impl PerPacket {
    fn of(counted: HardwareCounts, packets: u64) -> Option<Self> {
        let each = |amount: u64| amount as f64 / packets as f64;
        (packets > 0).then(|| Self {
            cycles: each(counted.cycles),
            instructions: counted.instructions.map(each),
            cache_misses: counted.cache_misses.map(each),
        })
    }
}

/// What watching costs.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Cost {
    /// This process, as a share of one CPU.
    pub(super) process_cpu_ratio: f64,
    /// The program in the kernel, as a share of one CPU.
    pub(super) program_cpu_ratio: f64,
    pub(super) events: u64,
    /// Drops that are in no reason's count.
    pub(super) events_lost: u64,
    pub(super) ns_per_event: Option<f64>,
}

/// Processes by the sockets that they hold. Finding one means looking through all: each socket's is looked for once.
#[derive(Debug, Default)]
pub(super) struct Owners {
    known: RefCell<BTreeMap<u64, Option<Owner>>>,
}

impl Owners {
    /// Sockets that are remembered.
    const MOST: usize = 1024;

    /// The processes that hold these sockets, where they are known.
    fn of(&self, inodes: &[u64]) -> BTreeMap<u64, Owner> {
        let mut known = self.known.borrow_mut();
        if known.len() > Self::MOST {
            known.clear();
        }
        let unknown: Vec<u64> = inodes.iter().copied().filter(|inode| !known.contains_key(inode)).collect();
        let mut found = socket_owners(&unknown);
        known.extend(unknown.into_iter().map(|inode| (inode, found.remove(&inode))));
        inodes.iter().filter_map(|inode| Some((*inode, known.get(inode)?.clone()?))).collect()
    }
}

/// What a document needs beside the counters.
pub(super) struct About<'a> {
    pub(super) interface: Option<&'a str>,
    pub(super) drivers: &'a Drivers,
    pub(super) owners: &'a Owners,
    /// CPU time of this process.
    pub(super) own_ns: u64,
}

impl Document {
    pub(super) fn of(growth: &MachineGrowth, about: &About<'_>) -> Self {
        let &About { interface, drivers, owners, own_ns } = about;
        let per_second =
            |packets: u64| if growth.seconds > 0.0 { packets as f64 / growth.seconds } else { 0.0 };
        let lines: Vec<Line> = growth
            .lines(drivers)
            .into_iter()
            .map(|line| {
                let place = Place::named(&line.place);
                Line {
                    id: place.map(Place::id),
                    pps: per_second(line.packets),
                    meaning: place.map(Place::meaning),
                    remedy: line.remedy.map(|remedy| match interface {
                        Some(name) => remedy.replace("DEV", name),
                        None => remedy,
                    }),
                    is_loss: !matches!(place, Some(Place::Tcp | Place::PacketRing | Place::OtherHost)),
                    place: line.place,
                    packets: line.packets,
                    unit: line.unit,
                    source: line.source,
                }
            })
            .collect();
        let lost = lines.iter().filter(|line| line.is_loss).map(|line| line.packets).sum();
        let (rx, tx) = growth.frames();
        let drops = growth.drops.as_ref();
        let nanos = growth.seconds * 1e9;
        let ratio = |spent: u64| if nanos > 0.0 { spent as f64 / nanos } else { 0.0 };
        let (events, program_ns) = drops.map_or((0, 0), |drops| (drops.events, drops.cost_ns));
        Self {
            schema: SCHEMA,
            interface: interface.map(str::to_owned),
            drivers: growth.drivers().into_iter().map(str::to_owned).collect(),
            flow: None,
            duration_s: growth.seconds,
            rx_packets: rx,
            tx_packets: tx,
            rx_pps: per_second(rx),
            tx_pps: per_second(tx),
            lost_packets: lost,
            lost_pps: per_second(lost),
            lines,
            reasons: drops.map(|drops| reasons(&drops.places, owners, per_second)),
            sockets: sockets(&growth.sockets, owners),
            sees_af_xdp: growth.sees_xdp_sockets(),
            unknown_counters: growth
                .unknown_counters(drivers)
                .into_iter()
                .map(|(interface, counter, grown_by)| Unknown {
                    interface: interface.into(),
                    counter: counter.into(),
                    grown_by,
                })
                .collect(),
            cpus: Vec::new(),
            interrupt_accounting: InterruptAccounting::Unknown,
            hardware: None,
            no_hardware_counters: None,
            cost: Cost {
                process_cpu_ratio: ratio(own_ns),
                program_cpu_ratio: ratio(program_ns),
                events,
                events_lost: drops.map_or(0, |drops| drops.lost),
                ns_per_event: (events > 0).then(|| program_ns as f64 / events as f64),
            },
        }
    }

    /// With how the CPUs spent the time, and what they counted.
    pub(super) fn with_cpus(self, cpus: Vec<CpuShare>, counted: Option<HardwareCounts>) -> Self {
        let hardware = counted.and_then(|counted| PerPacket::of(counted, self.rx_packets + self.tx_packets));
        Self { cpus, hardware, ..self }
    }

    /// One line of a stream; `kind` says whether it is of an interval or of the whole time.
    pub(super) fn to_line(&self, kind: &str) -> String {
        json!({ kind: self }).to_string()
    }

    /// As a person reads JSON.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("the document is JSON")
    }
}

fn sockets(all: &[SocketGrowth], owners: &Owners) -> Vec<UdpSocket> {
    let top = &all[..all.len().min(TOP)];
    let inodes: Vec<u64> = top.iter().map(|socket| socket.inode).collect();
    let owners = owners.of(&inodes);
    let socket = |socket: &SocketGrowth| {
        let owner = owners.get(&socket.inode);
        UdpSocket {
            port: socket.port,
            unread_bytes: socket.unread_bytes,
            dropped: socket.dropped,
            pid: owner.map(|owner| owner.pid),
            process: owner.map(|owner| owner.command.clone()),
        }
    };
    top.iter().map(socket).collect()
}

fn reasons(places: &[Dropped], owners: &Owners, per_second: impl Fn(u64) -> f64) -> Vec<Reason> {
    let top = &places[..places.len().min(TOP)];
    let inode = |dropped: &Dropped| dropped.sample.as_ref().map_or(0, |sample| sample.inode);
    let inodes: Vec<u64> = top.iter().map(inode).filter(|inode| *inode != 0).collect();
    let owners = owners.of(&inodes);
    let reason = |dropped: &Dropped| {
        let owner = owners.get(&inode(dropped));
        let port = dropped.sample.as_ref().map(|sample| sample.port);
        Reason {
            reason: dropped.reason.clone(),
            function: dropped.function.clone(),
            buffers: dropped.buffers,
            packets: dropped.packets,
            pps: per_second(dropped.packets),
            flow: dropped.sample.as_ref().and_then(flow_words),
            port: port.filter(|port| *port != 0),
            pid: owner.map(|owner| owner.pid),
            process: owner.map(|owner| owner.command.clone()),
        }
    };
    top.iter().map(reason).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The schema of what `--json` prints; a line of `--json-stream` holds one such document.
    fn generated() -> Value {
        let mut schema = schemars::schema_for!(Document).to_value();
        schema["$id"] = json!("https://linerate.invalid/schema/linerate.ledger.1.schema.json");
        schema["title"] = json!(SCHEMA);
        schema["properties"]["schema"]["const"] = json!(SCHEMA);
        schema
    }

    #[test]
    fn a_socket_s_process_is_looked_for_once() {
        let owners = Owners::default();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let file = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&file);
        let found = owners.of(&[inode, 1]);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&inode]);
        assert_eq!(found[&inode].pid, std::process::id());
        drop(socket);
        assert_eq!(owners.of(&[inode, 1]), found, "it is remembered");
    }

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/linerate.ledger.1.schema.json");
        let text = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
        if std::env::var_os("LINERATE_BLESS").is_some() {
            std::fs::write(file, &text).unwrap();
        }
        assert!(std::fs::read_to_string(file).unwrap() == text, "make bless rewrites it");
    }
}
