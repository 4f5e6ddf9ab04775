//! Counters around a trial, and the ledger lines they make.
//!
//! Where two counters see the same loss it is counted once; each rule stands beside its line.

use engine::Loss;
use lab::{Lab, LabError, Side};
use measure::{LedgerLine, Unit};
use sys::{
    procfs::{self, NetCounters, ProcError},
    rtnetlink::LinkStats,
};

/// Both sides of a lab.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LabCounters {
    pub(crate) tx: HostCounters,
    pub(crate) rx: HostCounters,
}

/// What one namespace counts: the interface that the packets cross, and the protocols.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HostCounters {
    /// The interface's counters; zero where the interface is not known.
    pub(crate) link: LinkStats,
    /// Counters of IP and UDP.
    pub(crate) protocols: NetCounters,
}

impl Received {
    /// Packets lost between the driver and an AF_XDP socket.
    fn redirected_lost(&self) -> u64 {
        if self.is_xsk { self.lost } else { 0 }
    }
}

impl LabCounters {
    pub(crate) fn read(lab: &Lab) -> Result<Self, LabError> {
        let read =
            |side: &Side| Ok(HostCounters { link: side.link()?.stats, protocols: side.net_counters()? });
        Ok(Self { tx: read(lab.tx())?, rx: read(lab.rx())? })
    }

    /// What was counted since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self { tx: self.tx.since(&earlier.tx), rx: self.rx.since(&earlier.rx) }
    }
}

impl HostCounters {
    /// The calling thread's namespace: protocols, no interface.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn here() -> Result<Self, ProcError> {
        Ok(Self { link: LinkStats::default(), protocols: procfs::net_counters()? })
    }

    /// What was counted since an earlier reading.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self { link: self.link.since(&earlier.link), protocols: self.protocols.since(&earlier.protocols) }
    }

    /// A counter of IPv4 and its sibling of IPv6 together.
    pub(crate) fn both(&self, v4: &str, v6: &str) -> u64 {
        [v4, v6].into_iter().filter_map(|name| self.protocols.value(name)).sum()
    }
}

/// What the receiving engine itself counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Received {
    /// Packets delivered.
    pub(crate) delivered: u64,
    /// What the sockets or rings lost; in buffers of up to 64 packets when the kernel joins datagrams.
    pub(crate) lost: u64,
    /// Whether the kernel may join datagrams (GRO).
    pub(crate) gro: bool,
    /// Whether the driver hands packets to AF_XDP sockets.
    pub(crate) is_xsk: bool,
    /// Whether packets go through the kernel's protocols to get there.
    pub(crate) is_udp: bool,
    /// The same losses by place, once they are known.
    pub(crate) losses: Vec<Loss>,
}

/// The lines of a lab trial; `refused` frames were dropped by the sending interface's count only, and sent later.
pub(crate) fn lab_lines(counters: &LabCounters, refused: u64, received: &Received) -> Vec<LedgerLine> {
    let (tx, rx) = (&counters.tx, &counters.rx);
    let tx_dropped = tx.link.tx_dropped.saturating_sub(refused);
    // A veth end counts as its own tx_dropped whatever its peer did not take, the peer's rx_dropped (backlog full)
    // included: the backlog is named, the rest is the peer's ring.
    let backlog = rx.link.rx_dropped.min(tx_dropped);
    let ring = tx_dropped - backlog;
    let mut lines = vec![
        frames("peer's receive ring full", ring, "lab-tx tx_dropped − lab-rx rx_dropped")
            .with_remedy("the receiving softirq does not keep up: give it a CPU of its own"),
        frames("receive backlog full", backlog, "lab-rx rx_dropped")
            .with_remedy("raise net.core.netdev_max_backlog, or use --threaded-napi"),
        // Dropped before the backlog was asked, and not seen by the peer. What an AF_XDP socket did not take is a
        // failed redirect of the driver's too, and named below.
        frames(
            "receiving interface",
            (rx.link.rx_dropped - backlog).saturating_sub(received.redirected_lost()),
            "lab-rx rx_dropped",
        ),
    ];
    if received.is_udp {
        lines.extend(protocol_lines(rx, received));
    } else {
        lines.extend(port_lines(received));
    }
    lines
}

/// The lines of a lab trial whose receiver is somebody else's process: the kernel's counters alone.
pub(crate) fn unseen_receiver_lines(counters: &LabCounters) -> Vec<LedgerLine> {
    let mut lines = lab_lines(counters, 0, &Received { is_udp: true, ..Received::default() });
    for line in lines.iter_mut().filter(|line| line.place == "other sockets") {
        line.place = "receive buffer full".into();
        line.source = "Udp RcvbufErrors + MemErrors + InCsumErrors".into();
    }
    lines
}

/// Datagrams that a socket took and nobody read before it was closed: what IP delivered less TCP's segments, what
/// was read and what was dropped.
pub(crate) fn left_unread(rx: &HostCounters) -> LedgerLine {
    let reached = rx.both("IpExtInNoECTPkts", "Ip6InNoECTPkts");
    let others = rx.both("TcpInSegs", "IcmpInMsgs") + rx.both("UdpNoPorts", "Udp6NoPorts");
    let dropped = rx.both("UdpInErrors", "Udp6InErrors");
    let read = rx.both("UdpInDatagrams", "Udp6InDatagrams");
    let left = reached.saturating_sub(others).saturating_sub(dropped).saturating_sub(read);
    packets(
        "left unread in the socket",
        left,
        "IpExt InNoECTPkts − Tcp InSegs − Udp InDatagrams − Udp InErrors",
    )
    .with_remedy("the application was closed before it had read all")
}

/// What a port below the protocols lost: by place where that is known, else as one.
fn port_lines(received: &Received) -> Vec<LedgerLine> {
    if received.losses.is_empty() {
        return vec![packets("receiving ring", received.lost, "the ring's own counters")];
    }
    let line = |loss: &Loss| packets(loss.place, loss.packets, loss.source).with_remedy(loss.remedy);
    received.losses.iter().map(line).collect()
}

/// Places between IP and the application in a namespace where nobody else receives.
fn protocol_lines(counters: &HostCounters, received: &Received) -> Vec<LedgerLine> {
    let of = |v4, v6| counters.both(v4, v6);
    let receive_buffer = of("UdpRcvbufErrors", "Udp6RcvbufErrors") + of("UdpMemErrors", "Udp6MemErrors");
    let checksum = of("UdpInCsumErrors", "Udp6InCsumErrors");
    // A socket's own drop count contains its share of all three UDP counters, so only what other sockets
    // dropped is left of them.
    let others = (receive_buffer + checksum).saturating_sub(received.lost);
    vec![
        packets("IP input", of("IpInDiscards", "Ip6InDiscards"), "Ip InDiscards"),
        packets("IP header", of("IpInHdrErrors", "Ip6InHdrErrors"), "Ip InHdrErrors"),
        packets("IP address", of("IpInAddrErrors", "Ip6InAddrErrors"), "Ip InAddrErrors"),
        packets("no socket", of("UdpNoPorts", "Udp6NoPorts"), "Udp NoPorts")
            .with_remedy("nobody listens on that port and address"),
        receive_buffer_full(counters, received),
        packets("other sockets", others, "Udp RcvbufErrors + MemErrors + InCsumErrors − SK_MEMINFO_DROPS"),
    ]
}

/// The lines of a receiver on a host that others use too: what its own sockets know. The host's other counters
/// are everybody's.
pub(crate) fn host_rx_lines(counters: &HostCounters, received: &Received) -> Vec<LedgerLine> {
    vec![receive_buffer_full(counters, received)]
}

/// A socket counts a dropped buffer once, however many datagrams GRO joined in it. IP counts datagrams: what it
/// took and no application got was in those buffers, as long as the numbers can belong together.
fn receive_buffer_full(counters: &HostCounters, received: &Received) -> LedgerLine {
    const MOST_JOINED: u64 = 64; // UDP_GRO_CNT_MAX, net/ipv4/udp_offload.c
    const REMEDY: &str =
        "the reader does not keep up: more threads with reuseport, or a larger --receive-buffer";
    let place = "receive buffer full";
    let reached_ip = counters.both("IpExtInNoECTPkts", "Ip6InNoECTPkts");
    let elsewhere = counters.both("UdpNoPorts", "Udp6NoPorts");
    let missing = reached_ip.saturating_sub(received.delivered).saturating_sub(elsewhere);
    let buffers = received.lost;
    if received.gro && (buffers..=buffers.saturating_mul(MOST_JOINED)).contains(&missing) {
        let source = "IpExt InNoECTPkts − delivered; socket SK_MEMINFO_DROPS counts their buffers";
        let line = LedgerLine::new(place, missing, source).with_remedy(REMEDY);
        return LedgerLine { unit: Unit::Buffers, ..line };
    }
    packets(place, buffers, "socket SK_MEMINFO_DROPS").with_remedy(REMEDY)
}

fn packets(place: &str, count: u64, source: &str) -> LedgerLine {
    LedgerLine::new(place, count, source)
}

fn frames(place: &str, count: u64, source: &str) -> LedgerLine {
    LedgerLine { unit: Unit::Frames, ..LedgerLine::new(place, count, source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'l>(lines: &'l [LedgerLine], place: &str) -> &'l LedgerLine {
        lines.iter().find(|line| line.place == place).expect("the place is in the table")
    }

    fn counted(snmp: &str) -> HostCounters {
        HostCounters { protocols: sys::procfs::parse_snmp(snmp).unwrap(), link: LinkStats::default() }
    }

    #[test]
    fn a_dropped_buffer_of_joined_datagrams_counts_as_all_of_them() {
        let counters = counted("IpExt: InNoECTPkts\nIpExt: 1000\n");
        let received = Received { delivered: 360, lost: 10, gro: true, ..Received::default() };
        assert_eq!(receive_buffer_full(&counters, &received).packets, 640);
        let impossible = Received { delivered: 359, ..received.clone() };
        assert_eq!(receive_buffer_full(&counters, &impossible).packets, 10, "641 do not fit 10 buffers");
        let unjoined = Received { gro: false, ..received };
        assert_eq!(receive_buffer_full(&counters, &unjoined).packets, 10);
    }

    #[test]
    fn a_full_backlog_counted_at_both_ends_is_one_loss() {
        let mut counters = LabCounters { tx: HostCounters::default(), rx: HostCounters::default() };
        counters.tx.link.tx_dropped = 10;
        counters.rx.link.rx_dropped = 4;
        let lines = lab_lines(&counters, 0, &Received { is_udp: true, ..Received::default() });
        assert_eq!(place(&lines, "receive backlog full").packets, 4);
        assert_eq!(place(&lines, "peer's receive ring full").packets, 6);
        assert_eq!(lines.iter().map(|line| line.packets).sum::<u64>(), 10);
    }

    #[test]
    fn a_socket_s_drops_are_not_counted_again_by_the_protocol() {
        let text = "Udp: NoPorts RcvbufErrors InCsumErrors MemErrors\nUdp: 3 10 1 2\n";
        let counters =
            HostCounters { protocols: sys::procfs::parse_snmp(text).unwrap(), link: LinkStats::default() };
        let lines = protocol_lines(&counters, &Received { lost: 12, ..Received::default() });
        assert_eq!(place(&lines, "receive buffer full").packets, 12);
        assert_eq!(place(&lines, "other sockets").packets, 1);
        assert_eq!(place(&lines, "no socket").packets, 3);
        assert_eq!(lines.iter().map(|line| line.packets).sum::<u64>(), 16);
    }
}
