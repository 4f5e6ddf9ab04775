//! From a plan's words to what one sender sends: frames, rate, workers. As `linerate bench --peer` plans it.

use std::net::SocketAddr;

use traffic::{Departures, Limit, SenderPlan, TxOptions, TxSpec, TxTraffic};
use trial::{GivenMacs, HostPlan, Wanted, any_like, tx_endpoint, workers_towards};
use wire::{FrameSpec, SizeMix, Sizes, Template, Values};

/// The load of one trial, of the whole fleet or a share of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetLoad {
    /// Packets per second of all its senders together; `None` is the maximum.
    pub rate_pps: Option<f64>,
    /// Of the trial.
    pub duration_ns: u64,
}

/// What every sender of a fleet sends; rates are each one's own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Load {
    pub(crate) engine: TxSpec,
    pub(crate) threads: usize,
    pub(crate) flows: Option<usize>,
    pub(crate) frame_size: Option<SizeMix>,
    pub(crate) payload: Option<SizeMix>,
    pub(crate) departures: Departures,
    pub(crate) batch_size: usize,
    pub(crate) seed: u64,
    pub(crate) witness: bool,
    pub(crate) receiver: Option<Wanted>,
}

impl Load {
    /// What a sender sends to these receivers as its share, or why that makes no packets.
    pub(crate) fn plan(&self, targets: &[SocketAddr], share: FleetLoad) -> Result<HostPlan, String> {
        let FleetLoad { rate_pps, duration_ns } = share;
        let local = any_like(targets[0].ip());
        let frames = FrameSpec {
            src_addr: Values::Fixed(local),
            dst_addr: Values::Fixed(targets[0].ip()),
            ..FrameSpec::default()
        };
        let sizes = Sizes::asked(self.frame_size.as_ref(), self.payload.as_ref(), frames.layers());
        let frames = FrameSpec { sizes, ..frames };
        let problems: Vec<String> = frames.problems().iter().map(ToString::to_string).collect();
        let template = Template::new(&frames).map_err(|_| problems.join("; "))?;
        let frame_size_bytes = template.mean_frame_size().bytes().round() as u32;
        let one_payload = template.recipe().payload_len.fixed();
        let payload_bytes =
            one_payload.unwrap_or(frame_size_bytes.saturating_sub(frames.layers().overhead()));
        let threads = self.threads.max(targets.len());
        let flows = self.flows.unwrap_or(threads).max(threads);
        let spec = self.engine.configured(&TxOptions::default());
        Ok(HostPlan {
            handshake: true,
            endpoint: tx_endpoint(&spec, threads, &[], self.batch_size, flows),
            sender: SenderPlan {
                engine: spec,
                traffic: TxTraffic {
                    workers: workers_towards(targets, local, flows, threads),
                    interface: None,
                    frames,
                    rate_pps,
                    departures: self.departures,
                    limit: Limit { count: None, duration_ns: Some(duration_ns) },
                    batch_size: self.batch_size,
                    seed: self.seed,
                },
            },
            cpus: Vec::new(),
            frame_size_bytes,
            payload_bytes,
            smallest_payload_bytes: template.recipe().payload_len.every().min().unwrap_or(0),
            // Enough to know what was sent in a part of the time, and little enough for one message.
            interval_ns: (duration_ns / 200).clamp(20_000_000, 10_000_000_000),
            profile: false,
            macs: GivenMacs::default(),
            receiver: self.receiver.clone(),
            witness: self.witness,
            key: None,
        })
    }
}
