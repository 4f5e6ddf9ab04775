use super::*;
use crate::xsk::fake::{Kernel, NEAR_THE_END};

fn producer(slots: usize) -> (Kernel<AddressSlot>, Producer<AddressSlot>) {
    let (kernel, memory) = Kernel::with_ring(slots);
    (kernel, Producer::new(memory))
}

fn consumer(slots: usize) -> (Kernel<AddressSlot>, Consumer<AddressSlot>) {
    let (kernel, memory) = Kernel::with_ring(slots);
    (kernel, Consumer::new(memory))
}

#[test]
fn a_full_ring_refuses_and_indexes_wrap() {
    let (kernel, mut ring) = producer(4);
    for round in 0..3 {
        assert_eq!(ring.room(4), 4);
        assert!((0..4).all(|value| ring.push(10 * round + value)));
        assert!(!ring.push(99), "the fifth of four");
        ring.publish();
        assert!((0..4).all(|value| kernel.take() == Some(10 * round + value)));
        assert_eq!(kernel.take(), None);
    }
}

#[test]
fn the_kernel_sees_nothing_before_it_is_published() {
    let (kernel, mut ring) = producer(4);
    assert!(ring.push(1));
    assert_eq!((kernel.used(), ring.waiting()), (0, 0));
    ring.publish();
    assert_eq!((kernel.used(), ring.waiting()), (1, 1));
    assert_eq!(kernel.take(), Some(1));
    assert_eq!(ring.waiting(), 0);
}

#[test]
fn an_empty_ring_gives_nothing_and_indexes_wrap() {
    let (kernel, mut ring) = consumer(4);
    for round in 0..5 {
        assert_eq!((ring.available(), ring.pop()), (0, None));
        assert!((0..3).all(|value| kernel.give(10 * round + value)));
        assert_eq!(ring.available(), 3);
        assert!((0..3).all(|value| ring.pop() == Some(10 * round + value)));
        ring.release();
    }
}

#[test]
fn slots_are_the_kernels_again_only_when_released() {
    let (kernel, mut ring) = consumer(2);
    assert!(kernel.give(1) && kernel.give(2) && !kernel.give(3));
    assert_eq!((ring.pop(), ring.pop()), (Some(1), Some(2)));
    assert!(!kernel.give(3));
    ring.release();
    assert!(kernel.give(3));
    assert_eq!(ring.pop(), Some(3));
}

#[test]
fn a_consumed_index_that_lies_never_makes_more_room_than_there_is() {
    for lie in [0, 1, 1 << 31, NEAR_THE_END.wrapping_add(5), NEAR_THE_END.wrapping_sub(5)] {
        let (kernel, mut ring) = producer(4);
        assert!(ring.push(1));
        ring.publish();
        kernel.lie_about_consumed(lie);
        assert!(ring.room(4) <= 4, "{lie}");
        assert!(ring.waiting() <= 4, "{lie}");
        let pushed = (0..100).filter(|value| ring.push(*value)).count();
        assert!(pushed <= 4, "{lie}: {pushed} pushed");
    }
}

#[test]
fn a_produced_index_that_lies_never_gives_more_than_the_ring_holds() {
    for lie in [0, 1 << 31, NEAR_THE_END.wrapping_add(5), NEAR_THE_END.wrapping_sub(5)] {
        let (kernel, mut ring) = consumer(4);
        kernel.lie_about_produced(lie);
        let popped = (0..100).filter_map(|_| ring.pop()).count();
        assert!(popped <= 4, "{lie}: {popped} popped");
    }
}

#[test]
fn a_kernel_that_sleeps_says_so() {
    let (kernel, ring) = producer(4);
    assert!(!ring.needs_wakeup());
    kernel.sleep(true);
    assert!(ring.needs_wakeup());
}

#[test]
fn two_threads_pass_every_value_once_and_in_order() {
    let (kernel, mut ring) = producer(8);
    let values = if cfg!(miri) { 100 } else { 100_000u64 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0..values {
                while !ring.push(value) {
                    std::thread::yield_now();
                }
                ring.publish();
            }
        });
        for expected in 0..values {
            let value = loop {
                match kernel.take() {
                    Some(value) => break value,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(value, expected);
        }
    });
}
