//! Every figure of the paper beside the model's, and whether the comparison tests the model.

use measure::PublishedFigure;
use serde::Serialize;

use super::{
    machine::flooded,
    point::{RdrError, RdrPoint},
    trace::BusTrace,
};
use crate::stages::buffers::BufferPolicy;

/// A deviation up to this share of the paper's value counts as reproduced.
const REPRODUCED_WITHIN: f64 = 0.1;

/// A figure of the paper and the model's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The paper's side: name, unit, place and value, and whether the paper prints that value.
    pub paper: &'static PublishedFigure,
    /// The model's value.
    pub model: f64,
    /// Whether it could have differed.
    pub basis: Basis,
}

/// Where the model's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// It is a parameter, or follows from parameters by construction.
    Given,
    /// It determined a parameter, or is computed from one that did.
    Fitted,
    /// It determined no parameter.
    Follows,
}

impl Figure {
    /// As in the record.
    pub fn recorded(&self) -> measure::Figure {
        measure::Figure {
            measured: Some(self.model),
            given: self.basis != Basis::Follows,
            measured_at: self.verdict().into(),
            ..measure::Figure::of(self.paper)
        }
    }

    /// Model ÷ paper − 1.
    pub fn deviation(&self) -> f64 {
        self.model / self.paper.value - 1.0
    }

    /// The verdict.
    pub fn verdict(&self) -> &'static str {
        match self.basis {
            Basis::Given => "given",
            Basis::Fitted => "fitted",
            Basis::Follows if self.deviation().abs() <= REPRODUCED_WITHIN => "reproduced",
            Basis::Follows => "not reproduced",
        }
    }

    /// Whether the paper prints the value.
    pub fn is_derived(&self) -> bool {
        !self.paper.derived_from.is_empty()
    }
}

/// Computes every figure of the paper: two traces, floods and the curve's decisive points.
///
/// # Errors
/// [`RdrError::Machine`] when the machine cannot be simulated.
pub fn rdr_figures() -> Result<Vec<Figure>, RdrError> {
    let trace = BusTrace::simulate(BufferPolicy::Realloc)?.regimes;
    let point = |payload, ports, policy, name: &str| -> Result<f64, RdrError> {
        let result = RdrPoint { payload, ports, policy }.compute()?;
        Ok(result.point.values[name].as_f64().unwrap_or(0.0))
    };
    let received = |payload, policy| point(payload, 1, policy, "received_bps");
    let realloc = |payload| received(payload, BufferPolicy::Realloc);
    let recycle = |payload| received(payload, BufferPolicy::Recycle);
    let [lost, lost_recycling] =
        [flooded(BufferPolicy::Realloc)?.lost_pps(), flooded(BufferPolicy::Recycle)?.lost_pps()];
    let at_line_rate = |policy| point(46, 1, policy, "lost_pps");
    let less_at_line_rate = 1.0 - at_line_rate(BufferPolicy::Recycle)? / at_line_rate(BufferPolicy::Realloc)?;
    let at_46 = realloc(46)?;
    let two_ports = point(46, 2, BufferPolicy::Realloc, "received_bps")?;
    let slope = (realloc(190)? - at_46) / f64::from(190 - 46) / 1e9;
    let stumble_bps = trace.stumble_frames_per_us * 1e6 * 64.0 * 8.0;
    let figure = |id: &str, basis, model| Figure { paper: PublishedFigure::shipped(id), model, basis };
    Ok(vec![
        figure("rdr.frame-to-frame", Basis::Given, trace.smooth_spacing_clk),
        figure("rdr.gap", Basis::Given, trace.smooth_gap_clk),
        figure("rdr.write-back", Basis::Given, trace.write_back_delay_clk),
        figure("rdr.frames-per-fetch", Basis::Given, trace.frames_per_fetch),
        figure("rdr.groups-per-fetch", Basis::Given, trace.reads_per_fetch),
        figure("rdr.least-gap", Basis::Given, trace.least_gap_clk),
        figure("rdr.slope", Basis::Fitted, slope),
        figure("rdr.lost", Basis::Fitted, lost / 1e3),
        figure("rdr.less-lost", Basis::Fitted, (1.0 - lost_recycling / lost) * 100.0),
        figure("rdr.recycled-lost", Basis::Fitted, lost_recycling / 1e3),
        figure("rdr.received-46", Basis::Fitted, at_46 / 1e6),
        figure("rdr.received-100", Basis::Fitted, realloc(100)? / 1e6),
        figure("rdr.received-160", Basis::Fitted, realloc(160)? / 1e6),
        figure("rdr.recycled-46", Basis::Fitted, recycle(46)? / 1e6),
        figure("rdr.recycled-100", Basis::Fitted, recycle(100)? / 1e6),
        figure("rdr.recycled-160", Basis::Follows, recycle(160)? / 1e6),
        figure("rdr.smooth-ends", Basis::Follows, trace.smooth_clk),
        figure("rdr.peak-bus", Basis::Follows, trace.peak_bytes_per_s / 1e6),
        figure("rdr.lossless", Basis::Follows, lossless_payload()?),
        figure("rdr.two-ports", Basis::Follows, two_ports / at_46),
        figure("rdr.stumble-throughput", Basis::Follows, stumble_bps / 1e9),
        figure("rdr.stumble-gap", Basis::Follows, trace.stumble_gap_clk),
        figure("rdr.stumble-rate", Basis::Follows, trace.stumble_frames_per_us),
        figure("rdr.less-lost-line-rate", Basis::Follows, less_at_line_rate * 100.0),
    ])
}

/// The smallest payload of which less than one frame in a thousand is lost.
fn lossless_payload() -> Result<f64, RdrError> {
    let (mut losing, mut lossless) = (46u32, 1500);
    while lossless - losing > 1 {
        let payload = losing.midpoint(lossless);
        let result = RdrPoint { payload, ports: 1, policy: BufferPolicy::Realloc }.compute()?;
        if result.trial.loss_ratio < 1e-3 { lossless = payload } else { losing = payload }
    }
    Ok(f64::from(lossless))
}
