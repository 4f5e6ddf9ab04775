//! From what every agent measured to one trial and its fleet's ledger. Pure.

use std::collections::{BTreeMap, BTreeSet};

use measure::{
    FleetHost, FleetTrial, Histogram, HostSide, Interval, Ledger, LedgerLine, Receipt, Trial, Wire,
};
use trial::Report;

use crate::{
    clock::{ClockLine, Sight},
    message::{Launch, Measured, Outcome},
};

/// An attempt that counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Merged {
    pub(crate) trial: Trial,
    pub(crate) fleet: FleetTrial<Trial>,
    pub(crate) intervals: Vec<Interval>,
}

/// Conditions that an attempt must meet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demands {
    /// Agents that may be without a result.
    pub(crate) tolerate: u32,
    pub(crate) most_start_error_ns: u64,
}

struct Sent<'o> {
    agent: &'o str,
    trial: &'o Trial,
    intervals: &'o [Interval],
    began_ns: u64,
    clock: ClockLine,
}

impl Sent<'_> {
    /// When it began, by the coordinator's clock.
    fn began(&self) -> i128 {
        self.clock.ours_ns(self.began_ns)
    }

    fn ended(&self) -> i128 {
        self.began() + (self.trial.duration_s * 1e9) as i128
    }

    /// Packets sent until a time by the coordinator's clock, along a line between two looks.
    fn sent_until(&self, at: i128) -> f64 {
        let seconds = (at - self.began()) as f64 / 1e9;
        let mut earlier = (0.0, 0.0);
        for interval in self.intervals {
            let count = earlier.1 + interval.sent.unwrap_or(0) as f64;
            if interval.end_s >= seconds {
                return between(earlier, (interval.end_s, count), seconds);
            }
            earlier = (interval.end_s, count);
        }
        let end = (self.trial.duration_s, self.trial.sent as f64);
        if end.0 <= earlier.0 { end.1 } else { between(earlier, end, seconds.min(end.0)) }
    }
}

fn between((x0, y0): (f64, f64), (x1, y1): (f64, f64), x: f64) -> f64 {
    if x1 > x0 { y0 + (y1 - y0) * (x - x0).max(0.0) / (x1 - x0) } else { y1 }
}

/// Agents of an attempt without a result that is of this attempt and of the incarnation that was asked.
pub(crate) fn missing(launch: &Launch, outcomes: &[Outcome]) -> Vec<String> {
    let here: BTreeSet<(&str, &str)> = outcomes
        .iter()
        .filter(|outcome| outcome.of == launch.of)
        .map(|outcome| (outcome.agent.as_str(), outcome.incarnation.as_str()))
        .collect();
    let is_here = |agent: &String| {
        launch.incarnations.get(agent).is_some_and(|incarnation| here.contains(&(agent, incarnation)))
    };
    launch.senders.keys().chain(&launch.receivers).filter(|agent| !is_here(agent)).cloned().collect()
}

fn of_agent<'o>(launch: &Launch, outcomes: &'o [Outcome], agent: &str) -> Option<&'o Outcome> {
    let incarnation = launch.incarnations.get(agent)?;
    // Said twice with two numbers, the first counts.
    let is_its = |outcome: &&Outcome| {
        outcome.agent == agent && outcome.incarnation == *incarnation && outcome.of == launch.of
    };
    outcomes.iter().find(is_its)
}

/// The trial, or why the attempt counts for nothing.
pub(crate) fn merge(
    launch: &Launch,
    outcomes: &[Outcome],
    after: &BTreeMap<String, Sight>,
    demands: Demands,
) -> Result<Merged, String> {
    let mut lost: Vec<String> = Vec::new();
    let mut reasons: Vec<String> = Vec::new();
    let mut sent: Vec<Sent<'_>> = Vec::new();
    let mut received: BTreeMap<&str, &Report> = BTreeMap::new();
    for agent in launch.senders.keys() {
        match of_agent(launch, outcomes, agent).map(|outcome| &outcome.what) {
            Some(Measured::Sent { trial, intervals, began_ns, cut_short: None }) => {
                let Some(before) = launch.clocks.get(agent) else {
                    return Err(format!("the clock of {agent} was not seen"));
                };
                let clock = ClockLine::new(*before, after.get(agent).copied());
                sent.push(Sent { agent, trial, intervals, began_ns: *began_ns, clock });
            }
            other => {
                reasons.push(format!("{agent} {}", words(other)));
                lost.push(agent.clone());
            }
        }
    }
    for agent in &launch.receivers {
        match of_agent(launch, outcomes, agent).map(|outcome| &outcome.what) {
            Some(Measured::Received { report, cut_short: None }) => {
                received.insert(agent, report);
            }
            other => {
                reasons.push(format!("{agent} {}", words(other)));
                lost.push(agent.clone());
            }
        }
    }
    if lost.len() > demands.tolerate as usize || sent.is_empty() {
        return Err(reasons.join("; "));
    }
    let start_error = |one: &Sent<'_>| (one.began() - i128::from(launch.start_at_ns)) as i64;
    for one in &sent {
        let late_ns = start_error(one);
        if late_ns.unsigned_abs() > demands.most_start_error_ns {
            return Err(format!("{} started {} ms off", one.agent, late_ns / 1_000_000));
        }
    }
    let window = window(&sent).ok_or("there was no time in which all of them sent")?;
    let begins: Vec<i128> = sent.iter().map(Sent::began).collect();
    let spread = begins.iter().max().zip(begins.iter().min()).map_or(0, |(last, first)| last - first);
    let bounds = sent.iter().map(|one| one.clock.bound_ns(one.began_ns)).max().unwrap_or(0);
    let trial = trial(launch, &sent, &received, window);
    let loss_ratio_bounds = (!lost.is_empty()).then(|| loss_bounds(launch, &sent, &received));
    let hosts = hosts(launch, &sent, &received, start_error);
    let fleet = FleetTrial {
        trial: launch.of.trial,
        attempt: launch.of.attempt,
        common_window_s: (window.1 - window.0) as f64 / 1e9,
        start_spread_ns: spread as u64,
        start_bound_ns: if sent.len() > 1 { bounds.saturating_mul(2) } else { bounds },
        weakest: weakest(&sent),
        missing: lost,
        loss_ratio_bounds,
        hosts,
    };
    let intervals = if let [one] = sent.as_slice() { one.intervals.to_vec() } else { Vec::new() };
    Ok(Merged { trial, fleet, intervals })
}

fn words(measured: Option<&Measured>) -> String {
    match measured {
        None => "was lost".into(),
        Some(
            Measured::Sent { cut_short: Some(reason), .. }
            | Measured::Received { cut_short: Some(reason), .. }
            | Measured::Failed { reason },
        ) => format!("ended early ({reason})"),
        Some(_) => "measured something else than it was asked to".into(),
    }
}

/// The time in which all of them sent.
fn window(sent: &[Sent<'_>]) -> Option<(i128, i128)> {
    let from = sent.iter().map(Sent::began).max()?;
    let to = sent.iter().map(Sent::ended).min()?;
    (to > from).then_some((from, to))
}

/// The sender furthest behind its requested rate.
fn weakest(sent: &[Sent<'_>]) -> Option<String> {
    let share = |one: &Sent<'_>| {
        let receipt = &one.trial.receipt;
        receipt.handed as f64 / (receipt.scheduled.max(1)) as f64
    };
    let behind = sent.iter().filter(|one| !one.trial.receipt.kept_up);
    let worst = behind.min_by(|a, b| share(a).total_cmp(&share(b)))?;
    Some(worst.agent.to_owned())
}

/// All senders as one. One alone is left as it is: what `bench --peer` records.
fn trial(
    launch: &Launch,
    sent: &[Sent<'_>],
    received: &BTreeMap<&str, &Report>,
    (from, to): (i128, i128),
) -> Trial {
    let number = launch.of.trial;
    let is_whole = sent.len() == launch.senders.len();
    if let [one] = sent
        && is_whole
    {
        return Trial { trial: number, ..one.trial.clone() };
    }
    let first = sent[0].trial;
    let sum = |each: fn(&Trial) -> u64| sent.iter().map(|one| each(one.trial)).sum::<u64>();
    let (packets, delivered) = (sum(|trial| trial.sent), sum(|trial| trial.delivered));
    let asked_pps: Option<f64> = sent.iter().map(|one| one.trial.asked_pps).sum();
    let seconds = (to - from) as f64 / 1e9;
    let in_window: f64 = sent.iter().map(|one| one.sent_until(to) - one.sent_until(from)).sum();
    let sent_pps = in_window / seconds;
    let mut lines: Vec<LedgerLine> = Vec::new();
    for line in sent.iter().flat_map(|one| &one.trial.ledger.lines) {
        match lines.iter_mut().find(|other| (&other.place, other.host) == (&line.place, line.host)) {
            Some(same) => same.packets = same.packets.saturating_add(line.packets),
            None => lines.push(line.clone()),
        }
    }
    // Sockets and rings that several senders share count for all of them together: no sender's own trial has those.
    let lost: u64 = lines.iter().map(|line| line.packets).sum();
    let mut missing = packets.saturating_sub(delivered).saturating_sub(lost);
    for (agent, report) in received {
        let senders = launch.senders.values().filter(|targets| targets.iter().any(|to| to == agent)).count();
        if senders < 2 {
            continue;
        }
        for line in &report.lines {
            let packets = missing.min(line.packets);
            missing -= packets;
            let source = format!("{agent}: {}", line.source);
            let line = LedgerLine { packets, source, ..line.clone() }.on(HostSide::Receiver);
            match lines.iter_mut().find(|other| (&other.place, other.host) == (&line.place, line.host)) {
                Some(same) => same.packets = same.packets.saturating_add(packets),
                None => lines.push(line),
            }
        }
    }
    let ledger = Ledger::close(packets, delivered, lines);
    let duration_s = sent.iter().map(|one| one.trial.duration_s).fold(0.0, f64::max);
    let scheduled = sum(|trial| trial.receipt.scheduled);
    let judged = Receipt::judge(asked_pps, scheduled, packets, duration_s, &Histogram::new());
    let worst =
        sent.iter().filter_map(|one| one.trial.receipt.lateness.clone()).max_by_key(|late| late.p99_ns);
    let receipt = Receipt {
        delivered,
        lateness: worst,
        largest_gap_ns: sent.iter().map(|one| one.trial.receipt.largest_gap_ns).max().unwrap_or(0),
        kept_up: sent.iter().all(|one| one.trial.receipt.kept_up),
        ..judged
    };
    let mut tx = first.tx.clone();
    tx.threads = sent.iter().map(|one| one.trial.tx.threads).sum();
    tx.options.insert("hosts".into(), sent.len().into());
    let mut rx = first.rx.clone();
    rx.threads = received.values().map(|report| report.rx.threads).sum();
    rx.options.insert("hosts".into(), received.len().into());
    let mut tx_cost = measure::Cost::default();
    for one in sent {
        tx_cost.user_s += one.trial.tx_cost.user_s;
        tx_cost.system_s += one.trial.tx_cost.system_s;
    }
    tx_cost.ns_per_packet = (packets > 0).then(|| (tx_cost.user_s + tx_cost.system_s) * 1e9 / packets as f64);
    let loss_ratio = ledger.loss_ratio();
    Trial {
        trial: number,
        tx,
        rx,
        frame_size_bytes: first.frame_size_bytes,
        payload_bytes: first.payload_bytes,
        asked_pps,
        parameters: BTreeMap::from([
            ("senders".into(), sent.len().into()),
            ("receivers".into(), launch.receivers.len().into()),
        ]),
        duration_s,
        sent: packets,
        sent_pps,
        delivered,
        // Which of the delivered packets were sent in that time is not known: their share of all is taken.
        delivered_pps: if packets > 0 { sent_pps * delivered as f64 / packets as f64 } else { 0.0 },
        loss_ratio,
        tx_cost,
        ledger,
        receipt,
        wire: wire(sent),
        interrupted: sent.iter().any(|one| one.trial.interrupted),
        ..Trial::default()
    }
}

fn wire(sent: &[Sent<'_>]) -> Option<Wire> {
    let wires: Vec<&Wire> = sent.iter().map(|one| one.trial.wire.as_ref()).collect::<Option<_>>()?;
    let first = wires.first()?;
    let doubts: BTreeSet<&String> = wires.iter().flat_map(|wire| &wire.doubts).collect();
    Some(Wire {
        left: wires.iter().map(|wire| wire.left).sum(),
        left_source: first.left_source.clone(),
        seen: wires.iter().map(|wire| wire.seen).sum(),
        seen_source: first.seen_source.clone(),
        cost_ns: wires.iter().filter_map(|wire| wire.cost_ns).reduce(f64::max),
        doubts: doubts.into_iter().cloned().collect(),
    })
}

/// Every host's own ledger.
fn hosts(
    launch: &Launch,
    sent: &[Sent<'_>],
    received: &BTreeMap<&str, &Report>,
    start_error: impl Fn(&Sent<'_>) -> i64,
) -> Vec<FleetHost<Trial>> {
    let packets = |lines: &[LedgerLine]| lines.iter().map(|line| line.packets).sum::<u64>();
    let mut hosts: Vec<FleetHost<Trial>> = Vec::new();
    for one in sent {
        let is_here = |line: &&LedgerLine| line.host == Some(HostSide::Sender);
        let lines: Vec<LedgerLine> = one.trial.ledger.lines.iter().filter(is_here).cloned().collect();
        let left = one.trial.wire.as_ref().and_then(|wire| wire.left);
        // Where nobody counts at the driver, what was not seen to be lost here has left.
        let left = left.unwrap_or_else(|| one.trial.sent.saturating_sub(packets(&lines)));
        hosts.push(FleetHost {
            agent: one.agent.into(),
            role: "sender".into(),
            ledger: Ledger::close(one.trial.sent, left, lines),
            trial: Some(Box::new(one.trial.clone())),
            start_error_ns: Some(start_error(one)),
            clock_ahead_ns: Some(one.clock.ahead_ns(one.began_ns)),
            clock_bound_ns: Some(one.clock.bound_ns(one.began_ns)),
            clock_drift_ppm: one.clock.drift_ppm(),
        });
    }
    for (agent, report) in received {
        let to_it = || {
            let only = |one: &&Sent<'_>| launch.senders[one.agent].iter().all(|to| to == agent);
            sent.iter().filter(only)
        };
        let all_only = launch.senders.values().all(|targets| targets.len() == 1);
        let seen = all_only
            .then(|| {
                to_it().map(|one| one.trial.wire.as_ref().and_then(|wire| wire.seen)).sum::<Option<u64>>()
            })
            .flatten()
            .filter(|seen| *seen >= report.delivered);
        let mut room = seen.map_or(u64::MAX, |seen| seen - report.delivered);
        let mut lines = Vec::new();
        for line in &report.lines {
            let packets = room.min(line.packets);
            room -= packets;
            lines.push(LedgerLine { packets, ..line.clone() }.on(HostSide::Receiver));
        }
        let reached = seen.unwrap_or_else(|| report.delivered + packets(&lines));
        hosts.push(FleetHost {
            agent: (*agent).to_owned(),
            role: "receiver".into(),
            ledger: Ledger::close(reached, report.delivered, lines),
            ..FleetHost::default()
        });
    }
    hosts
}

/// The least and the largest loss ratio, where results are missing: of a sender without a result the receivers got at least
/// some packets and it sent no more than it was asked to; what a receiver without a report got is unknown.
fn loss_bounds(launch: &Launch, sent: &[Sent<'_>], received: &BTreeMap<&str, &Report>) -> [f64; 2] {
    let known_sent: u64 = sent.iter().map(|one| one.trial.sent).sum();
    let known_delivered: u64 = sent.iter().map(|one| one.trial.delivered).sum();
    let unobserved = |line: &&LedgerLine| line.place == measure::LossPlace::Unobserved;
    let unobserved: u64 = sent
        .iter()
        .flat_map(|one| one.trial.ledger.lines.iter().filter(unobserved))
        .map(|line| line.packets)
        .sum();
    let all_delivered: u64 = received.values().map(|report| report.delivered).sum();
    let foreign = all_delivered.saturating_sub(known_delivered);
    let lost = known_sent.saturating_sub(known_delivered);
    let ratio = |lost: u64, of: f64| if of > 0.0 { (lost as f64 / of).min(1.0) } else { 0.0 };
    let least = ratio(lost.saturating_sub(unobserved), (known_sent + foreign) as f64);
    if sent.len() == launch.senders.len() {
        return [least, ratio(lost, known_sent as f64)];
    }
    // What each of them was asked to send is what those with a result were asked on average.
    let asked: Option<f64> = sent.iter().map(|one| one.trial.asked_pps).sum();
    let Some(asked) = asked else { return [least, 1.0] };
    let missing = (launch.senders.len() - sent.len()) as f64;
    let most = asked / sent.len() as f64 * missing * launch.duration_ns as f64 / 1e9;
    let most_lost = lost + (most - foreign as f64).max(0.0) as u64;
    [least, ratio(most_lost, known_sent as f64 + most.max(foreign as f64))]
}

#[cfg(test)]
mod tests;
