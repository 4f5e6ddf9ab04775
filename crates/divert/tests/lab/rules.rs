//! Rules in both places, queues that come and go, rules that change.

use std::{net::UdpSocket, thread, time::Instant};

use divert::{BEAT, DivertPlan, Fate, FilterAt, Status};
use lab::{Lab, LabPlan};
use port::{XdpTx, XdpTxOptions};
use wire::{FrameSpec, MacAddr, Sizes, Template, Values};

use crate::support::{FLOODED, PATIENCE, VALID, delivered, lab, plan, send, settle, start};

#[test]
fn in_xdp_rules_drop_and_pass_and_everything_is_accounted_for() {
    let Some(lab) = lab() else { return };
    let rules = [format!("drop udp and dst port {FLOODED}"), "pass ip and src net 198.18.0.0/15".into()];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut diversion = start(&lab, &plan(&lab, FilterAt::Xdp, &rules));
    send(&lab, &mut diversion, FLOODED, 300);
    send(&lab, &mut diversion, VALID, 200);
    let status = settle(&mut diversion, 500);
    let packets: Vec<u64> = status.rules.iter().map(|rule| rule.packets).collect();
    assert_eq!(packets, [300, 200]);
    assert_eq!((status.ledger.of(Fate::Dropped), status.ledger.of(Fate::Passed)), (300, 200));
    assert_eq!(delivered(&lab), 200);
}

#[test]
fn in_user_space_what_passes_arrives_as_if_nothing_had_happened() {
    let Some(lab) = lab() else { return };
    arrives_through_user_space(&lab);
    // Between namespaces a sender leaves checksums to a card that does not exist.
    let plan = LabPlan { gro: true, tx_checksum: true, ..LabPlan::default() };
    arrives_through_user_space(&Lab::create(&plan).unwrap());
}

fn arrives_through_user_space(lab: &Lab) {
    let rules = [format!("pass udp and dst port {VALID}"), "drop all".into()];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut diversion = start(lab, &plan(lab, FilterAt::User, &rules));
    send(lab, &mut diversion, FLOODED, 300);
    send(lab, &mut diversion, VALID, 200);
    let status = settle(&mut diversion, 500);
    assert_eq!(
        (status.ledger.of(Fate::Dropped), status.ledger.of(Fate::Reinjected)),
        (300, 200),
        "{status:#?}"
    );
    assert_eq!(delivered(lab), 200);
    let last = diversion.finish().unwrap();
    assert_eq!(last.ledger, status.ledger);
}

#[test]
fn queues_join_and_leave_and_rules_change_without_a_packet_lost() {
    let Some(lab) = lab() else { return };
    for place in [FilterAt::Xdp, FilterAt::User] {
        let before = delivered(&lab);
        let rule = format!("pass udp and dst port {VALID}");
        let mut diversion = start(&lab, &plan(&lab, place, &[&rule]));
        for round in 0..6 {
            send(&lab, &mut diversion, VALID, 50);
            match round {
                0 => diversion.remove_queue(0).unwrap(),
                1 => lab.rx().run(|| diversion.add_queue(0)).unwrap().unwrap(),
                2 => diversion.remove_queue(1).unwrap(),
                3 => lab.rx().run(|| diversion.add_queue(1)).unwrap().unwrap(),
                _ => diversion
                    .reload(vec![format!("pass udp and dst port {}", VALID + round).parse().unwrap()])
                    .unwrap(),
            }
        }
        let status = settle(&mut diversion, 300);
        assert_eq!(status.reloads, 2);
        assert_eq!(delivered(&lab) - before, 300, "{place:?}: {:#?}", status.ledger);
    }
}

#[test]
fn queues_join_and_leave_under_load_and_the_ledger_closes_over_each_change() {
    let Some(lab) = lab() else { return };
    const BURSTS: usize = 100;
    const BURST: usize = 16;
    for place in [FilterAt::Xdp, FilterAt::User] {
        let before = delivered(&lab);
        let rules = [format!("pass udp and dst port {VALID}"), format!("drop udp and dst port {FLOODED}")];
        let mut diversion = start(&lab, &plan(&lab, place, &rules.each_ref().map(String::as_str)));
        let (mut sent, mut changes) = (0, 0u32);
        for round in 0..4 {
            let flood = || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                let address = lab.rx().ipv4()[0];
                for _ in 0..BURSTS {
                    for port in [VALID, FLOODED] {
                        (0..BURST).for_each(|_| {
                            socket.send_to(&[0; 18], (address, port)).unwrap();
                        });
                    }
                    thread::yield_now();
                }
            };
            thread::scope(|scope| {
                let sending = scope.spawn(|| lab.tx().run(flood).unwrap());
                while !sending.is_finished() {
                    let queue = changes / 2 % 2;
                    match changes % 2 {
                        0 => diversion.remove_queue(queue).unwrap(),
                        _ => lab.rx().run(|| diversion.add_queue(queue)).unwrap().unwrap(),
                    }
                    changes += 1;
                    diversion.beat().unwrap();
                }
            });
            if changes % 2 == 1 {
                let queue = changes / 2 % 2;
                lab.rx().run(|| diversion.add_queue(queue)).unwrap().unwrap();
                changes += 1;
            }
            sent += (2 * BURSTS * BURST) as u64;
            // Every loss is in a line; nothing is unexplained.
            let status = settle(&mut diversion, sent);
            let ledger = &status.ledger;
            let (dropped, lost) = (ledger.of(Fate::Dropped), ledger.of(Fate::Lost));
            let told = format!("{place:?}, round {round}, {changes} changes: {ledger:#?}");
            assert_eq!(delivered(&lab) - before + dropped + lost, sent, "{told}");
            assert!(place == FilterAt::User || lost == 0, "{told}");
            assert_eq!(dropped, status.rules[1].packets, "{told}");
        }
        assert!(changes >= 8, "{changes} changes");
    }
}

/// Frames by VLAN tags (the outer one first), IP version and destination port.
const FRAMES: [(&[&str], u8, u16); 7] = [
    (&[], 4, FLOODED),
    (&[], 4, VALID),
    (&[], 6, FLOODED),
    (&["5"], 4, FLOODED),
    (&["5"], 6, VALID),
    (&["7"], 4, FLOODED),
    (&["7", "5"], 4, FLOODED),
];

/// `--match`, a dropping rule, and how many of [`FRAMES`] the rule takes.
const BOTH_SAY: [(&str, &str, u64); 6] = [
    ("all", "udp", 3),
    ("udp dst port 9", "ip6", 1),
    // As one text, the `vlan` would shift what follows: it would take 2 frames, and then 1.
    ("vlan 5", "udp", 0),
    ("vlan", "vlan 5", 2),
    ("vlan", "vlan and ip6", 1),
    ("vlan 7", "vlan and vlan 5", 1),
];

#[test]
fn match_and_rule_mean_the_same_in_both_places() {
    let Some(lab) = lab() else { return };
    let open = |template: &Template| {
        let options = XdpTxOptions::on(lab.tx().index());
        lab.tx().run(|| XdpTx::open(template.recipe(), &options)).unwrap().unwrap()
    };
    let mut senders: Vec<XdpTx> = FRAMES.iter().map(|frame| open(&template(&lab, frame))).collect();
    for (selection, dropped, taken) in BOTH_SAY {
        // With a limit, the kernel's program knows the rules of user space, too.
        for (place, limit) in [(FilterAt::Xdp, ""), (FilterAt::User, ""), (FilterAt::User, "limit 1Mpps ")] {
            let rules = [format!("drop {limit}{dropped}"), "pass all".into()];
            let plan = DivertPlan {
                selection: Some(selection.parse().unwrap()),
                ..plan(&lab, place, &rules.each_ref().map(String::as_str))
            };
            let status = after_frames(&lab, &plan, &mut senders);
            let case = format!("{place:?}, --match '{selection}', drop {limit}{dropped}: {status:#?}");
            assert_eq!(status.rules[0].packets, taken, "{case}");
            assert_eq!(status.ledger.of(Fate::Dropped), taken, "{case}");
            let (passed, again) = (status.ledger.of(Fate::Passed), status.ledger.of(Fate::Reinjected));
            assert_eq!(passed + again, FRAMES.len() as u64 - taken, "{case}");
        }
    }
}

/// The status of a diversion that has seen each frame once, within its deadline.
pub(crate) fn after_frames(lab: &Lab, plan: &DivertPlan, senders: &mut [XdpTx]) -> Status {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut diversion = start(lab, plan);
        let send = || senders.iter_mut().for_each(|sender| assert_eq!(sender.send(1, 0).unwrap().taken, 1));
        thread::scope(|scope| {
            let sending = scope.spawn(|| lab.tx().run(send).unwrap());
            while !sending.is_finished() {
                diversion.beat().unwrap();
                thread::sleep(BEAT / 20);
            }
        });
        let status = settle(&mut diversion, senders.len() as u64);
        let stale = "came after the queue's deadline";
        if !status.ledger.lines.iter().any(|entry| entry.line.place == stale) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status:#?}");
        println!("measured again: a busy machine renewed the deadline too late");
    }
}

fn template(lab: &Lab, (tags, version, port): &(&[&str], u8, u16)) -> Template {
    let (src, dst) = match version {
        4 => (lab.tx().ipv4()[0].into(), lab.rx().ipv4()[0].into()),
        _ => (lab.tx().ipv6()[0].into(), lab.rx().ipv6()[0].into()),
    };
    let spec = FrameSpec {
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        vlan: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        src_addr: Values::Fixed(src),
        dst_addr: Values::Fixed(dst),
        dst_port: Values::Fixed(*port),
        sizes: Sizes::Frame("128".parse().unwrap()),
        ..FrameSpec::default()
    };
    Template::new(&spec).unwrap()
}
