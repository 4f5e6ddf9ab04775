//! Sensitivity: the machine's parameters that the paper does not give, each varied alone.

use serde::Serialize;

use super::{
    machine::{rdr_machine, traced_on},
    point::RdrError,
    trace::BusTrace,
};
use crate::{outcome::Outcome, simulate, stages::buffers::BufferPolicy};

/// One parameter at one value, all others as in [`rdr_machine`](super::rdr_machine), and the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The parameter.
    pub parameter: &'static str,
    /// Its value.
    pub value: String,
    /// Whether this is the machine's own value.
    pub default: bool,
    /// When the smooth regime ends.
    pub smooth_clk: f64,
    /// Median of the large gaps after it.
    pub stumble_gap_clk: f64,
    /// Frames per microsecond after it.
    pub stumble_frames_per_us: f64,
    /// Received of smallest frames at line rate.
    pub realloc_pps: f64,
    /// The same with recycling.
    pub recycle_pps: f64,
    /// How much less recycling loses at line rate, as a share.
    pub less_lost_at_line_rate: f64,
    /// How much less it loses of 1 Mpps.
    pub less_lost_of_1_mpps: f64,
}

/// The parameters in question and the values tried: those of [`FITTED`](super::FITTED) 20 % up and down, and
/// others that a manual or the kernel's source gives but the paper does not.
const VARIED: [(&str, [&str; 3]); 12] = [
    ("poll.driver_ns", ["1136", "1420", "1704"]),
    ("buffers.slab_ns", ["457", "571", "685"]),
    ("buffers.reset_ns", ["0", "8", "99"]),
    ("buffers.free_burst", ["1", "64", "170"]),
    ("poll.budget", ["32", "64", "128"]),
    ("poll.irq_ns", ["500", "1000", "2000"]),
    ("memory.closed_ratio", ["0", "0.5", "1"]),
    ("bus.read_clocks", ["0", "8", "16"]),
    ("ring.descriptors", ["128", "256", "512"]),
    ("ring.stop_above_bytes", ["24576", "43008", "null"]),
    ("ring.stop_after", ["4", "8", "16"]),
    ("packet_buffer.bytes", ["24576", "49152", "65536"]),
];

/// Varies every parameter in question.
///
/// # Errors
/// [`RdrError::Machine`] when the machine cannot be simulated.
pub fn rdr_sensitivity() -> Result<Vec<Sensitivity>, RdrError> {
    let mut rows = Vec::new();
    for (parameter, values) in VARIED {
        for value in values {
            let machine = |policy| {
                let mut config = rdr_machine(policy, 1);
                config.set(parameter, value).map(|()| config)
            };
            let own = rdr_machine(BufferPolicy::Realloc, 1);
            let simulated = |policy, offered_pps| {
                let mut config = machine(policy)?;
                config.traffic.offered_pps = offered_pps;
                Ok::<_, RdrError>(simulate(&config)?)
            };
            let both = |offered_pps| {
                let of = |policy| simulated(policy, offered_pps);
                Ok::<_, RdrError>([of(BufferPolicy::Realloc)?, of(BufferPolicy::Recycle)?])
            };
            let [realloc, recycle] = both(None)?;
            let [of_1_mpps, of_1_mpps_recycled] = both(Some(1e6))?;
            let less = |with: &Outcome, without: &Outcome| match without.lost_pps() {
                0.0 => 0.0,
                lost => 1.0 - with.lost_pps() / lost,
            };
            let outcome = traced_on(machine(BufferPolicy::Realloc)?)?;
            let regimes = BusTrace::of(BufferPolicy::Realloc, &outcome).regimes;
            rows.push(Sensitivity {
                parameter,
                value: value.into(),
                default: machine(BufferPolicy::Realloc)? == own,
                smooth_clk: regimes.smooth_clk,
                stumble_gap_clk: regimes.stumble_gap_clk,
                stumble_frames_per_us: regimes.stumble_frames_per_us,
                realloc_pps: realloc.delivered_pps(),
                recycle_pps: recycle.delivered_pps(),
                less_lost_at_line_rate: less(&recycle, &realloc),
                less_lost_of_1_mpps: less(&of_1_mpps_recycled, &of_1_mpps),
            });
        }
    }
    Ok(rows)
}
