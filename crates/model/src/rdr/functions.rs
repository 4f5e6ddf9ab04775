//! Figure 8: what the CPU does during a flood, by function.

use serde::Serialize;

use super::{machine::flooded, point::RdrError};
use crate::{outcome::CpuFunction, stages::buffers::BufferPolicy};

/// The share of the busy CPU's time that a function has, with each policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FunctionShare {
    /// The function.
    pub function: CpuFunction,
    /// Its share with the driver that reallocates.
    pub realloc_ratio: f64,
    /// Its share with the driver that recycles.
    pub recycle_ratio: f64,
}

/// CPU time by function under a flood of 1 Mpps, functions without any left out.
///
/// # Errors
/// [`RdrError::Machine`] when the machine cannot be simulated.
pub fn rdr_functions() -> Result<Vec<FunctionShare>, RdrError> {
    let [realloc, recycle] = [flooded(BufferPolicy::Realloc)?, flooded(BufferPolicy::Recycle)?];
    Ok(CpuFunction::ALL
        .into_iter()
        .map(|function| FunctionShare {
            function,
            realloc_ratio: realloc.share(function),
            recycle_ratio: recycle.share(function),
        })
        .filter(|share| share.realloc_ratio > 0.0 || share.recycle_ratio > 0.0)
        .collect())
}
