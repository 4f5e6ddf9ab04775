//! Random valid specs of frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use wire::{FrameSpec, Item, MacAddr, ProbeClock, Sizes, Values, VlanProtocol, VlanTag};

/// Any values of a field, from ends of its range.
fn values<T: Item + std::fmt::Debug>(
    item: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Values<T>> {
    let range = (item.clone(), item.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let text = prop_oneof![
        item.clone().prop_map(|value| value.to_string()),
        (range.clone(), 1..1000u32).prop_map(|(range, step)| format!("inc:{range},step={step}")),
        (range, any::<u64>()).prop_map(|(range, seed)| format!("random:{range},seed={seed}")),
        prop::collection::vec(item, 1..5).prop_map(|list| {
            let list: Vec<String> = list.iter().map(T::to_string).collect();
            format!("list:{}", list.join(","))
        }),
    ];
    text.prop_map(|text| text.parse().unwrap_or_else(|error| panic!("{error}")))
}

pub(crate) fn ports() -> impl Strategy<Value = Values<u16>> {
    values(any::<u16>())
}

/// IPv6 addresses lie within 2^32 of each other, with a carry out of the low 32 bits among them.
pub(crate) fn addresses(ipv6: bool) -> BoxedStrategy<Values<IpAddr>> {
    if ipv6 {
        let near = any::<u32>().prop_map(|low| {
            let bits = 0x2001_0db8_0000_0000_ffff_ffff_8000_0000_u128 + u128::from(low);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        });
        values(near).boxed()
    } else {
        values(any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))).boxed()
    }
}

pub(crate) fn vlan_tag() -> impl Strategy<Value = VlanTag> {
    (any::<bool>(), 0..4095u16, 0..8u16, any::<bool>()).prop_map(|(service, id, priority, drop)| {
        let protocol = if service { VlanProtocol::Service } else { VlanProtocol::Customer };
        VlanTag::from_wire(protocol, priority << 13 | u16::from(drop) << 12 | id)
    })
}

fn sizes() -> impl Strategy<Value = Sizes> {
    // 92 bytes and more hold the headers of any spec and the stream tag.
    let frame = values(92..2000u32).prop_map(|values| Sizes::Frame(wire::SizeMix::Values(values)));
    let payload = values(18..2000u32).prop_map(|values| Sizes::Payload(wire::SizeMix::Values(values)));
    let weighted = prop::collection::vec((92..2000u32, 1..30u32), 1..5).prop_map(|parts| {
        let parts: Vec<String> = parts.iter().map(|(bytes, weight)| format!("{bytes}:{weight}")).collect();
        Sizes::Frame(parts.join(",").parse().unwrap())
    });
    prop_oneof![frame, payload, weighted]
}

pub(crate) fn spec() -> impl Strategy<Value = FrameSpec> {
    let link = (any::<[u8; 6]>(), any::<[u8; 6]>(), prop::collection::vec(vlan_tag(), 0..=2));
    let hosts = any::<bool>().prop_flat_map(|ipv6| (addresses(ipv6), addresses(ipv6)));
    let marks = (any::<u8>(), 0..64u8, any::<bool>(), any::<u16>());
    (link, hosts, (ports(), ports()), marks, sizes()).prop_map(|(link, hosts, ports, marks, sizes)| {
        let (mut src_mac, dst_mac, vlan) = link;
        src_mac[0] &= !1;
        let (ttl, dscp, micros, stream) = marks;
        FrameSpec {
            src_mac: MacAddr(src_mac),
            dst_mac: MacAddr(dst_mac),
            vlan,
            src_addr: hosts.0,
            dst_addr: hosts.1,
            src_port: ports.0,
            dst_port: ports.1,
            ttl,
            dscp,
            clock: if micros { ProbeClock::Micros } else { ProbeClock::Nanos },
            stream,
            sizes,
        }
    })
}
