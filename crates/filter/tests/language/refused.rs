//! What is refused, where the mark stands, and what the hint says.

use filter::{Filter, FilterErrorKind as Kind};

/// Expression, kind, marked part, problem, hint (or "").
const REFUSED: &[(&str, Kind, &str, &str, &str)] = &[
    ("udp dst prot 53", Kind::Syntax, "prot", "'prot' is no keyword", "did you mean 'port'?"),
    ("upd port 53", Kind::Syntax, "upd", "'upd' is no keyword", "did you mean 'udp'?"),
    (
        "example",
        Kind::Syntax,
        "example",
        "'example' is no keyword",
        "a host's name needs 'host' before it: host example",
    ),
    (
        "192.0.2.1",
        Kind::Syntax,
        "192.0.2.1",
        "an address alone is no condition",
        "say 'host', 'net' or 'ether host' before it",
    ),
    ("udp port", Kind::Syntax, "", "the expression ends where an address, name or number is wanted", ""),
    ("udp and", Kind::Syntax, "", "the expression ends where a condition is wanted", ""),
    ("(udp or tcp", Kind::Syntax, "", "the expression ends where ')' is wanted", ""),
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
        "an address, name or number is wanted, not the keyword 'tcp'",
        "a backslash makes it a name: \\tcp",
    ),
    (
        "udp port 53, 54",
        Kind::Syntax,
        ",",
        "',' means nothing here",
        "combine several with 'or': port 53 or 443",
    ),
    (
        "host \"a\"",
        Kind::Syntax,
        "\"",
        "'\"' means nothing here",
        "names need no quotes inside an expression",
    ),
    (
        "len-14 > 5",
        Kind::Syntax,
        "len-14",
        "'len-14' is no keyword",
        "a name may have '-' in it: put spaces around a minus sign",
    ),
    ("ip[0]", Kind::Syntax, "", "the expression ends where a comparison is wanted", ""),
    (
        "less 5 or 6",
        Kind::Syntax,
        "6",
        "nothing before says what this is",
        "say 'host', 'net', 'port' or 'proto' before it",
    ),
    ("089 = 1", Kind::Syntax, "089", "089 is no number: a leading 0 means octal", ""),
    (
        "host nowhere",
        Kind::UnknownName,
        "host nowhere",
        "no host 'nowhere' is known here",
        "its address does as well: host 192.0.2.1",
    ),
    (
        "port 5-6",
        Kind::UnknownName,
        "port 5-6",
        "no port '5-6' is known here",
        "a range is written portrange 5-6",
    ),
    (
        "llc foo",
        Kind::UnknownName,
        "foo",
        "'foo' is no kind of LLC frame",
        "they are i, s, u, rr, rnr, rej, ui, dm, ua, disc, sabme, test, xid and frmr",
    ),
    (
        "net 192.0.2.1/24",
        Kind::Meaning,
        "net 192.0.2.1/24",
        "the address has bits behind its mask",
        "the network is 192.0.2.0/24",
    ),
    (
        "ip6 net 2001:db8::1/64",
        Kind::Meaning,
        "ip6 net 2001:db8::1/64",
        "the address has bits behind its mask",
        "the network is 2001:db8::/64",
    ),
    ("net 10.0.0.0/33", Kind::Meaning, "net 10.0.0.0/33", "an IPv4 prefix has no 33 bits", ""),
    (
        "host 10.0.0.0/8",
        Kind::Meaning,
        "host 10.0.0.0/8",
        "a host has no prefix or mask",
        "write 'net' before it",
    ),
    ("host 10.0.0.256", Kind::Meaning, "10.0.0.256", "'10.0.0.256' is no IPv4 address", ""),
    ("port 70000", Kind::Meaning, "port 70000", "there is no port 70000", ""),
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
        "an Ethernet address without 'ether host' before it",
        "write ether host, ether src or ether dst",
    ),
    ("vlan 4096", Kind::Meaning, "vlan 4096", "there is no VLAN 4096: the highest is 4095", ""),
    (
        "mpls and arp",
        Kind::Meaning,
        "arp",
        "only IPv4 and IPv6 are recognised behind MPLS labels",
        "put what is about the outer headers before 'mpls'",
    ),
    ("ip[0:3] = 1", Kind::Meaning, "3", "a field has 1, 2 or 4 bytes, not 3", ""),
    ("ip[0] / 0 = 1", Kind::Meaning, "ip[0] / 0", "division by zero", ""),
    ("ip[0] << 32 = 1", Kind::Meaning, "ip[0] << 32", "a shift by more than 31 bits", ""),
    ("ip[0] = 4294967296", Kind::Meaning, "4294967296", "4294967296 does not fit 32 bits", ""),
    ("gateway 10.0.0.1", Kind::Meaning, "gateway 10.0.0.1", "an IPv4 address is no gateway", ""),
    ("byte 3 & 4", Kind::Meaning, "&", "'byte' cannot combine bits", "write ether[3] & 3 != 0"),
    (
        "inbound",
        Kind::NotOfFrames,
        "inbound",
        "'inbound' is not written in a frame",
        "XDP and receive queues see only what comes in",
    ),
    (
        "ip and ifname eth0",
        Kind::NotOfFrames,
        "ifname",
        "'ifname' is not written in a frame",
        "choose the interface when starting linerate",
    ),
    (
        "type mgt",
        Kind::NotOfFrames,
        "type",
        "'type' is about 802.11",
        "expressions here are about Ethernet frames",
    ),
    ("vpi 3", Kind::NotOfFrames, "vpi", "'vpi' is about ATM", "expressions here are about Ethernet frames"),
    ("geneve and geneve and geneve", Kind::TooLarge, "geneve", "'geneve' more than 2 times", ""),
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
    // Long but flat is no problem.
    let flat = (0..3000).map(|port| format!("port {port}")).collect::<Vec<_>>().join(" or ");
    assert!(Filter::compile(&flat).is_ok());
}
