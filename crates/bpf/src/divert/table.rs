//! The tables of rules that are a few equal bytes, as `divert.bpf.c` reads them.

use std::{collections::HashMap as Places, net::IpAddr};

/// One of a packet's two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketSide {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// Packets without VLAN tag that a rule takes; `None` matches anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEntry {
    /// The rule, from 0.
    pub rule: u32,
    /// IPv4 packets; else IPv6 packets.
    pub ipv4: bool,
    /// An address and how many bits of it count.
    pub network: Option<(PacketSide, IpAddr, u8)>,
    /// A TCP, UDP or SCTP port; later fragments have none.
    pub port: Option<(PacketSide, u16)>,
    /// The IP protocol, which must not be behind extension headers.
    pub protocol: Option<u8>,
}

/// Kinds of entries of either family: `SHAPES` of `divert.bpf.c`.
pub(super) const MOST_SHAPES: usize = 16;

/// `sizeof(struct shape4)`, `sizeof(struct shape6)` and `sizeof(struct bucket4)` of `divert.bpf.c`.
const SHAPE4_BYTES: usize = 16;
const SHAPE6_BYTES: usize = 20;
pub(super) const BUCKET_BYTES: usize = 64;
/// `KEYS` of `divert.bpf.c`.
const BUCKET_KEYS: usize = 5;

/// The table as the program reads it. The first rule takes the packet, so an existing key stays.
#[derive(Default)]
pub(super) struct Table {
    shapes4: Vec<Shape>,
    shapes6: Vec<Shape>,
    entries4: Places<u64, u32>,
    entries6: Places<[u8; 20], u32>,
}

/// What the entries of one table have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    network: Option<(PacketSide, u8)>,
    port: Option<PacketSide>,
    protocol: Option<u8>,
}

impl Table {
    pub(super) fn of(entries: &[TableEntry]) -> Self {
        let mut table = Self::default();
        for entry in entries {
            if entry.ipv4 {
                let shape = number(&mut table.shapes4, entry.shape());
                let mut key = [0; 8];
                if let Some((_, IpAddr::V4(address), prefix_len)) = entry.network {
                    key[..4].copy_from_slice(&masked::<4>(address.octets(), prefix_len));
                }
                key[4..].copy_from_slice(&entry.tail(shape));
                // In network order, so that the program swaps nothing.
                table.entries4.entry(u64::from_le_bytes(key)).or_insert(entry.rule + 1);
            } else {
                let shape = number(&mut table.shapes6, entry.shape());
                let mut key = [0; 20];
                if let Some((_, IpAddr::V6(address), prefix_len)) = entry.network {
                    key[..16].copy_from_slice(&masked::<16>(address.octets(), prefix_len));
                }
                key[16..].copy_from_slice(&entry.tail(shape));
                table.entries6.entry(key).or_insert(entry.rule + 1);
            }
        }
        table
    }

    /// Shapes of IPv4's and of IPv6's entries.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.shapes4.len(), self.shapes6.len())
    }

    /// Whether an IPv4 entry looks at a port.
    pub(super) fn has_ports4(&self) -> bool {
        self.shapes4.iter().any(|shape| shape.port.is_some())
    }

    /// Keys and rules, from 1, of IPv6's entries.
    pub(super) fn entries6(&self) -> &Places<[u8; 20], u32> {
        &self.entries6
    }

    /// IPv4's entries in buckets of at most [`BUCKET_KEYS`], and the factor by which a key's bucket is found.
    pub(super) fn buckets4(&self) -> (Vec<Bucket>, u64) {
        bucketed(&self.entries4)
    }

    /// The array `shapes4` of `divert.bpf.c`.
    pub(super) fn shapes4(&self) -> [[u8; SHAPE4_BYTES]; MOST_SHAPES] {
        let mut all = [[0; SHAPE4_BYTES]; MOST_SHAPES];
        for ((number, shape), bytes) in (0..).zip(&self.shapes4).zip(&mut all) {
            bytes[6..8].copy_from_slice(&[shape.protocol.unwrap_or(0), number]);
            bytes[8..12].copy_from_slice(&masked::<4>([0xff; 4], shape.prefix_len()));
            bytes[12..15].copy_from_slice(&shape.looks_at());
        }
        all
    }

    /// The array `shapes6` of `divert.bpf.c`.
    pub(super) fn shapes6(&self) -> [[u8; SHAPE6_BYTES]; MOST_SHAPES] {
        let mut all = [[0; SHAPE6_BYTES]; MOST_SHAPES];
        for (shape, bytes) in self.shapes6.iter().zip(&mut all) {
            bytes[..16].copy_from_slice(&masked::<16>([0xff; 16], shape.prefix_len()));
            bytes[16..19].copy_from_slice(&shape.looks_at());
        }
        all
    }
}

impl Shape {
    fn prefix_len(&self) -> u8 {
        self.network.map_or(0, |(_, prefix_len)| prefix_len)
    }

    /// Whose address, whose port, and the protocol.
    fn looks_at(&self) -> [u8; 3] {
        let side = |side| match side {
            None => 0,
            Some(PacketSide::Source) => 1,
            Some(PacketSide::Destination) => 2,
        };
        [side(self.network.map(|(side, _)| side)), side(self.port), self.protocol.unwrap_or(0)]
    }
}

impl TableEntry {
    fn shape(&self) -> Shape {
        Shape {
            network: self.network.map(|(side, _, prefix_len)| (side, prefix_len)),
            port: self.port.map(|(side, _)| side),
            protocol: self.protocol,
        }
    }

    /// The end of `struct key4` and `struct key6`: port, protocol, shape.
    fn tail(&self, shape: u8) -> [u8; 4] {
        let [high, low] = self.port.map_or(0, |(_, port)| port).to_be_bytes();
        [high, low, self.protocol.unwrap_or(0), shape]
    }
}

/// Keys and rules, from 1, of a place in the table of IPv4's entries.
pub(super) type Bucket = Vec<(u64, u32)>;

/// The entries in buckets of at most [`BUCKET_KEYS`], and the factor by which a key's bucket is found.
fn bucketed(entries: &Places<u64, u32>) -> (Vec<Bucket>, u64) {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    // Half full at first; a bucket that overflows leads to another factor, then to more buckets.
    let least = (entries.len() * 2 / BUCKET_KEYS).max(1).next_power_of_two();
    let tries = (0u32..).map(|attempt| (least << (attempt / 4), GOLDEN.rotate_left(attempt * 7) | 1));
    tries
        .map(|(count, factor)| {
            let mut buckets = vec![Bucket::new(); count];
            for (key, rule) in entries {
                let at = (key.wrapping_mul(factor) >> 32) as usize & (count - 1);
                buckets[at].push((*key, *rule));
            }
            (buckets, factor)
        })
        .find(|(buckets, _)| buckets.iter().all(|bucket| bucket.len() <= BUCKET_KEYS))
        .expect("there are larger tables")
}

/// `struct bucket4` of `divert.bpf.c`.
pub(super) fn bucket_bytes(bucket: &Bucket) -> [u8; BUCKET_BYTES] {
    let mut bytes = [0; BUCKET_BYTES];
    for (place, (key, rule)) in bucket.iter().enumerate() {
        bytes[place * 8..][..8].copy_from_slice(&key.to_ne_bytes());
        bytes[BUCKET_KEYS * 8 + place * 4..][..4].copy_from_slice(&rule.to_ne_bytes());
    }
    bytes
}

/// The number of a shape, which is added when it is new.
fn number(shapes: &mut Vec<Shape>, shape: Shape) -> u8 {
    let at = shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
        shapes.push(shape);
        shapes.len() - 1
    });
    assert!(at < MOST_SHAPES, "more than {} shapes", MOST_SHAPES);
    at as u8
}

/// The first bits of an address, the others 0.
fn masked<const N: usize>(mut octets: [u8; N], prefix_len: u8) -> [u8; N] {
    for (at, octet) in octets.iter_mut().enumerate() {
        let bits = usize::from(prefix_len).saturating_sub(at * 8).min(8);
        *octet &= !(0xffu16 >> bits) as u8;
    }
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rule: u32, network: &str, prefix_len: u8) -> TableEntry {
        let address: IpAddr = network.parse().unwrap();
        let network = Some((PacketSide::Source, address, prefix_len));
        TableEntry { rule, ipv4: address.is_ipv4(), network, port: None, protocol: Some(17) }
    }

    #[test]
    fn equal_shapes_share_a_number_and_the_first_of_equal_entries_stays() {
        let table = Table::of(&[
            entry(0, "192.0.2.1", 24),
            entry(1, "198.51.100.0", 24),
            entry(2, "192.0.2.200", 24),
            entry(3, "192.0.2.1", 32),
            entry(4, "2001:db8::", 32),
        ]);
        assert_eq!((table.shapes4.len(), table.shapes6.len()), (2, 1));
        let mut entries: Vec<_> =
            table.entries4.into_iter().map(|(key, rule)| (key.to_le_bytes(), rule)).collect();
        entries.sort_by_key(|(_, rule)| *rule);
        assert_eq!(
            entries,
            [
                ([192, 0, 2, 0, 0, 0, 17, 0], 1),
                ([198, 51, 100, 0, 0, 0, 17, 0], 2),
                ([192, 0, 2, 1, 0, 0, 17, 1], 4)
            ]
        );
        assert_eq!(table.entries6.into_values().collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn an_entry_without_address_is_about_its_family() {
        let port = Some((PacketSide::Destination, 53));
        let entry = TableEntry { rule: 0, ipv4: true, network: None, port, protocol: Some(17) };
        let table = Table::of(&[entry, TableEntry { rule: 1, ipv4: false, ..entry }]);
        assert_eq!(table.entries4, Places::from([(u64::from_le_bytes([0, 0, 0, 0, 0, 53, 17, 0]), 1)]));
        assert_eq!(table.entries6.values().copied().collect::<Vec<_>>(), [2]);
        assert_eq!(table.shapes4()[0], [0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 2, 17, 0]);
        assert_eq!(table.shapes6()[0][..16], [0; 16]);
        assert_eq!(table.shapes6()[0][16..], [0, 2, 17, 0]);
        assert!(table.has_ports4());
    }

    #[test]
    fn every_key_is_in_the_bucket_of_its_hash_and_no_bucket_overflows() {
        for count in [0u64, 1, 6, 1000, 20_000] {
            // Addresses one after the other, as prefixes are.
            let entries: Places<u64, u32> =
                (0..count).map(|at| (at << 8 | 17 << 48, at as u32 + 1)).collect();
            let (buckets, factor) = bucketed(&entries);
            assert!(buckets.len().is_power_of_two() && buckets.len() as u64 <= count.max(1) * 4, "{count}");
            for (at, bucket) in buckets.iter().enumerate() {
                assert!(bucket.len() <= BUCKET_KEYS);
                for (key, rule) in bucket {
                    assert_eq!((key.wrapping_mul(factor) >> 32) as usize % buckets.len(), at);
                    assert_eq!(entries[key], *rule);
                }
            }
            assert_eq!(buckets.iter().map(Vec::len).sum::<usize>() as u64, count);
        }
    }

    #[test]
    fn a_bucket_is_keys_then_rules() {
        let bytes = bucket_bytes(&vec![(1, 2), (3, 4)]);
        assert_eq!((bytes[0], bytes[8], bytes[40], bytes[44]), (1, 3, 2, 4));
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 4);
    }

    #[test]
    fn only_the_first_bits_count() {
        assert_eq!(masked([0xff; 4], 0), [0; 4]);
        assert_eq!(masked([0xff; 4], 9), [0xff, 0x80, 0, 0]);
        assert_eq!(masked([0xff; 4], 32), [0xff; 4]);
    }
}
