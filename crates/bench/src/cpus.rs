//! Which CPUs the two sides of a trial run on.

use serde::{Deserialize, Serialize};

/// CPUs to pin each side's workers to; empty leaves them to the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuPlan {
    /// The sender's.
    pub tx: Vec<u32>,
    /// The receiver's.
    pub rx: Vec<u32>,
}

impl CpuPlan {
    /// Splits the allowed CPUs: the lower half sends, the upper half receives, one worker a CPU as far as they
    /// go. One CPU is shared by both, unpinned.
    pub fn split(allowed: &[u32], tx_workers: usize, rx_workers: usize) -> Self {
        if allowed.len() < 2 {
            return Self::default();
        }
        let (lower, upper) = allowed.split_at(allowed.len() / 2);
        let first = |cpus: &[u32], workers: usize| cpus.iter().copied().take(workers).collect();
        Self { tx: first(lower, tx_workers), rx: first(upper, rx_workers) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sides_never_share_a_cpu_while_there_are_two() {
        let plan = CpuPlan::split(&[0, 1], 4, 4);
        assert_eq!((plan.tx, plan.rx), (vec![0], vec![1]));
        let plan = CpuPlan::split(&[2, 3, 5, 7, 8], 1, 2);
        assert_eq!((plan.tx, plan.rx), (vec![2], vec![5, 7]));
        assert_eq!(CpuPlan::split(&[3], 1, 1), CpuPlan::default());
    }
}
