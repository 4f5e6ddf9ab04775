use proptest::prelude::*;

use super::*;

const WITNESSES: [Witness; 7] = [
    Witness::Port,
    Witness::Protocol,
    Witness::Qdisc,
    Witness::Link,
    Witness::Driver,
    Witness::Softnet,
    Witness::Reason,
];

#[test]
fn two_witnesses_of_a_loss_are_one_loss_and_counters_of_one_witness_add_up() {
    let mut evidence = Evidence::default();
    evidence.saw(Place::NicMissed, Witness::Link, 10, "rx_missed_errors");
    evidence.saw(Place::NicMissed, Witness::Driver, 6, "rx_queue_0_drops");
    evidence.saw(Place::NicMissed, Witness::Driver, 5, "rx_queue_1_drops");
    let lines = evidence.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!((lines[0].packets, lines[0].source.as_str()), (11, "rx_queue_0_drops + rx_queue_1_drops"));
}

#[test]
fn a_counter_that_contains_others_keeps_what_is_left() {
    let mut evidence = Evidence::default();
    evidence.saw(Place::Backlog, Witness::Softnet, 4, "softnet dropped");
    evidence.saw_all(Place::ReceivingInterface, Witness::Link, 10, "rx_dropped", &[Place::Backlog]);
    let lines = evidence.lines();
    assert_eq!(
        lines.iter().map(|line| (line.place.as_str(), line.packets)).collect::<Vec<_>>(),
        [("receive backlog full", 4), ("receiving interface", 6)]
    );
    assert_eq!(lines[1].source, "rx_dropped − receive backlog full");
}

#[test]
fn a_counter_that_is_lower_than_what_it_contains_leaves_nothing() {
    let mut evidence = Evidence::default();
    evidence.saw(Place::Backlog, Witness::Softnet, 40, "softnet dropped");
    evidence.saw_all(Place::ReceivingInterface, Witness::Link, 10, "rx_dropped", &[Place::Backlog]);
    assert_eq!(evidence.packets(Place::ReceivingInterface), 0);
}

#[test]
fn rules_that_contain_each_other_end() {
    let mut evidence = Evidence::default();
    evidence.saw_all(Place::Backlog, Witness::Link, 3, "a", &[Place::ReceivingInterface]);
    evidence.saw_all(Place::ReceivingInterface, Witness::Link, 5, "b", &[Place::Backlog]);
    assert_eq!(evidence.packets(Place::Backlog) + evidence.packets(Place::ReceivingInterface), 2);
}

#[test]
fn counters_wrap_at_their_width_and_start_again_after_a_reset() {
    assert_eq!(grown(10, 15, 64), 5);
    assert_eq!(grown(u64::from(u32::MAX) - 1, 3, 32), 5, "wrapped");
    assert_eq!(grown(1 << 40, 3, 64), 3, "reset to 0 and counted three since");
    assert_eq!(grown(1 << 40, 3, 32), 3, "too large for 32 bits");
}

fn sightings() -> impl Strategy<Value = Vec<(Place, Witness, u64)>> {
    let place = prop::sample::select(Place::ALL);
    let witness = prop::sample::select(&WITNESSES[..]);
    prop::collection::vec((place, witness, 0..1_000_000u64), 0..40)
}

fn evidence_of(sightings: &[(Place, Witness, u64)]) -> Evidence {
    let mut evidence = Evidence::default();
    for (place, witness, packets) in sightings {
        evidence.saw(*place, *witness, *packets, format!("{witness:?}"));
    }
    evidence
}

proptest! {
    #[test]
    fn overlapping_counters_count_a_loss_once(truth in prop::collection::vec(0..1_000_000u64, Place::ALL.len()), blind in any::<u64>()) {
        // Every witness sees every loss, or none at that place; at least one sees it.
        let mut evidence = Evidence::default();
        for (index, (&place, &lost)) in Place::ALL.iter().zip(&truth).enumerate() {
            for (bit, &witness) in WITNESSES.iter().enumerate() {
                if bit == index % 7 || blind >> ((index + bit * 9) % 64) & 1 == 1 {
                    evidence.saw(place, witness, lost, "counter");
                }
            }
        }
        prop_assert_eq!(evidence.lines().iter().map(|line| line.packets).sum::<u64>(), truth.iter().sum::<u64>());
    }

    #[test]
    fn what_is_contained_is_not_counted_again(inner in prop::collection::vec(0..1_000_000u64, 3), rest in 0..1_000_000u64) {
        const INSIDE: &[Place] = &[Place::Backlog, Place::XdpDrop, Place::NoHandler];
        let mut evidence = Evidence::default();
        for (&place, &lost) in INSIDE.iter().zip(&inner) {
            evidence.saw(place, Witness::Reason, lost, "reason");
        }
        let all = inner.iter().sum::<u64>() + rest;
        evidence.saw_all(Place::ReceivingInterface, Witness::Link, all, "rx_dropped", INSIDE);
        prop_assert_eq!(evidence.lines().iter().map(|line| line.packets).sum::<u64>(), all);
        prop_assert_eq!(evidence.packets(Place::ReceivingInterface), rest);
    }

    #[test]
    fn the_order_of_sightings_does_not_matter(seen in sightings(), turn in 0..40usize) {
        let mut turned = seen.clone();
        turned.rotate_left(if seen.is_empty() { 0 } else { turn % seen.len() });
        prop_assert_eq!(evidence_of(&seen).lines(), evidence_of(&turned).lines());
    }

    #[test]
    fn a_wrapping_counter_tells_what_was_counted(start in any::<u64>(), counts in prop::collection::vec(0..u64::from(u32::MAX), 1..10)) {
        let mut now = start & u64::from(u32::MAX);
        let mut told = 0u64;
        for count in &counts {
            let next = (now + count) & u64::from(u32::MAX);
            told += grown(now, next, 32);
            now = next;
        }
        prop_assert_eq!(told, counts.iter().sum::<u64>());
    }

    #[test]
    fn a_reset_never_makes_a_loss_of_nothing(before in any::<u64>(), since in any::<u64>()) {
        let told = grown(before, since, 64);
        prop_assert!(told <= since.max(since.wrapping_sub(before)), "{told}");
        prop_assert!(told <= since);
    }
}
