//! From the packet and load options to frames, sizes and rates. Reports all problems at once.

use std::net::IpAddr;

use wire::{FrameSpec, LinkSpeed, Rate, Sizes, Template, Values};

use crate::{
    args::PacketArgs,
    failure::{Failure, Status},
};

/// Packets and their rate, as every sending command plans them.
#[derive(Debug)]
pub(crate) struct Packets {
    pub(crate) frames: FrameSpec,
    pub(crate) frame_size_bytes: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) smallest_payload_bytes: u32,
    pub(crate) largest_frame_bytes: u32,
    pub(crate) is_one_size: bool,
    pub(crate) rate_pps: Option<f64>,
}

impl Packets {
    /// A placeholder until the problems of the packets are reported.
    pub(crate) fn none() -> Self {
        Self {
            frames: FrameSpec::default(),
            frame_size_bytes: 0,
            payload_bytes: 0,
            smallest_payload_bytes: 0,
            largest_frame_bytes: 0,
            is_one_size: true,
            rate_pps: None,
        }
    }
}

impl PacketArgs {
    /// Puts sizes and clock into `frames` (whose addresses determine the IP version) and computes the rate.
    pub(crate) fn plan(
        &self,
        rate: Rate,
        frames: FrameSpec,
        link: Option<LinkSpeed>,
    ) -> Result<Packets, Vec<Failure>> {
        let frames = FrameSpec {
            sizes: Sizes::asked(self.frame_size.as_ref(), self.payload.as_ref(), frames.layers()),
            clock: self.probe_clock.into(),
            ..frames
        };
        let usage = |error: &dyn std::fmt::Display| Failure::new(Status::Usage, error);
        let mut problems: Vec<Failure> = frames.problems().iter().map(|problem| usage(problem)).collect();
        let template = match Template::new(&frames) {
            Ok(template) => template,
            Err(_) => return Err(problems),
        };
        let mean = template.mean_frame_size();
        let rate_pps = rate.to_pps(mean, link).map_err(|error| problems.push(usage(&error))).ok().flatten();
        if !problems.is_empty() {
            return Err(problems);
        }
        let frame_size_bytes = mean.bytes().round() as u32;
        let one_payload = template.recipe().payload_len.fixed();
        Ok(Packets {
            frame_size_bytes,
            payload_bytes: one_payload.unwrap_or(frame_size_bytes.saturating_sub(frames.layers().overhead())),
            smallest_payload_bytes: template.recipe().payload_len.every().min().unwrap_or(0),
            largest_frame_bytes: template.max_frame_len() as u32 + 4,
            is_one_size: one_payload.is_some(),
            rate_pps,
            frames,
        })
    }
}

/// Frames from one address to another, with defaults for everything else.
pub(crate) fn frames_between(src: IpAddr, dst: IpAddr) -> FrameSpec {
    FrameSpec { src_addr: Values::Fixed(src), dst_addr: Values::Fixed(dst), ..FrameSpec::default() }
}
