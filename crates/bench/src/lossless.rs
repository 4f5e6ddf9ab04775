//! After the ladder: each receiver's highest rate without loss, by a short search.

use measure::{LOSSLESS, STAGE};
use search::{Goal, LimitedBy, Search, SearchPlan, Step};
use serde_json::json;
use traffic::RxLayer;
use trial::{Pair, TrialPlan};

use crate::{
    plan::BenchPlan,
    recorder::{Coming, Recorder, Stopped, Watcher},
    row::Row,
    scale::{alone, median_of},
    throughput::measured,
};

/// A receiver's highest rate without loss.
pub(crate) struct LosslessRate {
    /// The receiver's label.
    pub(crate) rx: String,
    /// The rate; `None` where even the lowest load lost packets.
    pub(crate) pps: Option<f64>,
    /// The sender could not offer more.
    pub(crate) is_sender_s: bool,
}

/// Trials of a search at most: it fills a column of a table, `bench ndr` measures.
const MOST_TRIALS: u32 = 8;
/// The lowest load tried, as a share of the receiver's rate under flood.
const LOWEST_SHARE: f64 = 0.05;

/// The goal of a short search: no loss in two trials of a quarter of a second, to 5 %.
pub fn short_goal() -> Goal {
    Goal {
        name: "lossless".into(),
        loss_ratio: 0.0,
        exceed_ratio: 0.5,
        final_duration_s: 0.2,
        duration_sum_s: 0.4,
        initial_duration_s: 0.1,
        width_ratio: 0.05,
    }
}

/// Searches for every receiver of the ladder.
pub(crate) fn run(
    plan: &BenchPlan,
    goal: &Goal,
    recorder: &mut Recorder<'_, impl Watcher>,
    found: &mut Vec<LosslessRate>,
) -> Result<(), Stopped> {
    let mut receivers: Vec<&Pair> = Vec::new();
    // A program in XDP works in the sender's softirq, which takes no packet without processing it.
    let works_apart = |pair: &&Pair| pair.rx.facts().reads != RxLayer::XdpProgram;
    for pair in plan.pairs.iter().filter(works_apart) {
        if !receivers.iter().any(|known| known.rx == pair.rx) {
            receivers.push(pair);
        }
    }
    for receiver in receivers {
        let candidates = plan.pairs.iter().filter(|pair| pair.rx == receiver.rx && can_pace(pair));
        let sent = |pair: &Pair| median_of(recorder.trials(), pair, |trial| trial.sent_pps);
        let fastest =
            candidates.filter_map(|pair| Some((sent(pair)?, pair))).max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((sent_pps, pair)) = fastest.filter(|(sent_pps, _)| *sent_pps > 1.0) else { continue };
        let delivered_pps =
            median_of(recorder.trials(), pair, |trial| trial.delivered_pps).unwrap_or(sent_pps);
        found.push(search_one(plan, goal, pair, (sent_pps, delivered_pps), recorder)?);
    }
    Ok(())
}

/// No pair whose frames return to the sender, because frames that the receiver still holds at the end cost the sender
/// time; no messages, which arrive as a burst at any rate.
fn can_pace(pair: &Pair) -> bool {
    let tx = pair.tx.facts();
    !tx.hands_over_many && !tx.frames_come_back
}

fn search_one(
    plan: &BenchPlan,
    goal: &Goal,
    pair: &Pair,
    (sent_pps, delivered_pps): (f64, f64),
    recorder: &mut Recorder<'_, impl Watcher>,
) -> Result<LosslessRate, Stopped> {
    let max_pps = sent_pps.max(2.0);
    let mut result = LosslessRate { rx: pair.rx.to_string(), pps: None, is_sender_s: false };
    let search_plan = SearchPlan {
        goals: vec![goal.clone()],
        min_pps: (delivered_pps * LOWEST_SHARE).clamp(1.0, max_pps),
        first_pps: Some(delivered_pps).filter(|pps| *pps > 1.0 && *pps < max_pps),
        shortfall_ratio: goal.width_ratio / 2.0,
        most_trials: MOST_TRIALS,
        ..SearchPlan::up_to(max_pps)
    };
    let Ok(mut search) = Search::new(search_plan) else { return Ok(result) };
    while let Step::Measure { load_pps, duration_s } = search.next() {
        let mut trial = TrialPlan {
            rate_pps: Some(load_pps),
            count: None,
            omit_ns: 0,
            duration_ns: (duration_s * 1e9) as u64,
            ..alone(&plan.trial, pair)
        };
        // Below its capacity a receiver's packets are processed before its application runs, as by a card's softirq.
        trial.lab.napi_first = true;
        let point = BenchPlan { trial, parameters: [(STAGE.into(), json!(LOSSLESS))].into(), ..plan.clone() };
        let what = format!("without loss? {load_pps:.0} pps");
        let coming = Coming::of(Row::Ours(pair), what);
        let Some(index) = recorder.trial(&point, 1, coming)? else { break };
        search.record(load_pps, duration_s, measured(recorder.recorded(index)));
    }
    if let Some(outcome) = search.outcomes().first() {
        result.pps = outcome.lower.as_ref().map(|bound| bound.load_pps);
        result.is_sender_s = matches!(outcome.limit, LimitedBy::Generator | LimitedBy::MaxLoad);
    }
    Ok(result)
}
