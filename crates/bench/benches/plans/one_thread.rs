//! The trial that benches of other things than rates run: small frames as fast as they go, a thread and a CPU for each side.

use lab::LabPlan;
use traffic::Departures;
use trial::{CpuPlan, TrialPlan};
use wire::FrameSpec;

/// Messages or frames per call of a sender.
pub(crate) const BATCH: usize = 1024;

pub(crate) fn one_thread(duration_ns: u64, interval_ns: u64) -> TrialPlan {
    TrialPlan {
        duration_ns,
        count: None,
        omit_ns: 0,
        rate_pps: None,
        departures: Departures::Constant,
        frame_size_bytes: 64,
        payload_bytes: 18,
        tagged: true,
        ipv6: false,
        tx_threads: 1,
        rx_threads: 1,
        flows: 1,
        tx_batch_size: BATCH,
        rx_batch_size: 512,
        spin: false,
        work_ns: 0,
        statistics: None,
        cpus: CpuPlan { tx: vec![0], rx: vec![1], tx_alone: vec![0], napi: Vec::new() },
        lab: LabPlan::default(),
        frames: FrameSpec::default(),
        interval_ns,
        seed: 1,
        separate_softirq: None,
        profile: false,
    }
}
