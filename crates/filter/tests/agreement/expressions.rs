//! Random expressions that refer to the contents of these tests' packets.

use fastrand::Rng;

/// An expression of at most that depth.
pub(crate) fn sentence(rng: &mut Rng, levels: u32) -> String {
    match rng.u8(0..10) {
        0..4 if levels > 0 => {
            let link = if rng.bool() { "and" } else { "or" };
            format!("{} {link} {}", sentence(rng, levels - 1), sentence(rng, levels - 1))
        }
        4 if levels > 0 => format!("not ({})", sentence(rng, levels - 1)),
        5 if levels > 0 => format!("({})", sentence(rng, levels - 1)),
        6 if levels > 0 => format!("{} and {}", pick(rng, OUTER), sentence(rng, levels - 1)),
        _ => primitive(rng),
    }
}

/// Addresses, protocols and ports, most of them joined by "and".
pub(crate) fn conjunction(rng: &mut Rng) -> String {
    let parts: Vec<_> = (0..rng.usize(1..5))
        .map(|_| {
            let direction = pick(rng, DIRECTIONS);
            match rng.u8(0..5) {
                0 => {
                    pick(rng, &["ip", "ip6", "udp", "tcp", "icmp", "sctp", "arp", "proto 17", "ip6 proto 6"])
                        .into()
                }
                1 => format!("{direction}host {}", pick(rng, HOSTS)),
                2 => format!("{direction}net {}", pick(rng, NETS)),
                3 => format!("{}{direction}port {}", pick(rng, &["", "tcp ", "udp "]), pick(rng, PORTS)),
                _ => format!("{direction}portrange {}-{}", rng.u16(0..450), rng.u16(..)),
            }
        })
        .collect();
    parts
        .into_iter()
        .reduce(|all, part| format!("{all} {} {part}", pick(rng, &["and", "and", "or"])))
        .unwrap_or_default()
}

const OUTER: &[&str] = &["vlan", "vlan 5", "mpls", "mpls 5", "pppoes", "pppoes 3", "vlan 7 and vlan 5"];
const PROTOCOLS: &[&str] = &[
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "igmp",
    "pim",
    "ah",
    "esp",
    "vrrp",
    "stp",
    "iso",
    "isis",
    "clnp",
    "ipx",
    "netbeui",
    "atalk",
    "aarp",
    "decnet",
    "lat",
    "llc",
    "l1",
    "lsp",
    "broadcast",
    "multicast",
    "ip multicast",
    "ip6 multicast",
    "ip broadcast",
    "pppoed",
    "llc u",
    "llc i",
];
const HOSTS: &[&str] =
    &["192.0.2.1", "198.51.100.7", "10.1.2.3", "2001:db8::1", "2001:db8:8000::7", "ff02::1"];
const NETS: &[&str] = &[
    "192.0.2.0/24",
    "198.51.100.0/25",
    "10",
    "192.0.2.0/31",
    "224.0.0.0/4",
    "0.0.0.0/0",
    "2001:db8::/32",
    "2001:db8:8000::/33",
    "ff00::/8",
    "2001:db8::/127",
];
const DIRECTIONS: &[&str] = &["", "src ", "dst ", "src or dst ", "src and dst "];
const PORTS: &[&str] = &["53", "443", "40000", "40001", "5", "6", "80", "7", "6081"];
const FIELDS: &[&str] = &[
    "ip[0]",
    "ip[8]",
    "ip[9]",
    "ip[2:2]",
    "ip[6:2]",
    "ip[12:4]",
    "ip6[6]",
    "ip6[8:4]",
    "udp[0:2]",
    "udp[2:2]",
    "tcp[13]",
    "tcp[2:2]",
    "icmp[0]",
    "icmp6[0]",
    "arp[7]",
    "ether[0]",
    "ether[12:2]",
    "ether[14]",
    "ether[50]",
    "sctp[0:2]",
    "len",
    "ip[ip[0] & 15]",
    "udp[4:2]",
    "ip[60]",
];

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(0..from.len())]
}

fn primitive(rng: &mut Rng) -> String {
    let direction = pick(rng, DIRECTIONS);
    match rng.u8(0..10) {
        0..3 => pick(rng, PROTOCOLS).to_owned(),
        3 => format!("{direction}host {}", pick(rng, HOSTS)),
        4 => format!("{direction}net {}", pick(rng, NETS)),
        5 => {
            let over = pick(rng, &["", "tcp ", "udp ", "sctp "]);
            format!("{over}{direction}port {}", pick(rng, PORTS))
        }
        6 => {
            let first = rng.u16(0..50_000);
            let over = pick(rng, &["", "tcp ", "udp "]);
            format!("{over}{direction}portrange {first}-{}", first.saturating_add(rng.u16(..)))
        }
        7 => format!("{}proto {}", pick(rng, &["", "ip ", "ip6 "]), rng.u8(..)),
        _ => {
            let relation = pick(rng, &["=", "!=", "<", ">", "<=", ">="]);
            format!("{} {relation} {}", number(rng, 2), number(rng, 1))
        }
    }
}

fn number(rng: &mut Rng, levels: u32) -> String {
    match rng.u8(0..8) {
        0..2 if levels > 0 => {
            let op = pick(rng, &["+", "-", "*", "&", "|", "^", "<<", ">>", "/", "%"]);
            match op {
                "<<" | ">>" => format!("({} {op} {})", number(rng, levels - 1), rng.u8(0..32)),
                "/" | "%" => format!("({} {op} {})", number(rng, levels - 1), rng.u8(1..)),
                _ => format!("({} {op} {})", number(rng, levels - 1), number(rng, levels - 1)),
            }
        }
        2..5 => {
            let (digit, small, any) = (rng.u32(0..4), rng.u32(0..300), rng.u32(..));
            [digit, small, 64, any][rng.usize(0..4)].to_string()
        }
        _ => pick(rng, FIELDS).to_owned(),
    }
}

/// A frame like another, with bytes changed where headers are.
pub(crate) fn changed(rng: &mut Rng, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for _ in 0..rng.u8(0..6) {
        let at = rng.usize(0..70);
        if let Some(byte) = frame.get_mut(at) {
            *byte = match rng.u8(0..4) {
                0 => rng.u8(..),
                1 => byte.wrapping_add(1),
                2 => *byte ^ 1 << rng.u8(0..8),
                _ => [0, 6, 17, 44, 0x45, 0x60, 0xff, 1][rng.usize(0..8)],
            };
        }
    }
    if rng.u8(0..4) == 0 {
        frame.truncate(rng.usize(0..80));
    }
    frame
}
