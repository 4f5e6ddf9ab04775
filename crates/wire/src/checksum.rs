//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use std::net::{Ipv4Addr, Ipv6Addr};

/// A running ones' complement sum of 16-bit words in network order.
///
/// Wider numbers may be added directly: 2^16 is 1 in this arithmetic, so a number equals the sum of its words. Adding a
/// 32-bit address is therefore one instruction, and loops over long slices are fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checksum(u64);

impl Checksum {
    /// The empty sum.
    pub const ZERO: Self = Self(0);

    /// Adds 32 bits, or 16 at an even offset. Up to 2^31 of them fit.
    #[inline]
    #[must_use]
    pub fn add_word(self, word: u32) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// Adds bytes that start at an even offset; an odd last byte is padded with a zero.
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        let (quads, rest) = bytes.as_chunks::<4>();
        // Summed in the machine's order and swapped once at the end (RFC 1071 section 2B).
        let native: u64 = quads.iter().map(|quad| u64::from(u32::from_ne_bytes(*quad))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.add_word(u16::from_be(Self(native).fold()).into()).add_word(u32::from_be_bytes(last))
    }

    /// Adds an IPv4 address.
    #[inline]
    #[must_use]
    pub fn add_ipv4(self, address: Ipv4Addr) -> Self {
        self.add_word(address.to_bits())
    }

    /// Adds an IPv6 address.
    #[inline]
    #[must_use]
    pub fn add_ipv6(self, address: Ipv6Addr) -> Self {
        let bits = address.to_bits();
        self.add_word(bits as u32)
            .add_word((bits >> 32) as u32)
            .add_word((bits >> 64) as u32)
            .add_word((bits >> 96) as u32)
    }

    /// The sum folded to 16 bits; 0 only when nothing but zeros was added.
    #[inline]
    pub fn fold(self) -> u16 {
        // Adding the halves swapped puts their sum into the upper half, end-around carry included.
        let folded = (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32;
        (folded.wrapping_add(folded.rotate_left(16)) >> 16) as u16
    }

    /// The checksum of an IPv4 header: the complement of the sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// The checksum of a UDP datagram: 0 means "no checksum", so it is sent as 0xffff (RFC 768).
    #[inline]
    pub fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

/// The checksum after one 16-bit word of what it covers changed: `~(~HC + ~m + m')`, RFC 1624 equation 3.
#[inline]
pub fn update_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    Checksum::ZERO.add_word(u32::from(!checksum)).add_word(u32::from(!old)).add_word(u32::from(new)).finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, word by word.
    fn by_the_book(bytes: &[u8]) -> u16 {
        let mut sum: u32 = 0;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Checksum::ZERO.add_bytes(&bytes).fold(), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_updates_to_zero() {
        assert_eq!(update_checksum(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_udp_checksum_is_never_zero() {
        let all_ones = Checksum::ZERO.add_word(0xffff);
        assert_eq!((all_ones.finish(), all_ones.finish_udp()), (0, 0xffff));
    }

    #[test]
    fn addresses_are_worth_their_bytes() {
        let v4 = Ipv4Addr::new(192, 0, 2, 255);
        assert_eq!(Checksum::ZERO.add_ipv4(v4).fold(), Checksum::ZERO.add_bytes(&v4.octets()).fold());
        let v6: Ipv6Addr = "2001:db8:ffff:1::8000".parse().unwrap();
        assert_eq!(Checksum::ZERO.add_ipv6(v6).fold(), Checksum::ZERO.add_bytes(&v6.octets()).fold());
    }

    proptest! {
        #[test]
        fn fast_sums_are_the_sums_by_the_book(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(Checksum::ZERO.add_bytes(&bytes).finish(), by_the_book(&bytes));
        }

        #[test]
        fn a_sum_may_be_cut_at_any_even_offset(bytes in prop::collection::vec(any::<u8>(), 0..100), cut in 0usize..50) {
            let (front, back) = bytes.split_at((cut * 2).min(bytes.len() & !1));
            prop_assert_eq!(Checksum::ZERO.add_bytes(front).add_bytes(back).finish(), by_the_book(&bytes));
        }

        #[test]
        fn an_update_is_a_new_sum(mut bytes in prop::collection::vec(any::<u8>(), 2..100), at in any::<prop::sample::Index>(), new: u16) {
            // A sum of zero has two representations; a header's sum is never zero, because its version is not.
            bytes[0] |= 0x40;
            let at = (at.index(bytes.len() / 2) * 2).max(2);
            prop_assume!(at + 2 <= bytes.len());
            let before = by_the_book(&bytes);
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update_checksum(before, old, new), by_the_book(&bytes));
        }
    }
}
