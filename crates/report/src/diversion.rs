//! A diversion's status as a document, `linerate.divert/1`, and as text.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use measure::{DivertLeft, DivertQueue, DivertStatus, DivertSteering, Fate};
use serde_json::{Value, json};

use crate::number;

/// The name and version of the document.
pub const DIVERSION_SCHEMA: &str = "linerate.divert/1";

/// A status with its schema name.
pub fn diversion_document(status: &DivertStatus) -> Value {
    let mut document = serde_json::to_value(status).expect("a status is JSON");
    document["schema"] = json!(DIVERSION_SCHEMA);
    document
}

/// Writes where and for how long, in one line.
pub fn write_diversion_heading(pid: u32, status: &DivertStatus, out: &mut impl Write) -> io::Result<()> {
    let queues = diversion_queues(status);
    writeln!(
        out,
        "{} in {}, {queues}, for {:.0} s, process {pid}",
        status.interface, status.place, status.duration_s
    )
}

/// The queues of a diversion, and how packets reach their threads: `queue 1 (zero-copy), 2 (hangs)`.
pub fn diversion_queues(status: &DivertStatus) -> String {
    let words = |queue: &DivertQueue| {
        let notes = [queue.copy_mode(), (!queue.diverted).then_some("hangs")];
        let notes: Vec<&str> = notes.into_iter().flatten().collect();
        match notes[..] {
            [] => queue.queue.to_string(),
            _ => format!("{} ({})", queue.queue, notes.join(", ")),
        }
    };
    let queues: Vec<String> = status.queues.iter().map(words).collect();
    match queues[..] {
        [] => "no queue".to_owned(),
        _ => format!("queue {}", queues.join(", ")),
    }
}

/// What the card steers, what the program does instead, refusals and repairs, one line each; nothing without steering.
pub fn diversion_steering(status: &DivertStatus) -> String {
    let Some(DivertSteering { rules, program, refused, repaired }) = &status.steering else {
        return String::new();
    };
    let line = |text: String| format!("{text}\n");
    let rules = rules.iter().map(|rule| line(format!("steered by the card: {rule}")));
    let program = program.iter().map(|DivertLeft { packets, why }| {
        line(format!("selected by the program on every queue: {packets} ({why})"))
    });
    let refused = refused.iter().map(|why| line(format!("refused by the card: {why}")));
    let repaired =
        repaired.iter().map(|change| line(format!("restored after a reset of the card: {change}")));
    rules.chain(program).chain(refused).chain(repaired).collect()
}

/// Writes the card's part, the rules and the ledger.
pub fn write_diversion(status: &DivertStatus, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}", diversion_steering(status))?;
    if let Some(ns) = status.other_queues_ns {
        writeln!(out, "the program's check takes {ns} ns of each packet of the other queues")?;
    }
    let selection = status.selection.as_ref().filter(|selection| *selection != DivertStatus::ALL);
    let of = selection.map_or(String::new(), |selection| format!(", of packets that match '{selection}'"));
    writeln!(out, "{:>16} {:>18}  rule{of}", "packets", "bytes")?;
    for rule in &status.rules {
        write!(out, "{:>16} {:>18}  {}", number::count(rule.packets), number::count(rule.bytes), rule.rule)?;
        match rule.limited_packets {
            0 => writeln!(out)?,
            limited => writeln!(out, "  ({} above the limit)", number::count(limited))?,
        }
    }
    let ledger = &status.ledger;
    writeln!(out, "{:>16}  arrived", number::count(ledger.arrived))?;
    for fate in Fate::ALL {
        for (_, line) in
            ledger.lines.iter().map(|entry| (entry.fate, &entry.line)).filter(|(of, _)| *of == fate)
        {
            writeln!(out, "{:>16}  {fate}: {}", number::count(line.packets), line.place)?;
        }
    }
    writeln!(out, "{:>16}  unexplained", ledger.unexplained)?;
    if status.recorded + status.not_recorded > 0 {
        writeln!(
            out,
            "{:>16}  written to files; {} not written because the disk was too slow",
            number::count(status.recorded),
            number::count(status.not_recorded)
        )?;
    }
    Ok(())
}

/// Packets per second between two statuses, in one line.
pub fn diversion_interval(before: &DivertStatus, now: &DivertStatus) -> String {
    let seconds = (now.duration_s - before.duration_s).max(1e-9);
    let rate =
        |now: u64, before: u64| number::count((now.saturating_sub(before) as f64 / seconds).round() as u64);
    let mut line = format!("{:>11} pps arrived", rate(now.ledger.arrived, before.ledger.arrived));
    for fate in Fate::ALL {
        let (now, before) = (now.ledger.of(fate), before.ledger.of(fate));
        if now > 0 {
            write!(line, "  {:>11} {fate}", rate(now, before)).expect("a string accepts everything");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use measure::DivertLedger;

    use super::*;

    fn status() -> DivertStatus {
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
        write_diversion(&status(), &mut out).unwrap();
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
    fn a_status_shows_what_its_rules_select_and_when_no_queue_is_diverted() {
        let shown = |status: &DivertStatus| {
            let mut out = Vec::new();
            write_diversion_heading(7, status, &mut out).unwrap();
            write_diversion(status, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = shown(&DivertStatus { selection: Some("udp".into()), ..status() });
        assert!(text.starts_with("eth0 in xdp, no queue, for 2 s, process 7\n"), "{text}");
        assert!(text.contains("  rule, of packets that match 'udp'\n"), "{text}");
        assert!(
            shown(&DivertStatus { selection: Some(DivertStatus::ALL.into()), ..status() })
                .contains("  rule\n")
        );
    }

    #[test]
    fn an_interval_shows_rates() {
        let earlier = DivertStatus { duration_s: 1.0, ledger: DivertLedger::default(), ..status() };
        assert_eq!(diversion_interval(&earlier, &status()), "          9 pps arrived            9 dropped");
    }
}
