//! Rules in both places, queues that come and go, rules that change.

use divert::{Place, Rule, RuleVerdict};
use lab::{Lab, LabPlan};

use crate::support::{FLOODED, VALID, delivered, lab, plan, send, settle, start};

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
    arrives_through_user_space(&lab);
    // Between namespaces a sender leaves checksums to a card that is not there.
    let plan = LabPlan { gro: true, tx_checksum: true, ..LabPlan::default() };
    arrives_through_user_space(&Lab::create(&plan).unwrap());
}

fn arrives_through_user_space(lab: &Lab) {
    let rules = [format!("pass udp and dst port {VALID}"), "drop all".into()];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut diversion = start(lab, &plan(lab, Place::User, &rules));
    send(lab, &mut diversion, FLOODED, 300);
    send(lab, &mut diversion, VALID, 200);
    let status = settle(&mut diversion, 500);
    assert_eq!((status.ledger.of("dropped"), status.ledger.of("reinjected")), (300, 200), "{status:#?}");
    assert_eq!(delivered(lab), 200);
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
                    .reload(vec![Rule::new(RuleVerdict::Pass, format!("udp and dst port {}", VALID + round))])
                    .unwrap(),
            }
        }
        let status = settle(&mut diversion, 300);
        assert_eq!(status.reloads, 2);
        assert_eq!(delivered(&lab) - before, 300, "{place:?}: {:#?}", status.ledger);
    }
}
