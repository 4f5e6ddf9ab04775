//! The single RX queue bypass under a flood: how many valid packets to the flooded port and how much of an
//! unrelated transfer survive, with each method that drops the flood, one after the other.
//!
//! ```text
//! sending side                                receiving side
//!   flood   second address → PORT  ─┐           flooded queue ─ filter ─ service on PORT, which counts valid packets
//!   valid   first address → PORT   ─┘
//!   transfer, TCP  ──────────────────           another queue ────────── reader of the transfer
//! ```
//!
//! In the lab the queues are chosen: frames that XDP sends arrive on the queue of the sending CPU, and the sockets'
//! transmit queue is set to another. On real interfaces the card chooses. With a queue of choice its rules or its
//! table lead the flood and the valid packets there, and the transfer and one more UDP flow have addresses and ports whose hash
//! leads to other queues, where each of their packets is counted. As in the document, the code that drops the flood
//! has a CPU to itself, with the flooded queue's packet processing; everything else runs elsewhere, and outranks
//! the sender of the flood if they share a CPU.
//!
//! A veth's ring of 256 packets lies between the sender and every filter. A sender that is too fast also loses its valid
//! packets there, whatever drains the ring: therefore rows show how many valid packets reached the filter.

mod beside;
mod diverted;
mod ends;
mod error;
mod filters;
mod load;
mod plan;
mod service;
mod spread;
mod without_loss;

use std::collections::{BTreeMap, HashMap};

use lab::Lab;
use measure::{CpuShare, Figure, Point, PublishedFigure, Trial};
use serde::Serialize;
use serde_json::json;
use trial::{TrialRun, WatchPlan, run_trial};

pub use beside::OtherFlows;
pub use diverted::DivertedQueues;
use ends::{Figures, FloodEnds, FloodSetup};
pub use error::SingleRxQueueError;
use filters::Filter;
use load::WITHOUT_LOSS;
pub use load::{FLOOD_FACTOR, FloodFilter, FloodLoad, SINGLE_RX_QUEUE, VALID_SHARE};
pub use plan::SingleRxQueuePlan;
pub use without_loss::FloodWithoutLoss;

/// The result of one row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SingleRxQueueRow {
    /// The flood.
    pub load: FloodLoad,
    /// The filter that dropped the flood.
    pub filter: FloodFilter,
    /// Flood packets per second requested; `None`: as many as possible.
    pub asked_pps: Option<f64>,
    /// Flood packets per second that the sender made.
    pub flood_pps: f64,
    /// The same as a multiple of the service's rate under the full flood, once that is known.
    pub flood_of_path: Option<f64>,
    /// Flood packets per second that the filter dropped.
    pub filtered_pps: f64,
    /// Valid packets sent.
    pub valid_sent: u64,
    /// Valid packets that reached the filter; `None` if it does not count them.
    pub valid_arrived: Option<u64>,
    /// Valid packets that the service got.
    pub valid_delivered: u64,
    /// Packets of both kinds that were lost in or behind the filter, by place.
    pub lost: BTreeMap<String, u64>,
    /// The diversion; `None` if the filter is no diversion.
    pub diverted: Option<DivertedQueues>,
    /// Bits per second of the unrelated transfer.
    pub transfer_bps: f64,
    /// The flows on other queues of a card; `None` without a queue of choice.
    pub others: Option<OtherFlows>,
    /// CPU time of each CPU.
    pub cpus: Vec<CpuShare>,
}

/// What the caller receives per row.
#[derive(Debug)]
pub enum SingleRxQueueEvent<'e> {
    /// A row was measured, in this trial.
    Row(&'e SingleRxQueueRow, &'e Trial),
    /// A trial of the search for the highest flood without loss.
    Searched(&'e SingleRxQueueRow, &'e Trial),
    /// What that search found for a filter.
    WithoutLoss(FloodWithoutLoss),
    /// A filter is unavailable here.
    Skipped(FloodFilter, String),
}

/// Measures every row; `each` gets them, and returns whether to go on. A row with a failed worker is the last one.
///
/// # Errors
/// The cause of an early end.
pub fn run_single_rx_queue(
    plan: &SingleRxQueuePlan,
    mut each: impl FnMut(SingleRxQueueEvent<'_>) -> bool,
) -> Result<(), SingleRxQueueError> {
    let lab = Lab::create(&plan.lab())?;
    plan.check_queue(&lab)?;
    plan.choose_queues(&lab);
    plan.prefer_other_queues(&lab)?;
    let mut capacity_pps = None;
    // The rates of the full flood, sent and dropped.
    let mut full: HashMap<FloodFilter, (f64, f64)> = HashMap::new();
    let mut skipped: Vec<FloodFilter> = Vec::new();
    for (load, filter) in SINGLE_RX_QUEUE {
        if skipped.contains(&filter) {
            continue;
        }
        let asked_pps = match load {
            FloodLoad::TenTimes => capacity_pps.map(|pps: f64| pps * FLOOD_FACTOR),
            FloodLoad::None | FloodLoad::Full | FloodLoad::WithoutLoss => None,
        };
        let (goes_on, error) = match Filter::start(filter, plan, &lab) {
            Err(reason) => {
                skipped.push(filter);
                (each(SingleRxQueueEvent::Skipped(filter, reason)), None)
            }
            Ok(started) => {
                let setup = FloodSetup { plan, lab: &lab, load, asked_pps };
                let (mut row, run) = run_row(setup, started)?;
                if (load, filter) == (FloodLoad::Full, FloodFilter::Service) {
                    let valid_pps = row.valid_delivered as f64 * 1e9 / plan.row_ns as f64;
                    capacity_pps = Some(row.filtered_pps + valid_pps);
                }
                if load == FloodLoad::Full {
                    full.insert(filter, (row.flood_pps, row.filtered_pps));
                }
                row.flood_of_path = capacity_pps.map(|capacity| row.flood_pps / capacity);
                (each(SingleRxQueueEvent::Row(&row, &run.trial)), run.error)
            }
        };
        if let Some(error) = error {
            return Err(error);
        }
        if !goes_on {
            return Ok(());
        }
    }
    let searched = WITHOUT_LOSS.into_iter().filter(|_| plan.without_loss);
    for (filter, rates) in searched.filter_map(|filter| Some((filter, *full.get(&filter)?))) {
        if !search_without_loss(plan, &lab, (filter, rates), &mut each)? {
            break;
        }
    }
    Ok(())
}

/// Searches for the highest flood without loss before or in a filter; returns whether to go on.
fn search_without_loss(
    plan: &SingleRxQueuePlan,
    lab: &Lab,
    (filter, rates): (FloodFilter, (f64, f64)),
    each: &mut impl FnMut(SingleRxQueueEvent<'_>) -> bool,
) -> Result<bool, SingleRxQueueError> {
    let found = without_loss::search(filter, rates, |load_pps, duration_s| {
        let Ok(started) = Filter::start(filter, plan, lab) else { return Ok(None) };
        let plan = SingleRxQueuePlan { row_ns: (duration_s * 1e9) as u64, ..plan.clone() };
        let load = FloodLoad::WithoutLoss;
        let setup = FloodSetup { plan: &plan, lab, load, asked_pps: Some(load_pps) };
        let (row, run) = run_row(setup, started)?;
        if let Some(error) = run.error {
            return Err(error);
        }
        let goes_on = each(SingleRxQueueEvent::Searched(&row, &run.trial));
        Ok(goes_on.then(|| without_loss::measured(&run.trial)))
    })?;
    Ok(each(SingleRxQueueEvent::WithoutLoss(found)))
}

/// Measures one row.
fn run_row(
    setup: FloodSetup<'_>,
    filter: Filter,
) -> Result<(SingleRxQueueRow, TrialRun<SingleRxQueueError>), SingleRxQueueError> {
    let FloodSetup { load, asked_pps, .. } = setup;
    let which = filter.which();
    let mut figures = Figures::default();
    let ends = FloodEnds::prepare(setup, filter, &mut figures)?;
    let watch = WatchPlan { duration_ns: setup.plan.row_ns, interval_ns: None };
    let mut run = run_trial(ends, watch, None, |_, _| true)?;
    let parameters = [("flood", json!(load)), ("filter", json!(which.to_string()))];
    run.trial.parameters.extend(parameters.map(|(name, value)| (name.to_owned(), value)));
    let row = SingleRxQueueRow {
        load,
        filter: which,
        asked_pps: asked_pps.filter(|_| matches!(load, FloodLoad::TenTimes | FloodLoad::WithoutLoss)),
        flood_pps: figures.flood_pps,
        flood_of_path: None,
        filtered_pps: figures.filtered_pps,
        valid_sent: figures.valid_sent,
        valid_arrived: figures.valid_arrived,
        valid_delivered: figures.valid_delivered,
        lost: figures.lost,
        diverted: figures.diverted,
        transfer_bps: figures.transfer_bps,
        others: figures.others,
        cpus: run.trial.cpus.clone(),
    };
    Ok((row, run))
}

impl SingleRxQueueRow {
    /// The share of the flood that the filter took and dropped; `None` without a flood.
    pub fn filtered_of_flood(&self) -> Option<f64> {
        (self.flood_pps > 0.0).then(|| self.filtered_pps / self.flood_pps)
    }

    /// The share of the valid packets that the service got.
    pub fn valid_ratio(&self) -> f64 {
        self.valid_delivered as f64 / self.valid_sent.max(1) as f64
    }

    /// The share of the valid packets at the filter that the service got.
    pub fn valid_of_arrived(&self) -> Option<f64> {
        self.valid_arrived.map(|arrived| self.valid_delivered as f64 / arrived.max(1) as f64)
    }

    /// The row as a point of a run.
    pub fn point(&self) -> Point {
        let busy = |part: fn(&CpuShare) -> f64| -> f64 { self.cpus.iter().map(part).sum() };
        let by_cpu: Vec<f64> = self.cpus.iter().map(|cpu| 1.0 - cpu.idle_ratio).collect();
        let values = [
            ("flood", json!(self.load)),
            ("filter", json!(self.filter.to_string())),
            ("asked_pps", json!(self.asked_pps)),
            ("flood_pps", json!(self.flood_pps)),
            ("flood_of_path_ratio", json!(self.flood_of_path)),
            ("filtered_pps", json!(self.filtered_pps)),
            ("filtered_of_flood_ratio", json!(self.filtered_of_flood())),
            ("diverted", json!(self.diverted)),
            ("valid_sent_packets", json!(self.valid_sent)),
            ("valid_arrived_packets", json!(self.valid_arrived)),
            ("valid_delivered_packets", json!(self.valid_delivered)),
            ("valid_delivered_of_arrived_ratio", json!(self.valid_of_arrived())),
            ("lost_packets_by_place", json!(self.lost)),
            ("valid_delivered_ratio", json!(self.valid_ratio())),
            ("transfer_bps", json!(self.transfer_bps)),
            ("other_flows", json!(self.others)),
            ("busy_ratio_by_cpu", json!(by_cpu)),
            ("user_cpus", json!(busy(|cpu| cpu.user_ratio))),
            ("system_cpus", json!(busy(|cpu| cpu.system_ratio))),
            ("softirq_cpus", json!(busy(|cpu| cpu.softirq_ratio))),
        ];
        Point { values: values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }
}

/// The document's figure and the issue's goal next to the measured ones.
pub fn single_rx_queue_figures(rows: &[SingleRxQueueRow]) -> Vec<Figure> {
    let published = PublishedFigure::shipped("single-rx-queue.filtered");
    let row = |load, filter| rows.iter().find(|row| (row.load, row.filter) == (load, filter));
    let full = |filter| row(FloodLoad::Full, filter).map(|row| row.filtered_pps / 1e6);
    let through = |name: &str, value: f64, filter: FloodFilter| Figure {
        figure: name.into(),
        unit: "Mpps".into(),
        published: Some(value / 1e6),
        measured: full(filter),
        measured_at: format!("flood=full filter={filter}"),
        ..Figure::of(published)
    };
    let (least, most) = published.range();
    vec![
        through("through the filter, least", least, FloodFilter::DivertXdp),
        through("through the filter, most", most, FloodFilter::DivertXdp),
        through("through the filter in user space", least, FloodFilter::DivertUser),
    ]
}

#[cfg(test)]
mod tests;
