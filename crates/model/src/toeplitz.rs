//! The Toeplitz hash by table, as the model and the planner hash millions of flows with it.

/// A key with the 256 possible contributions of each input byte worked out.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    tables: Box<[[u32; 256]; INPUT]>,
}

/// Bytes of an IPv4 flow: two addresses, two ports.
pub(crate) const INPUT: usize = 12;

impl Key {
    /// The key of Microsoft's RSS verification suite.
    pub(crate) const MICROSOFT: &str =
        "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

    /// From 80 hexadecimal digits.
    pub(crate) fn parse(hex: &str) -> Option<Self> {
        let bytes: Option<Vec<u8>> =
            (0..40).map(|i| u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()).collect();
        let bytes: [u8; 40] = bytes?.try_into().ok()?;
        (hex.len() == 80).then(|| Self::new(&bytes))
    }

    pub(crate) fn new(key: &[u8; 40]) -> Self {
        let mut tables = Box::new([[0u32; 256]; INPUT]);
        for (at, table) in tables.iter_mut().enumerate() {
            let window = key[at..at + 5].iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            for (byte, sum) in table.iter_mut().enumerate() {
                // bit 0 is the byte's highest: its window starts at the byte's first bit
                *sum = (0..8)
                    .filter(|bit| byte >> (7 - bit) & 1 == 1)
                    .fold(0, |sum, bit| sum ^ (window >> (8 - bit)) as u32);
            }
        }
        Self { tables }
    }

    /// The hash of at most twelve bytes.
    #[inline]
    pub(crate) fn hash(&self, input: &[u8]) -> u32 {
        self.tables.iter().zip(input).fold(0, |sum, (table, byte)| sum ^ table[usize::from(*byte)])
    }
}

/// A flow as the card hashes it: source, destination, source port, destination port.
#[inline]
pub(crate) fn flow_bytes(
    source: u32,
    destination: u32,
    source_port: u16,
    destination_port: u16,
) -> [u8; INPUT] {
    let mut bytes = [0; INPUT];
    bytes[0..4].copy_from_slice(&source.to_be_bytes());
    bytes[4..8].copy_from_slice(&destination.to_be_bytes());
    bytes[8..10].copy_from_slice(&source_port.to_be_bytes());
    bytes[10..12].copy_from_slice(&destination_port.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_hold() {
        let key = Key::parse(Key::MICROSOFT).unwrap();
        let ip = |a, b, c, d| u32::from(std::net::Ipv4Addr::new(a, b, c, d));
        for (source, source_port, destination, destination_port, addresses, with_ports) in [
            (ip(66, 9, 149, 187), 2794, ip(161, 142, 100, 80), 1766, 0x323e8fc2, 0x51ccc178),
            (ip(199, 92, 111, 2), 14230, ip(65, 69, 140, 83), 4739, 0xd718262a, 0xc626b0ea),
            (ip(24, 19, 198, 95), 12898, ip(12, 22, 207, 184), 38024, 0xd2d0a5de, 0x5c2b394a),
        ] {
            let bytes = flow_bytes(source, destination, source_port, destination_port);
            assert_eq!((key.hash(&bytes[..8]), key.hash(&bytes)), (addresses, with_ports));
        }
    }

    #[test]
    fn a_key_of_another_length_is_no_key() {
        assert!(Key::parse("6d5a").is_none());
        assert!(Key::parse(&"6g".repeat(40)).is_none());
        assert!(Key::parse(&"6d".repeat(41)).is_none());
    }
}
