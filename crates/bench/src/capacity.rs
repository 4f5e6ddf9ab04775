//! The capacity of each engine from the trials of a ladder: the most it sends, the most it receives under flood, and how
//! that scales.

use std::collections::BTreeSet;

use measure::{Capacity, CapacitySide, CpuShare, Endpoint, Layer, Point, SCALING, STAGE, Trial, median};
use serde_json::{Value, json};
use traffic::{RxLayer, RxSpec};

use crate::{lossless::LosslessRate, plan::BenchPlan, sweep};

/// A CPU that is busy for at least this share of a trial limits its workers.
const FULL: f64 = 0.9;
/// A smaller share of lost packets is an accident, not a limit.
const LOSING: f64 = 0.001;
/// The results of a scaling point; everything else distinguishes points.
const RESULTS: [&str; 6] =
    ["delivered_pps", "delivered_pps_low", "delivered_pps_high", "sent_pps", "loss_ratio", "trials"];

/// The capacity of each engine of a ladder, with one thread and, if measured, with more.
pub(crate) fn capacities(plan: &BenchPlan, trials: &[Trial], lossless: &[LosslessRate]) -> Vec<Capacity> {
    let ladder: Vec<&Trial> =
        trials.iter().filter(|trial| trial.stage().is_none() && !trial.interrupted).collect();
    let (tx, rx): (Vec<String>, Vec<String>) =
        plan.pairs.iter().map(|pair| (pair.tx.to_string(), pair.rx.to_string())).unzip();
    let mut all = Vec::new();
    for label in in_order(tx) {
        let of: Vec<&Trial> = ladder.iter().copied().filter(|trial| trial.tx.label == label).collect();
        // Towards a receiver that only drops; without one, towards the receiver that slows the sender least.
        let drops = |trial: &&Trial| layer(plan, &trial.rx.label) == Some(Layer::Kernel);
        let dropping: Vec<&Trial> = of.iter().copied().filter(drops).collect();
        let group = best(if dropping.is_empty() { &of } else { &dropping }, |trial| trial.sent_pps);
        all.extend(capacity(plan, CapacitySide::Sending, &group));
    }
    let scaled = scaling(plan, trials);
    for label in in_order(rx) {
        let of: Vec<&Trial> = ladder.iter().copied().filter(|trial| trial.rx.label == label).collect();
        let Some(mut found) =
            capacity(plan, CapacitySide::Receiving, &best(&of, |trial| trial.delivered_pps))
        else {
            continue;
        };
        let flood = best(&of, |trial| trial.sent_pps);
        found.flooded_pps = Some(median_over(&flood, |trial| trial.delivered_pps));
        found.flood_pps = Some(median_over(&flood, |trial| trial.sent_pps));
        let searched = lossless.iter().find(|searched| searched.rx == label);
        found.lossless_pps = searched.and_then(|searched| searched.pps);
        found.is_lossless_bound = searched.is_some_and(|searched| searched.is_sender_s);
        // A program in XDP that needs no CPU of its own.
        let is_alone = |one: &&Capacity| one.layer == Layer::Kernel && one.threads == 1 && one.label == label;
        if let Some(alone) = scaled.iter().find(is_alone).filter(|alone| alone.pps > found.pps) {
            let Capacity { flooded_pps, flood_pps, .. } = found;
            found =
                Capacity { flooded_pps, flood_pps, scales: None, efficiency_ratio: None, ..alone.clone() };
            (found.lossless_pps, found.is_lossless_bound) =
                (Some(alone.pps).filter(|_| alone.loss_ratio == 0.0), true);
        }
        all.push(found);
    }
    all.extend(scaled);
    all
}

/// The same pairs with increasing numbers of threads, by pair and thread.
fn scaling(plan: &BenchPlan, trials: &[Trial]) -> Vec<Capacity> {
    let of_stage = |trial: &&Trial| trial.stage() == Some(SCALING) && !trial.interrupted;
    let own: Vec<&Trial> = trials.iter().filter(of_stage).collect();
    let mut all: Vec<Capacity> = Vec::new();
    for label in in_order(own.iter().map(|trial| trial.rx.label.clone()).collect()) {
        let threads: BTreeSet<u32> =
            own.iter().filter(|trial| trial.rx.label == label).map(|trial| threads_of(trial)).collect();
        let mut first_pps = None;
        for threads in threads {
            let is_one = |trial: &&Trial| trial.rx.label == label && threads_of(trial) == threads;
            let group: Vec<&Trial> = own.iter().copied().filter(is_one).collect();
            let Some(mut found) = capacity(plan, CapacitySide::Receiving, &group) else { continue };
            found.threads = threads;
            found.scales = Some(plan.in_ladder(&label));
            let per_cpu = found.pps / f64::from(found.cpus_used.max(1));
            let first = *first_pps.get_or_insert(per_cpu);
            found.efficiency_ratio = Some(if first > 0.0 { per_cpu / first } else { 0.0 });
            all.push(found);
        }
    }
    all
}

/// The scaling stage as points: parameters by name, results with their intervals.
pub(crate) fn points(capacities: &[Capacity], trials: &[Trial]) -> Vec<Point> {
    let own: Vec<Trial> = trials.iter().filter(|trial| trial.stage() == Some(SCALING)).cloned().collect();
    let mut points = sweep::points(&own);
    for point in &mut points {
        let text = |name: &str| point.values.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (rx, threads) = (text("rx"), point.values.get("threads").and_then(Value::as_u64));
        point.values.remove(STAGE);
        point.values.retain(|name, _| {
            ["tx", "rx", "threads"].contains(&name.as_str()) || RESULTS.contains(&name.as_str())
        });
        let is_it = |found: &&Capacity| {
            found.efficiency_ratio.is_some() && found.label == rx && Some(found.threads.into()) == threads
        };
        if let Some(found) = capacities.iter().find(is_it) {
            point.values.insert("cpus_used".into(), json!(found.cpus_used));
            point.values.insert("pps_per_cpu".into(), json!(found.pps / f64::from(found.cpus_used.max(1))));
            point.values.insert("efficiency_ratio".into(), json!(found.efficiency_ratio));
        }
    }
    points
}

fn threads_of(trial: &Trial) -> u32 {
    trial.parameters.get("threads").and_then(Value::as_u64).map_or(trial.tx.threads, |threads| threads as u32)
}

/// Each label once, in order of first appearance.
fn in_order(labels: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    labels.into_iter().filter(|label| seen.insert(label.clone())).collect()
}

/// The trials of the pair whose median of a value is the largest.
fn best<'t>(trials: &[&'t Trial], value: impl Fn(&Trial) -> f64) -> Vec<&'t Trial> {
    let pair = |trial: &Trial| (trial.tx.label.clone(), trial.rx.label.clone());
    let group =
        |of: &(String, String)| trials.iter().copied().filter(|trial| pair(trial) == *of).collect::<Vec<_>>();
    let pairs: BTreeSet<(String, String)> = trials.iter().map(|trial| pair(trial)).collect();
    let groups = pairs.iter().map(group);
    groups.max_by(|a, b| median_over(a, &value).total_cmp(&median_over(b, &value))).unwrap_or_default()
}

fn median_over(trials: &[&Trial], value: impl Fn(&Trial) -> f64) -> f64 {
    median(&trials.iter().map(|trial| value(trial)).collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// The layer at which a receiver takes its packets.
fn layer(plan: &BenchPlan, rx: &str) -> Option<Layer> {
    let scaled = plan.scale.iter().flat_map(|scale| &scale.receivers).map(|receiver| &receiver.rx);
    let mut all = plan.pairs.iter().map(|pair| &pair.rx).chain(scaled);
    all.find(|spec| spec.to_string() == rx).and_then(layer_of)
}

fn layer_of(rx: &RxSpec) -> Option<Layer> {
    match rx.facts().reads {
        RxLayer::Socket => Some(Layer::Sockets),
        RxLayer::Copies | RxLayer::XdpSocket | RxLayer::Card => Some(Layer::PastSockets),
        RxLayer::XdpProgram => Some(Layer::Kernel),
        RxLayer::Stream => None,
    }
}

/// The capacity of one side from the trials of one pair and setting; `None` without a packet.
fn capacity(plan: &BenchPlan, side: CapacitySide, trials: &[&Trial]) -> Option<Capacity> {
    let first = trials.first()?;
    let is_sending = side == CapacitySide::Sending;
    let pps = median_over(trials, |trial| if is_sending { trial.sent_pps } else { trial.delivered_pps });
    if pps <= 0.0 {
        return None;
    }
    let rx_layer = layer(plan, &first.rx.label)?;
    let receiving = receiving_cpus(first, rx_layer);
    let own: BTreeSet<u32> =
        if is_sending { first.tx.cpus.iter().copied().collect() } else { receiving.clone() };
    let busy = |trial: &Trial| busy_cpus(&trial.cpus, &own);
    let end = if is_sending { &first.tx } else { &first.rx };
    let busy_cpus = if own.is_empty() { f64::from(end.threads) } else { median_over(trials, busy) }.max(1.0);
    let all: BTreeSet<u32> = first.tx.cpus.iter().copied().chain(receiving).collect();
    let cpus_used = if all.is_empty() { first.tx.threads + first.rx.threads } else { all.len() as u32 };
    let loss_ratio = median_over(trials, |trial| trial.loss_ratio);
    Some(Capacity {
        side,
        label: end.label.clone(),
        with: if is_sending { first.rx.label.clone() } else { first.tx.label.clone() },
        layer: rx_layer,
        threads: end.threads,
        frame_size_bytes: first.frame_size_bytes,
        pps,
        busy_cpus,
        pps_per_cpu: pps / busy_cpus,
        cpus_used,
        loss_ratio,
        flooded_pps: None,
        flood_pps: None,
        lossless_pps: None,
        is_lossless_bound: false,
        limited_by: limit(trials, loss_ratio, (&own, is_sending)),
        scales: None,
        efficiency_ratio: None,
    })
}

/// The CPUs of a receiver's work, softirq included: the sender's if they process the packets and no thread reads.
fn receiving_cpus(trial: &Trial, layer: Layer) -> BTreeSet<u32> {
    let is_threaded = trial.rx.options.get("threaded_napi") == Some(&json!(true));
    let threads = number_list(&trial.rx, "napi_cpus").filter(|_| is_threaded);
    let readers = trial.rx.cpus.iter().copied();
    match (layer, is_threaded) {
        (Layer::Kernel, true) => threads.collect(),
        (Layer::Kernel, false) => trial.tx.cpus.iter().copied().collect(),
        (_, _) => readers.chain(threads).collect(),
    }
}

fn number_list<'e>(end: &'e Endpoint, name: &str) -> impl Iterator<Item = u32> + 'e {
    let list = end.options.get(name).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_u64).filter_map(|number| number.try_into().ok())
}

fn busy_cpus(cpus: &[CpuShare], own: &BTreeSet<u32>) -> f64 {
    cpus.iter().filter(|cpu| own.contains(&cpu.cpu)).map(|cpu| 1.0 - cpu.idle_ratio).sum()
}

/// What limited the rate, in words.
fn limit(trials: &[&Trial], loss_ratio: f64, (own, is_sending): (&BTreeSet<u32>, bool)) -> Option<String> {
    let is_full = |cpus: &BTreeSet<u32>| {
        !cpus.is_empty()
            && median_over(trials, |trial| busy_cpus(&trial.cpus, cpus)) >= FULL * cpus.len() as f64
    };
    if is_sending {
        return is_full(own).then(|| "the sender's CPU".into());
    }
    if loss_ratio < LOSING {
        let senders: BTreeSet<u32> = trials.iter().flat_map(|trial| trial.tx.cpus.iter().copied()).collect();
        return is_full(&senders).then(|| "the sender".into());
    }
    let mut places: Vec<(String, u64)> = Vec::new();
    for line in trials.iter().flat_map(|trial| &trial.ledger.lines) {
        let place = line.place.to_string();
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, packets)) => *packets += line.packets,
            None => places.push((place, line.packets)),
        }
    }
    places.into_iter().max_by_key(|(_, packets)| *packets).map(|(place, _)| place)
}

#[cfg(test)]
mod tests;
