//! Expressions that compare a few fields with fixed values: a hash table finds one of thousands of such rules as
//! fast as one of ten.

use std::net::IpAddr;

use bpf::{PacketSide, TableEntry};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The table's entry for an expression; `None` for one that has to be compiled.
///
/// An entry is chosen only where it means exactly what the expression means. `udp` alone also takes IPv6 fragments,
/// a `port` alone also SCTP, and a `net` alone also ARP: those are compiled.
pub(crate) fn table_entry(rule: u32, expression: &str) -> Option<TableEntry> {
    let mut words = expression.split_whitespace().peekable();
    let mut entry = TableEntry { rule, network: None, port: None, protocol: None };
    let mut only_ipv4 = false;
    loop {
        match words.next()? {
            "ip" => only_ipv4 = true,
            "udp" if entry.protocol.is_none_or(|protocol| protocol == UDP) => entry.protocol = Some(UDP),
            "tcp" if entry.protocol.is_none_or(|protocol| protocol == TCP) => entry.protocol = Some(TCP),
            side @ ("src" | "dst") => {
                let side = if side == "src" { PacketSide::Source } else { PacketSide::Destination };
                match words.next()? {
                    "port" if entry.port.is_none() => entry.port = Some((side, words.next()?.parse().ok()?)),
                    "net" if entry.network.is_none() => {
                        let (address, prefix_len) = network(words.next()?)?;
                        entry.network = Some((side, address, prefix_len));
                    }
                    "host" if entry.network.is_none() => {
                        let address: IpAddr = words.next()?.parse().ok()?;
                        entry.network = Some((side, address, if address.is_ipv4() { 32 } else { 128 }));
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
        match words.peek() {
            None => break,
            Some(&("and" | "&&")) => drop(words.next()),
            // `udp dst port 53` is `udp and dst port 53`, as long as no protocol stands before a network.
            Some(&("src" | "dst")) if entry.network.is_none() && entry.port.is_none() => {
                let mut ahead = words.clone();
                if ahead.nth(1) != Some("port") {
                    return None;
                }
            }
            Some(_) => return None,
        }
    }
    let is_ipv4 = entry.network.is_some_and(|(_, address, _)| address.is_ipv4());
    let has_port = entry.port.is_some() && entry.protocol.is_some();
    let exact = if is_ipv4 {
        (entry.protocol.is_some() || only_ipv4) && (entry.port.is_none() || has_port)
    } else {
        has_port && !only_ipv4
    };
    exact.then_some(entry)
}

/// `198.51.100.0/24`; bits behind the prefix must be 0, as libpcap demands.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix_len) = text.split_once('/')?;
    let (address, prefix_len): (IpAddr, u8) = (address.parse().ok()?, prefix_len.parse().ok()?);
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let behind = bits.checked_shl(prefix_len.into()).unwrap_or(0);
    (prefix_len <= width && behind == 0).then_some((address, prefix_len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_fields_are_an_entry() {
        let port = |number| Some((PacketSide::Destination, number));
        let net = |text: &str, prefix_len| Some((PacketSide::Source, text.parse().unwrap(), prefix_len));
        let cases = [
            ("udp and dst port 53", (None, port(53), Some(UDP))),
            ("udp dst port 53", (None, port(53), Some(UDP))),
            ("tcp && src net 192.0.2.0/24", (net("192.0.2.0", 24), None, Some(TCP))),
            ("ip and src net 192.0.2.0/24", (net("192.0.2.0", 24), None, None)),
            ("udp and src host 192.0.2.7 and dst port 9", (net("192.0.2.7", 32), port(9), Some(UDP))),
            ("udp and dst port 9 and src net 2001:db8::/32", (net("2001:db8::", 32), port(9), Some(UDP))),
        ];
        for (expression, (network, port, protocol)) in cases {
            let expected = Some(TableEntry { rule: 3, network, port, protocol });
            assert_eq!(table_entry(3, expression), expected, "{expression}");
        }
    }

    #[test]
    fn what_means_more_than_an_entry_is_compiled() {
        for expression in [
            "all",
            "",
            "udp",
            "icmp",
            "dst port 53",
            "src net 192.0.2.0/24",
            "udp and src net 2001:db8::/32",
            "ip and udp and dst port 53",
            "udp port 53",
            "udp and dst port domain",
            "udp or dst port 53",
            "not udp and dst port 53",
            "udp and dst port 53 and dst port 54",
            "udp and tcp and dst port 53",
            "udp and src net 192.0.2.1/24",
            "udp src net 192.0.2.0/24",
            "udp and dst port 53 src port 1",
            "vlan and udp and dst port 53",
            "udp and dst port 70000",
            "udp and",
            "udp and (dst port 53)",
        ] {
            assert_eq!(table_entry(0, expression), None, "{expression}");
        }
    }
}
