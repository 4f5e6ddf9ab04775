//! What is diverted and what is not, on the lab.

use std::{
    net::{IpAddr, UdpSocket},
    time::Duration,
};

use bpf::{
    Divert, DivertOptions, Fate, Instruction, Mode, PacketSide, Passed, Per, RuleAction, RuleCount, SetLevel,
    SetMember, TableEntry, TcpSession, TokenBucket,
};
use lab::{Lab, LabPlan};
use testing::wait_for;

use crate::support::lab;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);
const DROP: RuleAction = RuleAction { fate: Fate::Drop, limit: None };
/// `udp and dst port 9` for a frame without VLAN tag, as written by hand: the first rule takes it.
const PORT_9: [Instruction; 10] = [
    [0xb7, 0, 0, 0, 0, 0, 0, 0],     // r0 = 0
    [0xbf, 0x13, 0, 0, 0, 0, 0, 0],  // r3 = r1
    [0x07, 3, 0, 0, 42, 0, 0, 0],    // r3 += 42
    [0x2d, 0x23, 5, 0, 0, 0, 0, 0],  // if r3 > r2 goto exit
    [0x71, 0x13, 23, 0, 0, 0, 0, 0], // r3 = *(u8 *)(r1 + 23)
    [0x55, 3, 3, 0, 17, 0, 0, 0],    // if r3 != 17 goto exit
    [0x69, 0x13, 36, 0, 0, 0, 0, 0], // r3 = *(u16 *)(r1 + 36)
    [0x55, 3, 1, 0, 0, 9, 0, 0],     // if r3 != htons(9) goto exit
    [0xb7, 0, 0, 0, 1, 0, 0, 0],     // r0 = 1
    [0x95, 0, 0, 0, 0, 0, 0, 0],     // exit
];

fn options(rules: Vec<RuleAction>) -> DivertOptions {
    DivertOptions {
        queues: 2,
        rules,
        table: Vec::new(),
        members: Vec::new(),
        lines4: Vec::new(),
        lines6: Vec::new(),
        sample_every: 0,
        code: Vec::new(),
        networks: Vec::new(),
        sessions: Vec::new(),
        buckets: 1024,
        may_be_links: true,
    }
}

fn to_port(rule: u32, port: u16) -> TableEntry {
    let port = Some((PacketSide::Destination, port));
    TableEntry { rule, ipv4: true, network: None, port, protocol: Some(17) }
}

/// Loads, attaches on the receiving side and diverts all queues.
fn divert(lab: &Lab, options: &DivertOptions) -> Divert {
    let side = lab.rx();
    let mut divert = Divert::load(options).unwrap();
    side.run(|| divert.attach(side.index(), Mode::Native)).unwrap().unwrap();
    for queue in 0..options.queues {
        divert.divert_for(queue, LONG).unwrap();
    }
    divert
}

/// Sends to a port from the other side and waits until the program there has seen all of it.
fn send(lab: &Lab, port: u16, count: u64) {
    let target = (IpAddr::from(lab.rx().ipv4()[0]), port);
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        (0..count).for_each(|_| assert_eq!(socket.send_to(&[0; 18], target).unwrap(), 18));
    };
    let before = seen(lab);
    lab.tx().run(send).unwrap();
    wait_for("the program to see all packets", || seen(lab) >= before + count);
}

/// Packets that the veth gave to its program.
fn seen(lab: &Lab) -> u64 {
    let statistics = lab.rx().driver_statistics().unwrap();
    statistics.iter().filter(|(name, _)| name.ends_with("_xdp_packets")).map(|(_, count)| count).sum()
}

/// Waits until this many datagrams have reached the other side's stack, without a listener.
fn assert_delivered(lab: &Lab, count: u64) {
    let delivered = || lab.rx().net_counters().unwrap().value("UdpNoPorts").unwrap();
    wait_for("the stack", || delivered() >= count);
    assert_eq!(delivered(), count);
}

fn counted(packets: u64) -> RuleCount {
    RuleCount { packets, bytes: packets * 60, ..RuleCount::default() }
}

#[test]
fn each_rule_counts_its_own_and_the_first_that_fits_takes() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let network = Some((PacketSide::Source, IpAddr::from(lab.tx().ipv4()[0]), 24));
    let any = TableEntry { rule: 2, ipv4: true, network, port: None, protocol: None };
    let table = vec![to_port(1, 10), any, to_port(3, 10)];
    let code = PORT_9.to_vec();
    let options = DivertOptions { table, code, ..options(vec![DROP; 4]) };
    let divert = divert(&lab, &options);
    for (port, count) in [(9, 5), (10, 7), (11, 2)] {
        send(&lab, port, count);
    }
    assert_eq!(divert.rule_counts().unwrap(), [counted(5), counted(7), counted(2), counted(0)]);
    assert_eq!(divert.passed().unwrap(), Passed::default());
    assert_delivered(&lab, 0);
}

#[test]
fn what_no_rule_takes_and_what_comes_on_the_kernels_queue_arrives() {
    let Some(lab) = lab(&LabPlan { queues: 1, ..LabPlan::default() }) else { return };
    let mut divert = divert(&lab, &DivertOptions { code: PORT_9.to_vec(), ..options(vec![DROP]) });
    send(&lab, 10, 3);
    divert.give_back(0).unwrap();
    send(&lab, 9, 4);
    let tick_ns = sys::accounting::tick_ns();
    divert.divert_for(0, Duration::from_nanos(tick_ns)).unwrap();
    let over_ns = sys::clock::monotonic_ns() + 3 * tick_ns;
    while sys::clock::monotonic_ns() < over_ns {
        std::hint::spin_loop();
    }
    send(&lab, 9, 5);
    assert_eq!(divert.rule_counts().unwrap(), [counted(0)]);
    assert_eq!(
        divert.passed().unwrap(),
        Passed { unmatched: 3, excluded: 0, kernels: 4, stale: 5, unsampled: 0 }
    );
    assert_delivered(&lab, 12);
}

#[test]
fn networks_of_the_management_are_never_diverted() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let networks = vec![(IpAddr::from(lab.tx().ipv4()[0]), 30)];
    let code = PORT_9.to_vec();
    let divert = divert(&lab, &DivertOptions { networks, code, ..options(vec![DROP]) });
    send(&lab, 9, 6);
    assert_eq!(divert.passed().unwrap().excluded, 6);
    assert_delivered(&lab, 6);
}

#[test]
fn a_bucket_lets_its_tokens_through_and_no_more() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    // Ten packets fit the bucket, and an eleventh only after an hour.
    let hour = 3_600_000_000_000;
    let mut delivered = 0;
    for (per, limited) in [(Per::Rule, 40), (Per::Source, 40), (Per::Destination, 40), (Per::Flow, 30)] {
        let limit = TokenBucket { per, packet_cost_ns: hour, kilobyte_cost_ns: 0, burst_ns: 10 * hour };
        let rule = RuleAction { fate: Fate::GiveBack, limit: Some(limit) };
        let divert = divert(&lab, &DivertOptions { code: PORT_9.to_vec(), ..options(vec![rule]) });
        // Two flows that differ only in the source port.
        send(&lab, 9, 25);
        send(&lab, 9, 25);
        let expected = RuleCount { limited, limited_bytes: limited * 60, ..counted(50) };
        assert_eq!(divert.rule_counts().unwrap(), [expected], "{per:?}");
        delivered += 50 - limited;
        assert_delivered(&lab, delivered);
    }
}

#[test]
fn a_replacement_takes_over_without_a_gap() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut first = divert(&lab, &DivertOptions { code: PORT_9.to_vec(), ..options(vec![DROP]) });
    send(&lab, 9, 3);
    let mut second =
        Divert::load(&DivertOptions { table: vec![to_port(0, 10)], ..options(vec![DROP]) }).unwrap();
    for queue in 0..2 {
        second.divert_for(queue, LONG).unwrap();
    }
    second.take_over(&mut first).unwrap();
    drop(first);
    send(&lab, 10, 4);
    send(&lab, 9, 5);
    assert_eq!(second.rule_counts().unwrap(), [counted(4)]);
    assert_eq!(second.passed().unwrap().unmatched, 5);
}

/// A set of one IPv4 and one IPv6 network in a level of one line each.
fn one_network(side: PacketSide, line: u32) -> SetMember {
    let level = vec![SetLevel { first_line: line, bounds: 2 }];
    SetMember { side, levels4: level.clone(), levels6: level }
}

#[test]
fn sets_are_looked_up_beside_everything_else_that_the_program_can_do() {
    /// Rule 1 takes what is in the set of the last member.
    const LAST_MEMBER: [Instruction; 3] = [
        [0xbf, 0x30, 0, 0, 0, 0, 0, 0], // r0 = r3
        [0x77, 0, 0, 0, 15, 0, 0, 0],   // r0 >>= 15
        [0x95, 0, 0, 0, 0, 0, 0, 0],    // exit
    ];
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let sender = lab.tx().ipv4()[0].to_bits();
    let first6 = 0x2001_0db8_u128 << 96;
    let lines4 = |from: u32| {
        let mut lines = vec![[u32::MAX; 16]; 2];
        lines[1][..2].copy_from_slice(&[from, from + 1]);
        lines
    };
    let mut lines6 = vec![[u128::MAX; 8]; 2];
    lines6[1][..2].copy_from_slice(&[first6, first6 + (1 << 80)]);
    let mut members = vec![one_network(PacketSide::Destination, 0); DivertOptions::MOST_MEMBERS - 1];
    members.push(one_network(PacketSide::Source, 1));
    // With a set that the sender is in, and with its neighbour.
    for (from, taken) in [(sender, 30), (sender + 1, 0)] {
        let limit = TokenBucket { per: Per::Flow, packet_cost_ns: 1, kilobyte_cost_ns: 0, burst_ns: 1 << 40 };
        let options = DivertOptions {
            code: LAST_MEMBER.to_vec(),
            members: members.clone(),
            lines4: lines4(from),
            lines6: lines6.clone(),
            table: vec![to_port(2, 7), TableEntry { ipv4: false, ..to_port(2, 7) }],
            sample_every: 10,
            networks: vec![("198.51.100.0".parse().unwrap(), 24)],
            sessions: vec![TcpSession { peer: "198.51.100.1:9".parse().unwrap(), local_port: 9 }],
            ..options(vec![DROP, RuleAction { fate: Fate::GiveBack, limit: Some(limit) }])
        };
        let mut divert = divert(&lab, &options);
        send(&lab, 9, 30);
        assert_eq!(divert.rule_counts().unwrap(), [counted(taken), RuleCount::default()]);
        let mut shown = 0;
        divert.drops_shown(|_| shown += 1);
        assert_eq!(shown > 0, taken > 0);
    }
}
