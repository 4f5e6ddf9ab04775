//! The rules by which counters become lines of a trial's ledger. Where two counters see the same loss it is counted
//! once; each rule stands beside its line, and docs/ledger.md tells them all.

use measure::{LedgerLine, Unit};

use crate::{
    counters::HostCounters,
    drivers::{CounterKind, Drivers},
    evidence::{Evidence, Witness},
    place::Place,
};

/// What the receiving engine itself counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// Packets delivered.
    pub delivered: u64,
    /// What the sockets or rings lost; in buffers of up to 64 packets when the kernel joins datagrams.
    pub lost: u64,
    /// Whether the kernel may join datagrams (GRO).
    pub gro: bool,
    /// Whether the driver hands packets to AF_XDP sockets.
    pub is_xsk: bool,
    /// Whether packets go through the kernel's protocols to get there.
    pub is_udp: bool,
    /// Whether a program in XDP counts packets and drops them: delivered, not lost.
    pub is_xdp: bool,
    /// Whether it is another program, of which only the kernel's counters tell.
    pub is_unseen: bool,
    /// Whether its socket is closed: what was not read by then never will be.
    pub is_closed: bool,
    /// The losses by place, once they are known.
    pub losses: Vec<LedgerLine>,
}

impl Received {
    /// Packets lost between the driver and an AF_XDP socket.
    fn redirected_lost(&self) -> u64 {
        if self.is_xsk { self.lost } else { 0 }
    }
}

/// The lines of a lab trial; `refused` frames were dropped by the sending interface's count only, and sent later.
pub fn lab_lines(
    tx: &HostCounters,
    rx: &HostCounters,
    refused: u64,
    received: &Received,
    drivers: &Drivers,
) -> Vec<LedgerLine> {
    let mut evidence = Evidence::default();
    evidence.saw(Place::Qdisc, Witness::Qdisc, tx.qdisc_drops, "lab-tx qdisc drops");
    // A veth end counts as its own tx_dropped whatever its peer did not take, the peer's rx_dropped (backlog full)
    // included: the backlog is named, the rest is the peer's ring.
    let tx_dropped = tx.link.tx_dropped.saturating_sub(refused);
    // What an AF_XDP socket did not take is a failed redirect of the driver's too, and named by the socket.
    let rx_dropped = rx.link.rx_dropped.saturating_sub(received.redirected_lost());
    evidence.saw_all(Place::PeerRing, Witness::Link, tx_dropped, "lab-tx tx_dropped", &[Place::Backlog]);
    evidence.saw(Place::Backlog, Witness::Link, rx_dropped.min(tx_dropped), "lab-rx rx_dropped");
    // Dropped before the backlog was asked, and not seen by the peer.
    evidence.saw_all(
        Place::ReceivingInterface,
        Witness::Link,
        rx_dropped,
        "lab-rx rx_dropped",
        &[Place::Backlog, Place::NoHandler],
    );
    let mut unknown = unknown_counters("lab-tx", tx, drivers);
    unknown.extend(unknown_counters("lab-rx", rx, drivers));
    if received.is_udp || received.is_unseen {
        protocols_saw(rx, received, &mut evidence);
    }
    let mut lines = evidence.lines();
    if received.is_udp {
        lines.extend(receive_buffer_full(rx, received));
    } else if !received.is_unseen {
        lines.extend(port_lines(received));
    }
    lines.extend(unknown);
    lines
}

/// Counters of a driver that the data file does not know and that moved: shown as lines without packets, because
/// nobody knows whether they are losses.
fn unknown_counters(side: &str, counters: &HostCounters, drivers: &Drivers) -> Vec<LedgerLine> {
    let moved = counters
        .driver_counters
        .iter()
        .filter(|(name, value)| *value > 0 && drivers.kind(&counters.driver, name) == CounterKind::Unknown);
    moved
        .map(|(name, value)| {
            LedgerLine::new(
                LedgerLine::UNKNOWN_COUNTER,
                0,
                &format!("{side} {} {name} +{value}", counters.driver),
            )
        })
        .collect()
}

/// What a port below the protocols lost: by place where that is known, else as one.
fn port_lines(received: &Received) -> Vec<LedgerLine> {
    if received.losses.is_empty() {
        return vec![LedgerLine::new("receiving ring", received.lost, "the ring's own counters")];
    }
    received.losses.clone()
}

/// Places between IP and the application in a namespace where nobody else receives.
fn protocols_saw(counters: &HostCounters, received: &Received, evidence: &mut Evidence) {
    let of = |v4, v6| counters.both(v4, v6);
    let receive_buffer = of("UdpRcvbufErrors", "Udp6RcvbufErrors") + of("UdpMemErrors", "Udp6MemErrors");
    let checksum = of("UdpInCsumErrors", "Udp6InCsumErrors");
    // A socket's own drop count contains its share of all three UDP counters, so only what other sockets
    // dropped is left of them.
    let others = (receive_buffer + checksum).saturating_sub(received.lost);
    let mut saw = |place, packets, source| evidence.saw(place, Witness::Protocol, packets, source);
    if received.is_unseen {
        saw(Place::ReceiveBuffer, receive_buffer, "Udp RcvbufErrors + MemErrors");
        saw(Place::Checksum, checksum, "Udp InCsumErrors");
        if received.is_closed {
            saw(
                Place::NotRead,
                left_unread(counters),
                "IpExt InNoECTPkts − Tcp InSegs − Udp InDatagrams − InErrors",
            );
        }
    } else {
        saw(Place::OtherSockets, others, "Udp RcvbufErrors + MemErrors + InCsumErrors − SK_MEMINFO_DROPS");
    }
    saw(Place::IpInput, of("IpInDiscards", "Ip6InDiscards"), "Ip InDiscards");
    saw(Place::IpHeader, of("IpInHdrErrors", "Ip6InHdrErrors"), "Ip InHdrErrors");
    saw(Place::IpAddress, of("IpInAddrErrors", "Ip6InAddrErrors"), "Ip InAddrErrors");
    saw(Place::NoSocket, of("UdpNoPorts", "Udp6NoPorts"), "Udp NoPorts");
}

/// Datagrams that a socket took and nobody read: what IP delivered, less TCP's segments, what was read and what was
/// dropped.
fn left_unread(counters: &HostCounters) -> u64 {
    let of = |v4, v6| counters.both(v4, v6);
    let reached_ip = of("IpExtInNoECTPkts", "Ip6InNoECTPkts");
    let elsewhere =
        of("TcpInSegs", "IcmpInMsgs") + of("UdpNoPorts", "Udp6NoPorts") + of("UdpInErrors", "Udp6InErrors");
    reached_ip.saturating_sub(elsewhere).saturating_sub(of("UdpInDatagrams", "Udp6InDatagrams"))
}

/// The lines of a receiver on a host that others use too: what its own sockets know. The host's other counters
/// are everybody's.
pub fn host_rx_lines(counters: &HostCounters, received: &Received) -> Vec<LedgerLine> {
    receive_buffer_full(counters, received).into_iter().collect()
}

/// A socket counts a dropped buffer once, however many datagrams GRO joined in it. IP counts datagrams: what it
/// took and no application got was in those buffers, as long as the numbers can belong together.
fn receive_buffer_full(counters: &HostCounters, received: &Received) -> Option<LedgerLine> {
    const MOST_JOINED: u64 = 64; // UDP_GRO_CNT_MAX, net/ipv4/udp_offload.c
    let reached_ip = counters.both("IpExtInNoECTPkts", "Ip6InNoECTPkts");
    let elsewhere = counters.both("UdpNoPorts", "Udp6NoPorts");
    let missing = reached_ip.saturating_sub(received.delivered).saturating_sub(elsewhere);
    let buffers = received.lost;
    let (packets, source, unit) =
        if received.gro && (buffers..=buffers.saturating_mul(MOST_JOINED)).contains(&missing) {
            let source = "IpExt InNoECTPkts − delivered; socket SK_MEMINFO_DROPS counts their buffers";
            (missing, source, Unit::Buffers)
        } else {
            (buffers, "socket SK_MEMINFO_DROPS", Unit::Packets)
        };
    let place = Place::ReceiveBuffer;
    (packets > 0).then(|| LedgerLine {
        unit,
        ..LedgerLine::new(place.name(), packets, source).with_remedy(place.remedy())
    })
}

#[cfg(test)]
mod tests;
