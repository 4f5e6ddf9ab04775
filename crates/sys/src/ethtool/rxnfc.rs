//! Flow rules by ioctl: which packets go to which queue, regardless of their hash (`struct ethtool_rxnfc`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layout::{COUNT, LEN};
use super::{Buffer, EthtoolError, EthtoolSocket, parse_places};

/// Offset and length of `struct ethtool_rx_flow_spec` in it.
const SPEC: usize = 16;
const SPEC_LEN: usize = 168;
/// Within the specification: values, masks, target and location.
const VALUES: usize = 4;
const MASKS: usize = 76;
const QUEUE: usize = 152;
const LOCATION: usize = 160;

/// The field of `struct ethtool_rxnfc` with the number of locations.
const DATA: usize = 8;
/// `RX_CLS_LOC_SPECIAL` in that field: the driver accepts [`ANY_PLACE`].
const CHOOSES_PLACES: u32 = 0x8000_0000;
const LIST: &str = "list the flow rules";

/// `RX_CLS_FLOW_DISC`.
const DISCARD: u64 = u64::MAX;
/// `RX_CLS_LOC_ANY`: the driver chooses a location.
const ANY_PLACE: u32 = u32::MAX;
/// `FLOW_RSS`: the action is a context of receive side scaling.
const TO_CONTEXT: u32 = 0x2000_0000;

/// A rule as the kernel holds it, byte for byte, so that a rule read can be written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRule {
    spec: [u8; SPEC_LEN],
    context: u32,
}

/// What a rule matches: these values, anything elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowMatch {
    /// The kind of packet.
    pub kind: FlowKind,
    /// From this address, or one with this prefix.
    pub src: Option<(IpAddr, u8)>,
    /// To this address, or one with this prefix.
    pub dst: Option<(IpAddr, u8)>,
    /// From the first port to the last: a block that a mask can express: a power of two long, and aligned to it.
    pub src_port: Option<(u16, u16)>,
    /// To such a block of ports.
    pub dst_port: Option<(u16, u16)>,
    /// The protocol over IP, when the kind does not imply it.
    pub protocol: Option<u8>,
}

/// A kind of packet in rules; the number is the kernel's (`*_FLOW` in `linux/ethtool.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum FlowKind {
    /// TCP over IPv4.
    Tcp4 = 0x01,
    /// UDP over IPv4.
    Udp4 = 0x02,
    /// SCTP over IPv4.
    Sctp4 = 0x03,
    /// TCP over IPv6.
    Tcp6 = 0x05,
    /// UDP over IPv6.
    Udp6 = 0x06,
    /// SCTP over IPv6.
    Sctp6 = 0x07,
    /// Anything over IPv4.
    Ip4 = 0x0d,
    /// Anything over IPv6.
    Ip6 = 0x0e,
}

impl FlowKind {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Tcp4, Self::Udp4, Self::Sctp4, Self::Tcp6, Self::Udp6, Self::Sctp6, Self::Ip4, Self::Ip6];

    /// ethtool's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp4 => "tcp4",
            Self::Udp4 => "udp4",
            Self::Sctp4 => "sctp4",
            Self::Tcp6 => "tcp6",
            Self::Udp6 => "udp6",
            Self::Sctp6 => "sctp6",
            Self::Ip4 => "ip4",
            Self::Ip6 => "ip6",
        }
    }

    /// Whether its packets are IPv6.
    pub fn is_v6(self) -> bool {
        matches!(self, Self::Tcp6 | Self::Udp6 | Self::Sctp6 | Self::Ip6)
    }

    /// Whether its packets have ports.
    pub fn has_ports(self) -> bool {
        !matches!(self, Self::Ip4 | Self::Ip6)
    }

    /// Bytes of an address.
    fn width(self) -> usize {
        if self.is_v6() { 16 } else { 4 }
    }

    /// The field of the protocol: `proto` of `struct ethtool_usrip4_spec`, `l4_proto` of the one for IPv6.
    fn protocol_at(self) -> usize {
        if self.is_v6() { 37 } else { 14 }
    }
}

/// The field of `struct ethtool_usrip4_spec` that marks IPv4, and its value.
const IP_VERSION: (usize, u8) = (13, 1);

/// Where matching packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowAction {
    /// To this queue.
    Queue(u32),
    /// Nowhere.
    Drop,
    /// To the queues of this RSS context.
    Context(u32),
}

impl FlowRule {
    /// A rule at a location, or at one that the driver chooses; lower locations win.
    pub fn new(matches: &FlowMatch, action: FlowAction, place: Option<u32>) -> Self {
        let mut rule = Self { spec: [0; SPEC_LEN], context: 0 };
        let flag = if matches!(action, FlowAction::Context(_)) { TO_CONTEXT } else { 0 };
        rule.put(0, &(matches.kind as u32 | flag).to_ne_bytes());
        let width = matches.kind.width();
        for (at, address) in [(0, matches.src), (width, matches.dst)] {
            match address {
                Some((IpAddr::V4(address), len)) => rule.match_prefix(at, &address.octets(), len),
                Some((IpAddr::V6(address), len)) => rule.match_prefix(at, &address.octets(), len),
                None => {}
            }
        }
        if matches.kind.has_ports() {
            for (at, ports) in [(2 * width, matches.src_port), (2 * width + 2, matches.dst_port)] {
                let Some((first, last)) = ports else { continue };
                rule.put(VALUES + at, &first.to_be_bytes());
                rule.put(MASKS + at, &(!(first ^ last)).to_be_bytes());
            }
        } else {
            if matches.kind == FlowKind::Ip4 {
                rule.put(VALUES + IP_VERSION.0, &[IP_VERSION.1]);
            }
            if let Some(protocol) = matches.protocol {
                rule.put(VALUES + matches.kind.protocol_at(), &[protocol]);
                rule.put(MASKS + matches.kind.protocol_at(), &[0xff]);
            }
        }
        let queue = match action {
            FlowAction::Queue(queue) => u64::from(queue),
            FlowAction::Drop => DISCARD,
            FlowAction::Context(context) => {
                rule.context = context;
                0
            }
        };
        rule.put(QUEUE, &queue.to_ne_bytes());
        rule.put(LOCATION, &place.unwrap_or(ANY_PLACE).to_ne_bytes());
        rule
    }

    /// The rule as bytes for storage: the specification, then the context.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.spec[..], &self.context.to_ne_bytes()].concat()
    }

    /// A rule from the bytes of [`FlowRule::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (spec, context) = bytes.split_first_chunk()?;
        Some(Self { spec: *spec, context: u32::from_ne_bytes(context.try_into().ok()?) })
    }

    /// Its location in the table.
    pub fn place(&self) -> u32 {
        u32::from_ne_bytes(self.get(LOCATION))
    }

    /// Where matching packets go.
    pub fn action(&self) -> FlowAction {
        let queue = u64::from_ne_bytes(self.get(QUEUE));
        match queue {
            DISCARD => FlowAction::Drop,
            _ if self.number() & TO_CONTEXT != 0 => FlowAction::Context(self.context),
            // The upper half names a virtual function.
            queue => FlowAction::Queue(queue as u32),
        }
    }

    /// What it matches, if prefixes and port blocks can express it; `None` for other rules.
    pub fn matches(&self) -> Option<FlowMatch> {
        let kind = FlowKind::ALL.into_iter().find(|kind| *kind as u32 == self.number() & !TO_CONTEXT)?;
        let width = kind.width();
        let with_ports = |at: usize| if kind.has_ports() { self.ports(at) } else { Some(None) };
        let found = FlowMatch {
            kind,
            src: self.prefix(0, width)?,
            dst: self.prefix(width, width)?,
            src_port: with_ports(2 * width)?,
            dst_port: with_ports(2 * width + 2)?,
            protocol: (!kind.has_ports() && self.spec[MASKS + kind.protocol_at()] == 0xff)
                .then(|| self.spec[VALUES + kind.protocol_at()]),
        };
        // Any other field that it matches shows as a difference.
        let again = Self::new(&found, self.action(), Some(self.place()));
        (again.spec[..QUEUE] == self.spec[..QUEUE]).then_some(found)
    }

    /// All bits of the rule's masks: cards may have one mask for all rules.
    pub fn mask(&self) -> &[u8] {
        &self.spec[MASKS..QUEUE]
    }

    fn number(&self) -> u32 {
        u32::from_ne_bytes(self.get(0))
    }

    fn match_prefix(&mut self, at: usize, value: &[u8], len: u8) {
        for (index, byte) in value.iter().enumerate() {
            let bits = usize::from(len).saturating_sub(index * 8).min(8);
            let mask = !(0xff_u32 >> bits) as u8;
            self.put(VALUES + at + index, &[byte & mask]);
            self.put(MASKS + at + index, &[mask]);
        }
    }

    /// The prefix at an offset: `Some(None)` if any address matches, `None` if the mask is not a prefix.
    fn prefix(&self, at: usize, width: usize) -> Option<Option<(IpAddr, u8)>> {
        let (value, mask) = (&self.spec[VALUES + at..][..width], &self.spec[MASKS + at..][..width]);
        let len: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
        let leading = mask.iter().take_while(|byte| **byte == 0xff).count();
        let is_prefix = mask.get(leading).is_none_or(|byte| byte.leading_ones() == byte.count_ones())
            && mask.iter().skip(leading + 1).all(|byte| *byte == 0);
        if len == 0 {
            return Some(None);
        }
        let address = match width {
            4 => Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into(),
            _ => Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into(),
        };
        is_prefix.then_some(Some((address, len as u8)))
    }

    fn ports(&self, at: usize) -> Option<Option<(u16, u16)>> {
        let mask = u16::from_be_bytes(self.get(MASKS + at));
        let first = u16::from_be_bytes(self.get(VALUES + at));
        match mask {
            0 => Some(None),
            _ if mask.leading_ones() == mask.count_ones() && first & !mask == 0 => {
                Some(Some((first, first | !mask)))
            }
            _ => None,
        }
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.spec[at..at + N].try_into().unwrap()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.spec[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl EthtoolSocket {
    /// Every flow rule of the interface.
    pub fn flow_rules(&self, interface: &str) -> Result<Vec<FlowRule>, EthtoolError> {
        let (count, _) = self.count_rules(interface)?;
        let list = self.list_places(interface, count)?;
        parse_places(list.bytes()).into_iter().map(|place| self.flow_rule(interface, place)).collect()
    }

    fn flow_rule(&self, interface: &str, place: u32) -> Result<FlowRule, EthtoolError> {
        const ETHTOOL_GRXCLSRULE: u32 = 0x2f;
        let mut answer = Buffer::new(&[ETHTOOL_GRXCLSRULE], LEN - 4);
        answer.set_u32((SPEC + LOCATION) / 4, place);
        self.ask(interface, &mut answer, "read a flow rule")?;
        let spec = answer.bytes()[SPEC..][..SPEC_LEN].try_into().unwrap();
        Ok(FlowRule { spec, context: answer.u32(COUNT / 4) })
    }

    /// Adds a rule; returns its location. Needs CAP_NET_ADMIN. If a card does not choose locations itself, a rule without
    /// a location gets the last free one, behind all rules with a deliberate location.
    pub fn insert_flow_rule(&self, interface: &str, rule: &FlowRule) -> Result<u32, EthtoolError> {
        const ETHTOOL_SRXCLSRLINS: u32 = 0x32;
        let mut rule = rule.clone();
        if rule.place() == ANY_PLACE
            && let Some(place) = self.last_free_place(interface)?
        {
            rule.put(LOCATION, &place.to_ne_bytes());
        }
        let mut request = Buffer::new(&[ETHTOOL_SRXCLSRLINS], LEN - 4);
        request.set_bytes(SPEC, &rule.spec);
        request.set_u32(COUNT / 4, rule.context);
        self.ask(interface, &mut request, "add a flow rule")?;
        Ok(request.u32((SPEC + LOCATION) / 4))
    }

    /// The last free location; `None` if the card chooses itself, does not report the table's size, or is full.
    fn last_free_place(&self, interface: &str) -> Result<Option<u32>, EthtoolError> {
        let (count, data) = self.count_rules(interface)?;
        if data & CHOOSES_PLACES != 0 {
            return Ok(None);
        }
        let list = self.list_places(interface, count)?;
        let places = u64::from(list.u32(DATA / 4)) | u64::from(list.u32(DATA / 4 + 1)) << 32;
        let taken = parse_places(list.bytes());
        let last = places.min(MOST_RULES as u64) as u32;
        Ok((0..last).rev().find(|place| !taken.contains(place)))
    }

    /// The number of rules, and the driver's flags.
    fn count_rules(&self, interface: &str) -> Result<(usize, u32), EthtoolError> {
        const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
        let mut answer = Buffer::new(&[ETHTOOL_GRXCLSRLCNT], LEN - 4);
        self.ask(interface, &mut answer, LIST)?;
        let count = answer.u32(COUNT / 4) as usize;
        if count > MOST_RULES {
            return Err(self.odd(interface, LIST));
        }
        Ok((count, answer.u32(DATA / 4)))
    }

    /// The answer that [`parse_places`] reads.
    fn list_places(&self, interface: &str, count: usize) -> Result<Buffer, EthtoolError> {
        const ETHTOOL_GRXCLSRLALL: u32 = 0x30;
        let mut list = Buffer::new(&[ETHTOOL_GRXCLSRLALL], LEN - 4 + count * 4);
        list.set_u32(COUNT / 4, count as u32);
        self.ask(interface, &mut list, LIST)?;
        Ok(list)
    }

    /// Deletes the rule at a location. Needs CAP_NET_ADMIN.
    pub fn delete_flow_rule(&self, interface: &str, place: u32) -> Result<(), EthtoolError> {
        const ETHTOOL_SRXCLSRLDEL: u32 = 0x31;
        let mut request = Buffer::new(&[ETHTOOL_SRXCLSRLDEL], LEN - 4);
        request.set_u32((SPEC + LOCATION) / 4, place);
        self.ask(interface, &mut request, "delete a flow rule")
    }
}

/// More than any card has.
const MOST_RULES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn dns() -> FlowMatch {
        FlowMatch {
            kind: FlowKind::Udp4,
            src: None,
            dst: Some(("10.0.0.7".parse().unwrap(), 32)),
            src_port: None,
            dst_port: Some((53, 53)),
            protocol: None,
        }
    }

    #[test]
    fn a_rule_has_the_kernels_layout() {
        let rule = FlowRule::new(&dns(), FlowAction::Queue(3), Some(9));
        assert_eq!(rule.spec[..4], 2u32.to_ne_bytes());
        assert_eq!(rule.spec[8..12], [10, 0, 0, 7], "ip4dst of h_u");
        assert_eq!(rule.spec[14..16], [0, 53], "pdst of h_u");
        assert_eq!(rule.spec[80..84], [0xff; 4], "ip4dst of m_u");
        assert_eq!(rule.spec[152..160], 3u64.to_ne_bytes());
        assert_eq!(rule.spec[160..164], 9u32.to_ne_bytes());
    }

    #[test]
    fn prefixes_and_blocks_of_ports_are_masks() {
        let matches =
            FlowMatch { src: Some(("10.1.2.3".parse().unwrap(), 20)), dst_port: Some((1024, 2047)), ..dns() };
        let rule = FlowRule::new(&matches, FlowAction::Drop, None);
        assert_eq!(rule.spec[4..8], [10, 1, 0, 0], "bits beyond the prefix are zero on the card");
        assert_eq!(rule.spec[76..80], [255, 255, 240, 0]);
        assert_eq!((&rule.spec[14..16], &rule.spec[86..88]), (&[4, 0][..], &[0xfc, 0][..]));
        let icmp = FlowMatch { kind: FlowKind::Ip4, dst_port: None, protocol: Some(1), ..dns() };
        let rule = FlowRule::new(&icmp, FlowAction::Drop, None);
        assert_eq!((rule.spec[17], rule.spec[18], rule.spec[90]), (1, 1, 0xff), "ip_ver, proto and its mask");
        let six = FlowMatch { kind: FlowKind::Ip6, dst: None, protocol: Some(58), ..icmp };
        let rule = FlowRule::new(&six, FlowAction::Drop, None);
        assert_eq!((rule.spec[41], rule.spec[113]), (58, 0xff), "l4_proto and its mask");
        assert_eq!(rule.matches(), Some(six));
    }

    #[test]
    fn a_rule_reads_back_and_keeps() {
        let six = FlowMatch {
            kind: FlowKind::Udp6,
            src: Some(("2001:db8::".parse().unwrap(), 33)),
            src_port: Some((8, 15)),
            dst: None,
            dst_port: None,
            protocol: None,
        };
        for matches in [dns(), six] {
            for action in [FlowAction::Queue(2), FlowAction::Drop, FlowAction::Context(4)] {
                let rule = FlowRule::new(&matches, action, Some(1));
                assert_eq!((rule.matches(), rule.action(), rule.place()), (Some(matches), action, 1));
                assert_eq!(FlowRule::from_bytes(&rule.to_bytes()), Some(rule));
            }
        }
        assert_eq!(FlowRule::from_bytes(&[0; 20]), None);
    }

    #[test]
    fn what_is_no_prefix_is_not_said() {
        let mut rule = FlowRule::new(&dns(), FlowAction::Drop, None);
        rule.spec[MASKS + 5] = 0;
        assert_eq!(rule.matches(), None);
        let mut vlan = FlowRule::new(&dns(), FlowAction::Drop, None);
        vlan.spec[VALUES + 52 + 8] = 1;
        assert_eq!(vlan.matches(), None);
    }
}
