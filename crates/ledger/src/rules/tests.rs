use super::*;

fn packets(lines: &[LedgerLine], place: Place) -> u64 {
    lines.iter().filter(|line| line.place == place.name()).map(|line| line.packets).sum()
}

fn sum(lines: &[LedgerLine]) -> u64 {
    lines.iter().map(|line| line.packets).sum()
}

fn counted(snmp: &str) -> HostCounters {
    HostCounters { protocols: sys::procfs::parse_snmp(snmp).unwrap(), ..HostCounters::default() }
}

fn lines(tx: &HostCounters, rx: &HostCounters, received: &Received) -> Vec<LedgerLine> {
    lab_lines(tx, rx, 0, received, &Drivers::built_in())
}

fn udp(lost: u64) -> Received {
    Received { is_udp: true, lost, ..Received::default() }
}

#[test]
fn a_dropped_buffer_of_joined_datagrams_counts_as_all_of_them() {
    let counters = counted("IpExt: InNoECTPkts\nIpExt: 1000\n");
    let received = Received { delivered: 360, lost: 10, gro: true, ..Received::default() };
    let lost = |received: &Received| receive_buffer_full(&counters, received).unwrap().packets;
    assert_eq!(lost(&received), 640);
    assert_eq!(lost(&Received { delivered: 359, ..received.clone() }), 10, "641 do not fit 10 buffers");
    assert_eq!(lost(&Received { gro: false, ..received }), 10);
}

#[test]
fn a_full_backlog_counted_at_both_ends_is_one_loss() {
    let (mut tx, mut rx) = (HostCounters::default(), HostCounters::default());
    tx.link.tx_dropped = 10;
    rx.link.rx_dropped = 4;
    let lines = lines(&tx, &rx, &udp(0));
    assert_eq!(packets(&lines, Place::Backlog), 4);
    assert_eq!(packets(&lines, Place::PeerRing), 6);
    assert_eq!(sum(&lines), 10);
}

#[test]
fn a_socket_s_drops_are_not_counted_again_by_the_protocol() {
    let rx = counted("Udp: NoPorts RcvbufErrors InCsumErrors MemErrors\nUdp: 3 10 1 2\n");
    let lines = lines(&HostCounters::default(), &rx, &udp(12));
    assert_eq!(packets(&lines, Place::ReceiveBuffer), 12);
    assert_eq!(packets(&lines, Place::OtherSockets), 1);
    assert_eq!(packets(&lines, Place::NoSocket), 3);
    assert_eq!(sum(&lines), 16);
}

#[test]
fn what_an_af_xdp_socket_lost_is_not_the_interface_s_again() {
    let (tx, mut rx) = (HostCounters::default(), HostCounters::default());
    rx.link.rx_dropped = 9;
    let line = LedgerLine::new(Place::XskRingFull.name(), 9, "XDP_STATISTICS rx_ring_full");
    let received = Received { is_xsk: true, lost: 9, losses: vec![line], ..Received::default() };
    let lines = lines(&tx, &rx, &received);
    assert_eq!((sum(&lines), packets(&lines, Place::XskRingFull)), (9, 9));
}

#[test]
fn a_counter_that_nobody_knows_is_shown_when_it_moved_and_counts_nothing() {
    let driver_counters = vec![("new_drops".into(), 5), ("other".into(), 0), ("peer_ifindex".into(), 2)];
    let rx = HostCounters { driver: "veth".into(), driver_counters, ..HostCounters::default() };
    let lines = lines(&HostCounters::default(), &rx, &udp(0));
    assert_eq!((lines.len(), sum(&lines)), (1, 0));
    assert_eq!(lines[0].source, "lab-rx veth new_drops +5");
}
