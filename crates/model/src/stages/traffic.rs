//! Traffic: what comes down the wire, or out of a sending CPU on the same machine.

use serde::{Deserialize, Serialize};
use wire::SizeMix;

use crate::{
    parameter::{Parameter, Problems},
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
    /// Frame size from Ethernet header to FCS, when there is no mix.
    pub frame_bytes: u32,
    /// A mix of frame sizes.
    pub mix: Option<SizeMix>,
    /// How frames are spaced.
    pub arrival: Arrival,
    /// Frames per second offered on each port; none is line rate.
    pub offered_pps: Option<f64>,
    /// Frames of a burst at line rate, for `arrival = burst`.
    pub burst_frames: u32,
    /// CPU time to send one frame, in nanoseconds, when the sender runs on this machine (veth); 0 for a sender
    /// elsewhere.
    pub sender_ns: f64,
    /// The CPU that sends, when `sender_ns` is not 0.
    pub sender_cpu: u32,
    /// Frames read from a capture, for `arrival = recorded`; the caller reads the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<RecordedFrame>,
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

impl Default for Traffic {
    fn default() -> Self {
        Self {
            ports: 1,
            link_bps: 10_000_000_000,
            frame_bytes: 64,
            mix: None,
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
    Parameter::new(
        "traffic.mix",
        "",
        "imix or sizes with weights, 64:28,594:16,1518:4; null: all of frame_bytes",
    )
    .short("mix")
    .source("the common IMIX; RFC 6985 names such mixes"),
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
    /// The frame sizes in their order, repeated.
    fn cycle(&self) -> Vec<u32> {
        match &self.mix {
            Some(SizeMix::Weighted(weights)) => weights.cycle(),
            _ => vec![self.frame_bytes],
        }
    }

    /// Link time of a frame: itself, preamble, delimiter and gap.
    fn wire_ps(&self, frame_bytes: u32) -> u64 {
        ps_for_bytes(frame_bytes + L1_BYTES, self.link_bps)
    }

    /// The largest frame this traffic can bring.
    pub(crate) fn largest_frame(&self) -> u32 {
        let recorded = self.recorded.iter().map(|frame| frame.bytes);
        match self.arrival {
            Arrival::Recorded => recorded.max().unwrap_or(0),
            _ => self.cycle().into_iter().max().unwrap_or(0),
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
            problems
                .add("traffic.sender_ns", "must be 0 with arrival recorded: the capture has its own times");
        }
        if self.sender_ns > 0.0 && self.ports > 1 {
            problems
                .add("traffic.sender_ns", "a sender on this machine uses one port: set traffic.ports to 1");
        }
        let in_order = self.recorded.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns);
        if !in_order || self.recorded.iter().any(|f| !(0.0..=1e15).contains(&f.at_ns)) {
            problems.add("traffic.recorded", "the frames' times must be at least 0 and in order");
        }
        if matches!(self.mix, Some(SizeMix::Values(_))) {
            problems
                .add("traffic.mix", "write imix, or sizes with their weights such as 64:28,594:16,1518:4");
        }
        if self.mix.is_some() && self.cycle().iter().any(|bytes| !(64..=65_553).contains(bytes)) {
            problems.add("traffic.mix", "every frame must have 64 to 65553 bytes");
        }
        if self.recorded.iter().any(|f| !(64..=65_553).contains(&f.bytes)) {
            problems.add("traffic.recorded", "every frame must have 64 to 65553 bytes");
        }
    }
}

/// One port's frames to come.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Sizes and their link times, in the order they come.
    cycle: Vec<(u32, u64)>,
    at_cycle: usize,
    arrival: Arrival,
    /// Mean distance in picoseconds, `None` at line rate.
    period_ps: Option<u64>,
    burst_frames: u64,
    left_of_burst: u64,
    recorded: Vec<(u64, u32, u64)>,
    /// When the previous frame was due on an infinitely fast link.
    due_ps: u64,
    at_ps: u64,
}

impl Arrivals {
    pub(crate) fn new(traffic: &Traffic) -> Self {
        let recorded = traffic.recorded.iter();
        Self {
            cycle: traffic.cycle().into_iter().map(|bytes| (bytes, traffic.wire_ps(bytes))).collect(),
            at_cycle: 0,
            arrival: traffic.arrival,
            period_ps: traffic.offered_pps.map(|pps| (PS_PER_S as f64 / pps).round() as u64),
            burst_frames: u64::from(traffic.burst_frames),
            left_of_burst: 0,
            recorded: recorded.map(|f| (ps_from_ns(f.at_ns), f.bytes, traffic.wire_ps(f.bytes))).collect(),
            due_ps: 0,
            at_ps: 0,
        }
    }

    /// When the next frame has come in whole, and its size; `None` at a capture's end.
    #[inline]
    pub(crate) fn next(&mut self, random: &mut Random) -> Option<(u64, u32)> {
        if self.arrival == Arrival::Recorded {
            return self.next_recorded();
        }
        let (bytes, wire_ps) = self.cycle[self.at_cycle];
        self.at_cycle += 1;
        if self.at_cycle == self.cycle.len() {
            self.at_cycle = 0;
        }
        let gap_ps = match (self.period_ps, self.arrival) {
            (None, _) => wire_ps,
            (Some(period), Arrival::Poisson) => random.exponential_ps(period as f64),
            (Some(period), Arrival::Burst) => self.burst_gap_ps(period, wire_ps),
            (Some(period), _) => period,
        };
        // a frame delayed by the link does not delay later ones
        self.due_ps = self.due_ps.saturating_add(gap_ps);
        self.at_ps = self.at_ps.saturating_add(wire_ps).max(self.due_ps);
        Some((self.at_ps, bytes))
    }

    /// Frames of a burst follow at line rate; the first comes after a pause that makes up the mean.
    fn burst_gap_ps(&mut self, period_ps: u64, wire_ps: u64) -> u64 {
        if self.left_of_burst > 0 {
            self.left_of_burst -= 1;
            return wire_ps;
        }
        self.left_of_burst = self.burst_frames - 1;
        period_ps.saturating_mul(self.burst_frames).saturating_sub(wire_ps.saturating_mul(self.left_of_burst))
    }

    fn next_recorded(&mut self) -> Option<(u64, u32)> {
        let (at_ps, bytes, wire_ps) = *self.recorded.get(self.at_cycle)?;
        self.at_cycle += 1;
        self.at_ps = (self.at_ps + wire_ps).max(at_ps);
        Some((self.at_ps, bytes))
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
    fn random_arrivals_keep_the_mean_rate_on_a_busy_link() {
        let traffic = Traffic {
            link_bps: 1_000_000_000,
            arrival: Arrival::Poisson,
            offered_pps: Some(1.2e6),
            ..Traffic::default()
        };
        let frames = first(&traffic, 200_000);
        let pps = frames.len() as f64 / (frames[frames.len() - 1].0 as f64 / PS_PER_S as f64);
        assert!((pps / 1.2e6 - 1.0).abs() < 0.01, "{pps}");
        let wire_ps = traffic.wire_ps(64);
        assert!(frames.windows(2).all(|pair| pair[1].0 - pair[0].0 >= wire_ps));
    }

    #[test]
    fn the_mix_has_its_shares() {
        let frames = first(&Traffic { mix: Some(SizeMix::imix()), ..Traffic::default() }, 48);
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
