//! From the growth of a machine's counters to the ledger's document.

use std::{cell::RefCell, collections::BTreeMap};

use ledger::{Drivers, Dropped, MachineGrowth, SocketGrowth, flow_words};
use measure::{CpuShare, LedgerLine};
use report::{DropReason, LedgerDocument, LossRate, PerPacket, UdpSocketUse, UnknownCounter, WatchCost};
use sys::{
    cycles::HardwareCounts,
    procfs::{Owner, socket_owners},
};

/// Most drop reasons, and most sockets, to show.
const TOP: usize = 10;

/// Processes by the sockets that they hold. Finding one scans all processes, so each socket is looked up once.
#[derive(Debug, Default)]
pub(super) struct Owners {
    known: RefCell<BTreeMap<u64, Option<Owner>>>,
}

impl Owners {
    /// Most sockets to remember.
    const MOST: usize = 1024;

    /// The known processes that hold these sockets.
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

/// What a document needs besides the counters.
pub(super) struct About<'a> {
    pub(super) interface: Option<&'a str>,
    pub(super) drivers: &'a Drivers,
    pub(super) owners: &'a Owners,
    /// CPU time of this process.
    pub(super) own_ns: u64,
}

/// The document without CPU activity.
pub(super) fn document(growth: &MachineGrowth, about: &About<'_>) -> LedgerDocument {
    let &About { interface, drivers, owners, own_ns } = about;
    let per_second = |packets: u64| if growth.seconds > 0.0 { packets as f64 / growth.seconds } else { 0.0 };
    let named = |line: LedgerLine| match interface {
        Some(name) => LedgerLine { remedy: line.remedy.map(|remedy| remedy.replace("DEV", name)), ..line },
        None => line,
    };
    let lines = growth.lines(drivers).into_iter();
    let lines: Vec<LossRate> =
        lines.map(|line| LossRate { pps: per_second(line.packets), line: named(line) }).collect();
    let lost = lines.iter().filter(|line| line.is_loss()).map(|line| line.line.packets).sum();
    let (rx, tx) = growth.frames();
    let drops = growth.drops.as_ref();
    let nanos = growth.seconds * 1e9;
    let ratio = |spent: u64| if nanos > 0.0 { spent as f64 / nanos } else { 0.0 };
    let (events, program_ns) = drops.map_or((0, 0), |drops| (drops.events, drops.cost_ns));
    let unknown = growth.unknown_counters(drivers).into_iter();
    LedgerDocument {
        interface: interface.map(str::to_owned),
        drivers: growth.drivers().into_iter().map(str::to_owned).collect(),
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
        unknown_counters: unknown
            .map(|(interface, counter, grown_by)| UnknownCounter {
                interface: interface.into(),
                counter: counter.into(),
                grown_by,
            })
            .collect(),
        cost: WatchCost {
            process_cpu_ratio: ratio(own_ns),
            program_cpu_ratio: ratio(program_ns),
            events,
            events_lost: drops.map_or(0, |drops| drops.lost),
            ns_per_event: (events > 0).then(|| program_ns as f64 / events as f64),
        },
        ..LedgerDocument::default()
    }
}

/// The document with how the CPUs spent their time, and their counters.
pub(super) fn with_cpus(
    document: LedgerDocument,
    cpus: Vec<CpuShare>,
    counted: Option<HardwareCounts>,
) -> LedgerDocument {
    let packets = document.rx_packets + document.tx_packets;
    let hardware = counted.and_then(|counted| per_packet(counted, packets));
    LedgerDocument { cpus, hardware, ..document }
}

fn per_packet(counted: HardwareCounts, packets: u64) -> Option<PerPacket> {
    let each = |amount: u64| amount as f64 / packets as f64;
    (packets > 0).then(|| PerPacket {
        cycles: each(counted.cycles),
        instructions: counted.instructions.map(each),
        cache_misses: counted.cache_misses.map(each),
    })
}

fn sockets(all: &[SocketGrowth], owners: &Owners) -> Vec<UdpSocketUse> {
    let top = &all[..all.len().min(TOP)];
    let inodes: Vec<u64> = top.iter().map(|socket| socket.inode).collect();
    let owners = owners.of(&inodes);
    let socket = |socket: &SocketGrowth| {
        let owner = owners.get(&socket.inode);
        UdpSocketUse {
            port: socket.port,
            unread_bytes: socket.unread_bytes,
            dropped: socket.dropped,
            pid: owner.map(|owner| owner.pid),
            process: owner.map(|owner| owner.command.clone()),
        }
    };
    top.iter().map(socket).collect()
}

fn reasons(places: &[Dropped], owners: &Owners, per_second: impl Fn(u64) -> f64) -> Vec<DropReason> {
    let top = &places[..places.len().min(TOP)];
    let inode = |dropped: &Dropped| dropped.sample.as_ref().map_or(0, |sample| sample.inode);
    let inodes: Vec<u64> = top.iter().map(inode).filter(|inode| *inode != 0).collect();
    let owners = owners.of(&inodes);
    let reason = |dropped: &Dropped| {
        let owner = owners.get(&inode(dropped));
        let port = dropped.sample.as_ref().map(|sample| sample.port);
        DropReason {
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
    use super::*;

    #[test]
    fn the_process_of_a_socket_is_looked_up_once() {
        let owners = Owners::default();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let file = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&file);
        let found = owners.of(&[inode, 1]);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&inode]);
        assert_eq!(found[&inode].pid, std::process::id());
        drop(socket);
        assert_eq!(owners.of(&[inode, 1]), found, "it was cached");
    }
}
