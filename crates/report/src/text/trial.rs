//! One trial as a list: the final summary of `send` and `recv`.

use std::io::{self, Write};

use measure::{Cost, Endpoint, NanosSummary, RoundTrips, Trial};

use super::layout::paragraph;
use crate::{
    escape,
    figures::{self, Line},
    number,
    profile::share_in_words,
    style::{Style, Tone},
};

/// Writes the summary of one trial, one fact per line.
pub fn write_trial(trial: &Trial, style: Style, out: &mut impl Write) -> io::Result<()> {
    let pair = format!("{} → {}", escape::text(&trial.tx.label), escape::text(&trial.rx.label));
    let (frame, payload) = (trial.frame_size_bytes, trial.payload_bytes);
    let seconds = number::seconds(trial.duration_s);
    let title = style.paint(&pair, Tone::Heading);
    writeln!(out, "{title}, {frame}-byte frames ({payload} bytes of payload), {seconds}")?;
    for (name, fact) in facts(trial) {
        paragraph(&fact, &format!("  {name:<16}"), style, out)?;
    }
    Ok(())
}

fn facts(trial: &Trial) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("requested", number::asked(trial.asked_pps)),
        ("sent", known(Line::Sent, trial)),
        ("delivered", known(Line::Delivered, trial)),
        ("lost", known(Line::Lost, trial)),
        ("unexplained", known(Line::Unexplained, trial)),
    ];
    if let Some(wire) = &trial.wire {
        facts.extend(on_the_way("left the driver", wire.left, &wire.left_source));
        facts.extend(on_the_way("seen by driver", wire.seen, &wire.seen_source));
        facts.extend(
            wire.cost_ns.map(|ns| ("counting cost", format!("{ns:.1} ns per packet, both hosts together"))),
        );
        facts.extend(wire.doubts.iter().map(|doubt| ("uncertain", escape::text(doubt))));
    }
    if let Some(trips) = &trial.round_trips {
        facts.push(("came back", came_back(trips)));
        facts.extend(trips.round_trip.as_ref().map(|times| ("round trip", times_in_words(times))));
        facts.extend(trips.jitter.as_ref().map(|times| ("jitter", times_in_words(times))));
    }
    facts.extend(cost(Line::SendingCost, trial, &trial.tx, &trial.tx_cost));
    facts.extend(cost(Line::ReceivingCost, trial, &trial.rx, &trial.rx_cost));
    if let Some(profile) = &trial.profile {
        let stages = profile.stages.iter();
        let stages = stages.map(|share| format!("{} {}", share.stage.name(), share_in_words(share)));
        facts.push(("receiving time", stages.collect::<Vec<_>>().join("; ")));
    }
    if trial.interrupted {
        facts.push(("ended early", "yes; the rates cover the time that it ran".into()));
    }
    facts
}

fn known(line: Line, trial: &Trial) -> String {
    let known = figures::in_words(line, trial);
    match trial.ledger.unknown_because() {
        Some(why) if known.is_empty() => format!("unknown: {}", escape::text(why)),
        _ => known.join(", "),
    }
}

/// The trial's packets at a host's driver.
fn on_the_way(name: &'static str, packets: Option<u64>, source: &str) -> Option<(&'static str, String)> {
    let packets = number::count(packets?);
    Some((name, format!("{packets} packets, by {}", escape::text(source))))
}

fn came_back(trips: &RoundTrips) -> String {
    let mut words = format!("{} packets", number::count(trips.returned));
    if trips.missing > 0 {
        words.push_str(&format!("; {} did not", number::count(trips.missing)));
    }
    if trips.dropped_here > 0 {
        words
            .push_str(&format!(", {} of them dropped here (buffer full)", number::count(trips.dropped_here)));
    }
    format!("{words}; stamped {}", escape::text(&trips.rx_stamp_means))
}

fn times_in_words(times: &NanosSummary) -> String {
    let NanosSummary { mean_ns, std_dev_ns, min_ns, max_ns, .. } = times;
    format!(
        "mean {mean_ns:.0} ns, std. dev. {std_dev_ns:.0} ns, from {min_ns} to {max_ns} ns; 50 %: {} ns, 90 %: {} ns, 99 %: {} ns, 99.9 %: {} ns",
        times.p50_ns, times.p90_ns, times.p99_ns, times.p999_ns
    )
}

/// The cost of a side; `None` for a remote side that reported none.
fn cost(line: Line, trial: &Trial, end: &Endpoint, cost: &Cost) -> Option<(&'static str, String)> {
    let per_packet = figures::in_words(line, trial);
    if per_packet.is_empty() {
        return None;
    }
    let name = if line == Line::SendingCost { "sending cost" } else { "receiving cost" };
    let (user, system) = (number::seconds(cost.user_s), number::seconds(cost.system_s));
    let threads = if end.threads == 1 { "1 thread".into() } else { format!("{} threads", end.threads) };
    Some((name, format!("{}; {user} user, {system} system on {threads}", per_packet.join(", "))))
}
