//! A diversion's plan as text and JSON, and its status as a snapshot for the live views and metrics.

use std::io::{self, Write};

use ::view::{Family, History, Phase, Place, Rate, Snapshot, Table, Traffic, Waterfall};
use divert::{Card, DivertPlan, Status};
use measure::Fate;
use serde_json::json;

use crate::args::DivertArgs;

/// Prints the steps, and how each is undone.
pub(super) fn write_steps(
    plan: &DivertPlan,
    card: &Card,
    args: &DivertArgs,
    out: &mut impl Write,
) -> io::Result<()> {
    let steps = plan.steps(card);
    let program_ns = plan.program_cost(card).map(|cost| cost.as_nanos() as u64);
    let other_queues_ns = plan.other_queues_cost(card).map(|cost| cost.as_nanos() as u64);
    if args.json {
        let document = json!({
            "plan": plan, "card": card, "steps": steps,
            "program_ns": program_ns, "other_queues_ns": other_queues_ns,
        });
        serde_json::to_writer_pretty(&mut *out, &document)?;
        return writeln!(out);
    }
    for (number, step) in (1..).zip(&steps) {
        writeln!(out, "{number:>3}. {}", step.does)?;
        writeln!(out, "     undone by: {}", step.undone_by)?;
    }
    match args.duration {
        Some(duration) => {
            writeln!(out, "ends after {duration:?}, or earlier by Ctrl-C or linerate divert stop")?
        }
        None => writeln!(out, "ends by Ctrl-C or linerate divert stop")?,
    }
    match program_ns.zip(other_queues_ns) {
        Some((ns, other_ns)) => writeln!(
            out,
            "the program takes {ns} ns here for a packet of a diverted queue and {other_ns} ns for one of another queue of {}, \
             with the packet in the CPU's cache",
            plan.interface
        ),
        None => Ok(()), // without the privilege to load it
    }
}

/// The live views' snapshot: rates since `before`, packets since the start.
pub(super) fn snapshot(before: &Status, now: &Status, history: &mut History) -> Snapshot {
    let seconds = (now.duration_s - before.duration_s).max(1e-9);
    let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let rate = |name: &str, pps| Rate { name: name.into(), pps: Some(pps), note: String::new() };
    let arrived = per_second(now.ledger.arrived, before.ledger.arrived);
    let mut rates = vec![rate("arrived", arrived)];
    for fate in Fate::ALL {
        if now.ledger.of(fate) > 0 {
            let pps = per_second(now.ledger.of(fate), before.ledger.of(fate));
            rates.push(rate(&fate.to_string(), pps));
        }
    }
    history.names = vec!["arrived".into(), "dropped".into()];
    let dropped = per_second(now.ledger.of(Fate::Dropped), before.ledger.of(Fate::Dropped));
    history.add(now.duration_s, vec![arrived, dropped]);
    let count = report::words::count;
    let row = |rule: &divert::RuleStatus| {
        vec![count(rule.packets), count(rule.bytes), count(rule.limited_packets), rule.rule.clone()]
    };
    Snapshot {
        command: "divert".into(),
        interfaces: vec![now.interface.clone()],
        title: report::diversion_queues(now),
        phase: Phase::Running,
        elapsed_s: now.duration_s,
        traffic: Some(Traffic { rates, receipt: String::new(), history: history.clone() }),
        waterfall: Some(waterfall(now)),
        tables: vec![Table {
            title: "rules".into(),
            columns: ["packets", "bytes", "over limit", "rule"].map(str::to_owned).to_vec(),
            rows: now.rules.iter().map(row).collect(),
        }],
        families: families(now),
        ..Snapshot::default()
    }
}

/// Packets that were dropped or lost, of those that arrived; the rest went on.
fn waterfall(status: &Status) -> Waterfall {
    let is_gone = |fate| matches!(fate, Fate::Dropped | Fate::Lost);
    let lines = status.ledger.lines.iter();
    let (gone, went): (Vec<_>, Vec<_>) = lines.partition(|entry| is_gone(entry.fate));
    Waterfall {
        of: status.interface.clone(),
        from: ("arrived".into(), status.ledger.arrived),
        places: gone
            .into_iter()
            .map(|entry| Place {
                name: format!("{}: {}", entry.fate, entry.line.place),
                packets: entry.line.packets,
                pps: None,
                source: entry.line.source.clone(),
                remedy: entry.line.remedy.clone().unwrap_or_default(),
                is_loss: true,
            })
            .collect(),
        to: Some(("went on".into(), went.iter().map(|entry| entry.line.packets).sum())),
        to_unknown: String::new(),
        residual: status.ledger.unexplained,
        provisional: status.ledger.unexplained != 0,
    }
}

fn families(status: &Status) -> Vec<Family> {
    let of_rule = |name: &str, help: &str, field: fn(&divert::RuleStatus) -> u64| {
        let mut family = Family::counter(&format!("divert_{name}"), help);
        for (number, rule) in (1..).zip(&status.rules) {
            let number = number.to_string();
            family = family.with(&[("number", &number), ("rule", &rule.rule)], field(rule) as f64);
        }
        family
    };
    let whole = |name: &str, help: &str, value: u64| Family::counter(name, help).with(&[], value as f64);
    let mut received = Family::counter("divert_queue_packets", "Packets that came to a queue's thread.");
    let mut diverted =
        Family::gauge("divert_queue_diverted", "1 while the queue is diverted, 0 while its thread hangs.");
    for queue in &status.queues {
        let number = queue.queue.to_string();
        received = received.with(&[("queue", &number)], queue.received as f64);
        diverted = diverted.with(&[("queue", &number)], f64::from(u8::from(queue.diverted)));
    }
    let mut fates = Family::counter("divert_packets", "Packets of queues by fate.");
    for fate in Fate::ALL {
        let lines = status.ledger.lines.iter().filter(|entry| entry.fate == fate);
        let mut is_any = false;
        for entry in lines {
            let (fate, place) = (fate.to_string(), entry.line.place.to_string());
            fates = fates.with(&[("fate", &fate), ("place", &place)], entry.line.packets as f64);
            is_any = true;
        }
        if !is_any {
            fates = fates.with(&[("fate", &fate.to_string()), ("place", "")], 0.0);
        }
    }
    vec![
        of_rule("rule_packets", "Packets that a rule took.", |rule| rule.packets),
        of_rule("rule_bytes", "Bytes of their frames without FCS.", |rule| rule.bytes),
        of_rule("rule_limited_packets", "Packets above a rule's limit, dropped.", |rule| {
            rule.limited_packets
        }),
        Family::counter("divert_arrived_packets", "Packets that the program saw.")
            .with(&[], status.ledger.arrived as f64),
        fates,
        whole("divert_reloads", "Times that the rules were replaced.", status.reloads),
        whole("divert_rejected_reloads", "Times that new rules were refused.", status.rejected_reloads),
        whole("divert_recorded_packets", "Packets in sample and keep files.", status.recorded),
        received,
        diverted,
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn metrics_name_rules_and_every_fate_and_the_waterfall_closes() {
        let now = snapshot(&status(), &status(), &mut History::default());
        let page = ::view::metrics(&now, ::view::Form::OpenMetrics);
        let line = r#"linerate_divert_rule_packets_total{run="",interface="eth0",number="1",rule="drop \"x\""} 1234567"#;
        assert!(page.lines().any(|found| found == line), "{page}");
        for fate in Fate::ALL {
            assert!(page.contains(&format!("fate=\"{fate}\"")), "{page}");
        }
        let fall = now.waterfall.unwrap();
        assert_eq!((fall.from.1, fall.places[0].packets, fall.to.unwrap().1, fall.residual), (9, 9, 0, 0));
        let of_card = "{run=\"\",interface=\"eth0\"";
        assert!(
            page.contains(&format!("\nlinerate_divert_queue_diverted{of_card},queue=\"3\"}} 1\n")),
            "{page}"
        );
        assert!(page.contains(&format!("\nlinerate_divert_rejected_reloads_total{of_card}}} 0\n")), "{page}");
        assert!(page.ends_with("# EOF\n"));
    }
}
