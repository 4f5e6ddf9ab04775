use libc::TP_STATUS_SENDING;
use proptest::prelude::*;

use super::*;

/// A ring of four slots in one block, over an array.
fn ring() -> TxRing {
    let layout = TxRingLayout::new(4, BLOCK_BYTES / 8);
    assert_eq!((layout.slots, layout.slot_bytes), (4, BLOCK_BYTES / 4));
    TxRing::over(Memory::anonymous(layout.bytes()).unwrap(), layout)
}

/// The kernel's side: takes requested slots in order, and frees them in order.
#[derive(Default)]
struct Kernel {
    next: usize,
    sending: usize,
    sent: Vec<u8>,
}

impl Kernel {
    fn take(&mut self, ring: &TxRing, most: usize) -> usize {
        let mut taken = 0;
        while taken < most && status(ring, self.next) == TP_STATUS_SEND_REQUEST {
            let start = self.next * ring.layout.slot_bytes;
            let with_virtio = ring.memory.load(start + LEN) as usize;
            let head = ring.memory.bytes(start + VIRTIO_HDR_LEN, 2);
            assert_eq!(usize::from(u16::from_ne_bytes([head[0], head[1]])), with_virtio - 10);
            self.sent.push(ring.memory.bytes(start + FRAME, with_virtio - 10)[0]);
            ring.memory.store(start + STATUS, TP_STATUS_SENDING);
            self.next = (self.next + 1) % ring.slots();
            self.sending += 1;
            taken += 1;
        }
        taken
    }

    fn complete(&mut self, ring: &TxRing, most: usize) {
        for _ in 0..most.min(self.sending) {
            let oldest = (self.next + ring.slots() - self.sending) % ring.slots();
            ring.memory.store(oldest * ring.layout.slot_bytes + STATUS, TP_STATUS_AVAILABLE);
            self.sending -= 1;
        }
    }
}

fn status(ring: &TxRing, slot: usize) -> u32 {
    ring.memory.load(slot * ring.layout.slot_bytes + STATUS)
}

fn numbered(ring: &mut TxRing, frames: usize, number: &mut u8) -> usize {
    ring.fill(frames, |slot| {
        slot[0] = *number;
        *number = number.wrapping_add(1);
        60
    })
}

#[test]
fn the_layout_fills_whole_blocks() {
    for (slots, frame_bytes, slot_bytes, all) in [
        (1, 60, 128, 512),
        (512, 60, 128, 512),
        (513, 60, 128, 1024),
        (3, 1514, 2048, 32),
        (1, 9014, 16384, 4),
    ] {
        let layout = TxRingLayout::new(slots, frame_bytes);
        assert_eq!((layout.slot_bytes, layout.slots), (slot_bytes, all));
        let request = layout.request();
        assert_eq!(request.tp_block_nr * request.tp_block_size, layout.bytes() as u32);
        assert_eq!(request.tp_block_size / request.tp_frame_size * request.tp_block_nr, request.tp_frame_nr);
    }
    assert_eq!(TxRingLayout::new(1, TxRingLayout::MOST_FRAME_BYTES).slots, 1);
}

#[test]
fn a_full_ring_takes_no_more_until_the_kernel_has_sent() {
    let (mut ring, mut kernel, mut number) = (ring(), Kernel::default(), 0);
    assert_eq!(numbered(&mut ring, 9, &mut number), 4);
    assert_eq!(numbered(&mut ring, 1, &mut number), 0);
    assert_eq!((ring.waiting(), ring.count_taken()), (4, 0));
    assert_eq!(kernel.take(&ring, 9), 4);
    assert_eq!((ring.count_taken(), ring.waiting()), (4, 0));
    assert_eq!(numbered(&mut ring, 1, &mut number), 0, "the kernel still sends from the slot");
    kernel.complete(&ring, 1);
    assert_eq!(numbered(&mut ring, 2, &mut number), 1);
}

#[test]
fn what_the_kernel_left_stays_in_order() {
    let (mut ring, mut kernel, mut number) = (ring(), Kernel::default(), 0);
    numbered(&mut ring, 3, &mut number);
    kernel.take(&ring, 1);
    assert_eq!((ring.count_taken(), ring.waiting()), (1, 2));
    kernel.take(&ring, 9);
    assert_eq!((ring.count_taken(), ring.waiting()), (2, 0));
    assert_eq!(kernel.sent, [0, 1, 2]);
}

#[test]
fn a_slot_keeps_its_bytes() {
    let (mut ring, mut kernel) = (ring(), Kernel::default());
    (0..4).for_each(|slot| ring.frame_mut(slot).fill(slot as u8));
    for _ in 0..8 {
        assert_eq!(ring.fill(1, |_| 64), 1);
        kernel.take(&ring, 1);
        kernel.complete(&ring, 1);
        ring.count_taken();
    }
    assert_eq!(kernel.sent, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_refused_frame_is_not_taken_and_a_strange_status_not_filled() {
    let mut ring = ring();
    numbered(&mut ring, 1, &mut 0);
    ring.memory.store(STATUS, TP_STATUS_WRONG_FORMAT);
    assert_eq!((ring.count_taken(), ring.waiting()), (0, 1));
    for strange in [u32::MAX, 1 << 31, TP_STATUS_SENDING, TP_STATUS_WRONG_FORMAT] {
        ring.memory.store(ring.layout.slot_bytes + STATUS, strange);
        assert_eq!(numbered(&mut ring, 1, &mut 0), 0, "{strange:#x}");
    }
}

#[test]
#[should_panic(expected = "do not fit the slot")]
fn a_frame_longer_than_its_slot_is_our_own_bug() {
    ring().fill(1, |slot| slot.len() + 1);
}

proptest! {
    #[test]
    fn frames_are_conserved_and_keep_their_order(steps in prop::collection::vec((0..6usize, 0..6usize, 0..6usize), 1..200)) {
        let (mut ring, mut kernel, mut number) = (ring(), Kernel::default(), 0);
        let (mut filled, mut taken) = (0, 0);
        for (fill, take, complete) in steps {
            filled += numbered(&mut ring, fill, &mut number);
            kernel.take(&ring, take);
            taken += ring.count_taken();
            kernel.complete(&ring, complete);
            prop_assert_eq!(filled, taken + ring.waiting());
            prop_assert_eq!(taken, kernel.sent.len());
        }
        prop_assert!(kernel.sent.iter().enumerate().all(|(index, &byte)| byte == index as u8));
    }
}
