//! A live machine: repeated readings of counters, and the losses between two of them.

use std::collections::BTreeMap;

use bpf::{DropCount, DropKind};
use measure::{LedgerLine, Place};
use sys::{
    clock,
    procfs::{self, UdpSocketState},
    rtnetlink::RouteSocket,
    sock_diag::{self, XdpSocket},
};

use crate::{
    counters::{CounterError, HostCounters},
    drivers::{CounterKind, Drivers},
    drops::{DropReading, DropWatch, Dropped},
    evidence::{Evidence, Witness, grown},
    interface::interface_saw,
    rules::unplaced,
};

/// Counters of interfaces, protocols and CPUs at one moment.
#[derive(Debug, Clone)]
pub struct MachineReading {
    /// Monotonic time.
    pub at_ns: u64,
    interfaces: Vec<(String, HostCounters)>,
    protocols: HostCounters,
    /// Drops of each CPU's backlog, for the whole machine. Only without a chosen interface.
    backlog: Vec<(u32, u32)>,
    sockets: Vec<UdpSocketState>,
    /// `None` when the kernel does not report them.
    xdp_sockets: Option<Vec<XdpSocket>>,
    drops: Option<DropReading>,
}

/// A UDP socket whose application does not keep up: its unread memory now, and its drops in the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketGrowth {
    /// `socket:[<n>]` under `/proc/<pid>/fd`.
    pub inode: u64,
    /// Its local port.
    pub port: u16,
    /// Memory that unread datagrams hold.
    pub unread_bytes: u64,
    /// Buffers dropped because the buffer was full, the checksum wrong, or a filter rejected them.
    pub dropped: u64,
}

/// The difference of two readings.
#[derive(Debug, Clone)]
pub struct MachineGrowth {
    /// The time between.
    pub seconds: f64,
    /// The kernel's named drops; `None` when they were not watched.
    pub drops: Option<DropReading>,
    /// UDP sockets of the namespace that hold or dropped anything, the most drops first.
    pub sockets: Vec<SocketGrowth>,
    interfaces: Vec<(String, HostCounters)>,
    protocols: HostCounters,
    backlog_dropped: u64,
    xdp_sockets: Option<Vec<XdpSocket>>,
}

/// Dropped packets of chosen flows, by reason and place.
#[derive(Debug, Default)]
pub struct FlowTally {
    by_place: BTreeMap<(DropKind, u64), (u64, u64)>,
    /// Drops of chosen flows beyond the number of places kept.
    pub beyond: u64,
}

impl MachineReading {
    /// Reads the counters of these interfaces of the calling thread's namespace and of its protocols. Interfaces that no
    /// longer exist are left out. `everything` says that no interface was chosen: then the CPUs' backlogs are included.
    ///
    /// # Errors
    /// [`CounterError`]: `/proc` cannot be read.
    pub fn take(
        interfaces: &[String],
        everything: bool,
        drops: Option<DropReading>,
    ) -> Result<Self, CounterError> {
        let protocols = HostCounters::read(None)?;
        let read = |name: &String| Some((name.clone(), HostCounters::read(Some(name)).ok()?));
        let backlog = if everything { procfs::softnet_stat()? } else { Vec::new() };
        let mut xdp_sockets = sock_diag::xdp_sockets().ok().flatten();
        if let (Some(sockets), false) = (&mut xdp_sockets, everything) {
            let index =
                |name: &String| RouteSocket::open().ok()?.link_by_name(name).ok().map(|link| link.index);
            let chosen: Vec<u32> = interfaces.iter().filter_map(index).collect();
            sockets.retain(|socket| chosen.contains(&socket.interface));
        }
        Ok(Self {
            at_ns: clock::monotonic_ns(),
            interfaces: interfaces.iter().filter_map(read).collect(),
            protocols,
            backlog: backlog.into_iter().map(|cpu| (cpu.cpu, cpu.dropped)).collect(),
            sockets: procfs::udp_sockets()?,
            xdp_sockets,
            drops,
        })
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self, drivers: &Drivers) -> MachineGrowth {
        let interfaces = self.interfaces.iter().filter_map(|(name, now)| {
            let (_, before) = earlier.interfaces.iter().find(|(other, _)| other == name)?;
            Some((name.clone(), now.since(before, drivers)))
        });
        let dropped = self.backlog.iter().map(|(cpu, now)| {
            let before =
                earlier.backlog.iter().find(|(other, _)| other == cpu).map_or(0, |(_, before)| *before);
            grown(before.into(), (*now).into(), 32)
        });
        let drops = self.drops.as_ref().zip(earlier.drops.as_ref());
        MachineGrowth {
            seconds: self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9,
            drops: drops.map(|(now, before)| now.since(before)),
            interfaces: interfaces.collect(),
            protocols: self.protocols.since(&earlier.protocols, drivers),
            backlog_dropped: dropped.fold(0, u64::saturating_add),
            sockets: grown_sockets(&earlier.sockets, &self.sockets),
            xdp_sockets: self.xdp_sockets.as_ref().map(|sockets| {
                grown_xdp_sockets(earlier.xdp_sockets.as_deref().unwrap_or_default(), sockets)
            }),
        }
    }
}

fn grown_sockets(earlier: &[UdpSocketState], now: &[UdpSocketState]) -> Vec<SocketGrowth> {
    let growth = |socket: &UdpSocketState| {
        let before = earlier.iter().find(|other| other.inode == socket.inode);
        SocketGrowth {
            inode: socket.inode,
            port: socket.port,
            unread_bytes: socket.unread_bytes,
            dropped: socket.dropped.saturating_sub(before.map_or(0, |before| before.dropped)),
        }
    };
    let mut sockets: Vec<SocketGrowth> = now.iter().map(growth).collect();
    sockets.retain(|socket| socket.dropped > 0 || socket.unread_bytes > 0);
    sockets.sort_by_key(|socket| std::cmp::Reverse((socket.dropped, socket.unread_bytes)));
    sockets
}

/// Sockets opened since then count from 0.
fn grown_xdp_sockets(earlier: &[XdpSocket], now: &[XdpSocket]) -> Vec<XdpSocket> {
    let growth = |socket: &XdpSocket| {
        let before = earlier.iter().find(|other| other.inode == socket.inode);
        let before = before.map(|before| before.statistics).unwrap_or_default();
        XdpSocket { statistics: socket.statistics.since(&before), ..*socket }
    };
    now.iter().map(growth).collect()
}

impl MachineGrowth {
    /// Frames that the interfaces received and sent.
    pub fn frames(&self) -> (u64, u64) {
        let links = self.interfaces.iter().map(|(_, counters)| counters.link);
        links.fold((0, 0), |(rx, tx), link| (rx + link.rx_packets, tx + link.tx_packets))
    }

    /// The drivers of the interfaces, each once.
    pub fn drivers(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.interfaces.iter().map(|(_, counters)| counters.driver.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !name.is_empty());
        names
    }

    /// Where packets were lost, in the order a packet meets the places.
    pub fn lines(&self, drivers: &Drivers) -> Vec<LedgerLine> {
        let mut evidence = Evidence::default();
        let mut lines = Vec::new();
        for (name, counters) in &self.interfaces {
            interface_saw(name, counters, drivers, &mut evidence);
        }
        evidence.saw(Place::Backlog, Witness::Softnet, self.backlog_dropped, "softnet_stat dropped");
        protocols_saw(&self.protocols, self.drops.as_ref(), &mut evidence);
        self.xdp_sockets.iter().flatten().for_each(|socket| xdp_socket_saw(socket, &mut evidence));
        for drop in self.drops.iter().flat_map(|drops| &drops.places) {
            match drop.place() {
                Some(Place::XdpDrop) => {
                    const ABORTED: &[Place] = &[Place::XdpAborted];
                    evidence.saw_all(Place::XdpDrop, Witness::Reason, drop.packets, drop.source(), ABORTED);
                }
                // The socket names a redirect for which it had no room.
                Some(Place::XdpRedirect) => {
                    evidence.saw_all(
                        Place::XdpRedirect,
                        Witness::Reason,
                        drop.packets,
                        drop.source(),
                        OF_XDP_SOCKETS,
                    );
                }
                // A packet may have been many fragments; IP counts packets.
                Some(Place::Reassembly) if not_reassembled(&self.protocols) > 0 => {}
                // IPsec discards packets without a state and counts them; blackhole routes take the same path.
                Some(Place::NoRoute) if drop.function == "dst_discard_out" => {
                    let without_state = self.protocols.protocols.value("XfrmOutNoStates").unwrap_or(0);
                    let packets = drop.packets.saturating_sub(without_state);
                    evidence.saw(Place::NoRoute, Witness::Reason, packets, drop.source());
                }
                Some(Place::Qdisc) => {
                    let packets = drop.packets - self.not_running(drop.packets);
                    evidence.saw(Place::Qdisc, Witness::Reason, packets, drop.source());
                }
                Some(place) => evidence.saw(place, Witness::Reason, drop.packets, drop.source()),
                None => lines.push(unplaced(drop)),
            }
        }
        let mut all = evidence.lines();
        all.append(&mut lines);
        all
    }

    /// Of the packets that a queueing discipline dropped according to the kernel: those that an interface without carrier
    /// refused. They have the same reason; the interface counts them, not the queueing discipline.
    fn not_running(&self, packets: u64) -> u64 {
        let (mut queued, mut refused) = (0u64, 0u64);
        for (_, counters) in &self.interfaces {
            queued = queued.saturating_add(counters.qdisc_drops);
            refused = refused.saturating_add(counters.link.tx_dropped);
        }
        packets.saturating_sub(queued).min(refused)
    }

    /// Whether the kernel reports losses of AF_XDP sockets.
    pub fn sees_xdp_sockets(&self) -> bool {
        self.xdp_sockets.is_some()
    }

    /// Counters that moved and are not in the data file of drivers: interface, name and growth.
    pub fn unknown_counters<'g>(&'g self, drivers: &Drivers) -> Vec<(&'g str, &'g str, u64)> {
        let of = |(interface, counters): &'g (String, HostCounters)| {
            let unknown = |name: &str| drivers.kind(&counters.driver, name) == CounterKind::Unknown;
            let moved =
                counters.driver_counters.iter().filter(move |(name, value)| *value > 0 && unknown(name));
            moved.map(|(name, value)| (interface.as_str(), name.as_str(), *value))
        };
        self.interfaces.iter().flat_map(of).collect()
    }

    /// The same difference with only these drops: the known part for chosen flows.
    #[must_use]
    pub fn only(&self, places: Vec<Dropped>) -> Self {
        let reading = self.drops.clone().unwrap_or_default();
        Self {
            seconds: self.seconds,
            drops: Some(DropReading { places, ..reading }),
            interfaces: Vec::new(),
            protocols: HostCounters::default(),
            backlog_dropped: 0,
            sockets: Vec::new(),
            xdp_sockets: None,
        }
    }
}

impl FlowTally {
    /// The most places kept.
    const MOST: usize = 1024;

    /// Counts the drops that `is_wanted` accepts, by their frames' first 128 bytes. A frame that had no Ethernet
    /// header when it was dropped gets one with empty addresses.
    pub fn collect(&mut self, watch: &mut DropWatch, mut is_wanted: impl FnMut(&[u8]) -> bool) {
        const AT_ONCE: usize = 65_536;
        const ETHERNET: usize = 14;
        let mut made = [0; ETHERNET + 128];
        watch.headers(AT_ONCE, |headers| {
            let frame = if headers.has_mac {
                headers.bytes
            } else {
                made[12..ETHERNET].copy_from_slice(&headers.protocol.to_be_bytes());
                made[ETHERNET..][..headers.bytes.len()].copy_from_slice(headers.bytes);
                &made[..ETHERNET + headers.bytes.len()]
            };
            if !is_wanted(frame) {
                return;
            }
            let key = (headers.kind, headers.location);
            if self.by_place.len() >= Self::MOST && !self.by_place.contains_key(&key) {
                self.beyond += 1;
                return;
            }
            let (buffers, packets) = self.by_place.entry(key).or_default();
            *buffers += 1;
            *packets += headers.packets;
        });
    }

    /// The counts so far, with names.
    pub fn places(&self) -> Vec<Dropped> {
        let counts = self.by_place.iter().map(|((kind, location), (buffers, packets))| DropCount {
            kind: *kind,
            location: *location,
            namespace: 0,
            buffers: *buffers,
            packets: *packets,
            sample: None,
        });
        Dropped::all(counts)
    }
}

/// The places where an AF_XDP socket loses packets.
const OF_XDP_SOCKETS: &[Place] = &[Place::XskFillEmpty, Place::XskFrameSmall, Place::XskRingFull];

/// An AF_XDP socket: the kernel counts a packet that found no frame twice.
fn xdp_socket_saw(socket: &XdpSocket, evidence: &mut Evidence) {
    let counted = &socket.statistics;
    let without_frame = counted.rx_fill_ring_empty_descs.min(counted.rx_dropped);
    let mut saw = |place, packets, counter: &str| {
        let source = format!("AF_XDP queue {} {counter}", socket.queue);
        evidence.saw(place, Witness::Port, packets, source);
    };
    saw(Place::XskFillEmpty, without_frame, "rx_fill_ring_empty_descs");
    saw(Place::XskFrameSmall, counted.rx_dropped - without_frame, "rx_dropped");
    saw(Place::XskRingFull, counted.rx_ring_full, "rx_ring_full");
    saw(Place::XskInvalid, counted.tx_invalid_descs, "tx_invalid_descs");
}

/// Packets whose reassembly was given up.
fn not_reassembled(counters: &HostCounters) -> u64 {
    counters.both("IpReasmFails", "Ip6ReasmFails")
}

/// Packets that IPsec kept IPv6 from forwarding, according to the kernel.
fn not_forwarded(drops: &DropReading) -> u64 {
    let is_it = |drop: &&Dropped| drop.place() == Some(Place::Ipsec) && drop.function == "ip6_forward";
    drops.places.iter().filter(is_it).fold(0, |sum, drop| sum.saturating_add(drop.packets))
}

/// What IPsec's policies refused or had no state for: each counter is for another error, except the one for state
/// requests, which are not packets.
fn ipsec_refused(counters: &HostCounters) -> u64 {
    let is_loss = |name: &str| name.starts_with("Xfrm") && name != "XfrmAcquireError";
    let errors = counters.protocols.iter().filter(|(name, _)| is_loss(name));
    errors.fold(0, |sum, (_, value)| sum.saturating_add(value))
}

/// The protocols of the namespace, without the drops that the kernel named.
fn protocols_saw(counters: &HostCounters, drops: Option<&DropReading>, evidence: &mut Evidence) {
    let one = |name: &str| counters.protocols.value(name).unwrap_or(0);
    let of = |v4: &str, v6: &str| counters.both(v4, v6);
    let mut saw = |place, packets, source: &str, contains| {
        evidence.saw_all(place, Witness::Protocol, packets, source, contains);
    };
    // A datagram dropped below the socket on its way out also counts as a send error of the socket.
    const BELOW: &[Place] =
        &[Place::Firewall, Place::TcEgress, Place::Qdisc, Place::DriverTx, Place::PeerRing, Place::PeerMtu];
    saw(Place::SocketSend, of("UdpSndbufErrors", "Udp6SndbufErrors"), "Udp SndbufErrors", BELOW);
    saw(Place::NoRoute, of("IpOutNoRoutes", "Ip6OutNoRoutes"), "Ip OutNoRoutes", &[]);
    saw(Place::NoRoute, of("IpExtInNoRoutes", "Ip6InNoRoutes"), "Ip InNoRoutes", &[]);
    // IPv6 counts packets too big to forward in two of its counters.
    let too_big = one("IpFragFails").saturating_add(one("Ip6FragFails").max(one("Ip6InTooBigErrors")));
    saw(Place::TooBig, too_big, "Ip FragFails, Ip6 InTooBigErrors", &[]);
    saw(Place::Reassembly, not_reassembled(counters), "Ip ReasmFails", &[]);
    saw(Place::IpProtocol, of("IpInUnknownProtos", "Ip6InUnknownProtos"), "Ip InUnknownProtos", &[]);
    // IPv6 counts as discards what IPsec keeps it from forwarding.
    let discarded = of("IpInDiscards", "Ip6InDiscards").saturating_sub(drops.map_or(0, not_forwarded));
    let ipsec: &[Place] = if drops.is_some() { &[] } else { &[Place::Ipsec] };
    saw(Place::IpInput, discarded, "Ip InDiscards", ipsec);
    saw(Place::IpAddress, of("IpInAddrErrors", "Ip6InAddrErrors"), "Ip InAddrErrors", &[]);
    saw(Place::Ipsec, ipsec_refused(counters), "xfrm_stat", &[]);
    let ports = of("UdpNoPorts", "Udp6NoPorts").saturating_add(of("UdpIgnoredMulti", "Udp6IgnoredMulti"));
    saw(Place::NoSocket, ports, "Udp NoPorts + IgnoredMulti", &[]);
    let ip_checksum = one("IpExtInCsumErrors");
    let header = of("IpInHdrErrors", "Ip6InHdrErrors").saturating_sub(ip_checksum);
    saw(Place::IpHeader, header, "Ip InHdrErrors", &[]);
    let udp_checksum = of("UdpInCsumErrors", "Udp6InCsumErrors");
    saw(Place::Checksum, udp_checksum, "Udp InCsumErrors", &[]);
    saw(Place::Checksum, ip_checksum, "IpExt InCsumErrors", &[]);
    saw(Place::Checksum, one("TcpInCsumErrors"), "Tcp InCsumErrors", &[]);
    saw(Place::SocketBacklog, one("TcpExtTCPBacklogDrop"), "TcpExt TCPBacklogDrop", &[]);
    let buffers = of("UdpRcvbufErrors", "Udp6RcvbufErrors") + of("UdpMemErrors", "Udp6MemErrors");
    saw(Place::ReceiveBuffer, buffers, "Udp RcvbufErrors + MemErrors", &[]);
    saw(Place::ReceiveBuffer, one("TcpExtTCPRcvQDrop"), "TcpExt TCPRcvQDrop", &[]);
    if drops.is_none() {
        let rest = of("UdpInErrors", "Udp6InErrors").saturating_sub(buffers).saturating_sub(udp_checksum);
        saw(Place::SocketFilter, rest, "Udp InErrors − RcvbufErrors − MemErrors − InCsumErrors", &[]);
    }
}

#[cfg(test)]
mod tests {
    use measure::LossPlace;
    use sys::xsk::XskStatistics;

    use super::*;

    fn growth(interface: HostCounters, drops: Vec<Dropped>) -> MachineGrowth {
        MachineGrowth {
            seconds: 1.0,
            drops: Some(DropReading { places: drops, ..DropReading::default() }),
            protocols: HostCounters { protocols: interface.protocols.clone(), ..HostCounters::default() },
            interfaces: vec![("eth0".into(), interface)],
            backlog_dropped: 0,
            sockets: Vec::new(),
            xdp_sockets: None,
        }
    }

    fn lost(growth: &MachineGrowth) -> Vec<(LossPlace, u64)> {
        let lines = growth.lines(&Drivers::built_in());
        lines.into_iter().map(|line| (line.place, line.packets)).collect()
    }

    fn is(place: Place, packets: u64) -> (LossPlace, u64) {
        (place.into(), packets)
    }

    #[test]
    fn a_register_that_driver_and_interface_show_is_one_loss() {
        let mut card = HostCounters { driver: "igb".into(), ..HostCounters::default() };
        card.driver_counters = vec![("rx_missed_errors".into(), 30), ("rx_queue_0_drops".into(), 5)];
        (card.link.rx_missed_errors, card.link.rx_fifo_errors) = (30, 5);
        assert_eq!(lost(&growth(card, Vec::new())), [is(Place::NicMissed, 35)]);
    }

    #[test]
    fn a_bus_that_stalls_is_the_cause_of_what_a_port_discards_and_counts_nothing_itself() {
        // Invented values; the meaning of the counters follows the driver's documentation.
        let mut card = HostCounters { driver: "mlx5_core".into(), ..HostCounters::default() };
        let moved = [
            ("rx_packets", 40_960_000),
            ("rx_discards_phy", 818_217),
            ("outbound_pci_stalled_wr", 37),
            ("outbound_pci_stalled_wr_events", 9),
            ("outbound_pci_buffer_overflow", 818_217),
        ];
        card.driver_counters = moved.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let growth = growth(card, Vec::new());
        let lines = growth.lines(&Drivers::built_in());
        assert_eq!(lost(&growth), [is(Place::NicMissed, 818_217)]);
        let source =
            "eth0 rx_discards_phy (outbound_pci_stalled_wr_events +9, outbound_pci_buffer_overflow +818217)";
        assert_eq!(lines[0].source, source);
        assert!(growth.unknown_counters(&Drivers::built_in()).is_empty());
    }

    #[test]
    fn what_the_driver_names_is_taken_off_rx_dropped() {
        let mut card = HostCounters { driver: "virtio_net".into(), ..HostCounters::default() };
        card.driver_counters = vec![("rx_queue_0_drops".into(), 7)];
        card.link.rx_dropped = 10;
        let expected = [is(Place::DriverRx, 7), is(Place::ReceivingInterface, 3)];
        assert_eq!(lost(&growth(card, Vec::new())), expected);
    }

    #[test]
    fn what_a_driver_counts_with_its_xdp_drops_is_taken_off_and_nothing_else() {
        let event = |kind, reason: &str, packets| Dropped {
            namespace: 0,
            kind,
            reason: reason.into(),
            function: String::new(),
            buffers: packets,
            packets,
            sample: None,
        };
        let aborted = || event(DropKind::XdpException(0), "xdp_exception XDP_ABORTED", 10);
        let redirect = || event(DropKind::XdpRedirect(22), "xdp_redirect_err EINVAL", 5);
        let card = |driver: &str, counters: &[(&str, u64)]| HostCounters {
            driver: driver.into(),
            driver_counters: counters.iter().map(|(name, value)| ((*name).into(), *value)).collect(),
            ..HostCounters::default()
        };
        let expected = [is(Place::XdpDrop, 50), is(Place::XdpAborted, 10), is(Place::XdpRedirect, 5)];
        // One count for all three.
        let virtio = card("virtio_net", &[("rx_queue_0_xdp_drops", 65)]);
        assert_eq!(lost(&growth(virtio, vec![aborted(), redirect()])), expected);
        // A number each.
        let ena = card("ena", &[("queue_0_rx_xdp_drop", 50), ("queue_0_rx_xdp_aborted", 10)]);
        assert_eq!(lost(&growth(ena, vec![aborted(), redirect()])), expected);
    }

    #[test]
    fn a_datagram_refused_below_its_socket_is_counted_below() {
        let mut card = HostCounters { driver: "igb".into(), qdisc_drops: 8, ..HostCounters::default() };
        card.protocols = sys::procfs::parse_snmp("Udp: SndbufErrors\nUdp: 10\n").unwrap();
        assert_eq!(lost(&growth(card, Vec::new())), [is(Place::SocketSend, 2), is(Place::Qdisc, 8)]);
    }

    #[test]
    fn packets_that_an_interface_without_carrier_refused_are_counted_once() {
        let event = |packets| Dropped {
            namespace: 0,
            kind: DropKind::Reason(0),
            reason: "QDISC_DROP".into(),
            function: "__dev_queue_xmit".into(),
            buffers: packets,
            packets,
            sample: None,
        };
        let mut veth = HostCounters { driver: "veth".into(), ..HostCounters::default() };
        veth.link.tx_dropped = 100;
        assert_eq!(lost(&growth(veth.clone(), vec![event(100)])), [is(Place::PeerRing, 100)]);
        // A queueing discipline dropped 30 of them.
        veth.qdisc_drops = 30;
        assert_eq!(lost(&growth(veth, vec![event(130)])), [is(Place::Qdisc, 30), is(Place::PeerRing, 100)]);
    }

    #[test]
    fn a_counter_that_nobody_knows_is_told_with_its_growth() {
        let mut card = HostCounters { driver: "igb".into(), ..HostCounters::default() };
        card.driver_counters = vec![("brand_new".into(), 7), ("rx_packets".into(), 5), ("older".into(), 0)];
        let growth = growth(card, Vec::new());
        assert_eq!(growth.unknown_counters(&Drivers::built_in()), [("eth0", "brand_new", 7)]);
    }

    #[test]
    fn sockets_that_hold_or_drop_are_told_and_those_that_dropped_most_come_first() {
        let socket = |inode, unread_bytes, dropped| UdpSocketState { inode, port: 53, unread_bytes, dropped };
        let before = [socket(1, 9, 100), socket(2, 0, 5), socket(3, 7, 0)];
        let now = [socket(1, 0, 100), socket(2, 10, 6), socket(3, 70, 0), socket(4, 0, 2)];
        let seen: Vec<_> = grown_sockets(&before, &now)
            .iter()
            .map(|socket| (socket.inode, socket.unread_bytes, socket.dropped))
            .collect();
        assert_eq!(seen, [(4, 0, 2), (2, 10, 1), (3, 70, 0)]);
    }

    #[test]
    fn an_af_xdp_socket_s_losses_are_counted_once() {
        let counted = |rx_dropped, rx_ring_full| XskStatistics {
            rx_dropped,
            rx_ring_full,
            rx_fill_ring_empty_descs: rx_dropped / 2,
            ..XskStatistics::default()
        };
        let socket = |statistics| XdpSocket { inode: 5, interface: 2, queue: 1, statistics };
        let grown = grown_xdp_sockets(&[socket(counted(10, 1))], &[socket(counted(30, 4))]);
        let redirect = Dropped {
            namespace: 0,
            kind: DropKind::XdpRedirect(28),
            reason: "xdp_redirect_err ENOSPC".into(),
            function: String::new(),
            buffers: 25,
            packets: 25,
            sample: None,
        };
        let mut card = HostCounters { driver: "veth".into(), ..HostCounters::default() };
        card.link.rx_dropped = 25;
        let growth = MachineGrowth { xdp_sockets: Some(grown), ..growth(card, vec![redirect]) };
        let expected = [
            is(Place::XdpRedirect, 2),
            is(Place::XskFillEmpty, 10),
            is(Place::XskFrameSmall, 10),
            is(Place::XskRingFull, 3),
        ];
        assert_eq!(lost(&growth), expected);
    }

    #[test]
    fn this_machine_can_be_read_twice() {
        let drivers = Drivers::built_in();
        let read = || MachineReading::take(&["lo".to_owned(), "absent0".to_owned()], true, None).unwrap();
        let (before, after) = (read(), read());
        let growth = after.since(&before, &drivers);
        assert!(growth.seconds > 0.0 && growth.interfaces.len() == 1 && growth.drops.is_none());
    }
}
