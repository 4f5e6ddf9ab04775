//! The rules by which counters become lines of a trial's ledger. Where two counters see the same loss it is counted
//! once; each rule stands beside its line, and docs/ledger.md tells them all.

use measure::{LedgerLine, LossPlace, Place, Unit};

use crate::{
    counters::HostCounters,
    drivers::{CounterKind, Drivers},
    drops::Dropped,
    evidence::{Evidence, Witness},
    interface::interface_saw,
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
    /// Datagrams in the buffers that were received; `None` before the first.
    pub joined: Option<JoinedDatagrams>,
    /// The losses by place, once they are known.
    pub losses: Vec<LedgerLine>,
}

/// How many datagrams GRO joined in a buffer, of those that a receiver got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinedDatagrams {
    /// The most of one buffer.
    pub most: u64,
}

/// What a lab's two sides counted during a trial.
#[derive(Debug, Clone, Copy)]
pub struct LabGrowth<'g> {
    /// The sending side.
    pub tx: &'g HostCounters,
    /// The receiving side.
    pub rx: &'g HostCounters,
    /// What the kernel said it dropped, the sending side being namespace 0 and the receiving side 1; `None` when
    /// nobody asked it.
    pub drops: Option<&'g [Dropped]>,
    /// Frames that the sending interface or its queueing discipline dropped, told the sender so, and sent later.
    pub refused: u64,
    /// Frames that were sent; `None` before that is known. A card that counts more losses than that is not believed.
    pub sent: Option<u64>,
}

impl Received {
    /// Packets lost between the driver and an AF_XDP socket.
    fn redirected_lost(&self) -> u64 {
        if self.is_xsk { self.lost } else { 0 }
    }
}

/// The lines of a lab trial.
pub fn lab_lines(growth: &LabGrowth<'_>, received: &Received, drivers: &Drivers) -> Vec<LedgerLine> {
    let &LabGrowth { tx, rx, drops, refused, sent } = growth;
    let mut evidence = Evidence::default();
    let (believed, mut impossible) = believable(tx, rx, sent, drivers);
    let (tx, rx) = (&believed[0], &believed[1]);
    // A refused frame is a drop of the interface, or of the queueing discipline above it.
    let refused_by_link = refused.min(tx.link.tx_dropped);
    let refused_by_qdisc = refused - refused_by_link;
    let qdisc_drops = tx.qdisc_drops.saturating_sub(refused_by_qdisc);
    evidence.saw(Place::Qdisc, Witness::Qdisc, qdisc_drops, "lab-tx qdisc drops");
    if tx.is_card() || rx.is_card() {
        cards_saw(tx, rx, refused_by_link, received, drivers, &mut evidence);
    } else {
        links_saw(tx, rx, refused_by_link, received, drivers, &mut evidence);
    }
    let mut named = Vec::new();
    if let Some(drops) = drops {
        let already = [refused_by_link, refused_by_qdisc, bounced(tx)];
        // The driver of a sending veth drops what its peer did not take.
        let driver = if tx.is_card() { Place::DriverTx } else { Place::PeerRing };
        reasons_saw(drops, driver, already, received, &mut evidence, &mut named);
    }
    if received.is_udp || received.is_unseen {
        protocols_saw(rx, received, drops.is_some(), &mut evidence);
    }
    for line in port_lines(rx, received) {
        match line.place.known() {
            // A socket's drop count contains all that was lost once the socket was found.
            Some(Place::ReceiveBuffer) => evidence.saw_all(
                Place::ReceiveBuffer,
                Witness::Port,
                line.packets,
                line.source,
                &[Place::Checksum, Place::SocketFilter],
            ),
            Some(place) => evidence.saw(place, Witness::Port, line.packets, line.source),
            None => named.push(line),
        }
    }
    let mut lines = evidence.lines();
    lines.append(&mut named);
    lines.append(&mut impossible);
    lines.extend(unknown_counters("lab-tx", tx, drivers));
    lines.extend(unknown_counters("lab-rx", rx, drivers));
    lines
}

/// Both sides without what their cards cannot have lost, and a line for each counter that says so: more frames than were
/// sent, by the sender's account and by the sending card's.
fn believable(
    tx: &HostCounters,
    rx: &HostCounters,
    sent: Option<u64>,
    drivers: &Drivers,
) -> ([HostCounters; 2], Vec<LedgerLine>) {
    let mut sides = [tx.clone(), rx.clone()];
    let mut lines = Vec::new();
    let Some(sent) = sent.filter(|_| tx.is_card() || rx.is_card()) else { return (sides, lines) };
    let most = sent.max(tx.link.tx_packets.saturating_add(tx.link.tx_dropped));
    for (name, side) in ["lab-tx", "lab-rx"].into_iter().zip(&mut sides) {
        let driver = side.driver.clone();
        let mut take_out = |counter: &str, value: &mut u64| {
            if *value > most {
                lines.push(LedgerLine::unknown_counter(&format!(
                    "{name} {driver} {counter} +{value}: more than the {most} frames sent, not counted"
                )));
                *value = 0;
            }
        };
        for (counter, value) in &mut side.driver_counters {
            if matches!(drivers.kind(&driver, counter), CounterKind::Loss(_)) {
                take_out(counter, value);
            }
        }
        let link = &mut side.link;
        take_out("interface rx_missed_errors", &mut link.rx_missed_errors);
        take_out("interface rx_fifo_errors", &mut link.rx_fifo_errors);
        take_out("interface rx_dropped", &mut link.rx_dropped);
        take_out("interface rx_crc_errors", &mut link.rx_crc_errors);
        take_out("interface rx_frame_errors", &mut link.rx_frame_errors);
        take_out("interface rx_length_errors", &mut link.rx_length_errors);
    }
    (sides, lines)
}

/// The two interfaces of the pair.
fn links_saw(
    tx: &HostCounters,
    rx: &HostCounters,
    refused: u64,
    received: &Received,
    drivers: &Drivers,
    evidence: &mut Evidence,
) {
    // A veth end counts as its own tx_dropped whatever its peer did not take, the peer's rx_dropped (backlog full)
    // included: the backlog is named, the rest is the peer's ring.
    let tx_dropped = tx.link.tx_dropped.saturating_sub(refused);
    // Frames of XDP that found the peer's ring full stand in tx_dropped at one end and rx_dropped at the other, too.
    // What an AF_XDP socket did not take is a failed redirect of the driver's, and named by the socket.
    let rx_dropped =
        rx.link.rx_dropped.saturating_sub(bounced(tx)).saturating_sub(received.redirected_lost());
    // Packets larger than the peer's MTU stand in both, and only the kernel's reasons tell them.
    const NAMED: &[Place] = &[Place::PeerMtu, Place::Backlog];
    evidence.saw_all(Place::PeerRing, Witness::Link, tx_dropped, "lab-tx tx_dropped", NAMED);
    let both = rx_dropped.min(tx_dropped);
    evidence.saw_all(Place::Backlog, Witness::Link, both, "lab-rx rx_dropped", &[Place::PeerMtu]);
    // Dropped before the backlog was asked, and not seen by the peer.
    evidence.saw_all(
        Place::ReceivingInterface,
        Witness::Link,
        rx_dropped,
        "lab-rx rx_dropped",
        &[Place::PeerMtu, Place::Backlog, Place::NoHandler, Place::XdpRedirect],
    );
    // A program that counts drops what it counted.
    if !received.is_xdp {
        let dropped = sum(rx, drivers, Place::XdpDrop);
        evidence.saw_all(
            Place::XdpDrop,
            Witness::Driver,
            dropped,
            "lab-rx veth xdp_drops",
            &[Place::XdpAborted],
        );
    }
}

/// Two cards with a wire between them. What the sending card received is nobody's load, nor what the other sent.
fn cards_saw(
    tx: &HostCounters,
    rx: &HostCounters,
    refused: u64,
    received: &Received,
    drivers: &Drivers,
    evidence: &mut Evidence,
) {
    let mut sending = tx.sending(drivers);
    sending.link.tx_dropped = sending.link.tx_dropped.saturating_sub(refused);
    interface_saw("lab-tx", &sending, drivers, evidence);
    let mut receiving = rx.receiving(drivers);
    receiving.link.rx_dropped = receiving.link.rx_dropped.saturating_sub(received.redirected_lost());
    if received.is_xdp {
        receiving.driver_counters.retain(
            |(name, _)| !matches!(drivers.kind(&rx.driver, name), CounterKind::Loss(loss) if loss.place == Place::XdpDrop),
        );
    }
    interface_saw("lab-rx", &receiving, drivers, evidence);
}

/// Frames that left an end of the pair by XDP and were not taken: its driver's own count.
fn bounced(tx: &HostCounters) -> u64 {
    let is_error = |name: &str| name.ends_with("_xdp_tx_errors") || name.ends_with("_xdp_xmit_errors");
    let errors = tx.driver_counters.iter().filter(|(name, _)| is_error(name));
    errors.fold(0, |sum, (_, value)| sum.saturating_add(*value))
}

/// What the kernel named. `driver` is where the sending driver's drops belong. `already` are frames that stand in other
/// counters of the sending side: refused by the interface, refused by the queueing discipline, and bounced by XDP.
fn reasons_saw(
    drops: &[Dropped],
    driver: Place,
    already: [u64; 3],
    received: &Received,
    evidence: &mut Evidence,
    named: &mut Vec<LedgerLine>,
) {
    let [mut by_link, mut by_qdisc, mut bounced] = already;
    for drop in drops {
        let is_tx = drop.namespace == 0;
        let place = match drop.place() {
            Some(Place::DriverTx) if is_tx => Some(driver),
            place => place,
        };
        // A packet socket's copy is taken before, and XDP's and AF_XDP's packets never get so far: the kernel drops
        // the originals, or nothing.
        let is_past = |place: Place| place >= Place::TcIngress;
        if !(received.is_udp || received.is_unseen || is_tx) && place.is_none_or(is_past) {
            continue;
        }
        let place = match place {
            Some(Place::XdpDrop) if received.is_xdp => continue,
            Some(place) => place,
            None => {
                named.push(unplaced(drop));
                continue;
            }
        };
        let taken_off = match place {
            Place::PeerRing | Place::DriverTx => &mut by_link,
            Place::Qdisc => &mut by_qdisc,
            Place::XdpTx | Place::XdpRedirect if is_tx => &mut bounced,
            _ => &mut 0,
        };
        let off = drop.packets.min(*taken_off);
        *taken_off -= off;
        let packets = drop.packets - off;
        match place {
            Place::XdpRedirect if !is_tx => evidence.saw_all(
                place,
                Witness::Reason,
                packets,
                drop.source(),
                // A redirect to a socket that had no room is named by the socket.
                &[Place::XskFillEmpty, Place::XskFrameSmall, Place::XskRingFull],
            ),
            // Where a program runs over buffers, one that it aborted goes the same way as one that it dropped.
            Place::XdpDrop => {
                evidence.saw_all(place, Witness::Reason, packets, drop.source(), &[Place::XdpAborted])
            }
            _ => evidence.saw(place, Witness::Reason, packets, drop.source()),
        }
    }
}

/// Drops for a reason that belongs to no place.
pub(crate) fn unplaced(drop: &Dropped) -> LedgerLine {
    let line = LedgerLine::new(format!("dropped: {}", drop.reason), drop.packets, &drop.source());
    LedgerLine { unit: Unit::Buffers, ..line }
}

/// What the counters of one interface alone say, a line a place.
pub fn interface_lines(name: &str, counters: &HostCounters, drivers: &Drivers) -> Vec<LedgerLine> {
    let mut evidence = Evidence::default();
    interface_saw(name, counters, drivers, &mut evidence);
    evidence.lines()
}

/// One drop of the kernel's as a line.
pub fn drop_line(drop: &Dropped) -> LedgerLine {
    drop.place().map_or_else(|| unplaced(drop), |place| LedgerLine::at(place, drop.packets, &drop.source()))
}

/// Places between IP and the application in a namespace where nobody else receives. `reasons` says whether the kernel
/// names its drops: then remainders of counters are not needed.
fn protocols_saw(counters: &HostCounters, received: &Received, reasons: bool, evidence: &mut Evidence) {
    let of = |v4, v6| counters.both(v4, v6);
    let buffers = of("UdpRcvbufErrors", "Udp6RcvbufErrors") + of("UdpMemErrors", "Udp6MemErrors");
    let checksum = of("UdpInCsumErrors", "Udp6InCsumErrors");
    let ip_checksum = counters.protocols.value("IpExtInCsumErrors").unwrap_or(0);
    let mut saw = |place, packets, source| evidence.saw(place, Witness::Protocol, packets, source);
    saw(Place::IpInput, of("IpInDiscards", "Ip6InDiscards"), "Ip InDiscards");
    // A wrong checksum of IP counts as a header error, too.
    saw(Place::IpHeader, of("IpInHdrErrors", "Ip6InHdrErrors").saturating_sub(ip_checksum), "Ip InHdrErrors");
    saw(Place::IpAddress, of("IpInAddrErrors", "Ip6InAddrErrors"), "Ip InAddrErrors");
    saw(Place::NoSocket, of("UdpNoPorts", "Udp6NoPorts"), "Udp NoPorts");
    saw(Place::Checksum, checksum, "Udp InCsumErrors");
    saw(Place::Checksum, ip_checksum, "IpExt InCsumErrors");
    saw(Place::ReceiveBuffer, buffers, "Udp RcvbufErrors + MemErrors");
    if received.is_unseen && received.is_closed {
        let source = "IpExt InNoECTPkts − Tcp InSegs − Udp InDatagrams − InErrors";
        saw(Place::NotRead, left_unread(counters), source);
    }
    if !reasons {
        let rest = of("UdpInErrors", "Udp6InErrors").saturating_sub(buffers).saturating_sub(checksum);
        saw(
            Place::SocketFilter,
            rest.min(received.lost),
            "Udp InErrors − RcvbufErrors − MemErrors − InCsumErrors",
        );
    }
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

/// What the receiving socket or ring lost: by place where that is known, else as one.
fn port_lines(counters: &HostCounters, received: &Received) -> Vec<LedgerLine> {
    if received.is_udp {
        return receive_buffer_full(counters, received).into_iter().collect();
    }
    if received.is_unseen {
        return Vec::new();
    }
    if received.losses.is_empty() {
        // Which of its rings it was, an AF_XDP socket tells when it stops; until then any of them accounts for the
        // redirects that failed.
        let place =
            if received.is_xsk { Place::XskRingFull.into() } else { LossPlace::from("receiving ring") };
        return vec![LedgerLine::new(place, received.lost, "the ring's own counters")];
    }
    received.losses.clone()
}

/// The lines of a receiver on a host that others use too: what its own sockets know. The host's other counters
/// are everybody's.
pub fn host_rx_lines(counters: &HostCounters, received: &Received) -> Vec<LedgerLine> {
    receive_buffer_full(counters, received).into_iter().collect()
}

/// A socket counts a dropped buffer once, however many datagrams GRO joined in it. IP counts datagrams: what it
/// took and no application got was in those buffers, as far as none held more than the buffers that were received. What is
/// beyond that was lost elsewhere, and stays unexplained. Any may hold fewer: what ends a poll of the device is passed on as it
/// is, and where NAPI has threads a full socket loses those too.
fn receive_buffer_full(counters: &HostCounters, received: &Received) -> Option<LedgerLine> {
    const MOST_JOINED: u64 = 64; // UDP_GRO_CNT_MAX, net/ipv4/udp_offload.c
    let reached_ip = counters.both("IpExtInNoECTPkts", "Ip6InNoECTPkts");
    let elsewhere = counters.both("UdpNoPorts", "Udp6NoPorts");
    let missing = reached_ip.saturating_sub(received.delivered).saturating_sub(elsewhere);
    let buffers = received.lost;
    let place = Place::ReceiveBuffer;
    if buffers == 0 {
        return None;
    }
    let may_hold = buffers..=buffers.saturating_mul(MOST_JOINED);
    if !received.gro || !may_hold.contains(&missing) {
        let source = "socket SK_MEMINFO_DROPS";
        return Some(LedgerLine { unit: Unit::Packets, ..LedgerLine::at(place, buffers, source) });
    }
    let each = received.joined.unwrap_or(JoinedDatagrams { most: MOST_JOINED });
    let most = buffers.saturating_mul(each.most);
    let source = format!(
        "IpExt InNoECTPkts − delivered; socket SK_MEMINFO_DROPS counts their {buffers} buffers, of at most {} datagrams \
         each: {most}",
        each.most
    );
    Some(LedgerLine { unit: Unit::Buffers, ..LedgerLine::at(place, missing.min(most), &source) })
}

/// Counters of a driver that the data file does not know and that moved: shown as lines without packets, because
/// nobody knows whether they are losses.
fn unknown_counters(side: &str, counters: &HostCounters, drivers: &Drivers) -> Vec<LedgerLine> {
    let unknown = |name: &str| drivers.kind(&counters.driver, name) == CounterKind::Unknown;
    let moved = counters.driver_counters.iter().filter(|(name, value)| *value > 0 && unknown(name));
    let line = |(name, value): &(String, u64)| {
        let source = format!("{side} {} {name} +{value}", counters.driver);
        LedgerLine::unknown_counter(&source)
    };
    moved.map(line).collect()
}

/// All counters of a driver that are about one place.
fn sum(counters: &HostCounters, drivers: &Drivers, place: Place) -> u64 {
    let is_of = |name: &str| match drivers.kind(&counters.driver, name) {
        CounterKind::Loss(loss) => loss.place == place,
        _ => false,
    };
    let of_place = counters.driver_counters.iter().filter(|(name, _)| is_of(name));
    of_place.fold(0, |sum, (_, value)| sum.saturating_add(*value))
}

#[cfg(test)]
mod tests;
