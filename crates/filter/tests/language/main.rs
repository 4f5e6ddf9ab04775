//! What the language accepts and rejects, where libpcap may differ.

mod fuzz;
mod refused;

use std::net::Ipv4Addr;

use filter::{Context, Filter, FilterSet, NameTables, Names, Side};

fn frame(ethertype: u16, rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ethertype.to_be_bytes(), rest].concat()
}

fn udp(src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16) -> Vec<u8> {
    let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    let ports = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
    frame(0x0800, &[&header[..], &src, &dst, &ports, &[0; 4]].concat())
}

fn in_context(expression: &str, names: &dyn Names, netmask: Ipv4Addr) -> Filter {
    Filter::compile_in(expression, Context { names, netmask, has_sets: false }).unwrap()
}

#[test]
fn an_empty_expression_matches_everything() {
    for expression in ["", " \t\n"] {
        let filter = Filter::compile(expression).unwrap();
        assert!(filter.matches(&[]) && filter.matches(&[0; 60]));
        assert!(filter.matches_everything() && !filter.matches_nothing());
    }
}

#[test]
fn names_mean_what_the_context_says() {
    let names = NameTables::default()
        .hosts("192.0.2.1 web\n2001:db8::1 web\n")
        .networks("office 198.51.100.0\nloopback 127.0.0.0\n")
        .services("game 4321/udp\n")
        .protocols("strange 253 STRANGE\n")
        .ethers("02:00:00:00:00:01 web\n");
    let matches =
        |expression: &str, frame: &[u8]| in_context(expression, &names, Ipv4Addr::UNSPECIFIED).matches(frame);
    let packet = udp([192, 0, 2, 1], [198, 51, 100, 7], 5, 4321);
    for expression in
        ["host web", "src web", "dst net office", "udp dst port game", "ether src web", "port game"]
    {
        assert!(matches(expression, &packet), "{expression}");
    }
    for expression in
        ["dst host web", "src net office", "net loopback", "tcp or src port game", "proto strange"]
    {
        assert!(!matches(expression, &packet), "{expression}");
    }
}

#[test]
fn well_known_names_need_no_context() {
    let packet = udp([192, 0, 2, 1], [198, 51, 100, 7], 5, 53);
    for expression in ["port domain", "udp port domain", "ip proto \\udp", "portrange 50-domain"] {
        assert!(Filter::compile(expression).unwrap().matches(&packet), "{expression}");
    }
    let web = udp([127, 0, 0, 1], [192, 0, 2, 1], 5, 1812);
    for expression in ["host localhost", "src localhost", "src net loopback", "port radius"] {
        assert!(Filter::compile(expression).unwrap().matches(&web), "{expression}");
    }
    assert!(Filter::compile("tcp port www").is_ok() && Filter::compile("tcp port webcache").is_ok());
    // A service that only TCP has.
    assert!(!Filter::compile("port ssh").unwrap().matches(&udp([1, 2, 3, 4], [5, 6, 7, 8], 5, 22)));
}

#[test]
fn broadcasts_follow_the_netmask() {
    let names = NameTables::default();
    let filter = in_context("ip broadcast", &names, Ipv4Addr::new(255, 255, 255, 0));
    for (last, is) in [(0, true), (255, true), (7, false)] {
        assert_eq!(filter.matches(&udp([192, 0, 2, 1], [192, 0, 2, last], 1, 2)), is, "{last}");
    }
    assert!(!Filter::compile("ip broadcast").unwrap().matches(&udp([192, 0, 2, 1], [192, 0, 2, 255], 1, 2)));
}

#[test]
fn contradictions_are_seen() {
    for (expression, nothing) in
        [("tcp and udp", true), ("ip and ip6", true), ("1 = 2", true), ("tcp or udp", false)]
    {
        assert_eq!(Filter::compile(expression).unwrap().matches_nothing(), nothing, "{expression}");
    }
}

#[test]
fn an_ids_qualifiers_are_those_before_it() {
    let to = |port| udp([192, 0, 2, 1], [198, 51, 100, 7], 9, port);
    let filter = Filter::compile("udp dst port 53 or 443 or (5000 or 5001) and not 5001").unwrap();
    let ports = [53, 443, 5000, 5001, 80].map(|port| filter.matches(&to(port)));
    // From left to right: "and" binds no closer than "or".
    assert_eq!(ports, [true, true, true, false, false]);
}

#[test]
fn sets_are_asked_for_by_name_and_side() {
    let filter = Filter::compile_with_sets("udp and (src set bad or dst set own) and not set worse").unwrap();
    let asked: Vec<(Side, &str)> =
        filter.members().iter().map(|member| (member.side, member.set.as_str())).collect();
    let (source, destination) = (Side::Source, Side::Destination);
    assert_eq!(asked, [(source, "bad"), (destination, "own"), (source, "worse"), (destination, "worse")]);
    let frame = udp([192, 0, 2, 1], [192, 0, 2, 2], 5, 9);
    for (in_sets, matches) in
        [(0b00, false), (0b01, true), (0b10, true), (0b11, true), (0b101, false), (0b1001, false)]
    {
        assert_eq!(filter.matches_in(&frame, in_sets), matches, "{in_sets:b}");
    }
    assert!(!filter.matches(&frame), "in no set");
    assert_eq!(filter.tuple_rules(), None, "no table knows sets");

    // Several filters number what they share once.
    let filters = ["dst set own", "src set bad"].map(|text| Filter::compile_with_sets(text).unwrap());
    let set = FilterSet::new(&filters);
    let bit = |side: Side| 1 << set.members().iter().position(|member| member.side == side).unwrap();
    assert_eq!(set.first_match_in(&frame, bit(source)), Some(1));
    assert_eq!(set.first_match_in(&frame, bit(source) | bit(destination)), Some(0));
    let both = filters[0].and(&filters[1]);
    assert!(both.matches_in(&frame, 0b11) && !both.matches_in(&frame, 0b01));

    let refused = |text: &str| Filter::compile_with_sets(text).unwrap_err().to_string();
    assert_eq!(refused("ip src set bad"), "a set cannot have a protocol before it");
    assert_eq!(refused("src set 7"), "a number is not a set");
    assert!(refused("set 192.0.2.1").contains("is not a set"));
    let elsewhere = Filter::compile("src set bad").unwrap_err().to_string();
    assert_eq!(elsewhere, "sets are available only in rules of a diversion");
}
