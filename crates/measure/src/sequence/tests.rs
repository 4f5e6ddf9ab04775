use super::*;
use crate::random::Random;

/// Records numbers in this order; the packet of number n was sent at n + 1.
fn after(numbers: &[u32]) -> SequenceTracker {
    let mut tracker = SequenceTracker::new();
    for (at, number) in numbers.iter().enumerate() {
        tracker.observe(*number, u64::from(*number) + 1, at as u64);
    }
    tracker
}

fn summary(readers: &[SequenceTracker]) -> SequenceSummary {
    SequenceSummary::of(&readers.iter().map(SequenceTracker::counts).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_stream_in_order_loses_nothing() {
    let got = summary(&[after(&(0..100_000).collect::<Vec<_>>())]);
    assert_eq!(
        got,
        SequenceSummary { received: 100_000, lost: Some(0), lost_ratio: Some(0.0), ..Default::default() }
    );
}

#[test]
fn lost_reordered_and_duplicate_packets_are_what_the_script_says() {
    // 3 and 4 are lost; 6 comes two packets late, 1 and 9 are duplicates.
    let got = summary(&[after(&[0, 1, 2, 5, 7, 8, 6, 1, 9, 10, 9])]);
    assert_eq!((got.received, got.lost, got.duplicates, got.reordered), (9, Some(2), 2, 1));
    assert_eq!((got.late, got.strays, got.restarts), (0, 0, 0));
}

#[test]
fn the_extent_is_that_of_rfc_4737() {
    // The examples of its section 7: a packet 4 that comes after 5 and 6, and a run of late ones.
    let mut tracker = after(&[1, 2, 3, 5, 6]);
    assert_eq!(tracker.observe(4, 5, 0), Placed::Reordered { extent: 2 });
    let mut tracker = after(&[1, 2, 3, 7, 8, 9, 10]);
    let extents: Vec<_> = [4, 5, 6].map(|number| tracker.observe(number, number.into(), 0)).into();
    assert_eq!(extents, [4, 5, 6].map(|extent| Placed::Reordered { extent }), "each is overtaken first by 7");
    let mut tracker = after(&[1, 3, 5, 7]);
    assert_eq!(tracker.observe(4, 5, 0), Placed::Reordered { extent: 2 }, "first overtaken by 5");
    assert_eq!(tracker.observe(2, 3, 0), Placed::Reordered { extent: 4 }, "first overtaken by 3");
    assert_eq!(tracker.observe(6, 7, 0), Placed::Reordered { extent: 3 }, "first overtaken by 7");
    let got = summary(&[tracker]);
    assert_eq!((got.reorder_extent_mean_packets, got.reorder_extent_max_packets), (Some(3.0), Some(4)));
}

#[test]
fn extents_are_those_of_a_plain_search() {
    let mut random = Random::new(7);
    for round in 0..200 {
        let mut order: Vec<u32> = (0..40).filter(|_| random.below(10) > 0).collect();
        for _ in 0..round % 12 {
            let (a, b) = (random.below(order.len()), random.below(order.len()));
            order.swap(a, b);
        }
        let mut tracker = SequenceTracker::new();
        for (at, number) in order.iter().enumerate() {
            let placed = tracker.observe(*number, 0, 0);
            let overtaken = order[..at].iter().position(|earlier| earlier > number);
            match overtaken {
                Some(first) => {
                    assert_eq!(placed, Placed::Reordered { extent: (at - first) as u64 }, "{order:?}")
                }
                None => assert_eq!(placed, Placed::Ahead, "{order:?}"),
            }
        }
    }
}

#[test]
fn what_overtook_too_long_ago_has_a_least_extent() {
    // Every second number is missing: one run per number.
    let mut tracker = after(&(0..100).map(|n| 2 * n).collect::<Vec<_>>());
    assert_eq!(tracker.observe(1, 2, 0), Placed::Reordered { extent: 32 });
    assert_eq!(summary(&[tracker]).reorder_extents_at_least, 1);
}

#[test]
fn numbers_wrap() {
    let numbers: Vec<u32> = (0..7000u32).map(|n| n.wrapping_sub(5000)).collect();
    let mut tracker = SequenceTracker::new();
    for number in &numbers {
        if *number != u32::MAX && *number != 0 {
            tracker.observe(*number, 0, 0);
        }
    }
    assert_eq!(tracker.observe(u32::MAX, 0, 0), Placed::Reordered { extent: 1999 });
    assert_eq!(tracker.observe(u32::MAX, 0, 0), Placed::Duplicate);
    let got = summary(&[tracker]);
    assert_eq!((got.received, got.lost), (6999, Some(1)));
}

#[test]
fn a_sender_that_starts_again_loses_nothing_by_it() {
    for len in [3, 5000] {
        let mut tracker = SequenceTracker::new();
        for start in 0..3u64 {
            for number in 0..len {
                let placed = tracker.observe(number, start * 1_000_000 + u64::from(number) + 1, 0);
                assert_eq!(placed == Placed::Restart, start > 0 && number == 0);
            }
        }
        let got = summary(&[tracker]);
        assert_eq!((got.received, got.lost, got.restarts), (3 * u64::from(len), Some(0), 2));
        assert_eq!((got.duplicates, got.reordered, got.late), (0, 0, 0));
    }
}

#[test]
fn a_sender_without_times_is_believed_to_start_again_at_its_second_packet() {
    let mut tracker = SequenceTracker::new();
    (0..10_000).for_each(|number| {
        tracker.observe(number, 0, 0);
    });
    assert_eq!(tracker.observe(0, 0, 0), Placed::Late);
    assert_eq!(tracker.observe(1, 0, 0), Placed::Restart);
    // A restarted host restarts its clock too.
    let mut tracker = SequenceTracker::new();
    (0..10_000).for_each(|number| {
        tracker.observe(number, 5_000_000, 0);
    });
    assert_eq!((tracker.observe(0, 70, 0), tracker.observe(1, 71, 0)), (Placed::Late, Placed::Restart));
}

#[test]
fn packets_far_behind_are_late_and_not_lost() {
    let mut tracker = after(&(0..20_000).filter(|n| !(100..110).contains(n)).collect::<Vec<_>>());
    for number in 100..110 {
        assert_eq!(tracker.observe(number, u64::from(number) + 1, 0), Placed::Late, "also neighbours");
    }
    let got = summary(&[tracker]);
    assert_eq!((got.late, got.lost, got.restarts), (10, Some(0), 0));
}

#[test]
fn an_outage_is_lost_once_its_end_is_believed() {
    let mut tracker = after(&[0, 1, 2]);
    assert_eq!(tracker.observe(5_000_000, 9, 0), Placed::Stray);
    assert_eq!(tracker.observe(5_000_001, 9, 0), Placed::Ahead);
    let got = summary(&[tracker]);
    assert_eq!((got.received, got.lost, got.strays), (4, Some(5_000_002 - 4), 1));
}

#[test]
fn hostile_numbers_cost_accuracy_and_no_memory() {
    let mut random = Random::new(11);
    let mut tracker = SequenceTracker::new();
    for _ in 0..200_000 {
        let (number, sent) = (random.below(1 << 32) as u32, random.below(1 << 63) as u64);
        tracker.observe(number, sent, 0);
    }
    let counts = tracker.counts();
    let got = SequenceSummary::of(&[counts]).unwrap();
    assert_eq!(got.lost, None, "{got:?} is not plausible");
    assert!(size_of::<SequenceTracker>() < 2048);
    assert!(tracker.counts().spans_kept() <= 8);
}

#[test]
fn readers_that_share_a_stream_lose_nothing_together() {
    let mut readers = [const { Vec::new() }; 3];
    let mut random = Random::new(3);
    for number in 0..9000u32 {
        readers[random.below(3)].push(number);
    }
    let got = summary(&readers.map(|numbers| after(&numbers)));
    assert_eq!((got.received, got.lost, got.reordered, got.restarts), (9000, Some(0), 0, 0));
}

#[test]
fn readers_that_share_two_starts_find_two() {
    let mut readers = [SequenceTracker::new(), SequenceTracker::new()];
    for start in 0..2u64 {
        for number in 0..1000u32 {
            let now = start * 1_000_000 + u64::from(number);
            // Number 500 of each start is lost.
            if number != 500 {
                readers[number as usize % 2].observe(number, now + 1, now);
            }
        }
    }
    let got = summary(&readers);
    assert_eq!((got.received, got.lost, got.restarts), (1998, Some(2), 1));
}

#[test]
fn a_flow_that_moves_to_another_reader_goes_on() {
    let reader = |numbers: std::ops::Range<u32>| {
        let mut tracker = SequenceTracker::new();
        numbers.for_each(|number| {
            tracker.observe(number, u64::from(number) + 1, u64::from(number));
        });
        tracker
    };
    let got = summary(&[reader(0..700), reader(702..1000)]);
    assert_eq!((got.received, got.lost, got.restarts), (998, Some(2), 0));
}

#[test]
fn two_short_starts_at_two_readers_are_two() {
    let reader = |start: u64| {
        let mut tracker = SequenceTracker::new();
        (0..5).for_each(|number| {
            tracker.observe(number, start + 1, start + u64::from(number));
        });
        tracker
    };
    let got = summary(&[reader(0), reader(1000)]);
    assert_eq!((got.received, got.lost, got.restarts), (10, Some(0), 1));
}

#[test]
fn many_that_follow_at_once_are_one_after_the_other() {
    for (start, lens) in
        [(0, vec![1, 63, 0, 64, 65]), (5, vec![4095, 4096, 4097, 9000]), (u32::MAX - 70, vec![200])]
    {
        let (mut once, mut each) =
            (after(&[start, start.wrapping_add(3)]), after(&[start, start.wrapping_add(3)]));
        let mut next = start.wrapping_add(4);
        for len in lens {
            once.observe_following(len, 77, 99);
            (0..len).for_each(|_| {
                assert_eq!(each.observe(next, 77, 99), Placed::Ahead);
                next = next.wrapping_add(1);
            });
        }
        // A missing one, a received one, and ones inside and outside the window.
        for number in
            [start.wrapping_add(1), next.wrapping_sub(1), next.wrapping_sub(4096), next.wrapping_sub(4097)]
        {
            assert_eq!(once.observe(number, 1, 100), each.observe(number, 1, 100), "{start} {number}");
        }
        assert_eq!(summary(&[once]), summary(&[each]));
    }
}
