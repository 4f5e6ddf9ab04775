//! What a diversion will do in words and as JSON, and what it did as metrics.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use divert::{Card, DivertPlan, Status};
use serde_json::json;

use crate::args::DivertArgs;

/// What will be done and what undoes it.
pub(super) fn write_steps(
    plan: &DivertPlan,
    card: &Card,
    args: &DivertArgs,
    out: &mut impl Write,
) -> io::Result<()> {
    let steps = plan.steps(card);
    let program_ns = plan.program_cost(card).map(|cost| cost.as_nanos() as u64);
    if args.json {
        let document = json!({"plan": plan, "card": card, "steps": steps, "program_ns": program_ns});
        serde_json::to_writer_pretty(&mut *out, &document)?;
        return writeln!(out);
    }
    for (number, step) in (1..).zip(&steps) {
        writeln!(out, "{number:>3}. {}", step.does)?;
        writeln!(out, "     undone by: {}", step.undone_by)?;
    }
    match args.duration {
        Some(duration) => {
            writeln!(out, "it ends after {duration:?}, or earlier by Ctrl-C or linerate divert stop")?
        }
        None => writeln!(out, "it ends by Ctrl-C or linerate divert stop")?,
    }
    match program_ns {
        Some(ns) => writeln!(
            out,
            "the program takes {ns} ns here for a packet in the CPU's cache: what each packet of {} pays",
            plan.interface
        ),
        None => Ok(()), // who may only look at the plan cannot load it
    }
}

/// The status in the OpenMetrics text format.
pub(super) fn prometheus(status: &Status) -> String {
    let mut page = String::new();
    let mut family = |name: &str, help: &str, samples: Vec<(String, u64)>| {
        writeln!(page, "# TYPE linerate_divert_{name} counter").expect("a string takes everything");
        writeln!(page, "# HELP linerate_divert_{name} {help}").expect("a string takes everything");
        for (labels, value) in samples {
            writeln!(page, "linerate_divert_{name}_total{{{labels}}} {value}")
                .expect("a string takes everything");
        }
    };
    let interface = label(&status.interface);
    let of_rule = |field: fn(&divert::RuleStatus) -> u64| {
        let rules = (1..).zip(&status.rules);
        rules
            .map(|(number, rule)| {
                (format!("interface={interface},number=\"{number}\",rule={}", label(&rule.rule)), field(rule))
            })
            .collect()
    };
    family("rule_packets", "Packets that a rule took.", of_rule(|rule| rule.packets));
    family("rule_bytes", "Bytes of their frames without FCS.", of_rule(|rule| rule.bytes));
    family(
        "rule_limited_packets",
        "Packets above a rule's limit, dropped.",
        of_rule(|rule| rule.limited_packets),
    );
    family(
        "arrived_packets",
        "Packets that the program saw.",
        vec![(format!("interface={interface}"), status.ledger.arrived)],
    );
    let lines = status.ledger.lines.iter();
    let lines = lines.map(|entry| {
        let place = label(&entry.line.place.to_string());
        (format!("interface={interface},fate=\"{}\",place={place}", entry.fate), entry.line.packets)
    });
    family("packets", "What became of them.", lines.collect());
    let whole = |value| vec![(format!("interface={interface}"), value)];
    family("reloads", "Times that the rules were replaced.", whole(status.reloads));
    family("rejected_reloads", "Times that new rules were refused.", whole(status.rejected_reloads));
    family("recorded_packets", "Packets in sample and keep files.", whole(status.recorded));
    family("queue_packets", "Packets that came to a queue's thread.", {
        let queues = status.queues.iter();
        queues
            .map(|queue| (format!("interface={interface},queue=\"{}\"", queue.queue), queue.received))
            .collect()
    });
    page += "# TYPE linerate_divert_queue_diverted gauge\n\
             # HELP linerate_divert_queue_diverted 1 while the queue is diverted, 0 while its thread hangs.\n";
    for queue in &status.queues {
        let (number, value) = (queue.queue, u8::from(queue.diverted));
        writeln!(page, "linerate_divert_queue_diverted{{interface={interface},queue=\"{number}\"}} {value}")
            .expect("a string takes everything");
    }
    page + "# EOF\n"
}

/// A label's value, as OpenMetrics escapes it.
fn label(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        serde_json::from_value(json!({
            "interface": "eth0", "place": "xdp", "duration_s": 2.0,
            "queues": [{"queue": 3, "cpu": null, "diverted": true, "received": 0}],
            "rules": [{"rule": "drop \"x\"", "packets": 1_234_567, "bytes": 12, "limited_packets": 3}],
            "ledger": {"arrived": 9, "unexplained": 0, "lines": [
                {"fate": "dropped", "place": "a rule drops them", "packets": 9, "source": "program"}]},
            "reloads": 0, "recorded": 0, "not_recorded": 0
        }))
        .unwrap()
    }

    #[test]
    fn metrics_escape_their_labels_and_end() {
        let page = prometheus(&status());
        let line =
            r#"linerate_divert_rule_packets_total{interface="eth0",number="1",rule="drop \"x\""} 1234567"#;
        assert!(page.lines().any(|found| found == line), "{page}");
        assert!(
            page.contains("\nlinerate_divert_queue_diverted{interface=\"eth0\",queue=\"3\"} 1\n"),
            "{page}"
        );
        assert!(page.contains("\nlinerate_divert_rejected_reloads_total{interface=\"eth0\"} 0\n"), "{page}");
        assert!(page.ends_with("# EOF\n"));
    }
}
