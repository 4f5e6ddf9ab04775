//! Whether a rule of addresses, protocol and ports matches a packet, computed without the filter.

use filter::TupleRule;

/// Whether all headers that rules need are present, and no fragment header hides a protocol.
pub(crate) fn is_whole(packet: &[u8]) -> bool {
    match packet.get(12..14) {
        Some([0x08, 0x00]) => packet.len() >= 14 + 60 + 4 || packet.len() >= 38 && packet[14] == 0x45,
        Some([0x86, 0xdd]) => packet.len() >= 14 + 40 + 4 && packet[20] != 44,
        Some(_) => packet.len() >= 60,
        None => false,
    }
}

pub(crate) fn holds(rule: &TupleRule, packet: &[u8]) -> bool {
    let ethertype: [u8; 2] = if rule.v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
    if packet[12..14] != ethertype {
        return false;
    }
    let ip = &packet[14..];
    let v4 = |at: usize| u128::from(u32::from_be_bytes(*ip[at..].first_chunk().unwrap())) << 96;
    let v6 = |at: usize| u128::from_be_bytes(*ip[at..].first_chunk().unwrap());
    let (protocol, src, dst, transport, first) = if rule.v6 {
        (ip[6], v6(8), v6(24), 40, true)
    } else {
        let first = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff == 0;
        (ip[9], v4(12), v4(16), usize::from(ip[0] & 15) * 4, first)
    };
    let port = |at: usize| u16::from_be_bytes([ip[transport + at], ip[transport + at + 1]]);
    let has_ports = first && matches!(protocol, 6 | 17 | 132);
    rule.protocol.is_none_or(|wanted| wanted == protocol)
        && rule.src.contains(src)
        && rule.dst.contains(dst)
        && rule.src_ports.as_ref().is_none_or(|ports| has_ports && ports.contains(&port(0)))
        && rule.dst_ports.as_ref().is_none_or(|ports| has_ports && ports.contains(&port(2)))
}
