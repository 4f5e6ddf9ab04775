//! The rules by which counters become lines of a trial's ledger. A loss that two counters see is counted
//! once; each rule is documented at its line, and docs/ledger.md lists them all.

use measure::{LedgerLine, LossPlace, Place, Unit};

use crate::{
    counters::HostCounters,
    drivers::{CounterKind, Drivers},
    drops::Dropped,
    evidence::{Evidence, Witness},
    interface::interface_saw,
};

/// The receiving engine's own counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// Packets delivered.
    pub delivered: u64,
    /// Losses of sockets or rings; in buffers of up to 64 packets when the kernel merges datagrams.
    pub lost: u64,
    /// Whether the kernel may merge datagrams (GRO).
    pub gro: bool,
    /// Whether the driver hands packets to AF_XDP sockets.
    pub is_xsk: bool,
    /// Whether packets go through the kernel's protocols to get there.
    pub is_udp: bool,
    /// Whether an XDP program counts packets and drops them: then they are delivered, not lost.
    pub is_xdp: bool,
    /// Whether it is another program, of which only the kernel's counters are known.
    pub is_unseen: bool,
    /// Whether its socket is closed: packets unread by then are lost.
    pub is_closed: bool,
    /// Datagrams in the buffers that were received; `None` before the first.
    pub joined: Option<JoinedDatagrams>,
    /// The losses by place, once known.
    pub losses: Vec<LedgerLine>,
}

/// Datagrams per GRO buffer among those that a receiver got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinedDatagrams {
    /// The most of one buffer.
    pub most: u64,
}

/// The counts of a lab's two sides during a trial.
#[derive(Debug, Clone, Copy)]
pub struct LabGrowth<'g> {
    /// The sending side.
    pub tx: &'g HostCounters,
    /// The receiving side.
    pub rx: &'g HostCounters,
    /// The kernel's named drops, with the sending side as namespace 0 and the receiving side as 1; `None` when
    /// not watched.
    pub drops: Option<&'g [Dropped]>,
    /// Frames that the sending interface or its queueing discipline dropped with an error to the sender, and that were sent later.
    pub refused: u64,
    /// Frames sent; `None` while unknown. A card's count above this is discarded as implausible.
    pub sent: Option<u64>,
}

/// Frames that were refused and sent later, by the counter that also has them.
#[derive(Debug, Clone, Copy)]
struct Refused {
    /// A drop of the interface.
    by_link: u64,
    /// A drop of the queueing discipline above it.
    by_qdisc: u64,
    /// Counted by neither: past the queueing discipline, the kernel frees a frame that finds a card's ring full
    /// (`dev_direct_xmit`), and names that alone.
    by_ring: u64,
}

impl Refused {
    fn of(refused: u64, tx: &HostCounters) -> Self {
        let by_link = refused.min(tx.link.tx_dropped);
        let by_qdisc = (refused - by_link).min(tx.qdisc_drops);
        Self { by_link, by_qdisc, by_ring: refused - by_link - by_qdisc }
    }

    /// The packets of a drop reason at this place that were sent later after all: each is taken off once.
    fn take(&mut self, place: Place, packets: u64) -> u64 {
        let sources: &mut [&mut u64] = match place {
            Place::PeerRing | Place::DriverTx => &mut [&mut self.by_link, &mut self.by_ring],
            Place::Qdisc => &mut [&mut self.by_qdisc, &mut self.by_ring],
            _ => &mut [],
        };
        let mut taken = 0;
        for source in sources {
            let off = (packets - taken).min(**source);
            **source -= off;
            taken += off;
        }
        taken
    }
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
    let refused = Refused::of(refused, tx);
    evidence.saw(Place::Qdisc, Witness::Qdisc, tx.qdisc_drops - refused.by_qdisc, "lab-tx qdisc drops");
    if tx.is_card() || rx.is_card() {
        cards_saw(tx, rx, refused.by_link, received, drivers, &mut evidence);
    } else {
        links_saw(tx, rx, refused.by_link, received, drivers, &mut evidence);
    }
    let mut named = Vec::new();
    if let Some(drops) = drops {
        // The driver of a sending veth drops what its peer refused.
        let driver = if tx.is_card() { Place::DriverTx } else { Place::PeerRing };
        reasons_saw(drops, driver, (refused, bounced(tx)), received, &mut evidence, &mut named);
    }
    if received.is_udp || received.is_unseen {
        protocols_saw(rx, received, drops.is_some(), &mut evidence);
    }
    for line in port_lines(rx, received) {
        match line.place.known() {
            // A socket's drop count includes every loss after the socket lookup.
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

/// Both sides without losses that their cards cannot have had, and a line for each such counter: it claims more frames
/// than the sender and the sending card sent.
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
    // A veth end counts in its tx_dropped everything that its peer refused, including the peer's rx_dropped (backlog full):
    // the backlog is named, the rest is the peer's ring.
    let tx_dropped = tx.link.tx_dropped.saturating_sub(refused);
    // Frames of XDP that found the peer's ring full are in tx_dropped at one end and in rx_dropped at the other.
    // A packet that an AF_XDP socket refused is a failed redirect for the driver; the socket names it.
    let rx_dropped =
        rx.link.rx_dropped.saturating_sub(bounced(tx)).saturating_sub(received.redirected_lost());
    // Packets larger than the peer's MTU are in both, and only the kernel's reasons distinguish them.
    const NAMED: &[Place] = &[Place::PeerMtu, Place::Backlog];
    evidence.saw_all(Place::PeerRing, Witness::Link, tx_dropped, "lab-tx tx_dropped", NAMED);
    let both = rx_dropped.min(tx_dropped);
    evidence.saw_all(Place::Backlog, Witness::Link, both, "lab-rx rx_dropped", &[Place::PeerMtu]);
    // Dropped before the backlog, and not seen by the peer.
    evidence.saw_all(
        Place::ReceivingInterface,
        Witness::Link,
        rx_dropped,
        "lab-rx rx_dropped",
        &[Place::PeerMtu, Place::Backlog, Place::NoHandler, Place::XdpRedirect],
    );
    // A counting program drops what it counted.
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

/// Two cards with a wire between them. Packets received by the sending card or sent by the other are not part of the load.
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
        take_delivered_off(&mut receiving, drivers);
    }
    interface_saw("lab-rx", &receiving, drivers, evidence);
    if rx.hides_missed && tx.hides_missed {
        let counted = |card: &HostCounters, counter: &str| {
            let found = card.driver_counters.iter().find(|(name, _)| name == counter);
            found.map_or(0, |(_, packets)| *packets)
        };
        // What it does count is in the difference.
        let missed = counted(tx, "tx_packets").saturating_sub(counted(rx, "rx_packets"));
        let missed = missed.saturating_sub(sum(rx, drivers, Place::NicMissed));
        evidence.saw(Place::NicMissed, Witness::Driver, missed, HIDDEN);
    }
}

/// The source of what QEMU's 82576 drops without a counter.
const HIDDEN: &str =
    "lab-tx tx_packets − lab-rx rx_packets; QEMU's igb counts no frame without a receive descriptor";

/// Takes off what the receiving program dropped after counting it: the driver's counter of XDP's drops, and its share in
/// counters that include it.
fn take_delivered_off(receiving: &mut HostCounters, drivers: &Drivers) {
    let driver = receiving.driver.clone();
    let mut elsewhere = sum(receiving, drivers, Place::XdpDrop);
    receiving.driver_counters.retain_mut(|(name, value)| match drivers.kind(&driver, name) {
        CounterKind::Loss(loss) if loss.place == Place::XdpDrop => false,
        CounterKind::Loss(loss) if loss.contains.contains(&Place::XdpDrop) => {
            let share = elsewhere.min(*value);
            elsewhere -= share;
            *value -= share;
            if loss.also_in.as_deref() == Some("rx_dropped") {
                receiving.link.rx_dropped = receiving.link.rx_dropped.saturating_sub(share);
            }
            true
        }
        _ => true,
    });
}

/// Frames sent by XDP from an end of the pair and refused: its driver's own count.
fn bounced(tx: &HostCounters) -> u64 {
    let is_error = |name: &str| name.ends_with("_xdp_tx_errors") || name.ends_with("_xdp_xmit_errors");
    let errors = tx.driver_counters.iter().filter(|(name, _)| is_error(name));
    errors.fold(0, |sum, (_, value)| sum.saturating_add(*value))
}

/// The drops that the kernel named. `driver` is the place of the sending driver's drops. The sending side's frames that
/// were sent later, or that XDP's driver counted as bounced, are taken off.
fn reasons_saw(
    drops: &[Dropped],
    driver: Place,
    (mut refused, mut bounced): (Refused, u64),
    received: &Received,
    evidence: &mut Evidence,
    named: &mut Vec<LedgerLine>,
) {
    for drop in drops {
        let is_tx = drop.namespace == 0;
        let place = match drop.place() {
            Some(Place::DriverTx) if is_tx => Some(driver),
            place => place,
        };
        // A packet socket's copy is taken earlier, and packets of XDP and AF_XDP never get this far: the kernel drops the
        // originals, or nothing.
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
        let off = match place {
            Place::XdpTx | Place::XdpRedirect if is_tx => {
                let off = drop.packets.min(bounced);
                bounced -= off;
                off
            }
            place => refused.take(place, drop.packets),
        };
        let packets = drop.packets - off;
        match place {
            Place::XdpRedirect if !is_tx => evidence.saw_all(
                place,
                Witness::Reason,
                packets,
                drop.source(),
                // The socket names a redirect for which it had no room.
                &[Place::XskFillEmpty, Place::XskFrameSmall, Place::XskRingFull],
            ),
            // In generic XDP, an aborted packet takes the same path as a dropped one.
            Place::XdpDrop => {
                evidence.saw_all(place, Witness::Reason, packets, drop.source(), &[Place::XdpAborted])
            }
            _ => evidence.saw(place, Witness::Reason, packets, drop.source()),
        }
    }
}

/// Drops for a reason without a place.
pub(crate) fn unplaced(drop: &Dropped) -> LedgerLine {
    let line = LedgerLine::new(format!("dropped: {}", drop.reason), drop.packets, &drop.source());
    LedgerLine { unit: Unit::Buffers, ..line }
}

/// Losses from the counters of one interface alone, one line per place.
pub fn interface_lines(name: &str, counters: &HostCounters, drivers: &Drivers) -> Vec<LedgerLine> {
    let mut evidence = Evidence::default();
    interface_saw(name, counters, drivers, &mut evidence);
    evidence.lines()
}

/// One of the kernel's drops as a line.
pub fn drop_line(drop: &Dropped) -> LedgerLine {
    drop.place().map_or_else(|| unplaced(drop), |place| LedgerLine::at(place, drop.packets, &drop.source()))
}

/// Places between IP and the application in a namespace where nothing else receives. `reasons` says whether the kernel
/// names its drops: then remainders of counters are not needed.
fn protocols_saw(counters: &HostCounters, received: &Received, reasons: bool, evidence: &mut Evidence) {
    let of = |v4, v6| counters.both(v4, v6);
    let buffers = of("UdpRcvbufErrors", "Udp6RcvbufErrors") + of("UdpMemErrors", "Udp6MemErrors");
    let checksum = of("UdpInCsumErrors", "Udp6InCsumErrors");
    let ip_checksum = counters.protocols.value("IpExtInCsumErrors").unwrap_or(0);
    let mut saw = |place, packets, source| evidence.saw(place, Witness::Protocol, packets, source);
    saw(Place::IpInput, of("IpInDiscards", "Ip6InDiscards"), "Ip InDiscards");
    // A wrong IP checksum also counts as a header error.
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

/// Datagrams that a socket accepted but the application did not read: delivered by IP, less TCP's segments, datagrams read and datagrams
/// dropped.
fn left_unread(counters: &HostCounters) -> u64 {
    let of = |v4, v6| counters.both(v4, v6);
    let reached_ip = of("IpExtInNoECTPkts", "Ip6InNoECTPkts");
    let elsewhere =
        of("TcpInSegs", "IcmpInMsgs") + of("UdpNoPorts", "Udp6NoPorts") + of("UdpInErrors", "Udp6InErrors");
    reached_ip.saturating_sub(elsewhere).saturating_sub(of("UdpInDatagrams", "Udp6InDatagrams"))
}

/// Losses of the receiving socket or ring: by place if known, else as one line.
fn port_lines(counters: &HostCounters, received: &Received) -> Vec<LedgerLine> {
    if received.is_udp {
        return receive_buffer_full(counters, received).into_iter().collect();
    }
    if received.is_unseen {
        return Vec::new();
    }
    if received.losses.is_empty() {
        // An AF_XDP socket reports which of its rings it was when it stops; until then any of them accounts for the
        // redirects that failed.
        let place =
            if received.is_xsk { Place::XskRingFull.into() } else { LossPlace::from("receiving ring") };
        return vec![LedgerLine::new(place, received.lost, "the ring's own counters")];
    }
    received.losses.clone()
}

/// The lines of a receiver on a shared host: only the counts of its own sockets. The host's other counters
/// are everybody's.
pub fn host_rx_lines(counters: &HostCounters, received: &Received) -> Vec<LedgerLine> {
    receive_buffer_full(counters, received).into_iter().collect()
}

/// A socket counts a dropped buffer once, however many datagrams GRO merged in it. IP counts datagrams: those it
/// delivered and no application read were in those buffers, provided that no buffer held more than the buffers that were
/// received. What exceeds that was lost elsewhere, and stays unexplained. Any buffer may hold fewer: the end of a device
/// poll is passed on unmerged, and with threaded NAPI a full socket loses those too.
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

/// Counters of a driver that moved but are not in the data file: lines without packets, because
/// it is unknown whether they are losses.
fn unknown_counters(side: &str, counters: &HostCounters, drivers: &Drivers) -> Vec<LedgerLine> {
    let unknown = |name: &str| drivers.kind(&counters.driver, name) == CounterKind::Unknown;
    let moved = counters.driver_counters.iter().filter(|(name, value)| *value > 0 && unknown(name));
    let line = |(name, value): &(String, u64)| {
        let source = format!("{side} {} {name} +{value}", counters.driver);
        LedgerLine::unknown_counter(&source)
    };
    moved.map(line).collect()
}

/// All counters of a driver for one place.
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
