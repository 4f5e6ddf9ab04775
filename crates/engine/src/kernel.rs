//! A sender that only starts, watches and stops the kernel's own generator.

use std::{thread, time::Duration};

use measure::Histogram;
use port::{PktgenProgress, PktgenThread, PktgenTx, PktgenTxOptions};
use wire::Template;

use crate::{
    error::EngineError,
    generate::{FIRST_SOURCE_PORT, SenderPlan, SenderResult},
    publish::{TxPublished, TxSnapshot},
    worker::{Meter, Shift},
};

/// Bytes of the frame check sequence, which sizes of frames include.
const FCS: usize = 4;

/// How often the generator is asked how far it is.
const LOOK: Duration = Duration::from_millis(5);

/// The generator as the plan wants it, with a kernel thread for each worker.
pub(crate) fn pktgen_options(
    plan: &SenderPlan,
    template: &Template,
    cpus: &[u32],
) -> Result<PktgenTxOptions, EngineError> {
    let refused = |reason| Err(EngineError::NotByPktgen { reason });
    if template.mean_frame_size().bytes() != (template.max_frame_len() + FCS) as f64 {
        return refused("it makes frames of one size");
    }
    if plan.frames.vlan.len() > 1 {
        return refused("it makes at most one VLAN tag");
    }
    let workers = plan.workers.len() as u64;
    let mut first_port = FIRST_SOURCE_PORT;
    let threads = plan.workers.iter().zip(0u32..).map(|(worker, number)| {
        let flows = worker.flows.clamp(1, 40_000) as u16;
        let src = (worker.local.ip(), first_port).into();
        first_port = first_port.saturating_add(flows);
        PktgenThread {
            cpu: cpus.get(number as usize % cpus.len().max(1)).copied().unwrap_or(number),
            src,
            src_ports: flows,
            dst: worker.target,
            rate_pps: plan.rate_pps.map(|pps| (pps / workers as f64).round() as u64),
            count: plan
                .limit
                .count
                .map_or(0, |count| count / workers + u64::from(u64::from(number) < count % workers)),
        }
    });
    Ok(PktgenTxOptions {
        interface: plan.interface.clone().unwrap_or_default(),
        src_mac: plan.frames.src_mac.0,
        dst_mac: plan.frames.dst_mac.0,
        frame_bytes: template.max_frame_len(),
        vlan: plan.frames.vlan.first().map(|tag| tag.id()),
        threads: threads.collect(),
    })
}

/// What a generator that is configured already shall do.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) payload_bytes: u64,
    pub(crate) duration_ns: Option<u64>,
    pub(crate) rate_pps: Option<f64>,
}

/// Runs the generator until the job's end or a request to stop.
pub(crate) fn drive(pktgen: &PktgenTx, job: &Job, shift: &Shift, published: &TxPublished) -> SenderResult {
    let mut meter = Meter::start();
    let payload_bytes = job.payload_bytes;
    let tally = |progress: &PktgenProgress| TxSnapshot {
        packets: progress.packets,
        payload_bytes: progress.packets * payload_bytes,
        turned_away: progress.errors,
        ..TxSnapshot::default()
    };
    let outcome = thread::scope(|scope| {
        // A new thread is where its maker is: in the interface's namespace.
        let running = scope.spawn(|| pktgen.run());
        let mut watched = Ok(());
        while !running.is_finished() && watched.is_ok() {
            thread::sleep(LOOK);
            watched = pktgen.progress().and_then(|progress| {
                published.store(&tally(&progress));
                let began = progress.started_ns;
                let end_ns = began.zip(job.duration_ns).map(|(began, duration)| began + duration);
                let is_over = end_ns.is_some_and(|end| sys::clock::monotonic_ns() >= end);
                if is_over || shift.is_over() { pktgen.stop() } else { Ok(()) }
            });
        }
        if watched.is_err() {
            pktgen.stop().ok();
        }
        let ran = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        watched.and(ran).and_then(|()| pktgen.progress())
    });
    let (progress, error) = match outcome {
        Ok(progress) => (progress, None),
        Err(error) => (PktgenProgress::default(), Some(error.into())),
    };
    let tally = tally(&progress);
    published.store(&tally);
    let start_ns = progress.started_ns.unwrap_or(shift.start_ns);
    let end_ns = progress.stopped_ns.max(start_ns);
    let seconds = (end_ns - start_ns) as f64 / 1e9;
    SenderResult {
        // The kernel keeps its own schedule, and tells only what came of it.
        scheduled: job.rate_pps.map_or(tally.packets, |pps| (pps * seconds).round() as u64),
        tally,
        start_ns,
        end_ns,
        lateness: Histogram::new(),
        largest_gap_ns: 0,
        cost: meter.read(),
        error,
    }
}
