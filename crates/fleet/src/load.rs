//! From a plan's words to what one sender sends: frames, rate, workers. As `linerate bench --peer` plans it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use traffic::{Departures, Limit, SenderPlan, TxOptions, TxSpec, TxTraffic, TxWorkerPlan};
use trial::{GivenMacs, HostPlan, Wanted, share_of_flows, tx_endpoint};
use wire::{FrameSize, FrameSpec, Layers, PROBE_TAGGED_LEN, SizeMix, Sizes, Template, Values};

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
    pub(crate) duration_ns: u64,
    pub(crate) interval_ns: u64,
    pub(crate) seed: u64,
    pub(crate) witness: bool,
    pub(crate) receiver: Option<Wanted>,
}

impl Load {
    /// What a sender sends to these receivers at this rate, or why that makes no packets.
    pub(crate) fn plan(&self, targets: &[SocketAddr], rate_pps: Option<f64>) -> Result<HostPlan, String> {
        let local = any_like(targets[0].ip());
        let ipv6 = targets[0].is_ipv6();
        let frames = FrameSpec {
            src_addr: Values::Fixed(local),
            dst_addr: Values::Fixed(targets[0].ip()),
            sizes: self.sizes(ipv6),
            ..FrameSpec::default()
        };
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
                    workers: (0..threads)
                        .map(|worker| TxWorkerPlan {
                            target: targets[worker % targets.len()],
                            local: (local, 0).into(),
                            flows: share_of_flows(flows, threads, worker),
                            stream: 0,
                        })
                        .collect(),
                    interface: None,
                    frames,
                    rate_pps,
                    departures: self.departures,
                    limit: Limit { count: None, duration_ns: Some(self.duration_ns) },
                    batch_size: self.batch_size,
                    seed: self.seed,
                },
            },
            cpus: Vec::new(),
            frame_size_bytes,
            payload_bytes,
            smallest_payload_bytes: template.recipe().payload_len.every().min().unwrap_or(0),
            interval_ns: self.interval_ns,
            profile: false,
            macs: GivenMacs::default(),
            receiver: self.receiver.clone(),
            witness: self.witness,
            key: None,
        })
    }

    /// The requested sizes, or the smallest that carry a stream tag.
    fn sizes(&self, ipv6: bool) -> Sizes {
        match (&self.frame_size, &self.payload) {
            (Some(mix), _) => Sizes::Frame(mix.clone()),
            (None, Some(mix)) => Sizes::Payload(mix.clone()),
            (None, None) => {
                let smallest =
                    FrameSize::from_payload(PROBE_TAGGED_LEN as u32, Layers { ipv6, vlan_tags: 0 });
                let bytes = smallest.map_or(FrameSize::MIN.bytes(), FrameSize::bytes);
                Sizes::Frame(SizeMix::Values(Values::Fixed(bytes)))
            }
        }
    }
}

/// Any address of the same version.
pub(crate) fn any_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
