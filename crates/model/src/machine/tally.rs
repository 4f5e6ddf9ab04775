//! Counters of a run in progress.

use super::cpu::Busy;
use crate::{
    config::RunLength,
    outcome::{Counters, CpuFunction, LossStage, Occupancy, Sample},
    units::ps_from_us,
};

/// Counters of a run in progress.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) no_descriptor_arrivals: u64,
    pub(super) polls: u64,
    pub(super) delivered: u64,
    pub(super) delivered_bytes: u64,
    pub(super) lost: [u64; LossStage::ALL.len()],
    pub(super) by_queue: Vec<u64>,
    /// CPU time by function, in picoseconds.
    pub(super) by_function: [u64; CpuFunction::ALL.len()],
    /// The time of the next sample.
    pub(super) next_mark_ps: u64,
    pub(super) warm_ps: u64,
    pub(super) end_ps: u64,
    pub(super) samples: u64,
    pub(super) next_sample_ps: u64,
    pub(super) warm: Option<Snapshot>,
    pub(super) end: Option<Snapshot>,
    pub(super) occupancy: Occupancy,
    pub(super) series: Vec<Sample>,
    pub(super) at_last_sample: Counters,
}

/// The counters at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    pub(super) counters: Counters,
    pub(super) cpus: Vec<Busy>,
    pub(super) by_queue: Vec<(u64, u64)>,
    pub(super) bus_busy_ps: u64,
}

impl Tally {
    pub(super) fn new(run: &RunLength) -> Self {
        let end_ps = ps_from_us(run.duration_us).max(1);
        let warm_ps = ps_from_us(run.warmup_us);
        let samples = u64::from(run.samples).min(end_ps);
        Self {
            sent: 0,
            sent_bytes: 0,
            no_descriptor_arrivals: 0,
            polls: 0,
            delivered: 0,
            delivered_bytes: 0,
            lost: [0; LossStage::ALL.len()],
            by_queue: Vec::new(),
            by_function: [0; CpuFunction::ALL.len()],
            next_mark_ps: warm_ps.min(end_ps / samples),
            warm_ps,
            end_ps,
            samples,
            next_sample_ps: end_ps / samples,
            warm: None,
            end: None,
            occupancy: Occupancy::default(),
            series: Vec::with_capacity(run.samples as usize + 1),
            at_last_sample: Counters::default(),
        }
    }

    #[inline]
    pub(super) fn lose(&mut self, place: LossStage) {
        self.lost[place as usize] += 1;
    }

    #[inline]
    pub(super) fn spend(&mut self, function: CpuFunction, ps: u64) {
        self.by_function[function as usize] += ps;
    }

    #[inline]
    pub(super) fn deliver(&mut self, queue: usize, bytes: u32) {
        self.delivered += 1;
        self.delivered_bytes += u64::from(bytes);
        if queue >= self.by_queue.len() {
            self.by_queue.resize(queue + 1, 0);
        }
        self.by_queue[queue] += 1;
    }
}
