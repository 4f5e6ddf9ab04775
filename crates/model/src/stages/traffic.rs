//! Traffic: what comes down the wire, or out of a sending CPU on the same machine.

use serde::{Deserialize, Serialize};

use crate::{
    config::{Parameter, Problems},
    random::Random,
    units::{PS_PER_S, ps_for_bytes, ps_from_ns},
};

/// Bytes of link time around every frame: preamble, start delimiter and gap (IEEE 802.3).
const L1_BYTES: u32 = 20;

/// What arrives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// Receiving ports, each with its own link, packet buffer and queues.
    pub ports: u32,
    /// Speed of each link in bits per second.
    pub link_bps: u64,
    /// Frame size from Ethernet header to FCS, for `sizes = fixed`.
    pub frame_bytes: u32,
    /// How frame sizes are mixed.
    pub sizes: Sizes,
    /// How frames are spaced.
    pub arrival: Arrival,
    /// Frames per second offered on each port; none is line rate.
    pub offered_pps: Option<f64>,
    /// Frames of a burst at line rate, for `arrival = burst`.
    pub burst_frames: u32,
    /// CPU time to send one frame, in nanoseconds, when the sender runs on this machine (veth); 0 is a sender
    /// elsewhere.
    pub sender_ns: f64,
    /// The CPU that sends, when `sender_ns` is not 0.
    pub sender_cpu: u32,
    /// Frames read from a capture, for `arrival = recorded`; the caller reads the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<RecordedFrame>,
}

/// How frame sizes are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Every frame is `frame_bytes` long.
    Fixed,
    /// Of 48 frames 28 have 64, 16 have 594 and 4 have 1518 bytes with the FCS.
    Imix,
}

/// How frames are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// At equal distances.
    Cbr,
    /// At exponentially distributed distances, but never faster than the link.
    Poisson,
    /// In bursts at line rate with pauses that make up the mean rate.
    Burst,
    /// As in `recorded`.
    Recorded,
}

/// One frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RecordedFrame {
    /// Nanoseconds since the capture's start.
    pub at_ns: f64,
    /// Frame size from Ethernet header to FCS.
    pub bytes: u32,
}

/// The IMIX of 28:16:4 frames of 60, 590 and 1514 bytes without FCS, spread evenly.
const IMIX: [u32; 12] = [64, 594, 64, 64, 594, 64, 594, 64, 64, 1518, 594, 64];

impl Default for Traffic {
    fn default() -> Self {
        Self {
            ports: 1,
            link_bps: 10_000_000_000,
            frame_bytes: 64,
            sizes: Sizes::Fixed,
            arrival: Arrival::Cbr,
            offered_pps: None,
            burst_frames: 32,
            sender_ns: 0.0,
            sender_cpu: 0,
            recorded: Vec::new(),
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("traffic.ports", "ports", "receiving ports, each with link, packet buffer and queues")
        .short("ports"),
    Parameter::new("traffic.link_bps", "bit/s", "speed of each link").source("IEEE 802.3"),
    Parameter::new("traffic.frame_bytes", "bytes", "frame size, Ethernet header to FCS")
        .short("frame-size")
        .source("RFC 2544 section 9.1"),
    Parameter::new("traffic.sizes", "", "fixed, or imix: 28 frames of 64, 16 of 594, 4 of 1518 bytes")
        .source("the common simple IMIX; RFC 6985 names such mixes"),
    Parameter::new("traffic.arrival", "", "cbr, poisson, burst or recorded").short("arrival"),
    Parameter::new("traffic.offered_pps", "frame/s", "frames offered on each port; null is line rate")
        .short("rate"),
    Parameter::new("traffic.burst_frames", "frames", "frames of a burst at line rate").short("burst"),
    Parameter::new(
        "traffic.sender_ns",
        "ns",
        "CPU time to send a frame on the same machine; 0: sent elsewhere",
    )
    .source("measured: calibrate"),
    Parameter::new("traffic.sender_cpu", "CPU", "the CPU that sends, when sender_ns is not 0"),
];

impl Traffic {
    /// Bytes of link time of a frame: itself, preamble, delimiter and gap.
    fn wire_ps(&self, frame_bytes: u32) -> u64 {
        ps_for_bytes(frame_bytes + L1_BYTES, self.link_bps)
    }

    /// The largest frame this traffic can bring.
    pub(crate) fn largest_frame(&self) -> u32 {
        match (self.arrival, self.sizes) {
            (Arrival::Recorded, _) => self.recorded.iter().map(|f| f.bytes).max().unwrap_or(0),
            (_, Sizes::Fixed) => self.frame_bytes,
            (_, Sizes::Imix) => 1518,
        }
    }

    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.range("traffic.ports", self.ports, 1, 16);
        problems.range("traffic.frame_bytes", self.frame_bytes, 64, 65_553);
        problems.range("traffic.link_bps", self.link_bps, 1_000_000, 1_000_000_000_000_000);
        problems.range("traffic.burst_frames", self.burst_frames, 1, 1_000_000);
        problems.duration_ns("traffic.sender_ns", self.sender_ns);
        if let Some(pps) = self.offered_pps
            && !(1e-3..=1e12).contains(&pps)
        {
            problems
                .add("traffic.offered_pps", format!("{pps} is not between 0.001 and 1e12 frames per second"));
        }
        let recorded = self.arrival == Arrival::Recorded;
        if recorded && self.recorded.is_empty() {
            problems.add("traffic.arrival", "recorded needs the frames of a capture in traffic.recorded");
        }
        if recorded && self.sender_ns > 0.0 {
            problems.add("traffic.sender_ns", "a capture sends itself: set it to 0 with arrival recorded");
        }
        if self.sender_ns > 0.0 && self.ports > 1 {
            problems
                .add("traffic.sender_ns", "a sender on this machine feeds one port: set traffic.ports to 1");
        }
        let in_order = self.recorded.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns);
        if !in_order || self.recorded.iter().any(|f| !(0.0..=1e15).contains(&f.at_ns)) {
            problems.add("traffic.recorded", "the frames' times must be at least 0 and in order");
        }
        if self.recorded.iter().any(|f| !(64..=65_553).contains(&f.bytes)) {
            problems.add("traffic.recorded", "every frame must have 64 to 65553 bytes");
        }
    }
}

/// One port's frames to come.
#[derive(Debug)]
pub(crate) struct Arrivals {
    traffic: Traffic,
    /// Mean distance in picoseconds, `None` at line rate.
    period_ps: Option<u64>,
    wire_ps: u64,
    at_ps: u64,
    count: u64,
}

impl Arrivals {
    pub(crate) fn new(traffic: &Traffic) -> Self {
        let period_ps = traffic.offered_pps.map(|pps| (PS_PER_S as f64 / pps).round() as u64);
        let wire_ps = traffic.wire_ps(traffic.frame_bytes);
        Self { traffic: traffic.clone(), period_ps, wire_ps, at_ps: 0, count: 0 }
    }

    /// When the next frame has come in whole, and its size; `None` at a capture's end.
    #[inline]
    pub(crate) fn next(&mut self, random: &mut Random) -> Option<(u64, u32)> {
        let index = self.count;
        self.count += 1;
        let (bytes, wire_ps) = match self.traffic.sizes {
            _ if self.traffic.arrival == Arrival::Recorded => return self.next_recorded(index),
            Sizes::Fixed => (self.traffic.frame_bytes, self.wire_ps),
            Sizes::Imix => {
                let bytes = IMIX[(index % IMIX.len() as u64) as usize];
                (bytes, self.traffic.wire_ps(bytes))
            }
        };
        let gap_ps = match (self.period_ps, self.traffic.arrival) {
            (None, _) => wire_ps,
            (Some(period), Arrival::Poisson) => random.exponential_ps(period as f64),
            (Some(period), Arrival::Burst) => {
                let frames = u64::from(self.traffic.burst_frames);
                let starts = index.is_multiple_of(frames);
                if starts { (period * frames).saturating_sub(wire_ps * (frames - 1)) } else { wire_ps }
            }
            (Some(period), _) => period,
        };
        self.at_ps += gap_ps.max(wire_ps);
        Some((self.at_ps, bytes))
    }

    fn next_recorded(&mut self, index: u64) -> Option<(u64, u32)> {
        let frame = self.traffic.recorded.get(index as usize)?;
        self.at_ps = (self.at_ps + self.traffic.wire_ps(frame.bytes)).max(ps_from_ns(frame.at_ns));
        Some((self.at_ps, frame.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(traffic: &Traffic, n: usize) -> Vec<(u64, u32)> {
        let (mut arrivals, mut random) = (Arrivals::new(traffic), Random::new(1));
        (0..n).map_while(|_| arrivals.next(&mut random)).collect()
    }

    #[test]
    fn line_rate_is_frames_back_to_back() {
        let frames = first(&Traffic::default(), 3);
        assert_eq!(frames, [(67_200, 64), (134_400, 64), (201_600, 64)]);
    }

    #[test]
    fn bursts_keep_the_mean_rate() {
        let traffic = Traffic {
            arrival: Arrival::Burst,
            burst_frames: 4,
            offered_pps: Some(1e6),
            ..Traffic::default()
        };
        let frames = first(&traffic, 4001);
        let ends_of_bursts: Vec<u64> = frames.iter().skip(3).step_by(4).map(|f| f.0).collect();
        assert!(ends_of_bursts.windows(2).all(|pair| pair[1] - pair[0] == 4_000_000));
    }

    #[test]
    fn the_mix_has_its_shares() {
        let frames = first(&Traffic { sizes: Sizes::Imix, ..Traffic::default() }, 48);
        let count = |bytes| frames.iter().filter(|f| f.1 == bytes).count();
        assert_eq!((count(64), count(594), count(1518)), (28, 16, 4));
    }

    #[test]
    fn a_capture_never_overtakes_the_link() {
        let at = |ns| RecordedFrame { at_ns: ns, bytes: 64 };
        let traffic = Traffic {
            arrival: Arrival::Recorded,
            recorded: vec![at(0.0), at(1.0), at(1000.0)],
            ..Traffic::default()
        };
        assert_eq!(first(&traffic, 9), [(67_200, 64), (134_400, 64), (1_000_000, 64)]);
    }
}
