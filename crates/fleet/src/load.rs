//! From a plan's words to what one sender sends: frames, rate, workers. As `linerate bench --peer` plans it.

use std::net::{IpAddr, SocketAddr};

use traffic::{Departures, Limit, SenderPlan, TxOptions, TxSpec, TxTraffic, TxWorkerPlan};
use trial::{GivenMacs, HostPlan, Wanted, any_like, tx_endpoint, workers_towards};
use wire::{FrameSpec, SizeMix, Sizes, Template, Values};

/// The load of one trial, of the whole fleet or a share of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FleetLoad {
    /// Packets per second of all its senders together; `None` is the maximum.
    pub rate_pps: Option<f64>,
    /// Of the trial.
    pub duration_ns: u64,
    /// Which of the plan's packet sizes, from 0.
    pub size: usize,
}

/// Sizes of packets as written; without either, the smallest with a stream tag.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PacketSize {
    pub(crate) frame: Option<SizeMix>,
    pub(crate) payload: Option<SizeMix>,
}

impl PacketSize {
    fn of(&self, frames: &FrameSpec) -> Sizes {
        Sizes::asked(self.frame.as_ref(), self.payload.as_ref(), frames.layers())
    }
}

/// What every sender of a fleet sends; rates are each one's own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Load {
    pub(crate) engine: TxSpec,
    pub(crate) threads: usize,
    pub(crate) flows: Option<usize>,
    /// At least one.
    pub(crate) sizes: Vec<PacketSize>,
    pub(crate) departures: Departures,
    pub(crate) batch_size: usize,
    pub(crate) seed: u64,
    pub(crate) witness: bool,
    /// The first source port of each sender's flows; the kernel chooses them without.
    pub(crate) first_port: Option<u16>,
    /// Whether receivers are agents, which agree first.
    pub(crate) handshake: bool,
    pub(crate) receiver: Option<Wanted>,
}

impl Load {
    /// What a sender sends to these receivers as its share, or why that makes no packets.
    pub(crate) fn plan(&self, targets: &[SocketAddr], share: FleetLoad) -> Result<HostPlan, String> {
        let FleetLoad { rate_pps, duration_ns, size } = share;
        let local = any_like(targets[0].ip());
        let frames = FrameSpec {
            src_addr: Values::Fixed(local),
            dst_addr: Values::Fixed(targets[0].ip()),
            ..FrameSpec::default()
        };
        let size = self.sizes.get(size).ok_or("the plan has no such packet size")?;
        let frames = FrameSpec { sizes: size.of(&frames), ..frames };
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
            handshake: self.handshake,
            endpoint: tx_endpoint(&spec, threads, &[], self.batch_size, flows),
            sender: SenderPlan {
                engine: spec,
                traffic: TxTraffic {
                    workers: self.workers(targets, local, flows, threads),
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
            witness: self.witness && self.handshake,
            key: None,
        })
    }

    fn workers(
        &self,
        targets: &[SocketAddr],
        local: IpAddr,
        flows: usize,
        threads: usize,
    ) -> Vec<TxWorkerPlan> {
        let mut workers = workers_towards(targets, local, flows, threads);
        if let Some(first) = self.first_port {
            let mut next = first;
            for worker in &mut workers {
                worker.local.set_port(next);
                next = next.saturating_add(worker.flows as u16);
            }
        }
        workers
    }

    /// The largest frame of all the plan's sizes, Ethernet header to FCS.
    pub(crate) fn largest_frame_bytes(&self) -> u32 {
        let frames = FrameSpec::default();
        let largest = |size: &PacketSize| {
            let template = Template::new(&FrameSpec { sizes: size.of(&frames), ..frames.clone() }).ok()?;
            let payload = template.recipe().payload_len.every().max()?;
            Some(payload + frames.layers().overhead())
        };
        self.sizes.iter().filter_map(largest).max().unwrap_or(64).max(64)
    }
}

/// The source ports of a sender's flows to an address, as far as they are known: 0 is one that the kernel chooses.
pub(crate) fn flows_to(plan: &HostPlan, to: IpAddr) -> Vec<u16> {
    let traffic = &plan.sender.traffic;
    let makes_frames = plan.sender.engine.facts().makes_frames;
    let ports = traffic.workers.iter().zip(traffic.source_ports()).map(|(worker, (first, flows))| {
        let first = if makes_frames { first } else { worker.local.port() };
        let flow = move |number| if first == 0 { 0 } else { first.saturating_add(number) };
        (worker.target.ip(), (0..flows).map(flow))
    });
    ports.filter(|(target, _)| *target == to).flat_map(|(_, ports)| ports).collect()
}
