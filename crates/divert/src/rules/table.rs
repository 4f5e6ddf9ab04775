//! Rules that compare a few fields with fixed values: a hash table finds one of thousands as fast as one of
//! ten.

use bpf::{PacketSide, TableEntry};
use filter::{Filter, Prefix, TupleRule};

/// The table's entries, one of which must match for a filter to be true; `None` for a filter that must be compiled.
pub(crate) fn table_entries(rule: u32, filter: &Filter) -> Option<Vec<TableEntry>> {
    filter.tuple_rules()?.iter().map(|tuple| entry(rule, tuple)).collect()
}

/// An entry compares one address and one port, and knows no ranges and no extension headers.
fn entry(rule: u32, tuple: &TupleRule) -> Option<TableEntry> {
    if tuple.follows_fragment_header() {
        return None;
    }
    let network = |side, prefix: Prefix| (side, prefix.address(tuple.v6), prefix.len);
    let network = match (tuple.src.len, tuple.dst.len) {
        (0, 0) => None,
        (_, 0) => Some(network(PacketSide::Source, tuple.src)),
        (0, _) => Some(network(PacketSide::Destination, tuple.dst)),
        _ => return None,
    };
    let port = match (&tuple.src_ports, &tuple.dst_ports) {
        (None, None) => None,
        (Some(ports), None) if ports.start() == ports.end() => Some((PacketSide::Source, *ports.start())),
        (None, Some(ports)) if ports.start() == ports.end() => {
            Some((PacketSide::Destination, *ports.start()))
        }
        _ => return None,
    };
    Some(TableEntry { rule, ipv4: !tuple.v6, network, port, protocol: tuple.protocol })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const SCTP: u8 = 132;

    fn entries(expression: &str) -> Option<Vec<TableEntry>> {
        table_entries(3, &Filter::compile(expression).unwrap())
    }

    #[test]
    fn fixed_fields_are_entries() {
        let to = |number| Some((PacketSide::Destination, number));
        let from = |text: &str, len| Some((PacketSide::Source, text.parse().unwrap(), len));
        let one = |ipv4, network, port, protocol| TableEntry { rule: 3, ipv4, network, port, protocol };
        let udp_53 = vec![one(true, None, to(53), Some(UDP)), one(false, None, to(53), Some(UDP))];
        let cases = [
            ("udp and dst port 53", udp_53.clone()),
            ("udp dst port 53", udp_53.clone()),
            ("dst port domain and udp", udp_53),
            ("tcp && src net 192.0.2.0/24", vec![one(true, from("192.0.2.0", 24), None, Some(TCP))]),
            ("ip and src net 192.0.2.0/24", vec![one(true, from("192.0.2.0", 24), None, None)]),
            (
                "udp and src host 192.0.2.7 and dst port 9",
                vec![one(true, from("192.0.2.7", 32), to(9), Some(UDP))],
            ),
            (
                "udp and dst port 9 and src net 2001:db8::/32",
                vec![one(false, from("2001:db8::", 32), to(9), Some(UDP))],
            ),
            ("icmp and src host 192.0.2.7", vec![one(true, from("192.0.2.7", 32), None, Some(1))]),
        ];
        for (expression, expected) in cases {
            let mut found = entries(expression).unwrap_or_else(|| panic!("{expression}"));
            found.sort_by_key(|entry| !entry.ipv4);
            assert_eq!(found, expected, "{expression}");
        }
        let any: Vec<Option<u8>> =
            entries("dst port 53").unwrap().iter().map(|entry| entry.protocol).collect();
        assert!([TCP, UDP, SCTP].iter().all(|protocol| any.contains(&Some(*protocol))), "{any:?}");
    }

    #[test]
    fn what_says_more_than_entries_can_is_compiled() {
        for expression in [
            "",
            "udp",
            "icmp6",
            "src net 192.0.2.0/24",
            "udp and src net 2001:db8::/32",
            "udp and not dst port 53",
            "udp and dst portrange 53-54",
            "udp and dst port 53 and src port 1",
            "udp and src host 192.0.2.1 and dst host 192.0.2.2",
            "vlan and udp and dst port 53",
            "udp[8:4] = 1",
        ] {
            assert_eq!(entries(expression), None, "{expression}");
        }
    }
}
