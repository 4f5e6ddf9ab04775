//! Rings over arrays with a fake card: each frame that goes in comes out, or is counted.

use sys::pci::{Done, rx};

use super::*;

fn options(buffers: Buffers, ring_slots: u32, tail_batch: u32) -> PciOptions {
    PciOptions { ring_slots, tail_batch, buffers, ..PciOptions::on("pretended") }
}

/// A frame with a number in it.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    assert!(bytes[4..].iter().all(|byte| *byte == bytes[0]), "parts of two frames");
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

#[test]
fn frames_are_received_in_order_over_many_wraps_with_every_policy() {
    let (wraps, longest, rings) = if cfg!(miri) { (3, 8, 2) } else { (1000, 1400, 4) };
    for buffers in Buffers::ALL {
        for (slots, tail_batch) in [(16, 1), (16, 8), (64, 16), (256, 64)].into_iter().take(rings) {
            let (mut card, mut port) =
                PretendedCard::receiving(&options(buffers, slots, tail_batch)).unwrap();
            let (mut sent, mut next) = (0, 0);
            while next < slots * wraps {
                // Fewer than the card always owns.
                for _ in 0..sent % 7 + 1 {
                    assert!(
                        card.deliver(&mut port, &frame(sent, 60 + sent as usize % longest)),
                        "{buffers:?}"
                    );
                    sent += 1;
                }
                port.recv(Wait::Spin, |received| {
                    assert_eq!(number(received.bytes), next, "{buffers:?}, {slots} slots");
                    assert_eq!(received.bytes.len(), 60 + next as usize % longest);
                    next += 1;
                })
                .unwrap();
                assert_eq!(next, sent);
            }
            assert_eq!(port.lost().unwrap(), 0);
        }
    }
}

#[test]
fn a_full_ring_misses_frames_and_received_and_missed_are_all() {
    for buffers in Buffers::ALL {
        let (mut card, mut port) = PretendedCard::receiving(&options(buffers, 32, 4)).unwrap();
        let (mut sent, mut received) = (0u64, 0u64);
        for round in 0..if cfg!(miri) { 50 } else { 200u64 } {
            for _ in 0..round % 50 {
                card.deliver(&mut port, &frame(sent as u32, 60));
                sent += 1;
            }
            received += port.recv(Wait::Spin, |_| ()).unwrap() as u64;
            assert_eq!(received + port.lost().unwrap(), sent, "{buffers:?}, round {round}");
        }
        let losses = port.losses().unwrap();
        assert_eq!(losses[0].place, Place::NicMissed);
        assert!(losses[0].packets > 0);
        assert_eq!(losses[0].packets + received, sent);
    }
}

#[test]
fn a_ring_of_n_takes_one_less_and_the_tail_is_written_in_batches() {
    let (mut card, mut port) = PretendedCard::receiving(&options(Buffers::Recycle, 16, 8)).unwrap();
    let mut deliver = |port: &mut PciRx| (0..100).filter(|_| card.deliver(port, &frame(1, 60))).count();
    assert_eq!(deliver(&mut port), 15);
    assert_eq!(port.recv(Wait::Spin, |_| ()).unwrap(), 15);
    // 15 slots are free, of which 8 were published.
    assert_eq!(deliver(&mut port), 8);
    assert_eq!(port.recv(Wait::Spin, |_| ()).unwrap(), 8);
    assert_eq!(deliver(&mut port), 8);
}

#[test]
fn hostile_descriptors_cost_a_frame_each_and_are_named() {
    const END: u8 = rx::DONE | rx::END_OF_PACKET;
    let (mut card, mut port) = PretendedCard::receiving(&options(Buffers::Pool, 16, 1)).unwrap();
    let mut seen = Vec::new();
    for (length, status, errors) in [
        (0, END, 0),
        (60, END, 0),
        (u16::MAX, END, 0),
        (60, END, 0x01),
        (61, END, 0),
        // A frame without an end, many times the ring.
        (2048, rx::DONE, 0),
    ] {
        for _ in 0..if status == END { 1 } else { 64 } {
            assert!(card.write(&mut port, &[9; 2048], Done { length, status, errors }));
            port.recv(Wait::Spin, |received| seen.push(received.bytes.len())).unwrap();
        }
    }
    assert!(card.write(&mut port, &[9; 60], Done { length: 60, status: END, errors: 0 }));
    assert!(card.deliver(&mut port, &frame(5, 70)));
    port.recv(Wait::Spin, |received| seen.push(received.bytes.len())).unwrap();
    assert_eq!(seen, [60, 61, 70]);
    let losses: Vec<(Place, u64)> =
        port.losses().unwrap().iter().map(|loss| (loss.place, loss.packets)).collect();
    assert_eq!(losses, [(Place::NicMissed, 0), (Place::BadFrame, 1), (Place::DriverRx, 3)]);
    assert_eq!(port.lost().unwrap(), 4);
}

#[test]
fn a_jumbo_frame_comes_in_several_descriptors() {
    let (mut card, mut port) = PretendedCard::receiving(&options(Buffers::Realloc, 32, 4)).unwrap();
    for jumbo in 0..if cfg!(miri) { 2 } else { 40 } {
        let bytes = frame(jumbo, 9000);
        let parts: Vec<&[u8]> = bytes.chunks(2048).collect();
        for (at, part) in parts.iter().enumerate() {
            let end = if at + 1 == parts.len() { rx::END_OF_PACKET } else { 0 };
            let done = Done { length: part.len() as u16, status: rx::DONE | end, errors: 0 };
            assert!(card.write(&mut port, part, done));
        }
        let mut seen = Vec::new();
        let received = port.recv(Wait::Spin, |received| seen = received.bytes.to_vec()).unwrap();
        assert_eq!((received, seen.len(), number(&seen)), (1, 9000, jumbo));
    }
    assert_eq!(port.lost().unwrap(), 0);
}

#[test]
fn what_is_sent_leaves_in_order_and_a_full_ring_turns_away() {
    for (slots, tail_batch) in [(16, 1), (64, 16)] {
        let (mut card, mut port) =
            PretendedCard::sending(&options(Buffers::Recycle, slots, tail_batch)).unwrap();
        port.prime(|slot| slot.fill(0));
        let (mut filled, mut left) = (0u32, 0u32);
        for round in 0..if cfg!(miri) { 10 } else { 5000 } {
            let sent = port
                .send(1 + round % 40, |slot| {
                    slot[..64].copy_from_slice(&frame(filled, 64));
                    filled += 1;
                    64
                })
                .unwrap();
            assert_eq!(sent.filled, sent.taken);
            assert!(filled - left < slots, "more than the ring has");
            assert_eq!(sent.turned_away > 0, sent.taken < 1 + round % 40);
            card.send(&mut port, round % 23, |bytes| {
                assert_eq!((number(bytes), bytes.len()), (left, 64));
                left += 1;
            });
        }
        assert!(left > 0);
        card.send(&mut port, usize::MAX, |_| left += 1);
        assert_eq!(left, filled);
        port.finish().unwrap();
    }
}

#[test]
fn options_that_no_card_has_are_refused_in_words() {
    for (ring_slots, tail_batch, said) in [
        (8, 1, "a ring has 16 to 4096 descriptors, a multiple of 8, not 8"),
        (100, 1, "a ring has 16 to 4096 descriptors, a multiple of 8, not 100"),
        (8192, 1, "a ring has 16 to 4096 descriptors, a multiple of 8, not 8192"),
        (64, 0, "one write of the tail hands over 1 to 32 descriptors of a ring of 64, not 0"),
        (64, 33, "one write of the tail hands over 1 to 32 descriptors of a ring of 64, not 33"),
    ] {
        let error =
            PretendedCard::receiving(&options(Buffers::Recycle, ring_slots, tail_batch)).err().unwrap();
        assert_eq!(error.to_string(), said);
    }
    let error = PciRx::open(&PciOptions::on("eth9")).err().unwrap().to_string();
    assert_eq!(error, "cannot take eth9 from the kernel's driver without consent (--take-device)");
    let error = PciRx::open(&PciOptions { take_device: true, ..PciOptions::on("no-such") }).err().unwrap();
    assert_eq!(error.to_string(), "cannot take no-such: it is not a PCI card in this network namespace");
    assert_eq!("nothing".parse::<Buffers>(), Err("expected realloc, recycle or pool".into()));
}

#[test]
fn how_the_ring_was_used_is_counted_and_traced() {
    let traced = PciOptions { trace: true, prefetch: 4, ..options(Buffers::Pool, 16, 4) };
    let (mut card, mut port) = PretendedCard::receiving(&traced).unwrap();
    // A poll before the first frame: the beginning of the trace.
    port.recv(Wait::Spin, |_| ()).unwrap();
    for _ in 0..20 {
        card.deliver(&mut port, &frame(1, 60));
    }
    port.recv(Wait::Spin, |_| ()).unwrap();
    port.recv(Wait::Spin, |_| ()).unwrap();
    let ring = port.ring().unwrap();
    assert_eq!((ring.refills, ring.tail_writes), (15, 3));
    // A pretended card counts both, as QEMU's does.
    assert_eq!((port.lost().unwrap(), ring.without_descriptor), (5, 5));
    let trace = ring.trace.unwrap();
    let moments: Vec<_> = trace.moments.iter().map(|&(_, head, tail, missed)| (head, tail, missed)).collect();
    assert_eq!(moments, [(0, 15, 0), (15, 15, 5), (15, 11, 5)]);
    assert_eq!((trace.slots, trace.is_cut, trace.moments[0].0), (16, false, 0));
    if cfg!(miri) {
        return;
    }
    for _ in 0..5000 {
        assert!(card.deliver(&mut port, &frame(1, 60)));
        port.recv(Wait::Spin, |_| ()).unwrap();
    }
    let ring = port.ring().unwrap();
    assert!(ring.refill_ns.is_some() && ring.refills_timed > 0, "{ring:?}");
    let trace = ring.trace.unwrap();
    assert!(trace.is_cut && trace.moments.len() < 5000, "a trace has an end: {}", trace.moments.len());
}

#[test]
fn nothing_is_allocated_for_a_frame() {
    for buffers in [Buffers::Recycle, Buffers::Pool] {
        let traced = PciOptions { trace: true, ..options(buffers, 64, 8) };
        let (mut card, mut port) = PretendedCard::receiving(&traced).unwrap();
        let bytes = frame(1, 60);
        let cost = allocation_counter::measure(|| {
            for _ in 0..1000 {
                card.deliver(&mut port, &bytes);
                port.recv(Wait::Spin, |_| ()).unwrap();
            }
        });
        assert_eq!(cost.count_total, 0, "{buffers:?}");
    }
}
