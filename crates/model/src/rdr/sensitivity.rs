//! What depends on what: the machine's parameters that the paper does not give, each varied alone.

use serde::Serialize;

use super::{
    machine::{rdr_machine, traced_on},
    point::RdrError,
    trace::BusTrace,
};
use crate::{simulate, stages::buffers::BufferPolicy};

/// One parameter at one value, all others as in [`rdr_machine`](super::rdr_machine), and what comes out.
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
}

/// The parameters in question and the values tried: those of [`FITTED`](super::FITTED) 20 % up and down, and
/// others that a manual or the kernel's source gives but the paper does not.
const VARIED: [(&str, [&str; 3]); 9] = [
    ("poll.driver_ns", ["762", "953", "1144"]),
    ("buffers.reset_ns", ["381", "476", "571"]),
    ("buffers.page_batch_ns", ["48480", "60600", "72720"]),
    ("buffers.free_burst", ["136", "170", "204"]),
    ("buffers.page_batch", ["16", "32", "64"]),
    ("buffers.slab_at_start", ["0", "24", "48"]),
    ("poll.irq_ns", ["500", "1000", "2000"]),
    ("bus.read_clocks", ["0", "8", "16"]),
    ("ring.descriptors", ["128", "256", "512"]),
];

/// Varies every parameter in question.
///
/// # Errors
/// [`RdrError::Machine`] when the machine cannot be simulated.
pub fn rdr_sensitivity() -> Result<Vec<Sensitivity>, RdrError> {
    let mut rows = Vec::new();
    for (parameter, values) in VARIED {
        for (n, value) in values.into_iter().enumerate() {
            let machine = |policy| {
                let mut config = rdr_machine(policy, 1);
                config.set(parameter, value).map(|()| config)
            };
            let received = |policy| Ok::<_, RdrError>(simulate(&machine(policy)?)?.delivered_pps());
            let outcome = traced_on(machine(BufferPolicy::Realloc)?)?;
            let regimes = BusTrace::of(BufferPolicy::Realloc, &outcome).regimes;
            rows.push(Sensitivity {
                parameter,
                value: value.into(),
                default: n == 1,
                smooth_clk: regimes.smooth_clk,
                stumble_gap_clk: regimes.stumble_gap_clk,
                stumble_frames_per_us: regimes.stumble_frames_per_us,
                realloc_pps: received(BufferPolicy::Realloc)?,
                recycle_pps: received(BufferPolicy::Recycle)?,
            });
        }
    }
    Ok(rows)
}
