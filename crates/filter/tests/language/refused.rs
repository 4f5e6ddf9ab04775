//! Rejected expressions: the marked part, the problem and the hint.

use filter::{Filter, FilterErrorKind as Kind};

/// Expression, kind, marked part, problem, hint (or "").
const REFUSED: &[(&str, Kind, &str, &str, &str)] = &[
    ("udp dst prot 53", Kind::Syntax, "prot", "unknown keyword 'prot'", "did you mean 'port'?"),
    ("upd port 53", Kind::Syntax, "upd", "unknown keyword 'upd'", "did you mean 'udp'?"),
    (
        "example",
        Kind::Syntax,
        "example",
        "unknown keyword 'example'",
        "a host name needs 'host' before it: host example",
    ),
    (
        "192.0.2.1",
        Kind::Syntax,
        "192.0.2.1",
        "an address alone is not a condition",
        "write 'host', 'net' or 'ether host' before it",
    ),
    ("udp port", Kind::Syntax, "", "the expression ends, expected an address, name or number", ""),
    ("udp and", Kind::Syntax, "", "the expression ends, expected a condition", ""),
    ("(udp or tcp", Kind::Syntax, "", "the expression ends, expected ')'", ""),
    ("udp)", Kind::Syntax, ")", "the expression ends before ')'", ""),
    (
        "udp tcp",
        Kind::Syntax,
        "tcp",
        "the expression ends before 'tcp'",
        "join conditions with 'and' or 'or'",
    ),
    (
        "ip proto tcp",
        Kind::Syntax,
        "tcp",
        "expected an address, name or number, not the keyword 'tcp'",
        "a backslash makes it a name: \\tcp",
    ),
    ("udp port 53, 54", Kind::Syntax, ",", "unexpected ','", "join alternatives with 'or': port 53 or 443"),
    ("host \"a\"", Kind::Syntax, "\"", "unexpected '\"'", "write names without quotes"),
    (
        "len-14 > 5",
        Kind::Syntax,
        "len-14",
        "unknown keyword 'len-14'",
        "a name may have '-' in it: put spaces around a minus sign",
    ),
    ("ip[0]", Kind::Syntax, "", "the expression ends, expected a comparison", ""),
    (
        "less 5 or 6",
        Kind::Syntax,
        "6",
        "no qualifier says what this is",
        "write 'host', 'net', 'port' or 'proto' before it",
    ),
    ("089 = 1", Kind::Syntax, "089", "089 is not a number: a leading 0 means octal", ""),
    (
        "host nowhere",
        Kind::UnknownName,
        "host nowhere",
        "unknown host 'nowhere'",
        "or write its address: host 192.0.2.1",
    ),
    ("port 5-6", Kind::UnknownName, "port 5-6", "unknown port '5-6'", "write a range as portrange 5-6"),
    (
        "llc foo",
        Kind::UnknownName,
        "foo",
        "unknown kind of LLC frame 'foo'",
        "expected i, s, u, rr, rnr, rej, ui, dm, ua, disc, sabme, test, xid or frmr",
    ),
    (
        "net 192.0.2.1/24",
        Kind::Meaning,
        "net 192.0.2.1/24",
        "the address has bits set outside its mask",
        "the network is 192.0.2.0/24",
    ),
    (
        "ip6 net 2001:db8::1/64",
        Kind::Meaning,
        "ip6 net 2001:db8::1/64",
        "the address has bits set outside its mask",
        "the network is 2001:db8::/64",
    ),
    ("net 10.0.0.0/33", Kind::Meaning, "net 10.0.0.0/33", "an IPv4 prefix has at most 32 bits, not 33", ""),
    (
        "host 10.0.0.0/8",
        Kind::Meaning,
        "host 10.0.0.0/8",
        "a host cannot have a prefix or mask",
        "write 'net' before it",
    ),
    ("host 10.0.0.256", Kind::Meaning, "10.0.0.256", "'10.0.0.256' is not an IPv4 address", ""),
    ("port 70000", Kind::Meaning, "port 70000", "port 70000 is out of range: must be at most 65535", ""),
    (
        "arp port 5",
        Kind::Meaning,
        "arp port 5",
        "only tcp, udp and sctp have ports",
        "join two conditions: ip and port 53",
    ),
    (
        "tcp host 10.0.0.1",
        Kind::Meaning,
        "tcp host 10.0.0.1",
        "this protocol has no addresses of its own",
        "join two conditions: tcp and host 192.0.2.1",
    ),
    (
        "host 2:0:0:0:0:1",
        Kind::Meaning,
        "host 2:0:0:0:0:1",
        "an Ethernet address needs 'ether host' before it",
        "write ether host, ether src or ether dst",
    ),
    ("vlan 4096", Kind::Meaning, "vlan 4096", "VLAN 4096 is out of range: must be at most 4095", ""),
    (
        "mpls and arp",
        Kind::Meaning,
        "arp",
        "only IPv4 and IPv6 are recognised behind MPLS labels",
        "put tests of the outer headers before 'mpls'",
    ),
    ("ip[0:3] = 1", Kind::Meaning, "3", "a field must have 1, 2 or 4 bytes, not 3", ""),
    ("ip[0] / 0 = 1", Kind::Meaning, "ip[0] / 0", "division by zero", ""),
    ("ip[0] << 32 = 1", Kind::Meaning, "ip[0] << 32", "a shift must be by at most 31 bits", ""),
    ("ip[0] = 4294967296", Kind::Meaning, "4294967296", "4294967296 does not fit 32 bits", ""),
    ("gateway 10.0.0.1", Kind::Meaning, "gateway 10.0.0.1", "an IPv4 address is not a gateway", ""),
    ("byte 3 & 4", Kind::Meaning, "&", "'byte' cannot combine bits", "write ether[3] & 3 != 0"),
    (
        "inbound",
        Kind::NotOfFrames,
        "inbound",
        "a frame does not contain 'inbound'",
        "XDP and receive queues only see incoming frames",
    ),
    (
        "ip and ifname eth0",
        Kind::NotOfFrames,
        "ifname",
        "a frame does not contain 'ifname'",
        "choose the interface when starting linerate",
    ),
    (
        "type mgt",
        Kind::NotOfFrames,
        "type",
        "'type' is about 802.11",
        "expressions here apply to Ethernet frames only",
    ),
    (
        "vpi 3",
        Kind::NotOfFrames,
        "vpi",
        "'vpi' is about ATM",
        "expressions here apply to Ethernet frames only",
    ),
    ("geneve and geneve and geneve", Kind::TooLarge, "geneve", "'geneve' is allowed at most 2 times", ""),
];

#[test]
fn refusals_say_what_is_wrong_where_and_what_to_write() {
    for (expression, kind, marked, problem, hint) in REFUSED {
        let error = Filter::compile(expression).expect_err(expression);
        let found = (error.kind, &expression[error.at.clone()], error.to_string(), error.hint.clone());
        let hint = Some(hint.to_string()).filter(|hint| !hint.is_empty());
        assert_eq!(found, (*kind, *marked, problem.to_string(), hint), "{expression}");
    }
}

#[test]
fn the_mark_stands_under_what_is_meant() {
    let mark = |expression: &str| Filter::compile(expression).unwrap_err().marked(expression);
    assert_eq!(mark("udp port 53 and prot 5"), "udp port 53 and prot 5\n                ^^^^");
    assert_eq!(mark("host ü"), "host ü\n     ^");
    assert_eq!(mark("udp\nand"), "udp and\n       ^");
}

#[test]
fn what_is_too_large_is_refused_before_it_costs_anything() {
    let deep = format!("{}ip{}", "(".repeat(10_000), ")".repeat(10_000));
    let not = format!("{}ip", "not ".repeat(10_000));
    let long = "ip or ".repeat(20_000);
    let sums = format!("ip[0]{} = 1", " + 1".repeat(1_000));
    let minus = format!("{}1 = 1", "- ".repeat(10_000));
    for expression in [deep, not, long, sums, minus] {
        let error = Filter::compile(&expression).unwrap_err();
        assert_eq!(error.kind, Kind::TooLarge, "{error}");
    }
    // A long but flat expression is accepted.
    let flat = (0..3000).map(|port| format!("port {port}")).collect::<Vec<_>>().join(" or ");
    assert!(Filter::compile(&flat).is_ok());
}
