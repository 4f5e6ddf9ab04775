use libc::TP_STATUS_BLK_TMO;
use proptest::prelude::*;

use super::*;

const BLOCK_BYTES: usize = 4096;
const BLOCKS: usize = 3;
/// The kernel's offset of a frame after its header, and the headroom: `tpacket_rcv`.
const MAC: u16 = 82;

fn ring() -> RxRing {
    let layout =
        RxRingLayout { block_bytes: BLOCK_BYTES, blocks: BLOCKS, retire_after: Duration::from_millis(4) };
    RxRing::over(Memory::anonymous(layout.bytes()).unwrap(), layout)
}

/// The kernel's header of a packet.
#[derive(Clone, Copy)]
struct Written {
    next: u32,
    captured: u32,
    len: u32,
    status: u32,
    mac: u16,
    vlan: (u16, u16),
}

fn plain(frame: &[u8]) -> Written {
    let len = frame.len() as u32;
    let next = (u32::from(MAC) + len).next_multiple_of(16);
    Written { next, captured: len, len, status: TP_STATUS_USER, mac: MAC, vlan: (0, 0) }
}

/// The kernel's side: puts packets into a block and closes it.
#[derive(Default)]
struct Kernel {
    block: usize,
    /// Whether it dropped packets and reports that.
    is_losing: bool,
}

impl Kernel {
    /// False when the block is not free: the packets are lost.
    fn write(&mut self, ring: &mut RxRing, packets: &[(Written, &[u8])]) -> bool {
        let block = self.block * BLOCK_BYTES;
        if ring.memory.load(block + BLOCK_STATUS) != TP_STATUS_KERNEL {
            self.is_losing = true;
            return false;
        }
        let mut at = BLOCK_HEADER;
        for (index, (written, frame)) in packets.iter().enumerate() {
            put(ring, block + at, *written, frame);
            let is_last = index + 1 == packets.len();
            if is_last {
                ring.memory.store(block + at, 0);
            }
            at += written.next as usize;
        }
        self.close(ring, packets.len() as u32, BLOCK_HEADER as u32);
        true
    }

    fn close(&mut self, ring: &RxRing, packets: u32, first: u32) {
        let block = self.block * BLOCK_BYTES;
        ring.memory.store(block + BLOCK_PACKETS, packets);
        ring.memory.store(block + BLOCK_FIRST, first);
        let losing = if self.is_losing { TP_STATUS_LOSING } else { 0 };
        ring.memory.store(block + BLOCK_STATUS, TP_STATUS_USER | TP_STATUS_BLK_TMO | losing);
        self.block = (self.block + 1) % BLOCKS;
    }
}

fn put(ring: &mut RxRing, at: usize, written: Written, frame: &[u8]) {
    let header = ring.memory.bytes_mut(at, HEADER);
    for (at, word) in [
        (offset_of!(tpacket3_hdr, tp_next_offset), written.next),
        (offset_of!(tpacket3_hdr, tp_snaplen), written.captured),
        (offset_of!(tpacket3_hdr, tp_len), written.len),
        (offset_of!(tpacket3_hdr, tp_status), written.status),
        (VLAN + offset_of!(tpacket_hdr_variant1, tp_vlan_tci), written.vlan.1.into()),
    ] {
        header[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    for (at, half) in [
        (offset_of!(tpacket3_hdr, tp_mac), written.mac),
        (VLAN + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid), written.vlan.0),
    ] {
        header[at..at + 2].copy_from_slice(&half.to_ne_bytes());
    }
    ring.memory.bytes_mut(at + MAC as usize, frame.len()).copy_from_slice(frame);
}

fn read(ring: &mut RxRing) -> (Option<BlockRead>, Vec<(Vec<u8>, bool)>) {
    let mut packets = Vec::new();
    let read = ring.read_block(|packet| packets.push((packet.bytes.to_vec(), packet.truncated)));
    (read, packets)
}

#[test]
fn blocks_are_read_in_turn_and_given_back() {
    let (mut ring, mut kernel) = (ring(), Kernel::default());
    assert!(!ring.is_ready() && !ring.is_filling());
    assert_eq!(read(&mut ring).0, None);
    for round in 0..10u8 {
        let frames = [vec![round; 60], vec![round; 61], vec![round; 1514]];
        let packets: Vec<_> = frames.iter().map(|frame| (plain(frame), &frame[..])).collect();
        assert!(kernel.write(&mut ring, &packets));
        assert!(ring.is_ready() && ring.is_filling());
        let (block, seen) = read(&mut ring);
        assert_eq!(block, Some(BlockRead { packets: 3, ..BlockRead::default() }));
        assert_eq!(seen, frames.map(|frame| (frame, false)));
        assert_eq!(read(&mut ring).0, None);
    }
}

#[test]
fn a_full_ring_loses_packets_and_none_that_it_holds() {
    let (mut ring, mut kernel) = (ring(), Kernel::default());
    let written: Vec<bool> = (0..5u8)
        .map(|number| {
            let frame = [number; 60];
            kernel.write(&mut ring, &[(plain(&frame), &frame)])
        })
        .collect();
    assert_eq!(written, [true, true, true, false, false]);
    for number in 0..3 {
        let (block, packets) = read(&mut ring);
        assert_eq!((block.unwrap().losing, packets), (false, vec![(vec![number; 60], false)]));
    }
    assert_eq!(read(&mut ring).0, None);
    assert!(kernel.write(&mut ring, &[(plain(&[5; 60]), &[5; 60])]));
    assert!(read(&mut ring).0.unwrap().losing, "the next block reports it");
}

#[test]
fn the_card_s_stamps_are_told_from_the_kernel_s() {
    let (mut ring, mut kernel) = (ring(), Kernel::default());
    let frame = [7; 60];
    let by_card = Written { status: TP_STATUS_USER | TP_STATUS_TS_RAW_HARDWARE, ..plain(&frame) };
    assert!(kernel.write(&mut ring, &[(by_card, &frame[..]), (plain(&frame), &frame)]));
    let mut told = Vec::new();
    ring.read_block(|packet| told.push(packet.is_by_card)).unwrap();
    assert_eq!(told, [true, false]);
}

#[test]
fn a_block_that_is_being_filled_shows_and_is_not_read() {
    let mut ring = ring();
    ring.memory.store(BLOCK_PACKETS, 1);
    assert!(ring.is_filling());
    assert_eq!(read(&mut ring).0, None);
}

#[test]
fn the_tag_is_put_back() {
    let (mut ring, mut kernel) = (ring(), Kernel::default());
    let frame: Vec<u8> = (0..60).collect();
    let tagged = |tpid: [u8; 2]| [&frame[..12], &tpid[..], &[0xa0, 0x2a], &frame[12..]].concat();
    let valid = TP_STATUS_USER | TP_STATUS_VLAN_VALID;
    let outer =
        Written { status: valid | TP_STATUS_VLAN_TPID_VALID, vlan: (0x88a8, 0xa02a), ..plain(&frame) };
    let unnamed = Written { status: valid, vlan: (0, 0xa02a), ..plain(&frame) };
    kernel.write(&mut ring, &[(outer, &frame), (unnamed, &frame), (plain(&frame), &frame)]);
    let seen = read(&mut ring).1;
    assert_eq!(seen, [(tagged([0x88, 0xa8]), false), (tagged([0x81, 0]), false), (frame.clone(), false)]);
}

#[test]
fn a_cut_frame_is_marked() {
    let (mut ring, mut kernel) = (ring(), Kernel::default());
    let frame = [7; 100];
    let cut = Written { len: 9000, ..plain(&frame) };
    kernel.write(&mut ring, &[(cut, &frame)]);
    assert_eq!(read(&mut ring).1, [(frame.to_vec(), true)]);
}

#[test]
fn what_points_outside_of_the_block_is_malformed() {
    let frame = [7; 60];
    let good = plain(&frame);
    let block = BLOCK_BYTES as u32;
    let tagged = Written { status: TP_STATUS_USER | TP_STATUS_VLAN_VALID, ..good };
    for (bad, why) in [
        (Written { captured: block, ..good }, "captured"),
        (Written { captured: u32::MAX, ..good }, "captured"),
        (Written { mac: u16::MAX, ..good }, "mac"),
        (Written { mac: 47, ..good }, "mac within the header"),
        (Written { mac: 51, ..tagged }, "no room for the tag"),
    ] {
        let (mut ring, mut kernel) = (ring(), Kernel::default());
        kernel.write(&mut ring, &[(good, &frame), (bad, &frame)]);
        let (read_block, seen) = read(&mut ring);
        assert_eq!(read_block, Some(BlockRead { packets: 1, malformed: true, losing: false }), "{why}");
        assert_eq!(seen.len(), 1, "{why}");
        assert!(kernel.write(&mut ring, &[(good, &frame)]), "the ring continues");
        assert_eq!(read(&mut ring).1.len(), 1);
    }
    for (packets, first) in [(1, block - 1), (1, block), (1, u32::MAX), (1, 0), (1, 47)] {
        let (mut ring, mut kernel) = (ring(), Kernel::default());
        kernel.close(&ring, packets, first);
        assert_eq!(read(&mut ring).0, Some(BlockRead { malformed: true, ..BlockRead::default() }), "{first}");
    }
}

#[test]
fn a_count_beyond_the_last_packet_ends_there() {
    let (mut ring, mut kernel) = (ring(), Kernel::default());
    let frame = [7; 60];
    kernel.write(&mut ring, &[(plain(&frame), &frame)]);
    ring.memory.store(BLOCK_PACKETS, u32::MAX);
    assert_eq!(read(&mut ring).0, Some(BlockRead { packets: 1, malformed: true, losing: false }));
}

proptest! {
    #[test]
    fn no_bytes_of_a_block_lead_out_of_it(
        bytes in prop::collection::vec(any::<u8>(), BLOCK_BYTES),
        packets in 0..9u32,
        words in prop::collection::vec((0..200usize, 0..160u32), 0..40),
    ) {
        let mut ring = ring();
        ring.memory.bytes_mut(0, BLOCK_BYTES).copy_from_slice(&bytes);
        // Scattered small numbers get further than noise.
        words.iter().for_each(|&(at, value)| ring.memory.store(at * 4, value));
        let mut kernel = Kernel::default();
        kernel.close(&ring, packets, BLOCK_HEADER as u32);
        let mut lent = 0;
        let read = ring.read_block(|packet| lent += usize::from(packet.bytes.len() <= BLOCK_BYTES)).unwrap();
        prop_assert_eq!(lent, read.packets);
        prop_assert!(read.malformed || read.packets == packets as usize);
    }
}
