//! Flow rules by ioctl: which packets go to which queue whatever their hash says (`struct ethtool_rxnfc`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layout::{COUNT, LEN};
use super::{Buffer, EthtoolError, EthtoolSocket, FlowType, parse_places};

/// Where `struct ethtool_rx_flow_spec` is in it, and how long.
const SPEC: usize = 16;
const SPEC_LEN: usize = 168;
/// Within the specification: values, masks, where to, and at which place.
const VALUES: usize = 4;
const MASKS: usize = 76;
const QUEUE: usize = 152;
const LOCATION: usize = 160;

/// `RX_CLS_FLOW_DISC`.
const DISCARD: u64 = u64::MAX;
/// `RX_CLS_LOC_ANY`: the driver finds a place.
const ANY_PLACE: u32 = u32::MAX;
/// `FLOW_RSS`: the action is a context of receive side scaling.
const TO_CONTEXT: u32 = 0x2000_0000;

/// A rule as the kernel holds it, byte for byte, so that what was read can be written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRule {
    spec: [u8; SPEC_LEN],
    context: u32,
}

/// What a rule matches: exactly these values, anything elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowMatch {
    /// The kind of packet.
    pub flow: FlowType,
    /// From this address.
    pub src: Option<IpAddr>,
    /// To this address.
    pub dst: Option<IpAddr>,
    /// From this port.
    pub src_port: Option<u16>,
    /// To this port.
    pub dst_port: Option<u16>,
}

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
    /// A rule at a place, or at one that the driver finds; lower places win.
    pub fn new(matches: &FlowMatch, action: FlowAction, place: Option<u32>) -> Self {
        let mut rule = Self { spec: [0; SPEC_LEN], context: 0 };
        let flag = if matches!(action, FlowAction::Context(_)) { TO_CONTEXT } else { 0 };
        rule.put(0, &(matches.flow as u32 | flag).to_ne_bytes());
        let address = |at: usize, address: Option<IpAddr>, rule: &mut Self| match address {
            Some(IpAddr::V4(address)) => rule.match_bytes(at, &address.octets()),
            Some(IpAddr::V6(address)) => rule.match_bytes(at, &address.octets()),
            None => {}
        };
        let width = address_width(matches.flow);
        address(0, matches.src, &mut rule);
        address(width, matches.dst, &mut rule);
        for (at, port) in [(2 * width, matches.src_port), (2 * width + 2, matches.dst_port)] {
            port.into_iter().for_each(|port| rule.match_bytes(at, &port.to_be_bytes()));
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

    /// The rule in bytes of its own, for keeping: the specification, then the context.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.spec[..], &self.context.to_ne_bytes()].concat()
    }

    /// A rule from what [`FlowRule::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (spec, context) = bytes.split_first_chunk()?;
        Some(Self { spec: *spec, context: u32::from_ne_bytes(context.try_into().ok()?) })
    }

    /// Its place in the table.
    pub fn place(&self) -> u32 {
        u32::from_ne_bytes(self.get(LOCATION))
    }

    /// Where matching packets go.
    pub fn action(&self) -> FlowAction {
        let queue = u64::from_ne_bytes(self.get(QUEUE));
        match queue {
            DISCARD => FlowAction::Drop,
            _ if self.kind() & TO_CONTEXT != 0 => FlowAction::Context(self.context),
            // The upper half names a virtual function.
            queue => FlowAction::Queue(queue as u32),
        }
    }

    /// What it matches, where that can be said in whole addresses and ports; `None` for other rules.
    pub fn matches(&self) -> Option<FlowMatch> {
        let flow = FlowType::ALL.into_iter().find(|flow| *flow as u32 == self.kind() & !TO_CONTEXT)?;
        let width = address_width(flow);
        let found = FlowMatch {
            flow,
            src: self.address(0, width)?,
            dst: self.address(width, width)?,
            src_port: self.port(2 * width)?,
            dst_port: self.port(2 * width + 2)?,
        };
        // Whatever else it matches would show as a difference.
        let again = Self::new(&found, self.action(), Some(self.place()));
        (again.spec[..QUEUE] == self.spec[..QUEUE]).then_some(found)
    }

    fn kind(&self) -> u32 {
        u32::from_ne_bytes(self.get(0))
    }

    fn match_bytes(&mut self, at: usize, value: &[u8]) {
        self.put(VALUES + at, value);
        self.spec[MASKS + at..][..value.len()].fill(0xff);
    }

    /// The whole address at a place: `Some(None)` where any matches, `None` where only a part has to.
    fn address(&self, at: usize, width: usize) -> Option<Option<IpAddr>> {
        let (value, mask) = (&self.spec[VALUES + at..][..width], &self.spec[MASKS + at..][..width]);
        if mask.iter().all(|byte| *byte == 0) {
            return Some(None);
        }
        let whole = mask.iter().all(|byte| *byte == 0xff);
        let address = match width {
            4 => Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into(),
            _ => Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into(),
        };
        whole.then_some(Some(address))
    }

    fn port(&self, at: usize) -> Option<Option<u16>> {
        match self.get(MASKS + at) {
            [0, 0] => Some(None),
            [0xff, 0xff] => Some(Some(u16::from_be_bytes(self.get(VALUES + at)))),
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

fn address_width(flow: FlowType) -> usize {
    if matches!(flow, FlowType::Tcp4 | FlowType::Udp4) { 4 } else { 16 }
}

impl EthtoolSocket {
    /// Every flow rule of the interface.
    pub fn flow_rules(&self, interface: &str) -> Result<Vec<FlowRule>, EthtoolError> {
        const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
        const ETHTOOL_GRXCLSRLALL: u32 = 0x30;
        const ACTION: &str = "list the flow rules";
        let mut answer = Buffer::new(&[ETHTOOL_GRXCLSRLCNT], LEN - 4);
        self.ask(interface, &mut answer, ACTION)?;
        let count = answer.u32(COUNT / 4) as usize;
        if count > MOST_RULES {
            return Err(self.odd(interface, ACTION));
        }
        let mut list = Buffer::new(&[ETHTOOL_GRXCLSRLALL], LEN - 4 + count * 4);
        list.set_u32(COUNT / 4, count as u32);
        self.ask(interface, &mut list, ACTION)?;
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

    /// Adds a rule; returns the place it got. Needs CAP_NET_ADMIN.
    pub fn insert_flow_rule(&self, interface: &str, rule: &FlowRule) -> Result<u32, EthtoolError> {
        const ETHTOOL_SRXCLSRLINS: u32 = 0x32;
        let mut request = Buffer::new(&[ETHTOOL_SRXCLSRLINS], LEN - 4);
        request.set_bytes(SPEC, &rule.spec);
        request.set_u32(COUNT / 4, rule.context);
        self.ask(interface, &mut request, "add a flow rule")?;
        Ok(request.u32((SPEC + LOCATION) / 4))
    }

    /// Deletes the rule at a place. Needs CAP_NET_ADMIN.
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
            flow: FlowType::Udp4,
            src: None,
            dst: Some("10.0.0.7".parse().unwrap()),
            src_port: None,
            dst_port: Some(53),
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
    fn a_rule_reads_back_and_keeps() {
        let six = FlowMatch {
            flow: FlowType::Udp6,
            src: Some("2001:db8::1".parse().unwrap()),
            src_port: Some(7),
            dst: None,
            dst_port: None,
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
    fn what_cannot_be_said_in_whole_addresses_is_not_said() {
        let mut rule = FlowRule::new(&dns(), FlowAction::Drop, None);
        rule.spec[MASKS + 7] = 0;
        assert_eq!(rule.matches(), None);
        let mut vlan = FlowRule::new(&dns(), FlowAction::Drop, None);
        vlan.spec[VALUES + 52 + 8] = 1;
        assert_eq!(vlan.matches(), None);
    }
}
