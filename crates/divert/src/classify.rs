//! Finds the rule for a frame in this process.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    net::IpAddr,
};

use bpf::{PacketSide, TableEntry};
use filter::FilterSet;

use crate::{
    error::RuleError,
    select::Selection,
    sets::{Members, Sets},
};

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Finds the first rule that takes a frame, with the same result as the kernel's program.
#[derive(Debug, Clone)]
pub(crate) struct Classifier {
    shapes: Vec<Shape>,
    entries: HashMap<Key, u32, BuildHasherDefault<Mix>>,
    filters: Option<FilterSet>,
    /// The rules of the filters.
    coded: Vec<u32>,
    /// The filters' lookups in sets.
    members: Members,
}

/// What the entries of one kind compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    ipv4: bool,
    network: Option<(PacketSide, u8)>,
    port: Option<PacketSide>,
    protocol: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    address: u128,
    rest: u64,
}

/// What entries compare of a frame.
struct Fields {
    ipv4: bool,
    /// By [`PacketSide`]: addresses in their upper bits, ports.
    addresses: [u128; 2],
    ports: Option<[u16; 2]>,
    protocol: u8,
}

impl Classifier {
    /// # Errors
    /// When expressions name unknown sets.
    pub(crate) fn new(selection: &Selection, sets: &Sets) -> Result<Self, RuleError> {
        let mut made = Self {
            shapes: Vec::new(),
            entries: HashMap::default(),
            filters: (!selection.filters.is_empty()).then(|| selection.filters.clone()),
            coded: selection.coded.clone(),
            members: sets.members(selection.filters.members())?,
        };
        for entry in &selection.table {
            made.insert(entry);
        }
        Ok(made)
    }

    /// The first rule, from 0, that takes the frame.
    #[inline]
    pub(crate) fn first(&self, frame: &[u8]) -> Option<u32> {
        let listed = if self.shapes.is_empty() { None } else { self.listed(frame) };
        let coded =
            self.filters.as_ref().and_then(|filters| filters.first_match_in(frame, self.members.of(frame)));
        let coded = coded.map(|place| self.coded[place]);
        match (listed, coded) {
            (Some(listed), Some(coded)) => Some(listed.min(coded)),
            (listed, coded) => listed.or(coded),
        }
    }

    fn listed(&self, frame: &[u8]) -> Option<u32> {
        let fields = Fields::read(frame)?;
        let shapes = self.shapes.iter().enumerate();
        shapes.filter_map(|(number, shape)| self.entries.get(&shape.key(number, &fields)?)).min().copied()
    }

    fn insert(&mut self, entry: &TableEntry) {
        let shape = Shape {
            ipv4: entry.ipv4,
            network: entry.network.map(|(side, _, prefix_len)| (side, prefix_len)),
            port: entry.port.map(|(side, _)| side),
            protocol: entry.protocol,
        };
        let number = self.shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        });
        let address = entry.network.map_or(0, |(_, address, prefix_len)| upper(address) & mask(prefix_len));
        let port = entry.port.map_or(0, |(_, port)| port);
        self.entries.entry(Key::new(address, port, entry.protocol, number)).or_insert(entry.rule);
    }
}

impl Shape {
    /// The place of the entry for these fields; `None` when no entry can match them.
    #[inline]
    fn key(&self, number: usize, fields: &Fields) -> Option<Key> {
        let fits = self.ipv4 == fields.ipv4
            && self.protocol.is_none_or(|protocol| protocol == fields.protocol)
            && (self.port.is_none() || fields.ports.is_some());
        fits.then(|| {
            let address = self
                .network
                .map_or(0, |(side, prefix_len)| fields.addresses[side as usize] & mask(prefix_len));
            let port = self.port.zip(fields.ports).map_or(0, |(side, ports)| ports[side as usize]);
            Key::new(address, port, self.protocol, number)
        })
    }
}

impl Key {
    fn new(address: u128, port: u16, protocol: Option<u8>, shape: usize) -> Self {
        let rest = u64::from(port) | u64::from(protocol.unwrap_or(0)) << 16 | (shape as u64) << 24;
        Self { address, rest }
    }
}

impl Fields {
    /// Of IPv4 and IPv6 without VLAN tag and extension headers; ports of TCP, UDP and SCTP but for later fragments.
    #[inline]
    fn read(frame: &[u8]) -> Option<Self> {
        let ethertype = frame.get(12..14)?;
        let packet = &frame[14..];
        let (ipv4, addresses, protocol, ports_at) = if ethertype == ETHERTYPE_IPV4 {
            let header = packet.first_chunk::<20>()?;
            let address = |at: usize| {
                let octets = [header[at], header[at + 1], header[at + 2], header[at + 3]];
                u128::from(u32::from_be_bytes(octets)) << 96
            };
            let later = header[6] & 0x1f != 0 || header[7] != 0;
            let ports_at = (!later).then_some(usize::from(header[0] & 0xf) * 4);
            (true, [address(12), address(16)], header[9], ports_at)
        } else if ethertype == ETHERTYPE_IPV6 {
            let header = packet.first_chunk::<40>()?;
            let address = |at| u128::from_be_bytes(*header[at..].first_chunk().expect("16 bytes"));
            (false, [address(8), address(24)], header[6], Some(40))
        } else {
            return None;
        };
        let ports = ports_at.filter(|_| matches!(protocol, 6 | 17 | 132)).and_then(|at| {
            let ports = packet.get(at..)?.first_chunk::<4>()?;
            Some([u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])])
        });
        Some(Self { ipv4, addresses, ports, protocol })
    }
}

/// An address in the upper bits.
fn upper(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(prefix_len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0)
}

/// Multiplies and folds: keys come from rules, so senders cannot provoke collisions.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Rule, RuleVerdict::Drop};
    use wire::{FrameSpec, Sizes, Template, Values};

    fn classifier(expressions: &[&str]) -> Classifier {
        // The same answers from the table as from compiled expressions.
        let far = (0..16).map(|number| format!("udp and dst port {}", 60_000 + number));
        let texts = expressions.iter().map(|text| text.to_string()).chain(far);
        let rules: Vec<Rule> = texts.map(|text| Rule::new(Drop, text.parse().unwrap())).collect();
        Classifier::new(&Selection::of(&rules), &Sets::default()).unwrap()
    }

    fn frame(src: &str, dst_port: u16) -> Vec<u8> {
        let src: IpAddr = src.parse().unwrap();
        let dst = if src.is_ipv4() { "198.51.100.1" } else { "2001:db8:9::1" };
        let spec = FrameSpec {
            src_addr: Values::Fixed(src),
            dst_addr: Values::Fixed(dst.parse().unwrap()),
            dst_port: Values::Fixed(dst_port),
            sizes: Sizes::Frame("100".parse().unwrap()),
            ..FrameSpec::default()
        };
        let template = Template::new(&spec).unwrap();
        let mut bytes = vec![0; template.max_frame_len()];
        template.stamp_frame(&mut bytes, 0, 0);
        bytes
    }

    #[test]
    fn the_first_rule_that_fits_takes_the_frame() {
        let classifier = classifier(&[
            "udp and src net 192.0.2.0/24",
            "udp and dst port 53",
            "udp and src host 192.0.2.7 and dst port 53",
            "udp and dst port 9 and src net 2001:db8::/32",
            "udp and src net 128.0.0.0/1 and dst port 80",
        ]);
        let cases = [
            ("192.0.2.7", 53, Some(0)),
            ("192.0.3.7", 53, Some(1)),
            ("2001:db8::7", 53, Some(1)),
            ("2001:db8::7", 9, Some(3)),
            ("2001:db9::7", 9, None),
            ("192.0.3.7", 80, Some(4)),
            ("127.0.3.7", 80, None),
        ];
        for (src, port, rule) in cases {
            assert_eq!(classifier.first(&frame(src, port)), rule, "{src} {port}");
        }
    }

    #[test]
    fn later_fragments_have_no_port() {
        let classifier = classifier(&["udp and dst port 53"]);
        let mut fragment = frame("192.0.2.1", 53);
        assert_eq!(classifier.first(&fragment), Some(0));
        fragment[21] = 1;
        assert_eq!(classifier.first(&fragment), None);
    }

    #[test]
    fn cut_frames_are_nobodys() {
        let classifier = classifier(&["udp and dst port 53"]);
        let whole = frame("192.0.2.1", 53);
        for len in 0..38 {
            assert_eq!(classifier.first(&whole[..len]), None, "{len}");
        }
    }
}
