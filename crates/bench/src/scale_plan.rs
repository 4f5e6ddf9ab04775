//! The numbers of threads for the scaling stage, and their CPUs.

use serde::{Deserialize, Serialize};
use traffic::RxSpec;
use trial::CpuPlan;

/// Which receivers run with how many threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalePlan {
    /// Numbers of threads, ascending, each with the CPUs of both sides.
    pub steps: Vec<ScaleStep>,
    /// The ladder's receivers as they run with several threads.
    pub receivers: Vec<ScaledReceiver>,
}

/// A number of threads per side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleStep {
    /// Threads of each side.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: CpuPlan,
}

/// A receiver of the ladder, and its substitute with several threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScaledReceiver {
    /// As in the ladder.
    pub ladder: RxSpec,
    /// With one socket per thread, if the engine supports that.
    pub rx: RxSpec,
}

impl ScalePlan {
    /// 1, 2, 4 … up to this number of CPUs.
    pub fn threads_up_to(cpus: usize) -> Vec<usize> {
        let powers = std::iter::successors(Some(1), |threads| Some(threads * 2));
        powers.take_while(|threads| *threads < cpus).chain([cpus.max(1)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_until_all_cpus_have_one() {
        assert_eq!(ScalePlan::threads_up_to(1), [1]);
        assert_eq!(ScalePlan::threads_up_to(2), [1, 2]);
        assert_eq!(ScalePlan::threads_up_to(6), [1, 2, 4, 6]);
        assert_eq!(ScalePlan::threads_up_to(64), [1, 2, 4, 8, 16, 32, 64]);
    }
}
