//! Rules that name sets of networks, samples of what they drop, and limits that forget.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    thread,
};

use divert::{BEAT, DivertPlan, Fate, FilterAt, Met, Network, NetworkSet, RuleFinder, Ruleset, Sets};
use lab::Lab;
use port::{XdpTx, XdpTxOptions};
use wire::{FrameSpec, MacAddr, Sizes, Template, Values};

use crate::{
    rules::after_frames,
    support::{FLOODED, VALID, lab, plan, send, settle, start},
};

fn frames(lab: &Lab, src: Values<IpAddr>, tags: &[&str]) -> Template {
    let is_v4 =
        matches!(&src, Values::Fixed(src) if src.is_ipv4()) || matches!(src, Values::Increment { .. });
    let dst = if is_v4 { lab.rx().ipv4()[0].into() } else { lab.rx().ipv6()[0].into() };
    let spec = FrameSpec {
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        vlan: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        src_addr: src,
        dst_addr: Values::Fixed(dst),
        dst_port: Values::Fixed(FLOODED),
        sizes: Sizes::Frame("128".parse().unwrap()),
        ..FrameSpec::default()
    };
    Template::new(&spec).unwrap()
}

fn sender(lab: &Lab, template: &Template) -> XdpTx {
    let options = XdpTxOptions::on(lab.tx().index());
    lab.tx().run(|| XdpTx::open(template.recipe(), &options)).unwrap().unwrap()
}

/// Source addresses with their tags, and whether they are in the set `bad`.
const SOURCES: [(&str, &[&str], bool); 8] = [
    ("10.7.3.9", &[], true),
    ("10.7.4.9", &[], false),
    ("10.7.3.255", &["5"], true),
    ("10.0.0.0", &[], true),
    ("9.255.255.255", &[], false),
    ("2001:db8:7::1", &[], true),
    ("2001:db8:8::1", &[], false),
    ("2001:db8:7:ffff:ffff:ffff:ffff:ffff", &["7", "5"], true),
];

/// Enough networks for three levels of bounds, including those of [`SOURCES`].
fn sets(lab: &Lab) -> Sets {
    let v4 = (0..3000u32).map(|at| format!("172.{}.{}.0/25\n", 16 + at / 256, at % 256));
    let v6 = (0..600u32).map(|at| format!("2001:db9:{at:x}::/49\n"));
    let mine = ["10.7.3.0/24 # mine\n", "10.0.0.0\n", "2001:db8:7::/48\n"].map(str::to_owned);
    let bad: String = v4.chain(v6).chain(mine).collect();
    let mut sets = Sets::default();
    sets.insert("bad", NetworkSet::parse(&bad).unwrap());
    sets.insert(
        "ours",
        NetworkSet::parse(&format!("{}\n{}\n", lab.rx().ipv4()[0], lab.rx().ipv6()[0])).unwrap(),
    );
    sets
}

#[test]
fn rules_name_sets_and_mean_the_same_in_both_places_and_on_a_recording() {
    let Some(lab) = lab() else { return };
    let mut templates: Vec<Template> = SOURCES
        .iter()
        .map(|(src, tags, _)| frames(&lab, Values::Fixed(src.parse().unwrap()), tags))
        .collect();
    let mut senders: Vec<XdpTx> = templates.iter().map(|template| sender(&lab, template)).collect();
    let bad = SOURCES.iter().filter(|(.., is_in)| *is_in).count() as u64;
    let untagged_bad = SOURCES.iter().filter(|(_, tags, is_in)| *is_in && tags.is_empty()).count() as u64;
    let cases: [(&str, &str, u64); 5] = [
        ("all", "src set bad and dst set ours", bad),
        ("all", "udp and src set bad", untagged_bad),
        ("all", "not set bad", SOURCES.len() as u64 - bad),
        ("src set bad", "ip6", 1),
        ("all", "src and dst set bad", 0),
    ];
    let sets = sets(&lab);
    for (selection, rule, taken) in cases {
        let ruleset = Ruleset {
            selection: Some(selection.parse().unwrap()),
            rules: vec![format!("drop {rule}").parse().unwrap(), "pass all".parse().unwrap()],
            sets: sets.clone(),
        };
        let finder = RuleFinder::new(&ruleset).unwrap();
        let mut found = 0;
        for template in &mut templates {
            let mut frame = vec![0; template.max_frame_len()];
            let len = template.stamp_frame(&mut frame, 0, 0);
            found += u64::from(finder.find(&frame[..len]) == Met::Rule(0));
        }
        assert_eq!(found, taken, "on a recording: {selection}, {rule}");
        for place in [FilterAt::Xdp, FilterAt::User] {
            let Ruleset { selection: matching, rules, sets } = ruleset.clone();
            let plan = DivertPlan { selection: matching, rules, sets, ..plan(&lab, place, &[]) };
            let status = after_frames(&lab, &plan, &mut senders);
            assert_eq!(status.rules[0].packets, taken, "{place:?}, {selection}, {rule}: {status:#?}");
        }
    }
    let unknown = DivertPlan { sets: Sets::default(), ..plan(&lab, FilterAt::User, &["drop src set worse"]) };
    let refused = lab.rx().run(|| divert::Diversion::start(&unknown).err()).unwrap().unwrap();
    assert_eq!(refused.to_string(), "unknown set 'worse'");
}

/// A million IPv4 and 300,000 IPv6 networks that do not meet: addresses of which each second one is in.
fn million(is_odd: bool) -> Sets {
    let first = u32::from(is_odd);
    let v4 = (0..1_000_000).map(|at| (IpAddr::from(Ipv4Addr::from_bits((10 << 24) + 2 * at + first)), 32));
    let v6 = (0..300_000).map(|at| {
        let network = 0x2001_0db8 << 96 | u128::from(2 * at + first) << 64;
        (IpAddr::from(Ipv6Addr::from_bits(network)), 64)
    });
    let networks = v4.chain(v6).map(|(address, prefix_len)| Network { address, prefix_len });
    let mut sets = Sets::default();
    sets.insert("bad", NetworkSet::new(networks).unwrap());
    sets
}

#[test]
fn a_million_networks_in_the_kernel_are_replaced_by_another_million() {
    /// The first, some in the middle and the last of each family; what is before and behind all.
    const ASKED: [(&str, &[&str], [u64; 2]); 10] = [
        ("9.255.255.255", &[], [0, 0]),
        ("10.0.0.0", &[], [1, 0]),
        ("10.0.0.1", &["5"], [0, 1]),
        ("10.15.66.64", &[], [1, 0]),
        ("10.30.132.127", &[], [0, 1]),
        ("10.30.132.128", &[], [0, 0]),
        ("2001:db8::7", &[], [1, 0]),
        ("2001:db8:0:1::", &["7", "5"], [0, 1]),
        ("2001:db8:9:27bf:ffff:ffff:ffff:ffff", &[], [0, 1]),
        ("2001:db8:9:27c0::", &[], [0, 0]),
    ];
    let Some(lab) = lab() else { return };
    let mut senders: Vec<XdpTx> = ASKED
        .iter()
        .map(|(src, tags, _)| sender(&lab, &frames(&lab, Values::Fixed(src.parse().unwrap()), tags)))
        .collect();
    let rules = ["drop src set bad", "pass all"];
    let plan = DivertPlan { sets: million(false), ..plan(&lab, FilterAt::Xdp, &rules) };
    let mut diversion = start(&lab, &plan);
    let mut arrived = 0;
    let mut dropped = vec![0];
    for is_odd in [false, true] {
        if is_odd {
            let preparation = diversion.preparation();
            let ruleset = Ruleset { sets: million(true), ..plan.ruleset() };
            let preparing = thread::spawn(move || preparation.prepare(ruleset).unwrap());
            while !preparing.is_finished() {
                diversion.beat().unwrap();
                thread::sleep(BEAT / 20);
            }
            diversion.take(preparing.join().unwrap()).unwrap();
        }
        for (sender, (src, ..)) in senders.iter_mut().zip(ASKED) {
            diversion.beat().unwrap();
            assert_eq!(lab.tx().run(|| sender.send(1, 0).unwrap().taken).unwrap(), 1, "{src}");
            arrived += 1;
            let status = settle(&mut diversion, arrived);
            dropped.push(status.ledger.of(Fate::Dropped));
        }
    }
    let found: Vec<u64> = dropped.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let expected: Vec<u64> =
        [0, 1].iter().flat_map(|round| ASKED.iter().map(|(.., is_in)| is_in[*round])).collect();
    assert_eq!(found, expected);
}

/// The comments of a pcapng file's packets.
fn comments(path: &Path) -> Vec<String> {
    let file = fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        if word(at) == 6 {
            let options = at + 28 + word(at + 20).next_multiple_of(4);
            let len = usize::from(u16::from_ne_bytes(file[options + 2..options + 4].try_into().unwrap()));
            found.push(String::from_utf8(file[options + 4..options + 4 + len].to_vec()).unwrap());
        }
        at += word(at + 4);
    }
    found
}

#[test]
fn sampled_drops_are_in_a_file_with_the_rule_that_dropped_them() {
    let Some(lab) = lab() else { return };
    let cpus = thread::available_parallelism().unwrap().get() as u64;
    let rules = [
        format!("drop udp and dst port {FLOODED}"),
        format!("pass limit 1pps udp and dst port {VALID}"),
        "pass all".into(),
    ];
    for (place, shadow, one_in) in [
        (FilterAt::Xdp, false, 1),
        (FilterAt::Xdp, false, 10),
        (FilterAt::User, false, 1),
        (FilterAt::User, false, 10),
        (FilterAt::Xdp, true, 1),
    ] {
        let path = testing::own_folder().join("drops.pcapng");
        let rules = if shadow { &rules[..1] } else { &rules[..] };
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let plan = DivertPlan {
            sample_one_in: one_in,
            sample_file: Some(path.clone()),
            shadow,
            ..plan(&lab, place, &rules)
        };
        let mut diversion = start(&lab, &plan);
        send(&lab, &mut diversion, FLOODED, 100);
        send(&lab, &mut diversion, VALID, 50);
        settle(&mut diversion, 150);
        let status = diversion.finish().unwrap();
        let told = format!("{place:?}, shadow {shadow}, 1/{one_in}: {status:#?}");
        let comments = comments(&path);
        assert_eq!((status.recorded, status.not_recorded), (comments.len() as u64, 0), "{told}");
        let of = |words: &str| comments.iter().filter(|comment| *comment == words).count() as u64;
        let expected = [
            (format!("rule 1: {}", rules[0]), status.rules[0].packets),
            (
                format!("rule 2: {}, above the limit", rules.get(1).unwrap_or(&"")),
                status.rules.get(1).map_or(0, |rule| rule.limited_packets),
            ),
        ];
        for (words, dropped) in &expected {
            let found = of(words);
            let least = dropped.div_ceil(one_in.into());
            assert!((least..=least + cpus).contains(&found), "{found} of {dropped} '{words}': {told}");
            assert!(one_in > 1 || found == *dropped, "{found} of {dropped} '{words}': {told}");
        }
        assert_eq!(
            comments.len() as u64,
            expected.iter().map(|(words, _)| of(words)).sum::<u64>(),
            "{comments:?}"
        );
    }
}

#[test]
fn a_limit_that_forgets_a_source_lets_its_next_packet_pass() {
    let Some(lab) = lab() else { return };
    // More sources than buckets are remembered, one packet each.
    let sources = "10.0.0.1-10.15.255.255".parse().unwrap();
    let mut flood = sender(&lab, &frames(&lab, sources, &[]));
    let mut diversion = start(&lab, &plan(&lab, FilterAt::Xdp, &["pass limit 1pps per source udp"]));
    let mut sent = 0;
    while sent < 80_000 {
        sent += lab.tx().run(|| flood.send(128, 0).unwrap().taken).unwrap();
        diversion.beat().unwrap();
    }
    thread::sleep(BEAT / 10);
    let status = diversion.finish().unwrap();
    assert!(status.rules[0].packets > 65_536, "too many packets were lost before the program: {status:#?}");
    assert_eq!(status.rules[0].limited_packets, 0, "{status:#?}");
    assert_eq!(status.ledger.of(Fate::Dropped), 0, "{status:#?}");
}
