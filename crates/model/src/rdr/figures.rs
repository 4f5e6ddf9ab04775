//! Every figure that the paper publishes beside the model's.

use serde::Serialize;

use super::{
    machine::flooded,
    point::{RdrError, RdrPoint},
    trace::BusTrace,
};
use crate::stages::buffers::BufferPolicy;

/// A published figure and the model's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Where the paper has it.
    pub place: &'static str,
    /// The paper's value.
    pub published: f64,
    /// The model's value.
    pub model: f64,
    /// Whether the model was given the value, or a parameter was fixed by it; the others follow from the machine.
    pub given: bool,
}

impl Figure {
    /// As the record has it.
    pub fn recorded(&self) -> measure::Figure {
        measure::Figure {
            figure: self.name.into(),
            unit: self.unit.into(),
            published: self.published,
            measured: Some(self.model),
            place: self.place.into(),
            measured_at: if self.given { "given to the model, or fixed by it".into() } else { String::new() },
        }
    }

    /// Model ÷ published − 1; absolute when zero was published.
    pub fn deviation(&self) -> f64 {
        if self.published == 0.0 { self.model } else { self.model / self.published - 1.0 }
    }
}

/// Computes every figure of the paper: two traces, two floods and the curve's decisive points.
///
/// # Errors
/// [`RdrError::Machine`] when the machine cannot be simulated.
pub fn rdr_figures() -> Result<Vec<Figure>, RdrError> {
    let trace = BusTrace::simulate(BufferPolicy::Realloc)?.regimes;
    let received = |payload, ports, policy| -> Result<f64, RdrError> {
        let result = RdrPoint { payload, ports, policy }.compute()?;
        Ok(result.point.values["received_bps"].as_f64().unwrap_or(0.0))
    };
    let realloc = |payload| received(payload, 1, BufferPolicy::Realloc);
    let recycle = |payload| received(payload, 1, BufferPolicy::Recycle);
    let [lost, lost_recycling] =
        [flooded(BufferPolicy::Realloc)?.lost_pps(), flooded(BufferPolicy::Recycle)?.lost_pps()];
    let at_46 = realloc(46)?;
    let two_ports = received(46, 2, BufferPolicy::Realloc)?;
    let slope = (realloc(190)? - at_46) / f64::from(190 - 46) / 1e9;
    let figure =
        |name, unit, place, published, model| Figure { name, unit, place, published, model, given: false };
    let given =
        |name, unit, place, published, model| Figure { name, unit, place, published, model, given: true };
    Ok(vec![
        given("frame to frame, smooth regime", "CLK", "Fig. 7", 54.0, trace.smooth_spacing_clk),
        figure("gap between frames, smooth regime", "CLK", "Fig. 7", 45.0, trace.smooth_gap_clk),
        given("four frames to their write-back", "CLK", "Fig. 7", 25.0, trace.write_back_delay_clk),
        figure("frames between fetches of descriptors", "frames", "Fig. 7", 64.0, trace.frames_per_fetch),
        figure("groups of 16 in one fetch", "groups", "Fig. 7", 4.0, trace.reads_per_fetch),
        given("least gap when catching up", "CLK", "text", 7.0, trace.least_gap_clk),
        figure("smooth regime ends", "CLK", "Fig. 5, 7", 14_500.0, trace.smooth_clk),
        given("gaps in the stumble regime", "CLK", "Fig. 5, 7", 4_000.0, trace.stumble_gap_clk),
        figure("frames in the stumble regime", "1/us", "text", 0.3, trace.stumble_frames_per_us),
        figure("peak bus rate", "MB/s", "text", 250.0, trace.peak_bytes_per_s / 1e6),
        given("slope of the receive curve below 200 B", "Gb/s per B", "Fig. 4", 0.004, slope),
        figure("received at 46 B, text", "Gb/s", "text", 0.28, at_46 / 1e9),
        given("received at 46 B", "Mb/s", "Fig. 4, 9", 256.0, at_46 / 1e6),
        figure("received at 100 B", "Mb/s", "Fig. 4, 9", 472.0, realloc(100)? / 1e6),
        figure("received at 160 B", "Mb/s", "Fig. 4, 9", 712.0, realloc(160)? / 1e6),
        figure("payload from which nothing is lost", "B", "Fig. 4", 200.0, lossless_payload()?),
        figure("two ports over one, each at 46 B", "ratio", "Fig. 4", 1.0, two_ports / at_46),
        given("lost of 1 Mpps", "kpps", "text", 500.0, lost / 1e3),
        given("recycling: lost of 1 Mpps", "kpps", "Fig. 9", 300.0, lost_recycling / 1e3),
        given("recycling: less lost of 1 Mpps", "%", "Fig. 9", 40.0, (1.0 - lost_recycling / lost) * 100.0),
        given("recycling: received at 46 B", "Mb/s", "Fig. 9", 358.0, recycle(46)? / 1e6),
        figure("recycling: received at 100 B", "Mb/s", "Fig. 9", 661.0, recycle(100)? / 1e6),
        figure("recycling: received at 160 B", "Mb/s", "Fig. 9", 899.0, recycle(160)? / 1e6),
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
