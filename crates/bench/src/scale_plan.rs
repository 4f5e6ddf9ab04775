//! With how many threads, and where, a ladder's receivers are measured over all CPUs.

use serde::{Deserialize, Serialize};
use traffic::RxSpec;
use trial::CpuPlan;

/// Which receivers run with how many threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalePlan {
    /// Numbers of threads, ascending, each with the CPUs of both sides.
    pub steps: Vec<ScaleStep>,
    /// The ladder's receivers as they are with several threads.
    pub receivers: Vec<ScaledReceiver>,
}

/// So many threads a side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleStep {
    /// Threads of either side.
    pub threads: usize,
    /// Where they run.
    pub cpus: CpuPlan,
}

/// A receiver of the ladder, and what runs in its place with several threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScaledReceiver {
    /// As the ladder has it.
    pub ladder: RxSpec,
    /// With a socket per thread, where the engine has such.
    pub rx: RxSpec,
}

impl ScalePlan {
    /// 1, 2, 4 … up to all of so many CPUs.
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
