//! The receive descriptor recycling experiment (Walravens and Gaidioz, IEEE Potentials 2008) on a model of
//! the paper's machine: throughput against payload with and without recycling, and the bus trace.
//!
//! Every number of the machine comes from the paper, from a manual or from the driver's and kernel's source,
//! except for four, which [`FITTED`] names; they are the same for every point.

mod figures;
mod machine;
mod point;
mod sensitivity;
mod trace;

use measure::{Run, Start};
use serde::Serialize;
use serde_json::json;

use crate::{record, stages::buffers::BufferPolicy};
pub use figures::{Figure, rdr_figures};
pub use machine::rdr_machine;
pub use point::{RdrError, RdrPoint, RdrResult};
pub use sensitivity::{Sensitivity, rdr_sensitivity};
pub use trace::{BusEvent, BusTrace, Regimes};

/// The parameters that no source gives, and what fixes each of them.
pub const FITTED: [(&str, &str); 4] = [
    ("poll.driver_ns", "64 frames in one gap of 4000 CLK: a poll of 64 keeps the card waiting that long"),
    ("buffers.reset_ns", "with driver_ns it makes 0.7 Mpps, what recycling receives of 1 Mpps (Fig. 9)"),
    (
        "buffers.page_batch_ns",
        "one gap of 4000 CLK: a trip to the page allocator keeps the card waiting that long",
    ),
    ("buffers.free_burst", "0.5 Mpps in the long run, the slope of 0.004 Gb/s a byte (Fig. 4)"),
];

/// Which points of Figures 3, 4 and 9 to compute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rdr {
    /// Payloads of the raw frames in bytes, 46 to 1500.
    pub payloads: Vec<u32>,
    /// Numbers of receiving ports, 1 and 2 as in the paper.
    pub ports: Vec<u32>,
    /// Buffer policies to compare.
    pub policies: Vec<BufferPolicy>,
}

impl Default for Rdr {
    fn default() -> Self {
        let small = (46..=240).step_by(2);
        let large = (250..=1500).step_by(50);
        Self {
            payloads: small.chain(large).collect(),
            ports: vec![1],
            policies: vec![BufferPolicy::Realloc, BufferPolicy::Recycle],
        }
    }
}

impl Rdr {
    /// The points, in the order of the figures.
    ///
    /// # Errors
    /// [`RdrError`] when a payload or a number of ports is not of the experiment.
    pub fn points(&self) -> Result<Vec<RdrPoint>, RdrError> {
        if let Some(payload) = self.payloads.iter().copied().find(|p| !(46..=1500).contains(p)) {
            return Err(RdrError::Payload { payload });
        }
        if let Some(ports) = self.ports.iter().copied().find(|p| !(1..=2).contains(p)) {
            return Err(RdrError::Ports { ports });
        }
        let mut points = Vec::new();
        for policy in self.policies.iter().copied() {
            for ports in self.ports.iter().copied() {
                points.extend(self.payloads.iter().map(|&payload| RdrPoint { payload, ports, policy }));
            }
        }
        if points.is_empty() { Err(RdrError::Empty) } else { Ok(points) }
    }

    /// Puts computed points together.
    ///
    /// `figures` and `traces` are what the paper publishes beside its curve.
    pub fn assemble(
        mut start: Start,
        results: Vec<RdrResult>,
        figures: &[Figure],
        traces: &[BusTrace],
    ) -> Run {
        start.asked.insert("machine".into(), json!(rdr_machine(BufferPolicy::Realloc, 1)));
        let (points, trials) = results.into_iter().map(|result| (result.point, result.trial)).unzip();
        let mut run = record::run(start, trials, Vec::new(), points);
        run.end.figures = figures.iter().map(Figure::recorded).collect();
        run.end.timelines = traces.iter().map(BusTrace::timeline).collect();
        run.end.notes.push("rates are of one port; with two ports both are equal".into());
        run.end.notes.extend(
            FITTED
                .iter()
                .map(|(name, fixed_by)| format!("{name} is in no source; it is fixed by: {fixed_by}")),
        );
        run
    }

    /// Computes all points one after the other and puts them together.
    ///
    /// # Errors
    /// As [`Rdr::points`].
    pub fn run(&self, start: Start) -> Result<Run, RdrError> {
        let results: Result<Vec<_>, _> = self.points()?.into_iter().map(RdrPoint::compute).collect();
        let traces = [BufferPolicy::Realloc, BufferPolicy::Recycle].map(BusTrace::simulate);
        let traces = traces.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Self::assemble(start, results?, &rdr_figures()?, &traces))
    }
}

#[cfg(test)]
mod tests;
