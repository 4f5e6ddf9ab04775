//! Throughput searches in the lab: RFC 2544's tests with MLRsearch's controller.

use std::collections::BTreeMap;

use measure::{
    BoundBy, BurstResult, GoalResult, LatencyAt, LossAt, LossKinds, LossPlace, Place, Run, Start, Throughput,
    ThroughputLimit, Trial,
};
use search::{
    BackToBack, FrameLoss, Goal, LimitedBy, LossPoint, Measured, Outcome, Search, SearchPlan, Step,
};
use serde::{Deserialize, Serialize};
use trial::{Pair, TrialError, TrialPlan};

use crate::{
    plan::BenchPlan,
    recorder::{Coming, Recorder, Stopped, Watcher},
    row::Row,
    sweep::by_parameters,
};

/// The search and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThroughputPlan {
    /// The settings, one entry per point of a sweep; each pair is searched separately. The search itself sets rate, duration
    /// and count; receivers measure other things only in latency trials.
    pub points: Vec<BenchPlan>,
    /// The goals.
    pub goals: Vec<Goal>,
    /// The lowest load tried; `None` is a thousandth of the highest.
    pub min_pps: Option<f64>,
    /// The highest load tried; `None` is the rate that the generator offers without a rate limit.
    pub max_pps: Option<f64>,
    /// Tests in addition to the search.
    pub tests: Tests,
    /// Seed of the points' order.
    pub seed: u64,
}

/// Tests in addition to the search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tests {
    /// Latency at these shares of the throughput found for the strictest goal that was met.
    pub latency_shares: Vec<f64>,
    /// Lost share against offered load, in downward steps of this share of the highest.
    pub frame_loss_step: Option<f64>,
    /// Repetitions of the search for the longest lossless burst.
    pub back_to_back: Option<u32>,
    /// The longest burst tried, in seconds at the generator's highest rate.
    pub longest_burst_s: f64,
}

/// A load counts as offered within this share of the requested accuracy: bounds are no closer than that.
const SHORTFALL_OF_WIDTH: f64 = 0.5;
/// Bursts are distinguished to this share.
const BURST_WIDTH: f64 = 0.02;
/// The step name of trials with latency measurement.
const LATENCY: &str = "latency";

/// Runs every search. Trials before an error or an interruption remain in the record;
/// trials of `earlier`, a run of the same plan, are not repeated.
///
/// # Errors
/// The trial that could not start, with the record so far.
pub fn run_throughput(
    plan: &ThroughputPlan,
    start: Start,
    earlier: Option<Run>,
    watcher: &mut impl Watcher,
) -> Result<Run, (Box<Run>, TrialError)> {
    let skipped = plan.points.first().map_or(&[][..], |first| &first.skipped);
    let mut recorder = Recorder::new(start, skipped, earlier, watcher);
    let mut order: Vec<(&BenchPlan, &Pair)> =
        plan.points.iter().flat_map(|point| point.pairs.iter().map(move |pair| (point, pair))).collect();
    if plan.points.len() > 1 {
        fastrand::Rng::with_seed(plan.seed).shuffle(&mut order);
    }
    for (point, pair) in order {
        let mut bench = Bench { recorder: &mut recorder, point, pair };
        let mut found = Throughput {
            tx: pair.tx.to_string(),
            rx: pair.rx.to_string(),
            frame_size_bytes: point.trial.frame_size_bytes,
            parameters: point.parameters.clone(),
            ..Throughput::default()
        };
        let outcome = bench.run(plan, &mut found);
        recorder.end_mut().throughput.push(found);
        if outcome.is_err() {
            break;
        }
    }
    // Tables are sorted in whatever order the searches ran.
    recorder.end_mut().throughput.sort_by(|a, b| by_parameters(&a.parameters, &b.parameters));
    recorder.finish()
}

/// One pair at one setting.
struct Bench<'b, 'w, W> {
    recorder: &'b mut Recorder<'w, W>,
    point: &'b BenchPlan,
    pair: &'b Pair,
}

impl<W: Watcher> Bench<'_, '_, W> {
    fn run(&mut self, plan: &ThroughputPlan, found: &mut Throughput) -> Result<(), Stopped> {
        let longest_s = plan.goals.iter().map(|goal| goal.final_duration_s).fold(0.0, f64::max);
        // Warms caches up and finds the generator's maximum; the search does not see it.
        let warm_up = self.trial(None, None, longest_s, "maximum rate")?;
        found.generator_max_pps = self.recorder.recorded(warm_up).sent_pps;
        let max_pps = plan.max_pps.unwrap_or(found.generator_max_pps).max(1.0);
        let carried_pps = self.recorder.recorded(warm_up).delivered_pps;
        self.search(plan, (max_pps, carried_pps), found)?;
        if let Some(step) = plan.tests.frame_loss_step {
            self.frame_loss(FrameLoss::new(max_pps, step), longest_s, found)?;
        }
        if let Some(repetitions) = plan.tests.back_to_back {
            self.back_to_back(repetitions, plan.tests.longest_burst_s, found)?;
        }
        // From the strictest goal that was met.
        let throughput_pps = found.goals.iter().rev().find_map(|goal| goal.lower_pps);
        for share_ratio in &plan.tests.latency_shares {
            let Some(load_pps) = throughput_pps.map(|pps| (pps * share_ratio).max(1.0)) else { break };
            let trial = self.trial(Some(load_pps), None, longest_s, LATENCY)?;
            let statistics = self.recorder.recorded(trial).statistics.as_ref();
            let latency = statistics.and_then(|statistics| statistics.total.latency.clone());
            found.latency.push(LatencyAt { share_ratio: *share_ratio, load_pps, latency, trial });
        }
        Ok(())
    }

    fn search(
        &mut self,
        plan: &ThroughputPlan,
        (max_pps, carried_pps): (f64, f64),
        found: &mut Throughput,
    ) -> Result<(), Stopped> {
        let bounds = (plan.min_pps, plan.max_pps);
        let mut searching = Searching::begin(&plan.goals, bounds, (max_pps, carried_pps));
        let mut outcome = Ok(());
        while let Some((load_pps, duration_s)) = searching.next() {
            match self.trial(Some(load_pps), None, duration_s, "search") {
                Ok(index) => searching.record(index, self.recorder.recorded(index)),
                Err(stopped) => {
                    outcome = Err(stopped);
                    break;
                }
            }
        }
        found.goals = searching.results(self.recorder.trials());
        outcome
    }

    fn frame_loss(
        &mut self,
        mut test: FrameLoss,
        duration_s: f64,
        found: &mut Throughput,
    ) -> Result<(), Stopped> {
        while let Some(load_pps) = test.next_load_pps() {
            let index = self.trial(Some(load_pps), None, duration_s, "frame loss rate")?;
            let trial = self.recorder.recorded(index);
            let (offered_pps, loss_ratio) = (trial.sent_pps, trial.loss_ratio);
            test.record(LossPoint { load_pps, offered_pps, loss_ratio });
            found.frame_loss.push(LossAt { load_pps, offered_pps, loss_ratio, trial: index });
        }
        Ok(())
    }

    fn back_to_back(
        &mut self,
        repetitions: u32,
        longest_s: f64,
        found: &mut Throughput,
    ) -> Result<(), Stopped> {
        let longest = (found.generator_max_pps * longest_s) as u64;
        let mut test = BackToBack::new(1, longest, BURST_WIDTH, repetitions);
        let mut rates = Vec::new();
        let mut outcome = Ok(());
        while let Some(packets) = test.next_burst() {
            match self.trial(None, Some(packets), 10.0 * longest_s, "back-to-back") {
                Ok(index) => {
                    let trial = self.recorder.recorded(index);
                    rates.push(trial.sent_pps);
                    // A burst that was not sent completely is not a burst of that length.
                    test.record(packets, trial.sent == packets && trial.ledger.lost() == 0);
                }
                Err(stopped) => {
                    outcome = Err(stopped);
                    break;
                }
            }
        }
        if let Some(mean_packets) = test.mean_packets() {
            let burst_pps = measure::median(&rates).unwrap_or(0.0);
            let throughput = found.goals.iter().rev().find_map(|goal| goal.conditional_throughput_pps);
            found.back_to_back = Some(BurstResult {
                packets: test.results().iter().map(|burst| burst.packets).collect(),
                mean_packets,
                at_limit: test.results().iter().any(|burst| burst.at_limit),
                burst_pps,
                buffer_time_s: throughput
                    .map(|throughput| BackToBack::buffer_time_s(mean_packets, burst_pps, throughput)),
            });
        }
        outcome
    }

    fn trial(
        &mut self,
        rate_pps: Option<f64>,
        count: Option<u64>,
        duration_s: f64,
        what: &str,
    ) -> Result<u32, Stopped> {
        let duration_ns = (duration_s * 1e9) as u64;
        let mut trial = TrialPlan { rate_pps, count, duration_ns, ..self.point.trial.clone() };
        // Timestamps cost the receiver time: searches for a rate do without.
        trial.statistics = trial.statistics.filter(|_| what == LATENCY);
        let plan = BenchPlan { trial, ..self.point.clone() };
        let load = match (rate_pps, count) {
            (Some(pps), _) => format!(" at {pps:.0} pps"),
            (None, Some(count)) => format!(" of {count} packets"),
            (None, None) => String::new(),
        };
        let words = [self.point.parameters_in_words(), format!("{what}{load}")];
        let what = words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ");
        let coming = Coming::of(Row::Ours(self.pair), what);
        // Only other programs fail without ending the run.
        self.recorder.trial(&plan, 1, coming)?.ok_or(Stopped)
    }
}

/// A search in progress over trials of a record, wherever they run.
#[derive(Debug, Clone)]
pub struct Searching {
    /// `None` where the goals or the bounds cannot be searched for.
    search: Option<Search>,
    /// The load of the last [`Searching::next`].
    asked: (f64, f64),
    /// The indexes of the search's trials in the record.
    indexes: Vec<u32>,
    /// Whether the highest load is the generator's maximum.
    is_generators: bool,
}

impl Searching {
    /// Between the user's bounds, after a warm-up at the highest rate: what was sent and what was delivered of it.
    pub fn begin(
        goals: &[Goal],
        (min_pps, user_max_pps): (Option<f64>, Option<f64>),
        (max_pps, carried_pps): (f64, f64),
    ) -> Self {
        let defaults = SearchPlan::up_to(max_pps);
        let narrowest = goals.iter().map(|goal| goal.width_ratio).fold(1.0, f64::min);
        let plan = SearchPlan {
            goals: goals.to_vec(),
            min_pps: min_pps.unwrap_or(defaults.min_pps).min(max_pps),
            // The delivered rate of an overload is close to the throughput.
            first_pps: Some(carried_pps).filter(|pps| *pps > 0.0 && *pps < max_pps),
            shortfall_ratio: (narrowest * SHORTFALL_OF_WIDTH).max(defaults.shortfall_ratio),
            ..defaults
        };
        Self {
            search: Search::new(plan).ok(),
            asked: (0.0, 0.0),
            indexes: Vec::new(),
            is_generators: user_max_pps.is_none(),
        }
    }

    /// The next load in packets per second and its duration in seconds; `None` when the search is over.
    #[expect(clippy::should_implement_trait, reason = "each result is recorded before the next question")]
    pub fn next(&mut self) -> Option<(f64, f64)> {
        let Step::Measure { load_pps, duration_s } = self.search.as_mut()?.next() else { return None };
        self.asked = (load_pps, duration_s);
        Some(self.asked)
    }

    /// The trial at the load of the last [`Searching::next`], and its index in the record.
    pub fn record(&mut self, index: u32, trial: &Trial) {
        let (load_pps, duration_s) = self.asked;
        if let Some(search) = &mut self.search {
            self.indexes.push(index);
            search.record(load_pps, duration_s, measured(trial));
        }
    }

    /// What was found so far, one entry a goal; `trials` are those of the record.
    pub fn results(&self, trials: &[Trial]) -> Vec<GoalResult> {
        let outcomes = self.search.as_ref().map(Search::outcomes).unwrap_or_default();
        let mut goals: Vec<GoalResult> =
            outcomes.iter().map(|outcome| goal_result(outcome, &self.indexes, trials)).collect();
        let highest = goals.iter_mut().filter(|goal| goal.limit == ThroughputLimit::MaxLoad);
        highest.filter(|_| self.is_generators).for_each(|goal| goal.limit = ThroughputLimit::Generator);
        goals
    }
}

/// A trial in the form of the search.
pub(crate) fn measured(trial: &Trial) -> Measured {
    Measured {
        duration_s: trial.duration_s,
        scheduled: trial.receipt.scheduled,
        sent: trial.sent,
        lost: trial.ledger.lost(),
    }
}

fn goal_result(outcome: &Outcome, indexes: &[u32], all: &[Trial]) -> GoalResult {
    let goal = &outcome.goal;
    let index = |number: &u32| indexes.get(*number as usize).copied();
    let at_upper: Vec<&Trial> = outcome
        .upper
        .iter()
        .flat_map(|bound| &bound.trials)
        .filter_map(index)
        .map(|at| &all[at as usize])
        .collect();
    let bounds = [&outcome.lower, &outcome.upper];
    GoalResult {
        goal: goal.name.clone(),
        loss_ratio: goal.loss_ratio,
        exceed_ratio: goal.exceed_ratio,
        final_duration_s: goal.final_duration_s,
        duration_sum_s: goal.duration_sum_s,
        width_ratio: goal.width_ratio,
        lower_pps: outcome.lower.as_ref().map(|bound| bound.load_pps),
        upper_pps: outcome.upper.as_ref().map(|bound| bound.load_pps),
        conditional_throughput_pps: outcome.conditional_throughput_pps,
        limit: match outcome.limit {
            LimitedBy::Loss => ThroughputLimit::Loss,
            LimitedBy::Generator => ThroughputLimit::Generator,
            LimitedBy::MaxLoad => ThroughputLimit::MaxLoad,
            LimitedBy::MinLoad => ThroughputLimit::MinLoad,
            LimitedBy::Unfinished => ThroughputLimit::Unfinished,
        },
        bound_by: bound_by(&at_upper),
        at_upper: (!at_upper.is_empty()).then(|| loss_kinds(&at_upper)),
        trials: bounds.into_iter().flatten().flat_map(|bound| &bound.trials).filter_map(index).collect(),
    }
}

/// The ledger line with the largest loss over all trials.
fn bound_by(trials: &[&Trial]) -> Option<BoundBy> {
    let mut places: BTreeMap<(&LossPlace, &str), (u64, Option<&String>)> = BTreeMap::new();
    for line in trials.iter().flat_map(|trial| &trial.ledger.lines) {
        let entry = places.entry((&line.place, line.source.as_str())).or_default();
        entry.0 += line.packets;
        entry.1 = line.remedy.as_ref();
    }
    let lost: u64 = places.values().map(|(packets, _)| packets).sum();
    let ((place, source), (packets, remedy)) = places.into_iter().max_by_key(|(_, (packets, _))| *packets)?;
    Some(BoundBy {
        place: place.clone(),
        source: source.into(),
        lost_share_ratio: packets as f64 / lost.max(1) as f64,
        remedy: remedy.cloned(),
    })
}

/// Whether the place of loss is the receiving application's own socket or ring.
fn is_at_socket(place: &LossPlace) -> bool {
    let place = place.known();
    matches!(place, Some(Place::XskFillEmpty | Place::XskRingFull | Place::PacketRing))
        || place.is_some_and(|place| place >= Place::NoSocket)
}

fn loss_kinds(trials: &[&Trial]) -> LossKinds {
    let sum = |value: fn(&Trial) -> u64| trials.iter().map(|trial| value(trial)).sum::<u64>();
    let (scheduled, sent) = (sum(|trial| trial.receipt.scheduled), sum(|trial| trial.sent));
    let lost = sum(|trial| trial.ledger.lost());
    let at_socket: u64 = trials
        .iter()
        .flat_map(|trial| &trial.ledger.lines)
        .filter(|line| is_at_socket(&line.place))
        .map(|line| line.packets)
        .sum();
    let share = |packets: u64, of: u64| packets as f64 / of.max(1) as f64;
    LossKinds {
        shortfall_ratio: share(scheduled.saturating_sub(sent), scheduled),
        receive_loss_ratio: share(lost.saturating_sub(at_socket), sent),
        socket_loss_ratio: share(at_socket.min(lost), sent),
    }
}

#[cfg(test)]
mod tests;
