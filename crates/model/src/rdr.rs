//! The receive descriptor recycling experiment (Walravens and Gaidioz, IEEE Potentials 2008) on a model of
//! the paper's machine: throughput against payload with and without recycling, and the bus trace.
//!
//! Every number of the machine comes from the paper, from a manual or from the driver's and kernel's source,
//! except for two, listed in [`FITTED`]; they are the same for every point.

mod calls;
mod figures;
mod functions;
mod machine;
mod point;
mod sensitivity;
mod trace;

use measure::{Run, Start};
use serde::Serialize;
use serde_json::json;

use crate::{record, stages::buffers::BufferPolicy};
pub use calls::Calls;
pub use figures::{Basis, Figure, rdr_figures};
pub use functions::{FunctionShare, rdr_functions};
pub use machine::rdr_machine;
pub use point::{RdrError, RdrPoint, RdrResult};
pub use sensitivity::{Sensitivity, rdr_sensitivity};
pub use trace::{BusEvent, BusTrace, Regimes};

/// The parameters that no source gives, and the figure that determines each.
pub const FITTED: [(&str, &str); 2] = [
    ("poll.driver_ns", "0.7 Mpps, what recycling receives of 1 Mpps: 500 kpps lost, and 40 % less of it"),
    ("buffers.slab_ns", "0.5 Mpps, the slope of 0.004 Gb/s a byte (Fig. 4)"),
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
            ports: vec![1, 2],
            policies: vec![BufferPolicy::Realloc, BufferPolicy::Recycle],
        }
    }
}

impl Rdr {
    /// The points, in the order of the figures.
    ///
    /// # Errors
    /// [`RdrError`] when a payload or a number of ports is not part of the experiment.
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

    /// Makes the record of computed points.
    ///
    /// `figures`, `traces` and `functions` are the paper's other results.
    pub fn assemble(
        mut start: Start,
        results: Vec<RdrResult>,
        figures: &[Figure],
        traces: &[BusTrace],
        functions: &[FunctionShare],
    ) -> Run {
        start.asked.insert("machine".into(), json!(rdr_machine(BufferPolicy::Realloc, 1)));
        let (points, trials) = results.into_iter().map(|result| (result.point, result.trial)).unzip();
        let mut run = record::run(start, trials, Vec::new(), points);
        run.end.figures = figures.iter().map(Figure::recorded).collect();
        run.end.timelines = traces.iter().map(BusTrace::timeline).collect();
        run.end.notes.push("rates are of one port; with two ports both are equal".into());
        run.end.notes.push(
            "the curve's other column is derived from the paper's slope (0.004 Gb/s per byte) and -40 %: the paper \
             prints no value of its curves"
                .into(),
        );
        run.end.notes.extend(disagreements(figures));
        run.end.notes.push(functions_in_words(functions));
        run.end.notes.extend(
            FITTED
                .iter()
                .map(|(name, fixed_by)| format!("{name} is in no source; it is determined by: {fixed_by}")),
        );
        run
    }

    /// Computes all points and makes their record.
    ///
    /// # Errors
    /// As [`Rdr::points`].
    pub fn run(&self, start: Start) -> Result<Run, RdrError> {
        let results: Result<Vec<_>, _> = self.points()?.into_iter().map(RdrPoint::compute).collect();
        let traces = [BufferPolicy::Realloc, BufferPolicy::Recycle].map(BusTrace::simulate);
        let traces = traces.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Self::assemble(start, results?, &rdr_figures()?, &traces, &rdr_functions()?))
    }
}

/// The figures that the model does not reproduce, a sentence each.
fn disagreements(figures: &[Figure]) -> impl Iterator<Item = String> {
    figures.iter().filter(|figure| figure.verdict() == "not reproduced").map(|figure| {
        let Figure { paper, model, .. } = figure;
        let unit = &paper.unit;
        format!(
            "not reproduced: {}: {} {unit} in the paper, {model:.2} {unit} here",
            paper.figure, paper.value
        )
    })
}

/// Figure 8 in a sentence.
fn functions_in_words(functions: &[FunctionShare]) -> String {
    let shares = |of: fn(&FunctionShare) -> f64| {
        let shares = functions
            .iter()
            .filter(|share| of(share) >= 0.0005)
            .map(|share| format!("{} {:.1} %", share.function.name(), of(share) * 100.0));
        shares.collect::<Vec<_>>().join(", ")
    };
    format!(
        "CPU time by function at 1 Mpps (Figure 8, whose shares the text does not print): reallocating {}; recycling {}",
        shares(|share| share.realloc_ratio),
        shares(|share| share.recycle_ratio)
    )
}

#[cfg(test)]
mod tests;
