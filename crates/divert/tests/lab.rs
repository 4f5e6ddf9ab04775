//! Diversions in the lab: every packet is accounted for, and what is not diverted does not notice.

use std::{
    net::{IpAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use divert::{BEAT, Diversion, DivertPlan, Exclusions, Place, Rule, Status};
use lab::{Access, Lab, LabPlan};

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);
/// Flooded, and a rule's.
const FLOODED: u16 = 9;
/// Flooded too, and what passes.
const VALID: u16 = 10;

/// A lab as root, or `None` with a loud word; a failure where everything is required.
fn lab() -> Option<Lab> {
    // With GRO a veth has its receive rings all the time, as a card has.
    if let Ok(Access::Privileged) = lab::gain_access() {
        return Some(Lab::create(&LabPlan { gro: true, ..LabPlan::default() }).unwrap());
    }
    assert!(std::env::var_os("LINERATE_REQUIRE_ALL").is_none(), "diverting needs root");
    eprintln!("skipped: diverting needs root");
    None
}

fn plan(lab: &Lab, place: Place, rules: &[&str]) -> DivertPlan {
    DivertPlan {
        interface: lab.rx().interface().into(),
        queues: vec![0, 1],
        place,
        selection: None,
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        exclusions: Exclusions::default(),
        reinject: true,
        cpus: Vec::new(),
        spin: false,
        sample_one_in: 0,
        sample_file: None,
        keep_file: None,
    }
}

fn start(lab: &Lab, plan: &DivertPlan) -> Diversion {
    lab.rx().run(|| Diversion::start(plan)).unwrap().unwrap()
}

/// Sends datagrams of 18 bytes to a port, a few at a time so that no ring overflows.
fn send(lab: &Lab, diversion: &mut Diversion, port: u16, count: usize) {
    let target = (IpAddr::from(lab.rx().ipv4()[0]), port);
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        (0..count).for_each(|_| assert_eq!(socket.send_to(&[0; 18], target).unwrap(), 18));
    };
    thread::scope(|scope| {
        let sending = scope.spawn(|| lab.tx().run(send).unwrap());
        while !sending.is_finished() {
            diversion.beat().unwrap();
            thread::sleep(BEAT / 20);
        }
    });
}

/// Datagrams that came to the other side's stack; nobody listens there.
fn delivered(lab: &Lab) -> u64 {
    lab.rx().net_counters().unwrap().value("UdpNoPorts").unwrap()
}

/// Beats until what was sent has arrived and is explained.
fn settle(diversion: &mut Diversion, arrived: u64) -> Status {
    let deadline = Instant::now() + PATIENCE;
    loop {
        diversion.beat().unwrap();
        let status = diversion.status().unwrap();
        if status.ledger.arrived == arrived && status.ledger.unexplained == 0 {
            return status;
        }
        assert!(Instant::now() < deadline, "{:#?}", status.ledger);
        thread::sleep(BEAT / 10);
    }
}

#[test]
fn in_xdp_rules_drop_and_pass_and_everything_is_accounted_for() {
    let Some(lab) = lab() else { return };
    let rules = [format!("drop udp and dst port {FLOODED}"), "pass ip and src net 198.18.0.0/15".into()];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut diversion = start(&lab, &plan(&lab, Place::Xdp, &rules));
    send(&lab, &mut diversion, FLOODED, 300);
    send(&lab, &mut diversion, VALID, 200);
    let status = settle(&mut diversion, 500);
    let packets: Vec<u64> = status.rules.iter().map(|rule| rule.packets).collect();
    assert_eq!(packets, [300, 200]);
    assert_eq!((status.ledger.of("dropped"), status.ledger.of("passed")), (300, 200));
    assert_eq!(delivered(&lab), 200);
}

#[test]
fn in_user_space_what_passes_arrives_as_if_nothing_had_happened() {
    let Some(lab) = lab() else { return };
    let rules = [format!("pass udp and dst port {VALID}"), "drop all".into()];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut diversion = start(&lab, &plan(&lab, Place::User, &rules));
    send(&lab, &mut diversion, FLOODED, 300);
    send(&lab, &mut diversion, VALID, 200);
    let status = settle(&mut diversion, 500);
    assert_eq!((status.ledger.of("dropped"), status.ledger.of("reinjected")), (300, 200), "{status:#?}");
    assert_eq!(delivered(&lab), 200);
    let last = diversion.finish().unwrap();
    assert_eq!(last.ledger, status.ledger);
}

#[test]
fn queues_join_and_leave_and_rules_change_without_a_packet_lost() {
    let Some(lab) = lab() else { return };
    for place in [Place::Xdp, Place::User] {
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
                    .reload(vec![Rule::new(
                        divert::RuleVerdict::Pass,
                        format!("udp and dst port {}", VALID + round),
                    )])
                    .unwrap(),
            }
        }
        let status = settle(&mut diversion, 300);
        assert_eq!(status.reloads, 2);
        assert_eq!(delivered(&lab) - before, 300, "{place:?}: {:#?}", status.ledger);
    }
}
