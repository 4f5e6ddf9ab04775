//! A diversion in words, as JSON, and as metrics.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use divert::{ALL, Card, DivertPlan, Status};
use serde_json::{Value, json};

use crate::args::DivertArgs;

/// The fates of a ledger's lines, in the order of a packet's path.
const FATES: [&str; 6] = ["passed", "dropped", "reinjected", "kept", "sent", "lost"];

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

/// A status with the name of its form.
pub(super) fn document(status: &Status) -> Value {
    let mut document = serde_json::to_value(status).expect("a status is JSON");
    document["schema"] = json!("linerate.divert/1");
    document
}

pub(super) fn write_heading(pid: u32, status: &Status, out: &mut impl Write) -> io::Result<()> {
    let queues: Vec<String> = status
        .queues
        .iter()
        .map(
            |queue| if queue.diverted { queue.queue.to_string() } else { format!("{} (hangs)", queue.queue) },
        )
        .collect();
    let queues = match &queues[..] {
        [] => "no queue".to_owned(),
        some => format!("queue {}", some.join(", ")),
    };
    writeln!(
        out,
        "{} in {}, {queues}, for {:.0} s, process {pid}",
        status.interface, status.place, status.duration_s
    )
}

/// The rules and the ledger.
pub(super) fn write_status(status: &Status, out: &mut impl Write) -> io::Result<()> {
    let selection = status.selection.as_ref().filter(|selection| *selection != ALL);
    let of = selection.map_or(String::new(), |selection| format!(", of packets that match '{selection}'"));
    writeln!(out, "{:>16} {:>18}  rule{of}", "packets", "bytes")?;
    for rule in &status.rules {
        write!(out, "{:>16} {:>18}  {}", grouped(rule.packets), grouped(rule.bytes), rule.rule)?;
        match rule.limited_packets {
            0 => writeln!(out)?,
            limited => writeln!(out, "  ({} above the limit)", grouped(limited))?,
        }
    }
    let ledger = &status.ledger;
    writeln!(out, "{:>16}  arrived", grouped(ledger.arrived))?;
    for fate in FATES {
        for line in ledger.lines.iter().filter(|line| line.fate == fate) {
            writeln!(out, "{:>16}  {fate}: {}", grouped(line.packets), line.place)?;
        }
    }
    writeln!(out, "{:>16}  unexplained", ledger.unexplained)?;
    if status.recorded + status.not_recorded > 0 {
        writeln!(
            out,
            "{:>16}  written to files, {} not because the disk was behind",
            grouped(status.recorded),
            grouped(status.not_recorded)
        )?;
    }
    Ok(())
}

/// Packets per second between two statuses, in one line.
pub(super) fn interval(before: &Status, now: &Status) -> String {
    let seconds = (now.duration_s - before.duration_s).max(1e-9);
    let rate = |now: u64, before: u64| grouped((now.saturating_sub(before) as f64 / seconds).round() as u64);
    let mut line = format!("{:>11} pps arrived", rate(now.ledger.arrived, before.ledger.arrived));
    for fate in FATES {
        let (now, before) = (now.ledger.of(fate), before.ledger.of(fate));
        if now > 0 {
            write!(line, "  {:>11} {fate}", rate(now, before)).expect("a string takes everything");
        }
    }
    line
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
    let lines = lines.map(|line| {
        (
            format!("interface={interface},fate={},place={}", label(&line.fate), label(&line.place)),
            line.packets,
        )
    });
    family("packets", "What became of them.", lines.collect());
    page + "# EOF\n"
}

/// A label's value, as OpenMetrics escapes it.
fn label(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        serde_json::from_value(json!({
            "interface": "eth0", "place": "xdp", "duration_s": 2.0, "queues": [],
            "rules": [{"rule": "drop \"x\"", "packets": 1_234_567, "bytes": 12, "limited_packets": 3}],
            "ledger": {"arrived": 9, "unexplained": 0, "lines": [
                {"fate": "dropped", "place": "a rule drops them", "packets": 9, "source": "program"}]},
            "reloads": 0, "recorded": 0, "not_recorded": 0
        }))
        .unwrap()
    }

    #[test]
    fn a_status_is_a_table_of_rules_and_a_ledger() {
        let mut out = Vec::new();
        write_status(&status(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("       1,234,567                 12  drop \"x\"  (3 above the limit)\n"),
            "{text}"
        );
        assert!(
            text.ends_with("               9  dropped: a rule drops them\n               0  unexplained\n"),
            "{text}"
        );
    }

    #[test]
    fn a_status_says_which_packets_its_rules_are_about_and_when_no_queue_is_diverted() {
        let shown = |status: &Status| {
            let mut out = Vec::new();
            write_heading(7, status, &mut out).unwrap();
            write_status(status, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = shown(&Status { selection: Some("udp".into()), ..status() });
        assert!(text.starts_with("eth0 in xdp, no queue, for 2 s, process 7\n"), "{text}");
        assert!(text.contains("  rule, of packets that match 'udp'\n"), "{text}");
        assert!(shown(&Status { selection: Some(ALL.into()), ..status() }).contains("  rule\n"));
    }

    #[test]
    fn metrics_escape_their_labels_and_end() {
        let page = prometheus(&status());
        let line =
            r#"linerate_divert_rule_packets_total{interface="eth0",number="1",rule="drop \"x\""} 1234567"#;
        assert!(page.lines().any(|found| found == line), "{page}");
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn an_interval_shows_rates() {
        let earlier = Status { duration_s: 1.0, ledger: divert::DivertLedger::default(), ..status() };
        assert_eq!(interval(&earlier, &status()), "          9 pps arrived            9 dropped");
    }
}
