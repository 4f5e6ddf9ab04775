//! The frame loss rate test (RFC 2544, 26.3): lost share against offered load, from the maximum downwards.

use serde::{Deserialize, Serialize};

/// Chooses the next load, and keeps the points so far.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameLoss {
    max_pps: f64,
    step_ratio: f64,
    points: Vec<LossPoint>,
}

/// One load of the test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossPoint {
    /// The requested load.
    pub load_pps: f64,
    /// The load that the generator achieved.
    pub offered_pps: f64,
    /// Lost share of the packets sent.
    pub loss_ratio: f64,
}

impl FrameLoss {
    /// From `max_pps` down in steps of `step_ratio` of it (the RFC allows at most 0.1).
    pub fn new(max_pps: f64, step_ratio: f64) -> Self {
        Self { max_pps, step_ratio: step_ratio.clamp(0.001, 0.1), points: Vec::new() }
    }

    /// The next load; `None` after two in a row without loss, or at the last step above zero.
    pub fn next_load_pps(&self) -> Option<f64> {
        let lossless = self.points.iter().rev().take_while(|point| point.loss_ratio == 0.0).count();
        let share = 1.0 - self.points.len() as f64 * self.step_ratio;
        (lossless < 2 && share > self.step_ratio / 2.0).then_some(self.max_pps * share)
    }

    /// Records the result at a load.
    pub fn record(&mut self, point: LossPoint) {
        self.points.push(point);
    }

    /// All points, from the highest load down.
    pub fn points(&self) -> &[LossPoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mut loss_ratio: impl FnMut(f64) -> f64) -> Vec<LossPoint> {
        let mut test = FrameLoss::new(1000.0, 0.1);
        while let Some(load_pps) = test.next_load_pps() {
            test.record(LossPoint { load_pps, offered_pps: load_pps, loss_ratio: loss_ratio(load_pps) });
        }
        test.points().to_vec()
    }

    #[test]
    fn it_ends_after_two_loads_without_loss() {
        let points = run(|load| if load > 650.0 { 1.0 - 650.0 / load } else { 0.0 });
        let loads: Vec<f64> = points.iter().map(|point| point.load_pps.round()).collect();
        assert_eq!(loads, [1000.0, 900.0, 800.0, 700.0, 600.0, 500.0]);
    }

    #[test]
    fn a_device_that_always_loses_is_asked_ten_times() {
        assert_eq!(run(|_| 0.1).len(), 10);
        assert_eq!(run(|_| 0.0).len(), 2);
    }
}
