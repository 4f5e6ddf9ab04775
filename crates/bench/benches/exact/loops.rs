//! Hot functions, each in a loop.

use std::hint::black_box;

use divert::{Rule, RuleFinder, Ruleset, Sets};
use filter::{Filter, FilterSet};
use measure::{Histogram, SequenceTracker};
use wire::{Addresses, FlowKey, FrameSpec, HashFields, PROTOCOL_UDP, RssKey, Template, Toeplitz, UdpFrame};

use super::counted::{Count, Outcome, Part};

pub(super) fn count_all(count: &mut Count<'_>) -> Outcome<()> {
    for (name, spec) in [
        ("stamp: fixed frame", FrameSpec::default()),
        (
            "stamp: port by turns",
            FrameSpec { dst_port: "inc:1024-2047".parse().expect("a field"), ..FrameSpec::default() },
        ),
        (
            "stamp: random address and port",
            FrameSpec {
                src_addr: "random:10.0.0.0/8".parse().expect("a field"),
                src_port: "random:1024-65535".parse().expect("a field"),
                ..FrameSpec::default()
            },
        ),
    ] {
        let template = Template::new(&spec).expect("a frame");
        let mut slot = [0; 64];
        template.prime_frame(&mut slot);
        count(name, Part::Own, 1000, &mut |rounds| {
            for sequence in 0..rounds {
                black_box(template.restamp_frame(black_box(&mut slot), sequence, 1));
            }
        });
    }
    let template = Template::new(&FrameSpec::default()).expect("a frame");
    let mut slot = vec![0; template.max_frame_len()];
    template.stamp_frame(&mut slot, 1, 1);
    count("read: a probe", Part::Own, 1000, &mut |rounds| {
        for _ in 0..rounds {
            black_box(UdpFrame::parse(black_box(&slot)).ok().map(|frame| frame.probe().is_some()));
        }
    });
    for rules in [1, 10] {
        let expressions = (0..rules).map(|rule| format!("udp and dst port {}", 1000 + rule));
        let compiled: Vec<Filter> =
            expressions.map(|text| Filter::compile(&text).expect("a filter")).collect();
        let set = FilterSet::new(&compiled);
        let plural = if rules == 1 { "" } else { "s" };
        count(&format!("classify: {rules} rule{plural}"), Part::Own, 1000, &mut |rounds| {
            for _ in 0..rounds {
                black_box(set.first_match(black_box(&slot)));
            }
        });
    }
    let mut histogram = Histogram::new();
    count("statistics: histogram", Part::Own, 1000, &mut |rounds| {
        for _ in 0..rounds {
            histogram.record(black_box(12_345));
        }
    });
    let mut tracker = SequenceTracker::new();
    let mut number = 0u32;
    count("statistics: sequence number", Part::Own, 1000, &mut |rounds| {
        for _ in 0..rounds {
            number += 1;
            black_box(tracker.observe(number, number.into(), 1000 * u64::from(number)));
        }
    });
    let toeplitz = Toeplitz::new(&RssKey::microsoft());
    let addresses = Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    let flow = FlowKey { addresses, src_port: 1, dst_port: 2, protocol: PROTOCOL_UDP };
    count("steer: Toeplitz hash", Part::Own, 1000, &mut |rounds| {
        for _ in 0..rounds {
            black_box(toeplitz.hash(black_box(&flow), HashFields::AddressesAndPorts));
        }
    });
    for (kind, rule, numbers) in RULES {
        for rules in *numbers {
            let finder = RuleFinder::new(&Ruleset {
                selection: None,
                rules: diverting(rule, *rules)?,
                sets: Sets::default(),
            })?;
            let rounds = if *rules > 10 && kind.contains("compiled") { 50 } else { 1000 };
            count(&format!("divert in user space: {kind}, {rules}"), Part::Own, rounds, &mut |rounds| {
                for _ in 0..rounds {
                    black_box(finder.find(black_box(&slot)));
                }
            });
        }
    }
    Ok(())
}

/// Rules that match no packet of these loops: their name, one of them up to its port, and how many. Some are looked
/// up in a table, the others are compiled into code. A slow build takes seconds to read a thousand.
pub(super) const RULES: &[(&str, &str, &[u16])] = if cfg!(debug_assertions) {
    &[
        ("rules in a table", "drop udp and dst port ", &[1, 100]),
        ("compiled rules", "drop udp port ", &[1, 10]),
    ]
} else {
    &[
        ("rules in a table", "drop udp and dst port ", &[1, 10, 100, 1000]),
        ("compiled rules", "drop udp port ", &[1, 10, 100]),
    ]
};

pub(super) fn diverting(rule: &str, rules: u16) -> Outcome<Vec<Rule>> {
    (0..rules).map(|number| Ok(format!("{rule}{}", 1000 + number).parse()?)).collect()
}
