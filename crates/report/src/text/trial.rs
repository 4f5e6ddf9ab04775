//! One trial as a list: the final summary of `send` and `recv`.

use std::io::{self, Write};

use measure::{Cost, Endpoint, NanosSummary, RoundTrips, Trial};

use super::paragraph;
use crate::{
    escape, number,
    profile::share_in_words,
    style::{Style, Tone},
};

/// Writes the summary of one trial, a line a fact.
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
        ("asked", number::asked(trial.asked_pps)),
        ("sent", moved(trial, trial.sent, trial.sent_pps)),
        ("delivered", moved(trial, trial.delivered, trial.delivered_pps)),
        (
            "lost",
            format!(
                "{} packets, {} %",
                number::count(trial.ledger.lost()),
                number::percent(trial.loss_ratio)
            ),
        ),
        ("unexplained", format!("{} packets", number::signed_count(trial.ledger.unexplained))),
    ];
    if let Some(trips) = &trial.round_trips {
        facts.push(("came back", came_back(trips)));
        facts.extend(trips.round_trip.as_ref().map(|times| ("round trip", times_in_words(times))));
        facts.extend(trips.jitter.as_ref().map(|times| ("its jitter", times_in_words(times))));
    }
    facts.extend(cost("sending cost", &trial.tx, &trial.tx_cost));
    facts.extend(cost("receiving cost", &trial.rx, &trial.rx_cost));
    if let Some(profile) = &trial.profile {
        let stages = profile.stages.iter();
        let stages = stages.map(|share| format!("{} {}", share.stage.name(), share_in_words(share)));
        facts.push(("receiving time", stages.collect::<Vec<_>>().join("; ")));
    }
    if trial.interrupted {
        facts.push(("ended early", "yes; the rates are of the time it ran".into()));
    }
    facts
}

fn moved(trial: &Trial, packets: u64, pps: f64) -> String {
    let bits = pps * f64::from(trial.frame_size_bytes) * 8.0;
    let (packets, pps, bits) = (number::count(packets), number::rate(pps), number::bits_per_second(bits));
    format!("{packets} packets, {pps}, {bits} of frames")
}

fn came_back(trips: &RoundTrips) -> String {
    let mut words = format!("{} packets", number::count(trips.returned));
    if trips.missing > 0 {
        words.push_str(&format!("; {} did not", number::count(trips.missing)));
    }
    if trips.dropped_here > 0 {
        words.push_str(&format!(", {} of them for want of room here", number::count(trips.dropped_here)));
    }
    format!("{words}; stamped {}", escape::text(&trips.rx_stamp_means))
}

fn times_in_words(times: &NanosSummary) -> String {
    let NanosSummary { mean_ns, std_dev_ns, min_ns, max_ns, .. } = times;
    format!(
        "mean {mean_ns:.0} ns, deviation {std_dev_ns:.0} ns, from {min_ns} to {max_ns} ns; 50 %: {} ns, 90 %: {} ns, 99 %: {} ns, 99.9 %: {} ns",
        times.p50_ns, times.p90_ns, times.p99_ns, times.p999_ns
    )
}

/// What a side cost; nothing for a side that ran elsewhere and told nothing.
fn cost(name: &'static str, end: &Endpoint, cost: &Cost) -> Option<(&'static str, String)> {
    let ns = cost.ns_per_packet.map(|ns| format!("{} per packet", number::nanos(ns)));
    let cycles =
        cost.cycles_per_packet.map(|cycles| format!("{} cycles per packet", number::plain(cycles.round())));
    let figure = |value: Option<f64>, what: &str| value.map(|value| format!("{value:.1} {what} per packet"));
    let instructions = figure(cost.instructions_per_packet, "instructions");
    let misses = figure(cost.cache_misses_per_packet, "cache misses");
    let per_packet: Vec<String> = ns.into_iter().chain(cycles).chain(instructions).chain(misses).collect();
    if per_packet.is_empty() {
        return None;
    }
    let (user, system) = (number::seconds(cost.user_s), number::seconds(cost.system_s));
    let threads = if end.threads == 1 { "1 thread".into() } else { format!("{} threads", end.threads) };
    Some((name, format!("{}; {user} user, {system} system on {threads}", per_packet.join(", "))))
}
