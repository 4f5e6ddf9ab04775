//! The hash by which cards spread flows over queues (Microsoft's receive side scaling), and the table behind it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    flow::{Addresses, FlowKey},
    text::{Text, text_form},
};

/// The most bytes that are hashed: two IPv6 addresses and two ports.
const MOST_INPUT: usize = 36;
/// Each input bit selects 32 bits of the key.
const LEAST_KEY: usize = MOST_INPUT + 4;

/// A hash key of 40 or 52 bytes; `6d:5a:…` as text, as ethtool prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub struct RssKey(Vec<u8>);

/// The parts of a packet that a card hashes; `sd` or `sdfn` as text, ethtool's letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub enum HashFields {
    /// `sd`: source and destination address.
    Addresses,
    /// `sdfn`: addresses, and the first four bytes behind the IP header, which are the ports.
    AddressesAndPorts,
}

/// The hash for one key, by a table per input byte.
#[derive(Clone)]
pub struct Toeplitz {
    /// `tables[i][b]` is the contribution of byte `b` at offset `i`.
    tables: Box<[[u32; 256]; MOST_INPUT]>,
}

/// Why a key or a choice of fields cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ToeplitzError {
    /// Cards use 40 or 52.
    #[error("a hash key must have 40 or 52 bytes, not {len}")]
    KeyLen {
        /// Bytes given.
        len: usize,
    },
    /// Not hex.
    #[error("'{text}' is not a byte of a hash key: write pairs of hex digits, 6d:5a:56 and so on")]
    NotAByte {
        /// What was written.
        text: String,
    },
    /// Letters that have no prediction here.
    #[error("unknown hash fields '{text}': write sd for addresses, sdfn for addresses and ports")]
    Fields {
        /// What was written.
        text: String,
    },
}

impl RssKey {
    /// The key of Microsoft's verification suite, the default of many drivers.
    pub fn microsoft() -> Self {
        Self(
            [
                0x6d5a_56da_255b_0ec2_4167_253d_43a3_8fb0_u128.to_be_bytes().as_slice(),
                &0xd0ca_2bcb_ae7b_30b4_77cb_2da3_8030_f20c_u128.to_be_bytes(),
                &0x6a42_b73b_beac_01fa_u64.to_be_bytes(),
            ]
            .concat(),
        )
    }

    /// A key of these bytes.
    ///
    /// # Errors
    /// [`ToeplitzError::KeyLen`] when they are not 40 or 52.
    pub fn new(bytes: &[u8]) -> Result<Self, ToeplitzError> {
        match bytes.len() {
            40 | 52 => Ok(Self(bytes.to_vec())),
            len => Err(ToeplitzError::KeyLen { len }),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Toeplitz {
    /// The hash for a key: 36 KiB of tables.
    pub fn new(key: &RssKey) -> Self {
        let key: &[u8; LEAST_KEY] = key.0.first_chunk().expect("a key of 40 bytes or more");
        let mut tables = Box::new([[0; 256]; MOST_INPUT]);
        for (place, table) in tables.iter_mut().enumerate() {
            // The 40 bits of the key that the byte's eight bits select, 32 at a time.
            let window = key[place..place + 5].iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            for byte in 1..256usize {
                let lowest = byte.trailing_zeros();
                table[byte] = table[byte & (byte - 1)] ^ (window >> (lowest + 1)) as u32;
            }
        }
        Self { tables }
    }

    /// The hash of a packet of this flow.
    #[inline]
    pub fn hash(&self, flow: &FlowKey, fields: HashFields) -> u32 {
        match flow.addresses {
            Addresses::V4 { src, dst } => {
                let addresses = self.sum(0, src.octets()) ^ self.sum(4, dst.octets());
                addresses ^ self.ports(8, flow, fields)
            }
            Addresses::V6 { src, dst } => {
                let addresses = self.sum(0, src.octets()) ^ self.sum(16, dst.octets());
                addresses ^ self.ports(32, flow, fields)
            }
        }
    }

    #[inline]
    fn ports(&self, at: usize, flow: &FlowKey, fields: HashFields) -> u32 {
        match fields {
            HashFields::Addresses => 0,
            HashFields::AddressesAndPorts => {
                self.sum(at, flow.src_port.to_be_bytes()) ^ self.sum(at + 2, flow.dst_port.to_be_bytes())
            }
        }
    }

    #[inline]
    fn sum<const N: usize>(&self, at: usize, input: [u8; N]) -> u32 {
        self.tables[at..at + N]
            .iter()
            .zip(input)
            .fold(0, |hash, (table, byte)| hash ^ table[usize::from(byte)])
    }
}

impl fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

impl FromStr for RssKey {
    type Err = ToeplitzError;

    /// Reads pairs of hex digits, with or without colons between them.
    fn from_str(text: &str) -> Result<Self, ToeplitzError> {
        let byte = |pair: &str| {
            let digits = pair.len() == 2 && pair.bytes().all(|c| c.is_ascii_hexdigit());
            let byte = digits.then(|| u8::from_str_radix(pair, 16).ok()).flatten();
            byte.ok_or_else(|| ToeplitzError::NotAByte { text: pair.into() })
        };
        let text = text.trim();
        let pairs = text.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap_or("?"));
        let bytes: Result<Vec<_>, _> =
            if text.contains(':') { text.split(':').map(byte).collect() } else { pairs.map(byte).collect() };
        Self::new(&bytes?)
    }
}

impl fmt::Display for RssKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if at == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl FromStr for HashFields {
    type Err = ToeplitzError;

    /// Reads the letters in any order.
    fn from_str(text: &str) -> Result<Self, ToeplitzError> {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        match letters[..] {
            ['d', 's'] => Ok(Self::Addresses),
            ['d', 'f', 'n', 's'] => Ok(Self::AddressesAndPorts),
            _ => Err(ToeplitzError::Fields { text: text.into() }),
        }
    }
}

impl fmt::Display for HashFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Addresses => "sd",
            Self::AddressesAndPorts => "sdfn",
        })
    }
}

text_form!(RssKey);
text_form!(HashFields);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// The definition: for every set bit of the input, the 32 bits of the key that start there.
    fn by_the_book(key: &[u8], input: &[u8]) -> u32 {
        let key_bit = |at: usize| u32::from(key[at / 8] >> (7 - at % 8) & 1);
        let mut hash = 0;
        for at in (0..input.len() * 8).filter(|at| input[at / 8] >> (7 - at % 8) & 1 == 1) {
            hash ^= (at..at + 32).fold(0, |window, bit| window << 1 | key_bit(bit));
        }
        hash
    }

    fn input(flow: &FlowKey) -> Vec<u8> {
        let mut bytes = match flow.addresses {
            Addresses::V4 { src, dst } => [src.octets(), dst.octets()].concat(),
            Addresses::V6 { src, dst } => [src.octets(), dst.octets()].concat(),
        };
        bytes.extend(flow.src_port.to_be_bytes());
        bytes.extend(flow.dst_port.to_be_bytes());
        bytes
    }

    #[test]
    fn microsofts_check_vectors_hold() {
        let toeplitz = Toeplitz::new(&RssKey::microsoft());
        for (src, dst, addresses, with_ports) in [
            ("66.9.149.187:2794", "161.142.100.80:1766", 0x323e_8fc2, 0x51cc_c178),
            ("199.92.111.2:14230", "65.69.140.83:4739", 0xd718_262a, 0xc626_b0ea),
            ("24.19.198.95:12898", "12.22.207.184:38024", 0xd2d0_a5de, 0x5c2b_394a),
            ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x2cc1_8cd5, 0x4020_7d3d),
        ] {
            let flow = FlowKey::udp(src.parse().unwrap(), dst.parse().unwrap()).unwrap();
            assert_eq!(toeplitz.hash(&flow, HashFields::Addresses), addresses, "{flow}");
            assert_eq!(toeplitz.hash(&flow, HashFields::AddressesAndPorts), with_ports, "{flow}");
        }
    }

    #[test]
    fn keys_and_fields_read_as_ethtool_writes_them() {
        let key = RssKey::microsoft();
        let text = key.to_string();
        assert!(text.starts_with("6d:5a:56:da:") && text.ends_with(":ac:01:fa"), "{text}");
        assert_eq!(text.parse().as_ref(), Ok(&key));
        assert_eq!(text.replace(':', "").parse(), Ok(key));
        assert_eq!("sdfn".parse(), Ok(HashFields::AddressesAndPorts));
        assert_eq!("ds".parse(), Ok(HashFields::Addresses));
        assert_eq!(HashFields::AddressesAndPorts.to_string(), "sdfn");
    }

    #[test]
    fn refusals_say_what_to_write_instead() {
        let key = |text: &str| text.parse::<RssKey>().unwrap_err().to_string();
        assert_eq!(key("6d:5a"), "a hash key must have 40 or 52 bytes, not 2");
        assert!(key("6d:+a").contains("'+a' is not a byte of a hash key"));
        assert_eq!(
            "sdm".parse::<HashFields>().unwrap_err().to_string(),
            "unknown hash fields 'sdm': write sd for addresses, sdfn for addresses and ports"
        );
    }

    proptest! {
        #[test]
        fn the_table_is_the_definition(
            key in prop_oneof![prop::collection::vec(any::<u8>(), 40), prop::collection::vec(any::<u8>(), 52)],
            v6: bool, src: u128, dst: u128, src_port: u16, dst_port: u16,
        ) {
            let addresses = if v6 {
                Addresses::V6 { src: Ipv6Addr::from_bits(src), dst: Ipv6Addr::from_bits(dst) }
            } else {
                Addresses::V4 { src: Ipv4Addr::from_bits(src as u32), dst: Ipv4Addr::from_bits(dst as u32) }
            };
            let flow = FlowKey { addresses, src_port, dst_port, protocol: 17 };
            let toeplitz = Toeplitz::new(&RssKey::new(&key).unwrap());
            let input = input(&flow);
            prop_assert_eq!(
                toeplitz.hash(&flow, HashFields::AddressesAndPorts), by_the_book(&key, &input)
            );
            prop_assert_eq!(
                toeplitz.hash(&flow, HashFields::Addresses), by_the_book(&key, &input[..input.len() - 4])
            );
        }
    }
}
