//! Samples of dropped packets.

use aya::maps::{MapData, RingBuf};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropShown<'r> {
    /// When, by the monotonic clock.
    pub time_ns: u64,
    /// The rule, from 0.
    pub rule: u32,
    /// Whether it was above the rule's limit.
    pub is_limited: bool,
    /// Bytes of the frame.
    pub len: u32,
    /// Its first bytes.
    pub bytes: &'r [u8],
}

/// Room for those that were not read yet: some 2,000.
pub(super) const RING_BYTES: u32 = 4 << 20;
/// A ring that stays empty: a page.
pub(super) const NO_RING_BYTES: u32 = 4096;
/// Where `bytes` begin in `struct sample` of `divert.bpf.c`.
const HEADER: usize = 24;

/// Returns all that are in the ring.
pub(super) fn read(ring: &mut RingBuf<MapData>, mut each: impl FnMut(DropShown<'_>)) {
    while let Some(item) = ring.next() {
        let word = |at: usize| u32::from_ne_bytes(item[at..at + 4].try_into().expect("four bytes"));
        let time_ns = u64::from_ne_bytes(item[..8].try_into().expect("eight bytes"));
        let kept = (word(16) as usize).min(item.len() - HEADER);
        let bytes = &item[HEADER..HEADER + kept];
        each(DropShown { time_ns, rule: word(8), is_limited: word(20) != 0, len: word(12), bytes });
    }
}
