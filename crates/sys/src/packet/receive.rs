//! The receive ring (`PACKET_RX_RING`, `TPACKET_V3`): blocks of packets that the kernel fills and lends.

use std::{
    mem::{offset_of, size_of},
    time::Duration,
};

use libc::{
    TP_STATUS_KERNEL, TP_STATUS_LOSING, TP_STATUS_TS_RAW_HARDWARE, TP_STATUS_USER, TP_STATUS_VLAN_TPID_VALID,
    TP_STATUS_VLAN_VALID, tpacket_block_desc, tpacket_hdr_v1, tpacket_hdr_variant1, tpacket_req3,
    tpacket3_hdr,
};

use super::memory::Memory;

const BLOCK: usize = offset_of!(tpacket_block_desc, hdr);
const BLOCK_STATUS: usize = BLOCK + offset_of!(tpacket_hdr_v1, block_status);
const BLOCK_PACKETS: usize = BLOCK + offset_of!(tpacket_hdr_v1, num_pkts);
const BLOCK_FIRST: usize = BLOCK + offset_of!(tpacket_hdr_v1, offset_to_first_pkt);
const BLOCK_HEADER: usize = size_of::<tpacket_block_desc>();
const HEADER: usize = size_of::<tpacket3_hdr>();
const VLAN: usize = offset_of!(tpacket3_hdr, hv1);

const _: () = assert!(BLOCK == 8 && BLOCK_HEADER == 48 && HEADER == 48, "include/uapi/linux/if_packet.h");

/// Bytes of both MAC addresses, which a VLAN tag follows.
const STATIONS: usize = 12;
const TAG: usize = 4;
/// A tag's default EtherType.
const TPID_8021Q: u16 = 0x8100;
/// The kernel requires a frame size although only blocks matter; any valid one works.
const NOMINAL_FRAME_BYTES: usize = 2048;

/// Blocks that the kernel fills with packets.
pub struct RxRing {
    memory: Memory,
    layout: RxRingLayout,
    next: usize,
}

/// The size of a receive ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxRingLayout {
    /// Bytes of a block: a multiple of the page size and of 2048. A longer packet is truncated.
    pub block_bytes: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// The longest time that a packet waits for its block to fill up, in whole milliseconds, at least 1.
    pub retire_after: Duration,
}

/// A received packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet<'r> {
    /// The frame without FCS, with the VLAN tag that the kernel had stripped.
    pub bytes: &'r [u8],
    /// Whether the frame was truncated.
    pub truncated: bool,
    /// When the driver passed it on, in nanoseconds of the kernel's wall clock; or the card's timestamp.
    pub stamped_ns: u64,
    /// Whether it is the card's, which [`PacketSocket::ask_card`](super::PacketSocket::ask_card) requests.
    pub is_by_card: bool,
}

/// The contents of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockRead {
    /// Packets that were lent.
    pub packets: usize,
    /// Whether the kernel had lost packets, since its statistics were last read, when the block was full or late.
    pub losing: bool,
    /// Whether the rest of the block was skipped because it is invalid.
    pub malformed: bool,
}

/// A packet's header, read once and checked.
struct Header {
    next: usize,
    status: u32,
    start: usize,
    captured: usize,
    len: usize,
    tag: Option<[u8; TAG]>,
    stamped_ns: u64,
}

impl RxRingLayout {
    /// The memory that the ring takes.
    pub fn bytes(&self) -> usize {
        self.block_bytes * self.blocks
    }

    pub(super) fn request(&self) -> tpacket_req3 {
        tpacket_req3 {
            tp_block_size: self.block_bytes as u32,
            tp_block_nr: self.blocks as u32,
            tp_frame_size: NOMINAL_FRAME_BYTES as u32,
            tp_frame_nr: (self.bytes() / NOMINAL_FRAME_BYTES) as u32,
            tp_retire_blk_tov: self.retire_after.as_millis().max(1) as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        }
    }
}

impl RxRing {
    /// A ring whose first block the kernel fills first.
    ///
    /// # Panics
    /// When the memory's length differs from the layout's.
    pub(super) fn over(memory: Memory, layout: RxRingLayout) -> Self {
        assert!(layout.block_bytes >= BLOCK_HEADER && layout.blocks > 0, "a ring has blocks");
        assert_eq!(memory.len(), layout.bytes(), "the memory is as long as the ring");
        Self { memory, layout, next: 0 }
    }

    /// Whether the next block is ready to be read.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.memory.load(self.next_block() + BLOCK_STATUS) & TP_STATUS_USER != 0
    }

    /// Whether the next block holds packets, ready or still being filled.
    #[inline]
    pub fn is_filling(&self) -> bool {
        self.memory.load(self.next_block() + BLOCK_PACKETS) != 0
    }

    /// Lends each packet of the next block and returns the block to the kernel; `None` when it is not ready.
    ///
    /// The kernel's lengths and offsets are checked against the block.
    #[inline]
    pub fn read_block(&mut self, mut sink: impl FnMut(Packet<'_>)) -> Option<BlockRead> {
        let block = self.next_block();
        let status = self.memory.load(block + BLOCK_STATUS);
        if status & TP_STATUS_USER == 0 {
            return None;
        }
        let packets = self.memory.load(block + BLOCK_PACKETS) as usize;
        let mut at = self.memory.load(block + BLOCK_FIRST) as usize;
        // Version 3 reports it per block, not per packet.
        let mut read = BlockRead { losing: status & TP_STATUS_LOSING != 0, ..BlockRead::default() };
        while read.packets < packets {
            let Some(header) = self.header(block, at) else {
                read.malformed = true;
                break;
            };
            read.packets += 1;
            let bytes = self.frame(block + at + header.start, &header);
            sink(Packet {
                bytes,
                truncated: header.captured < header.len,
                stamped_ns: header.stamped_ns,
                is_by_card: header.status & TP_STATUS_TS_RAW_HARDWARE != 0,
            });
            at += header.next;
            if header.next < HEADER && read.packets < packets {
                read.malformed = true;
                break;
            }
        }
        // The block is still ours: a stale count would look like a block being filled.
        self.memory.store(block + BLOCK_PACKETS, 0);
        self.memory.store(block + BLOCK_STATUS, TP_STATUS_KERNEL);
        self.next = (self.next + 1) % self.layout.blocks;
        Some(read)
    }

    fn next_block(&self) -> usize {
        self.next * self.layout.block_bytes
    }

    /// The header `at` bytes into a block; `None` unless it and its packet lie within.
    #[inline]
    fn header(&self, block: usize, at: usize) -> Option<Header> {
        let room = self.layout.block_bytes.checked_sub(at)?;
        if at < BLOCK_HEADER || room < HEADER {
            return None;
        }
        let bytes: &[u8; HEADER] = self.memory.bytes(block + at, HEADER).first_chunk()?;
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let status = word(offset_of!(tpacket3_hdr, tp_status));
        let next = word(offset_of!(tpacket3_hdr, tp_next_offset)) as usize;
        let start = usize::from(half(offset_of!(tpacket3_hdr, tp_mac)));
        let captured = word(offset_of!(tpacket3_hdr, tp_snaplen)) as usize;
        let len = word(offset_of!(tpacket3_hdr, tp_len)) as usize;
        let tag = (status & TP_STATUS_VLAN_VALID != 0 && captured >= STATIONS).then(|| {
            let tpid = match status & TP_STATUS_VLAN_TPID_VALID {
                0 => TPID_8021Q,
                _ => half(VLAN + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid)),
            };
            let tci = word(VLAN + offset_of!(tpacket_hdr_variant1, tp_vlan_tci)) as u16;
            let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
            [a, b, c, d]
        });
        let first = HEADER + if tag.is_some() { TAG } else { 0 };
        let fits = start >= first && start <= room && captured <= room - start;
        let seconds = u64::from(word(offset_of!(tpacket3_hdr, tp_sec)));
        let stamped_ns = seconds * 1_000_000_000 + u64::from(word(offset_of!(tpacket3_hdr, tp_nsec)));
        fits.then_some(Header { next, status, start, captured, len, tag, stamped_ns })
    }

    /// The frame with its tag reinserted: the kernel leaves enough headroom.
    #[inline]
    fn frame(&mut self, start: usize, header: &Header) -> &[u8] {
        let Some(tag) = header.tag else { return self.memory.bytes(start, header.captured) };
        let frame = self.memory.bytes_mut(start - TAG, header.captured + TAG);
        frame.copy_within(TAG..TAG + STATIONS, 0);
        frame[STATIONS..STATIONS + TAG].copy_from_slice(&tag);
        frame
    }
}

#[cfg(test)]
mod tests;
