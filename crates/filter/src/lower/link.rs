//! The kind of packet that a link header announces: Ethernet types, 802.2, PPP inside PPPoE, MPLS.

use std::ops::Range;

use crate::{
    ast::{LlcType, Protocol},
    error::FilterError,
    value::{Size, ValueAt},
};

use super::{Compare, Cond, Lowering, offsets::LinkKind};

pub(super) const IPV4: u32 = 0x0800;
pub(super) const ARP: u32 = 0x0806;
pub(super) const RARP: u32 = 0x8035;
pub(super) const IPV6: u32 = 0x86dd;
pub(super) const DECNET: u32 = 0x6003;
pub(super) const MPLS: u32 = 0x8847;
pub(super) const PPPOE_SESSION: u32 = 0x8864;
const APPLETALK: u32 = 0x809b;
const APPLETALK_ARP: u32 = 0x80f3;
const IPX: u32 = 0x8137;
/// 802.2 service access points.
const SAP_IP: u32 = 0x06;
const SAP_STP: u32 = 0x42;
const SAP_IPX: u32 = 0xe0;
const SAP_NETBEUI: u32 = 0xf0;
pub(super) const SAP_ISO: u32 = 0xfe;
/// Larger numbers in the length field are types.
const MAX_LENGTH: u32 = 1500;

/// The number by which a link header names a protocol: an Ethernet type, or an 802.2 access point.
pub(super) fn link_number(protocol: Protocol) -> Option<u32> {
    Some(match protocol {
        Protocol::Ip => IPV4,
        Protocol::Ip6 => IPV6,
        Protocol::Arp => ARP,
        Protocol::Rarp => RARP,
        Protocol::Atalk => APPLETALK,
        Protocol::Aarp => APPLETALK_ARP,
        Protocol::Decnet => DECNET,
        Protocol::Sca => 0x6007,
        Protocol::Lat => 0x6004,
        Protocol::Mopdl => 0x6001,
        Protocol::Moprc => 0x6002,
        Protocol::Iso => SAP_ISO,
        Protocol::Stp => SAP_STP,
        Protocol::Ipx => SAP_IPX,
        Protocol::Netbeui => SAP_NETBEUI,
        _ => return None,
    })
}

/// The names that `ether proto` knows.
pub(super) fn link_number_of(name: &str) -> Option<u32> {
    match name {
        "loopback" => Some(0x9000),
        _ => Protocol::named(name).and_then(link_number),
    }
}

impl Lowering<'_> {
    /// The link header says that this follows.
    pub(super) fn ethertype(&mut self, number: u32, at: &Range<usize>) -> Result<Cond, FilterError> {
        if self.link.labels > 0 {
            return self.below_labels(number, at);
        }
        Ok(match self.link.kind {
            LinkKind::Ethernet => self.ethernet_type(number),
            LinkKind::Ppp => self.field(self.link.ethertype, Size::Half, ppp_number(number)),
        })
    }

    fn ethernet_type(&mut self, number: u32) -> Cond {
        let payload = self.link.payload;
        match number {
            SAP_ISO | SAP_IP | SAP_NETBEUI => {
                let access_points = self.field(payload, Size::Half, number << 8 | number);
                self.is_802().and(access_points)
            }
            SAP_IPX => {
                let raw = self.field(payload, Size::Half, 0xffff);
                let access_point = self.field(payload, Size::Byte, SAP_IPX);
                let inside = self.snap(0, IPX).or(access_point).or(raw);
                let typed = self.field(self.link.ethertype, Size::Half, IPX);
                typed.or(self.is_802().and(inside))
            }
            APPLETALK | APPLETALK_ARP => {
                let organisation = if number == APPLETALK { 0x08_0007 } else { 0 };
                let typed = self.field(self.link.ethertype, Size::Half, number);
                typed.or(self.is_802().and(self.snap(organisation, number)))
            }
            0..=MAX_LENGTH => {
                let access_point = self.field(payload, Size::Byte, number);
                self.is_802().and(access_point)
            }
            _ => self.field(self.link.ethertype, Size::Half, number),
        }
    }

    /// The field behind the addresses is a length, not a type.
    fn is_802(&mut self) -> Cond {
        let length = self.values.load(self.link.ethertype, Size::Half);
        self.test(length, Compare::Greater, MAX_LENGTH).negated()
    }

    /// An 802.2 header with a SNAP header behind it.
    fn snap(&mut self, organisation: u32, ethertype: u32) -> Cond {
        let payload = self.link.payload;
        let low = self.field(payload.plus(4), Size::Word, (organisation & 0xffff) << 16 | ethertype);
        let high = self.field(payload, Size::Word, 0xaaaa_0300 | organisation >> 16);
        low.and(high)
    }

    /// Behind the last label, the version field of the header decides.
    fn below_labels(&mut self, number: u32, at: &Range<usize>) -> Result<Cond, FilterError> {
        let version = match number {
            IPV4 => 0x40,
            IPV6 => 0x60,
            _ => {
                let error =
                    FilterError::meaning(at.clone(), "only IPv4 and IPv6 are recognised behind MPLS labels");
                return Err(error.hint("put tests of the outer headers before 'mpls'"));
            }
        };
        let network = self.link.network();
        let last = self.bits(ValueAt { at: network.at - 2, ..network }, Size::Byte, 1, 1);
        Ok(last.and(self.bits(network, Size::Byte, 0xf0, version)))
    }

    pub(super) fn llc(&mut self, kind: Option<LlcType>, at: &Range<usize>) -> Result<Cond, FilterError> {
        if self.link.kind == LinkKind::Ppp {
            return Err(FilterError::meaning(at.clone(), "PPPoE sessions carry no 802.2 header"));
        }
        let payload = self.link.payload;
        let raw = self.field(payload, Size::Half, 0xffff);
        let llc = self.is_802().and(raw.negated());
        let control = payload.plus(2);
        Ok(match kind {
            None => llc,
            Some(LlcType::Information) => llc.and(self.bits(control, Size::Byte, 1, 0)),
            Some(LlcType::Supervisory) => llc.and(self.bits(control, Size::Byte, 3, 1)),
            Some(LlcType::Unnumbered) => llc.and(self.bits(control, Size::Byte, 3, 3)),
            Some(LlcType::SupervisoryCommand(code)) => {
                llc.and(self.bits(control, Size::Byte, 0x0f, code.into()))
            }
            Some(LlcType::UnnumberedCommand(code)) => {
                llc.and(self.bits(control, Size::Byte, 0xef, code.into()))
            }
        })
    }
}

/// PPP's number of a protocol (IANA, PPP DLL Protocol Numbers).
fn ppp_number(ethertype: u32) -> u32 {
    match ethertype {
        IPV4 => 0x21,
        IPV6 => 0x57,
        DECNET => 0x27,
        APPLETALK => 0x29,
        0x0600 => 0x25,
        SAP_ISO => 0x23,
        SAP_STP => 0x31,
        SAP_IPX => 0x2b,
        MPLS => 0x281,
        other => other,
    }
}
