//! `linerate divert test`: which rule each packet of a pcap file meets.

use std::{
    fs::File,
    io::{self, BufReader, Write},
};

use divert::{Met, Rule, RuleFinder, Ruleset};
use serde_json::json;
use wire::PcapReader;

use super::{
    explain::explain,
    rules::{expression, read_rules, read_sets},
};
use crate::{
    args::DivertTestArgs,
    failure::{Failure, Status},
    output::printed,
};

/// Counts of packets by what they meet.
struct Found {
    /// Packets and bytes, in the order of the rules.
    by_rule: Vec<[u64; 2]>,
    no_rule: u64,
    unselected: u64,
    links: u64,
    /// What each packet meets, with the full listing.
    packets: Vec<Met>,
}

pub(super) fn run(args: &DivertTestArgs) -> Result<bool, Failure> {
    let rules = read_rules(&args.rules)?;
    let selection = args.matching.as_ref().map(|text| expression("--match", text)).transpose()?;
    let ruleset = Ruleset { selection, rules: rules.clone(), sets: read_sets(&args.sets)? };
    let finder = RuleFinder::new(&ruleset).map_err(|error| explain(&error.into()))?;
    let refused = |error: &dyn std::error::Error| {
        Failure::new(Status::Refused, format!("cannot read {}: {error}", args.pcap.display()))
    };
    let file = File::open(&args.pcap).map_err(|error| refused(&error))?;
    let mut reader = PcapReader::new(BufReader::new(file)).map_err(|error| refused(&error))?;
    let mut found = Found {
        by_rule: vec![[0; 2]; rules.len()],
        no_rule: 0,
        unselected: 0,
        links: 0,
        packets: Vec::new(),
    };
    while let Some(frame) = reader.next_frame().map_err(|error| refused(&error))? {
        let met = finder.find(frame.bytes);
        match met {
            Met::Rule(rule) => {
                let [packets, bytes] = &mut found.by_rule[rule];
                *packets += 1;
                *bytes += u64::from(frame.original_len);
            }
            Met::NoRule => found.no_rule += 1,
            Met::Unselected => found.unselected += 1,
            Met::Links => found.links += 1,
        }
        if !args.summary {
            found.packets.push(met);
        }
    }
    let mut out = io::stdout().lock();
    printed(if args.json {
        write_json(&rules, &found, &mut out)
    } else {
        write_text(&rules, &found, &mut out)
    })?;
    Ok(true)
}

/// The reasons of packets that no rule takes, and their numbers.
fn others(found: &Found) -> [(&'static str, u64); 3] {
    [
        ("no rule matches: left to the kernel", found.no_rule),
        ("outside --match: left to the kernel", found.unselected),
        ("ARP or neighbour discovery: never diverted", found.links),
    ]
}

fn write_text(rules: &[Rule], found: &Found, out: &mut impl Write) -> io::Result<()> {
    for (number, met) in (1..).zip(&found.packets) {
        match met {
            Met::Rule(rule) => writeln!(out, "{number:>9}  rule {}: {}", rule + 1, rules[*rule])?,
            Met::NoRule => writeln!(out, "{number:>9}  no rule: left to the kernel")?,
            Met::Unselected => writeln!(out, "{number:>9}  outside --match: left to the kernel")?,
            Met::Links => writeln!(out, "{number:>9}  ARP or neighbour discovery: never diverted")?,
        }
    }
    writeln!(out, "{:>16} {:>18}  rule", "packets", "bytes")?;
    for (rule, [packets, bytes]) in rules.iter().zip(&found.by_rule) {
        writeln!(out, "{packets:>16} {bytes:>18}  {rule}")?;
    }
    for (words, packets) in others(found).into_iter().filter(|(_, packets)| *packets > 0) {
        writeln!(out, "{packets:>16} {:>18}  {words}", "")?;
    }
    Ok(())
}

fn write_json(rules: &[Rule], found: &Found, out: &mut impl Write) -> io::Result<()> {
    let by_rule: Vec<_> = rules
        .iter()
        .zip(&found.by_rule)
        .map(|(rule, [packets, bytes])| json!({"rule": rule.to_string(), "packets": packets, "bytes": bytes}))
        .collect();
    let packets: Vec<_> = found
        .packets
        .iter()
        .map(|met| match met {
            Met::Rule(rule) => json!({"rule": rule + 1}),
            Met::NoRule => json!({"rule": null, "why": "no-rule"}),
            Met::Unselected => json!({"rule": null, "why": "not-matched"}),
            Met::Links => json!({"rule": null, "why": "arp-or-neighbour-discovery"}),
        })
        .collect();
    let document = json!({
        "schema": "linerate.divert-test/1",
        "rules": by_rule,
        "no_rule": found.no_rule,
        "not_matched": found.unselected,
        "arp_or_neighbour_discovery": found.links,
        "packets": packets,
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
