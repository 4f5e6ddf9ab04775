use nic::{Card, Page};
use trial::Pair;

use super::{super::knob::*, *};

fn space_of(goal: TuneGoal, place: TunePlace, tx: &str, rx: &str, given: &[&str]) -> TuneSpace {
    let loopback = Page::read(&mut Card::open("lo").unwrap()).unwrap();
    let pair = Pair { tx: tx.parse().unwrap(), rx: rx.parse().unwrap() };
    let given: Vec<String> = given.iter().map(|word| (*word).to_owned()).collect();
    TuneSpace::of(&Surroundings {
        goal,
        place,
        pair: &pair,
        given: &given,
        threads: (1, 1),
        flows: 8,
        cpus: &[0, 1, 2, 3],
        rx_cpus: &[1],
        interface: (place != TunePlace::Peer).then_some(&loopback),
        machine: Some(&loopback),
    })
}

fn names(space: &TuneSpace) -> Vec<&str> {
    space.knobs.iter().map(|knob| knob.name.as_str()).collect()
}

#[test]
fn every_knob_has_its_values_its_risk_and_how_to_undo_it() {
    let mut all: Vec<&str> = rows().map(|row| row.name).collect();
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "a knob has one row");
    for row in rows() {
        assert!(!row.about.is_empty() && !row.risk.is_empty() && !row.undone.is_empty(), "{}", row.name);
    }
    let space = space_of(TuneGoal::Rx, TunePlace::Lab, "udp", "udp", &[]);
    for knob in &space.knobs {
        assert!(knob.values.len() > 1 && !knob.risk.is_empty() && !knob.undone.is_empty(), "{knob:?}");
    }
    let known = names(&space).len() + space.left_out.len();
    assert!(known >= count, "each row is a knob or left out with a reason");
    assert!(space.left_out.values().all(|reason| !reason.is_empty()));
}

#[test]
fn a_path_has_its_own_knobs() {
    let lab = space_of(TuneGoal::Rx, TunePlace::Lab, "udp", "udp", &[]);
    for name in ["tx+gso", "rx+gro", "batch-size", "threaded-napi", "readers", "receive-buffer", "spin"] {
        assert!(names(&lab).contains(&name), "{name}: {:?}", names(&lab));
    }
    let readers = lab.knobs.iter().find(|knob| knob.name == "readers").unwrap();
    let shown: Vec<&str> = readers.values.iter().map(|value| value.shown.as_str()).collect();
    assert_eq!(shown, ["1", "2", "4"], "as many as CPUs");
    let xsk = space_of(TuneGoal::Rx, TunePlace::Lab, "xsk", "xsk", &[]);
    assert!(names(&xsk).contains(&"rx+busypoll") && !names(&xsk).contains(&"receive-buffer"));
    let peer = space_of(TuneGoal::Rx, TunePlace::Peer, "udp", "udp", &[]);
    assert!(names(&peer).contains(&"tx+gso") && !names(&peer).iter().any(|name| name.starts_with("rx+")));
    assert!(peer.left_out["spin"].contains("another host"));
    let sending = space_of(TuneGoal::Tx, TunePlace::Lab, "udp", "xdp", &[]);
    assert!(!names(&sending).iter().any(|name| name.starts_with("rx+") || *name == "receive-buffer"));
}

#[test]
fn an_option_on_the_command_line_is_not_a_knob() {
    let space = space_of(TuneGoal::Rx, TunePlace::Lab, "udp+gso", "udp", &["batch-size", "spin"]);
    for name in ["tx+gso", "batch-size", "spin"] {
        assert_eq!(space.left_out[name], GIVEN);
    }
}

#[test]
fn words_choose_knobs_by_name_kind_or_switch() {
    let all = || space_of(TuneGoal::Rx, TunePlace::Lab, "udp", "udp", &[]);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut space = all();
    space.only(&words(&["gso", "rx+gro", "sysctl"])).unwrap();
    assert!(names(&space).starts_with(&["tx+gso", "rx+gro"]));
    assert!(space.knobs[2..].iter().all(|knob| knob.name.starts_with("sysctl.")));
    assert_eq!(space.left_out["spin"], "not among --only");
    let mut space = all();
    space.never(&words(&["rx", "spin"])).unwrap();
    assert!(!names(&space).iter().any(|name| name.starts_with("rx+") || *name == "spin"));
    assert_eq!(all().only(&words(&["gso", "wings"])), Err("wings".to_owned()));
    assert_eq!(all().never(&words(&["ring.rx"])), Ok(()), "a knob that is left out is known");
}
