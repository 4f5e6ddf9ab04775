use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::xsk::{fake::Kernel, umem::UmemConfig};

const FRAMES: u32 = 8;
const FRAME_SIZE: u32 = 2048;

fn umem() -> (Arc<Umem>, Vec<Frame>) {
    Umem::new(UmemConfig { frames: FRAMES, frame_size: FRAME_SIZE, headroom: 0 }).unwrap()
}

/// Our TX side, the kernel's side, and the frames.
struct Sending {
    queue: TxQueue,
    tx: Kernel<DescriptorSlot>,
    completion: Kernel<AddressSlot>,
    free: Vec<Frame>,
}

fn sending(slots: usize) -> Sending {
    let (umem, free) = umem();
    let (tx, tx_memory) = Kernel::with_ring(slots);
    let (completion, completion_memory) = Kernel::with_ring(FRAMES as usize);
    let queue = TxQueue::new(Producer::new(tx_memory), Consumer::new(completion_memory), umem);
    Sending { queue, tx, completion, free }
}

struct Receiving {
    queue: RxQueue,
    fill: Kernel<AddressSlot>,
    rx: Kernel<DescriptorSlot>,
    free: Vec<Frame>,
}

fn receiving(slots: usize) -> Receiving {
    let (umem, free) = umem();
    let (fill, fill_memory) = Kernel::with_ring(2 * FRAMES as usize);
    let (rx, rx_memory) = Kernel::with_ring(slots);
    let queue = RxQueue::new(Producer::new(fill_memory), Consumer::new(rx_memory), umem);
    Receiving { queue, fill, rx, free }
}

#[test]
fn a_frame_goes_out_and_comes_back() {
    let Sending { mut queue, tx, completion, mut free } = sending(4);
    let umem = queue.umem().clone();
    let mut frame = free.pop().unwrap();
    umem.bytes_mut(&mut frame)[..3].copy_from_slice(b"abc");
    queue.push(frame, 3).unwrap();
    queue.publish();
    let sent = tx.take().unwrap();
    assert_eq!(sent, Descriptor { address: 7 * 2048, len: 3 });
    assert_eq!((queue.outstanding(), queue.complete(|_| unreachable!())), (1, 0));
    assert!(completion.give(sent.address));
    assert_eq!(queue.complete(|frame| assert_eq!(&umem.bytes(&frame)[..3], b"abc")), 1);
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn a_full_tx_ring_gives_the_frame_back() {
    let Sending { mut queue, mut free, .. } = sending(2);
    for _ in 0..2 {
        queue.push(free.pop().unwrap(), 60).unwrap();
    }
    let frame = queue.push(free.pop().unwrap(), 60).unwrap_err();
    free.push(frame);
    assert_eq!((free.len(), queue.outstanding()), (6, 2));
}

#[test]
fn a_completion_of_a_frame_that_was_not_sent_is_counted_and_makes_no_frame() {
    let Sending { mut queue, tx, completion, mut free } = sending(4);
    queue.push(free.pop().unwrap(), 60).unwrap();
    queue.publish();
    let sent = tx.take().unwrap().address;
    for address in [0, 2048 * 8, u64::MAX, sent, sent] {
        assert!(completion.give(address));
    }
    assert_eq!(queue.complete(|frame| free.push(frame)), 1);
    assert_eq!((queue.misplaced(), queue.outstanding(), free.len()), (4, 0, 8));
}

#[test]
#[should_panic(expected = "0..0 is not a packet in a frame of 2048 bytes")]
fn a_packet_without_bytes_is_our_bug() {
    let Sending { mut queue, mut free, .. } = sending(4);
    let _ = queue.push(free.pop().unwrap(), 0);
}

#[test]
#[should_panic(expected = "0..2049 is not a packet in a frame of 2048 bytes")]
fn a_packet_longer_than_its_frame_is_our_bug() {
    let Sending { mut queue, mut free, .. } = sending(4);
    let _ = queue.push(free.pop().unwrap(), 2049);
}

#[test]
#[should_panic(expected = "a frame of another UMEM")]
fn another_umems_frame_opens_nothing() {
    let (mine, _frames) = umem();
    let (_other, frames) = umem();
    mine.bytes(&frames[0]);
}

#[test]
fn a_packet_is_lent_where_it_lies_and_its_frame_is_used_again() {
    let Receiving { mut queue, fill, rx, free } = receiving(4);
    for frame in free {
        queue.refill(frame).unwrap();
    }
    queue.publish();
    assert_eq!((fill.used(), queue.unused()), (8, 8));
    for _ in 0..100 {
        let address = fill.take().unwrap();
        assert!(rx.give(Descriptor { address: address + 256, len: 60 }));
        assert_eq!(queue.available(), 1);
        let Received { frame, range } = queue.pop().unwrap();
        assert_eq!(range, 256..316);
        queue.refill(frame).unwrap();
        queue.publish();
        assert_eq!(queue.outstanding(), 8);
    }
}

#[test]
fn a_kernel_that_says_late_what_it_took_leaves_room_for_every_frame() {
    let Receiving { mut queue, fill, rx, free } = receiving(8);
    for frame in free {
        queue.refill(frame).unwrap();
    }
    queue.publish();
    for address in fill.look() {
        assert!(rx.give(Descriptor { address: address + 256, len: 60 }));
    }
    while let Some(Received { frame, .. }) = queue.pop() {
        queue.refill(frame).unwrap();
    }
    queue.publish();
    assert_eq!((queue.outstanding(), fill.used()), (8, 16));
}

#[test]
fn hostile_descriptors_are_never_read() {
    let Receiving { mut queue, fill, rx, free } = receiving(8);
    let mut free = free.into_iter();
    for frame in free.by_ref().take(4) {
        queue.refill(frame).unwrap();
    }
    queue.publish();
    let first = fill.take().unwrap();
    let hostile = [
        (first, 2049),         // longer than the frame
        (first + 2047, 2),     // reaching into the next
        (first + 1, u32::MAX), // whose end overflows
        (2048 * 7, 60),        // a frame that the kernel does not have
        (2048 * 8, 60),        // behind the last
        (u64::MAX, 60),        // far behind
    ];
    for (address, len) in hostile {
        assert!(rx.give(Descriptor { address, len }));
    }
    let back = queue.pop().unwrap();
    assert_eq!(back.range, 0..0, "its frame comes back, without a byte");
    assert!(queue.pop().is_none(), "the others stand for frames that the kernel does not have");
    assert_eq!((queue.misplaced(), queue.outstanding(), free.count()), (6, 3, 4));
}

#[test]
fn a_packet_described_twice_is_lent_once() {
    let Receiving { mut queue, fill, rx, mut free } = receiving(4);
    queue.refill(free.pop().unwrap()).unwrap();
    queue.publish();
    let address = fill.take().unwrap();
    assert!(rx.give(Descriptor { address, len: 60 }) && rx.give(Descriptor { address, len: 60 }));
    let first = queue.pop().unwrap();
    assert!(queue.pop().is_none());
    assert_eq!(queue.misplaced(), 1);
    free.push(first.frame);
    assert_eq!(free.len(), 8);
}

proptest! {
    #[test]
    fn tx_frames_are_conserved(steps in prop::collection::vec(0u8..6, 1..400)) {
        let Sending { mut queue, tx, completion, mut free } = sending(4);
        let mut with_kernel = VecDeque::new();
        let (mut pushed, mut taken) = (0u64, 0u64);
        for step in steps {
            match step {
                0 | 1 => if let Some(frame) = free.pop() {
                    match queue.push(frame, 60) {
                        Ok(()) => pushed += 1,
                        Err(frame) => free.push(frame),
                    }
                },
                2 => queue.publish(),
                3 => if let Some(descriptor) = tx.take() {
                    taken += 1;
                    with_kernel.push_back(descriptor.address);
                },
                4 => if let Some(address) = with_kernel.pop_front() {
                    prop_assert!(completion.give(address));
                },
                _ => { queue.complete(|frame| free.push(frame)); }
            }
            prop_assert_eq!(free.len() + queue.outstanding(), FRAMES as usize);
            prop_assert!(u64::from(queue.waiting()) <= pushed - taken);
            let in_rings = tx.used() as usize + completion.used() as usize;
            prop_assert!(in_rings + with_kernel.len() <= queue.outstanding());
        }
        prop_assert_eq!(queue.misplaced(), 0);
    }

    #[test]
    fn rx_frames_are_conserved_whatever_the_kernel_says(
        steps in prop::collection::vec((0u8..6, any::<u64>(), any::<u32>()), 1..400)
    ) {
        let Receiving { mut queue, fill, rx, mut free } = receiving(4);
        let umem = queue.umem().clone();
        let mut held = VecDeque::new();
        for (step, address, len) in steps {
            match step {
                0 | 1 => if let Some(frame) = free.pop() {
                    // The ring can only be full after a lie: the kernel returned a frame that it had not taken.
                    queue.refill(frame).unwrap_or_else(|frame| free.push(frame));
                    queue.publish();
                },
                2 => if let Some(address) = fill.take() {
                    held.push_back(address);
                },
                3 => if let Some(address) = held.pop_front()
                    && !rx.give(Descriptor { address: address + 256, len: len % 1793 })
                {
                    held.push_front(address);
                },
                // An occasional lie: any address, any length.
                4 => { rx.give(Descriptor { address: address % (2048 * 10), len: len % 4096 }); }
                _ => while let Some(Received { frame, range }) = queue.pop() {
                    prop_assert!(range.end <= umem.bytes(&frame).len());
                    free.push(frame);
                },
            }
            prop_assert_eq!(free.len() + queue.outstanding(), FRAMES as usize);
        }
    }
}
