//! The kernel's own generator, a module: this side only starts, watches and stops it.

use std::{thread, time::Duration};

use measure::Histogram;
use port::{PktgenProgress, PktgenThread, PktgenTx, PktgenTxOptions, PortError};
use serde::{Deserialize, Serialize};
use wire::Template;

use crate::{
    engine::{Conditions, TxEngine, TxFacts, TxOptions, TxSpec},
    error::EngineError,
    generate::SenderResult,
    plan::TxTraffic,
    publish::{TxPublished, TxSnapshot},
    registry::{Engine, EngineSide, Finding},
    sender::Sender,
    worker::{Meter, Placement, WorkerContext},
};

pub(super) const ENGINE: Engine = Engine {
    name: "pktgen",
    tx: Some(EngineSide {
        about: "the kernel's own generator (module pktgen)",
        switches: &[],
        is_exclusive: false,
        ladder: &["pktgen"],
        ladder_of_threads: &["pktgen"],
        with_switches: |_| TxSpec::of(KernelPktgen::default()),
        with_settings: TxSpec::saved::<KernelPktgen>,
    }),
    rx: None,
    probe: |_| vec![Finding::new("pktgen", PktgenTx::probe().map(|()| "the kernel's generator"))],
};

/// Settings of the kernel's generator.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
struct KernelPktgen {
    /// Frames passed on before the card is notified (`burst`, the driver's `xmit_more`): copies of one packet.
    burst: u32,
    /// How often a packet is repeated before the next one is built (`clone_skb`).
    clones: u32,
}

impl Default for KernelPktgen {
    fn default() -> Self {
        Self { burst: 1, clones: 0 }
    }
}

/// Bytes of the frame check sequence, which sizes of frames include.
const FCS: usize = 4;

/// How often the generator's progress is read.
const LOOK: Duration = Duration::from_millis(5);

const NEEDS_ROOT: &str = "needs root of the machine, whose files in /proc control it";
const NEEDS_MODULE: &str = "needs the kernel module pktgen: modprobe pktgen";

impl TxEngine for KernelPktgen {
    const NAME: &'static str = ENGINE.name;

    fn configured(&self, options: &TxOptions) -> Self {
        Self { burst: options.burst.unwrap_or(self.burst), clones: options.clones.unwrap_or(self.clones) }
    }

    fn options(&self) -> &'static [&'static str] {
        &["burst", "clone"]
    }

    fn facts(&self) -> TxFacts {
        TxFacts { makes_frames: true, frees_look_like_drops: true, is_untagged: true, ..TxFacts::default() }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        conditions.of_frames(|| match conditions {
            Conditions { root: false, .. } => Some(NEEDS_ROOT),
            Conditions { is_one_size: false, .. } => Some("it builds frames of one size, but sizes vary"),
            _ => matches!(PktgenTx::probe(), Err(PortError::NoPktgen { .. })).then_some(NEEDS_MODULE),
        })
    }

    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError> {
        let templates = plan.whole_frames()?;
        let job = Job {
            payload_bytes: templates[0].max_payload_len() as u64,
            duration_ns: plan.limit.duration_ns,
            rate_pps: plan.rate_pps,
        };
        let options = PktgenTxOptions {
            burst: self.burst,
            clones: self.clones,
            ..pktgen_options(plan, &templates[0], &placement.cpus)?
        };
        let port = placement.inside(|| Ok(PktgenTx::open(&options)?))?;
        // One worker watches; kernel threads do the work.
        Sender::of_workers(vec![port], placement, move |port, context, published| {
            drive(&port, &job, context, published)
        })
    }
}

/// The generator for the plan, with a kernel thread per worker.
fn pktgen_options(
    plan: &TxTraffic,
    template: &Template,
    cpus: &[u32],
) -> Result<PktgenTxOptions, EngineError> {
    let refused = |reason| Err(EngineError::NotByPktgen { reason });
    if template.mean_frame_size().bytes() != (template.max_frame_len() + FCS) as f64 {
        return refused("it builds frames of one size");
    }
    if plan.frames.vlan.len() > 1 {
        return refused("it supports at most one VLAN tag");
    }
    let workers = plan.workers.iter().zip(plan.source_ports()).zip(0u32..);
    let threads = workers.map(|((worker, (first_port, flows)), number)| PktgenThread {
        cpu: cpus.get(number as usize % cpus.len().max(1)).copied().unwrap_or(number),
        src: (worker.local.ip(), first_port).into(),
        src_ports: flows,
        dst: worker.target,
        rate_pps: plan.rate_pps.map(|pps| (pps / plan.workers.len() as f64).round() as u64),
        count: plan.limit.count.map_or(0, |count| plan.share(count, number as usize)),
    });
    Ok(PktgenTxOptions {
        interface: plan.interface.clone().unwrap_or_default(),
        src_mac: plan.frames.src_mac.0,
        dst_mac: plan.frames.dst_mac.0,
        frame_bytes: template.max_frame_len(),
        vlan: plan.frames.vlan.first().map(|tag| tag.id()),
        burst: 1,
        clones: 0,
        threads: threads.collect(),
    })
}

/// The work of a configured generator.
#[derive(Debug, Clone)]
struct Job {
    payload_bytes: u64,
    duration_ns: Option<u64>,
    rate_pps: Option<f64>,
}

/// Runs the generator until the job's end or a request to stop.
fn drive(pktgen: &PktgenTx, job: &Job, context: &WorkerContext, published: &TxPublished) -> SenderResult {
    let mut meter = Meter::start();
    let payload_bytes = job.payload_bytes;
    let tally = |progress: &PktgenProgress| TxSnapshot {
        packets: progress.packets,
        payload_bytes: progress.packets * payload_bytes,
        turned_away: progress.errors,
        ..TxSnapshot::default()
    };
    let outcome = thread::scope(|scope| {
        // A new thread inherits the namespace: it is in the interface's.
        let running = scope.spawn(|| pktgen.run());
        let mut watched = Ok(());
        while !running.is_finished() && watched.is_ok() {
            thread::sleep(LOOK);
            watched = pktgen.progress().and_then(|progress| {
                published.store(&tally(&progress));
                let began = progress.started_ns;
                let end_ns = began.zip(job.duration_ns).map(|(began, duration)| began + duration);
                let is_over = end_ns.is_some_and(|end| sys::clock::monotonic_ns() >= end);
                if is_over || context.should_stop() { pktgen.stop() } else { Ok(()) }
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
    let start_ns = progress.started_ns.unwrap_or(context.start_ns);
    let end_ns = progress.stopped_ns.max(start_ns);
    let seconds = (end_ns - start_ns) as f64 / 1e9;
    SenderResult {
        // The kernel keeps its own schedule, and reports only the result.
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
