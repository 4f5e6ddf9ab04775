//! Sets of networks as `divert.bpf.c` reads them: sorted bounds in levels of lines.

use super::table::PacketSide;

/// An address of a packet, and the set that it may be in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetMember {
    /// Whose address.
    pub side: PacketSide,
    /// The levels of the set's IPv4 bounds, the highest (one line) first.
    pub levels4: Vec<SetLevel>,
    /// Those of its IPv6 bounds.
    pub levels6: Vec<SetLevel>,
}

/// A level: each of its bounds but those of the lowest level is the first bound of a line of the next level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetLevel {
    /// The number of its first line.
    pub first_line: u32,
    /// Its bounds; the rest of its last line is filled with the highest address.
    pub bounds: u32,
}

/// IPv4 bounds of a line: a cache line.
pub type SetLine4 = [u32; 16];
/// IPv6 bounds of a line: two cache lines.
pub type SetLine6 = [u128; 8];

/// `MEMBERS`, `LEVELS4` and `LEVELS6` of `divert.bpf.c`.
pub(super) const MOST_MEMBERS: usize = 16;
const LEVELS4: usize = 6;
const LEVELS6: usize = 8;
const MEMBER_WORDS: usize = 32;

/// The array `members` of `divert.bpf.c`.
pub(super) fn members(all: &[SetMember]) -> [[u32; MEMBER_WORDS]; MOST_MEMBERS] {
    let mut words = [[0; MEMBER_WORDS]; MOST_MEMBERS];
    for (member, words) in all.iter().zip(&mut words) {
        let (head, rest) = words.split_at_mut(3);
        let side = match member.side {
            PacketSide::Source => 1,
            PacketSide::Destination => 2,
        };
        head.copy_from_slice(&[side, member.levels4.len() as u32, member.levels6.len() as u32]);
        let (first4, rest) = rest.split_at_mut(LEVELS4);
        let (used4, rest) = rest.split_at_mut(LEVELS4);
        let (first6, rest) = rest.split_at_mut(LEVELS6);
        let (used6, _) = rest.split_at_mut(LEVELS6);
        assert!(
            member.levels4.len() <= LEVELS4 && member.levels6.len() <= LEVELS6,
            "a set of too many networks"
        );
        for (at, level) in member.levels4.iter().enumerate() {
            (first4[at], used4[at]) = (level.first_line, level.bounds);
        }
        for (at, level) in member.levels6.iter().enumerate() {
            (first6[at], used6[at]) = (level.first_line, level.bounds);
        }
    }
    words
}

/// `struct line4`.
pub(super) fn line4_bytes(line: &SetLine4, bytes: &mut [u8]) {
    for (bound, bytes) in line.iter().zip(bytes.chunks_exact_mut(4)) {
        bytes.copy_from_slice(&bound.to_ne_bytes());
    }
}

/// `struct line6`: the upper halves, then the lower ones.
pub(super) fn line6_bytes(line: &SetLine6, bytes: &mut [u8]) {
    let (high, low) = bytes.split_at_mut(64);
    for ((bound, high), low) in line.iter().zip(high.chunks_exact_mut(8)).zip(low.chunks_exact_mut(8)) {
        high.copy_from_slice(&((bound >> 64) as u64).to_ne_bytes());
        low.copy_from_slice(&(*bound as u64).to_ne_bytes());
    }
}
