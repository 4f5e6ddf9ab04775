//! The highest flood of which no packet is lost before a filter, by the search of `linerate bench ndr`.

use measure::Trial;
use search::{Goal, LimitedBy, Measured, Search, SearchPlan, Step};

use super::{ends::FILTERED, load::FloodFilter};

/// The result for one filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FloodWithoutLoss {
    /// The filter.
    pub filter: FloodFilter,
    /// The highest flood without loss; `None` if even the lowest one lost packets.
    pub flood_pps: Option<f64>,
    /// What kept it from being higher.
    pub limit: LimitedBy,
}

/// Trials per filter at most.
const MOST_TRIALS: u32 = 12;
/// The lowest flood tried, as a share of the sender's.
const LOWEST_SHARE: f64 = 0.01;

/// No loss in two trials of half a second, to 5 %.
fn goal() -> Goal {
    Goal {
        name: "without loss".into(),
        loss_ratio: 0.0,
        exceed_ratio: 0.5,
        final_duration_s: 0.5,
        duration_sum_s: 1.0,
        initial_duration_s: 0.25,
        width_ratio: 0.05,
    }
}

/// Searches below the sender's rate, from the rate that the filter dropped on; `trial` floods at a rate for some seconds, and
/// returns `None` to stop.
pub(super) fn search<E>(
    filter: FloodFilter,
    (sent_pps, filtered_pps): (f64, f64),
    mut trial: impl FnMut(f64, f64) -> Result<Option<Measured>, E>,
) -> Result<FloodWithoutLoss, E> {
    let goal = goal();
    let max_pps = sent_pps.max(2.0);
    let plan = SearchPlan {
        min_pps: (max_pps * LOWEST_SHARE).max(1.0),
        first_pps: Some(filtered_pps).filter(|pps| *pps > 1.0 && *pps < max_pps),
        shortfall_ratio: goal.width_ratio / 2.0,
        most_trials: MOST_TRIALS,
        goals: vec![goal],
        ..SearchPlan::up_to(max_pps)
    };
    let mut result = FloodWithoutLoss { filter, flood_pps: None, limit: LimitedBy::Unfinished };
    let Ok(mut search) = Search::new(plan) else { return Ok(result) };
    while let Step::Measure { load_pps, duration_s } = search.next() {
        let Some(measured) = trial(load_pps, duration_s)? else { return Ok(result) };
        search.record(load_pps, duration_s, measured);
    }
    if let Some(outcome) = search.outcomes().first() {
        result.flood_pps = outcome.lower.as_ref().map(|bound| bound.load_pps);
        result.limit = outcome.limit;
    }
    Ok(result)
}

/// What a trial says about loss: packets that the filter dropped are not lost.
pub(super) fn measured(trial: &Trial) -> Measured {
    let filtered = trial.ledger.lines.iter().filter(|line| line.place == *FILTERED);
    let filtered: u64 = filtered.map(|line| line.packets).sum();
    Measured {
        duration_s: trial.duration_s,
        scheduled: trial.receipt.scheduled,
        sent: trial.sent,
        lost: trial.sent.saturating_sub(trial.delivered + filtered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_filter_s_capacity_or_the_sender_s() {
        let of_capacity = |capacity_pps: f64| {
            search::<()>(FloodFilter::DivertXdp, (3e6, 1e6), |load_pps, duration_s| {
                let sent = (load_pps * duration_s) as u64;
                let lost = ((load_pps - capacity_pps).max(0.0) * duration_s) as u64;
                Ok(Some(Measured { duration_s, scheduled: sent, sent, lost }))
            })
            .unwrap()
        };
        let found = of_capacity(2e6);
        let pps = found.flood_pps.unwrap();
        assert!(pps <= 2e6 && pps > 1.8e6, "{found:?}");
        assert_eq!(found.limit, LimitedBy::Loss);
        assert_eq!(of_capacity(4e6).flood_pps, Some(3e6));
        assert_eq!((of_capacity(1.0).flood_pps, of_capacity(1.0).limit), (None, LimitedBy::MinLoad));
    }
}
