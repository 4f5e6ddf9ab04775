//! Sending through a card's ring: what limits kernel pktgen on 10 GbE.
//!
//! The sender fills descriptors and rings the doorbell once a burst. The card sends at line rate and frees
//! none: finished descriptors are freed when an interrupt lets the driver clean the ring, and the
//! interrupt waits `rx_usecs`, because transmit completion shares it with receive. A ring that runs full
//! before the interrupt stops the sender; too many interrupts cost it time.

use serde::{Deserialize, Serialize};

use crate::{
    parameter::{ConfigError, Parameter, Problems},
    units::{ps_for_bytes, ps_from_ns, ps_from_us, seconds},
};

/// A sender, its ring and its card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transmit {
    /// Speed of the link in bits per second.
    pub link_bps: u64,
    /// Frame size from Ethernet header to FCS.
    pub frame_bytes: u32,
    /// Descriptors of the transmit ring.
    pub ring: u32,
    /// Frames for one doorbell (pktgen's `burst`, xmit_more).
    pub burst: u32,
    /// CPU time to make and queue a frame, in nanoseconds.
    pub frame_ns: f64,
    /// CPU time of the doorbell, in nanoseconds.
    pub doorbell_ns: f64,
    /// Least time between two interrupts, in microseconds.
    pub rx_usecs: f64,
    /// CPU time of an interrupt, in nanoseconds.
    pub irq_ns: f64,
    /// CPU time to clean one descriptor, in nanoseconds.
    pub clean_ns: f64,
    /// Descriptors cleaned by one poll at most.
    pub budget: u32,
    /// Simulated time in microseconds.
    pub duration_us: f64,
}

/// What the sender achieved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transmitted {
    /// Frames per second on the wire.
    pub sent_pps: f64,
    /// Interrupts per second.
    pub interrupts_per_s: f64,
    /// Share of the time in which the sender waited for a free descriptor.
    pub ring_full_ratio: f64,
    /// Share of the time in which the link was busy.
    pub link_busy_ratio: f64,
}

impl Default for Transmit {
    fn default() -> Self {
        Self {
            link_bps: 10_000_000_000,
            frame_bytes: 64,
            ring: 512,
            burst: 32,
            frame_ns: 26.0,
            doorbell_ns: 69.0,
            rx_usecs: 30.0,
            irq_ns: 500.0,
            clean_ns: 12.0,
            budget: 256,
            duration_us: 20_000.0,
        }
    }
}

/// The parameters of [`Transmit`], for help and documentation.
pub const TRANSMIT_PARAMETERS: &[Parameter] = &[
    Parameter::new("link_bps", "bit/s", "speed of the link"),
    Parameter::new("frame_bytes", "bytes", "frame size, Ethernet header to FCS"),
    Parameter::new("ring", "descriptors", "descriptors of the transmit ring (ethtool -G tx)")
        .source("ixgbe: 512"),
    Parameter::new("burst", "frames", "frames for one doorbell (pktgen burst, xmit_more)"),
    Parameter::new("frame_ns", "ns", "CPU time to make and queue a frame")
        .source("9.2, 13.5 and 14.5 Mpps at bursts of 1, 2 and 3: 108.7 ns at 1, 74.1 at 2"),
    Parameter::new("doorbell_ns", "ns", "CPU time of the doorbell").source("twice the difference of the two"),
    Parameter::new("rx_usecs", "us", "least time between two interrupts (ethtool -C rx-usecs)")
        .source("the pktgen record's setting: 30"),
    Parameter::new("irq_ns", "ns", "CPU time of an interrupt"),
    Parameter::new("clean_ns", "ns", "CPU time to clean one descriptor"),
    Parameter::new("budget", "descriptors", "descriptors cleaned by one poll at most")
        .source("ixgbe tx work: 256"),
    Parameter::new("duration_us", "us", "simulated time"),
];

impl Transmit {
    /// Checks everything.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every problem.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Problems::default();
        problems.range("link_bps", self.link_bps, 1_000_000, 1_000_000_000_000);
        problems.range("frame_bytes", self.frame_bytes, 64, 65_553);
        problems.range("ring", self.ring, 1, 1 << 20);
        problems.range("burst", self.burst, 1, 1 << 16);
        problems.range("budget", self.budget, 1, 1 << 20);
        problems.duration_ns("frame_ns", self.frame_ns);
        problems.duration_ns("doorbell_ns", self.doorbell_ns);
        problems.duration_ns("irq_ns", self.irq_ns);
        problems.duration_ns("clean_ns", self.clean_ns);
        problems.duration_us("rx_usecs", self.rx_usecs);
        problems.duration_us("duration_us", self.duration_us);
        if self.burst > self.ring {
            let (burst, ring) = (self.burst, self.ring);
            problems.add("burst", format!("a burst of {burst} does not fit a ring of {ring}"));
        }
        if self.frame_ns + self.doorbell_ns <= 0.0 {
            problems
                .add("frame_ns", "frame_ns or doorbell_ns must be above 0: otherwise sending takes no time");
        }
        problems.into_result()
    }

    /// Sends for the configured time.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] before anything is simulated.
    pub fn simulate(&self) -> Result<Transmitted, ConfigError> {
        self.validate()?;
        Ok(Sender::new(self).run(ps_from_us(self.duration_us)))
    }
}

/// One CPU that sends, cleans and is interrupted; the card's queue is arithmetic, since frames leave one after
/// the other at known times.
struct Sender<'a> {
    config: &'a Transmit,
    now_ps: u64,
    wire_ps: u64,
    rx_ps: u64,
    /// When the last frame handed over so far leaves the card.
    link_free_ps: u64,
    /// Frames queued and descriptors cleaned, ever.
    queued: u64,
    cleaned: u64,
    last_interrupt_ps: u64,
    interrupts: u64,
    waited_ps: u64,
}

impl<'a> Sender<'a> {
    fn new(config: &'a Transmit) -> Self {
        Self {
            config,
            now_ps: 0,
            wire_ps: ps_for_bytes(config.frame_bytes + 20, config.link_bps).max(1),
            rx_ps: ps_from_us(config.rx_usecs),
            link_free_ps: 0,
            queued: 0,
            cleaned: 0,
            last_interrupt_ps: 0,
            interrupts: 0,
            waited_ps: 0,
        }
    }

    fn run(mut self, end_ps: u64) -> Transmitted {
        let burst = u64::from(self.config.burst);
        let burst_ps = ps_from_ns(self.config.frame_ns * burst as f64 + self.config.doorbell_ns);
        while self.now_ps < end_ps {
            if self.interrupt_due() {
                self.clean();
            } else if self.queued - self.cleaned + burst <= u64::from(self.config.ring) {
                self.now_ps += burst_ps;
                self.queued += burst;
                self.link_free_ps = self.link_free_ps.max(self.now_ps) + burst * self.wire_ps;
            } else {
                self.wait();
            }
        }
        let elapsed_s = seconds(self.now_ps);
        let sent = self.sent();
        Transmitted {
            sent_pps: sent as f64 / elapsed_s,
            interrupts_per_s: self.interrupts as f64 / elapsed_s,
            ring_full_ratio: self.waited_ps as f64 / self.now_ps as f64,
            link_busy_ratio: (sent * self.wire_ps) as f64 / self.now_ps as f64,
        }
    }

    /// Frames that have left the card.
    fn sent(&self) -> u64 {
        let left_ps = self.link_free_ps.saturating_sub(self.now_ps);
        self.queued - left_ps.div_ceil(self.wire_ps).min(self.queued)
    }

    fn interrupt_due(&self) -> bool {
        self.now_ps >= self.last_interrupt_ps + self.rx_ps && self.sent() > self.cleaned
    }

    /// An interrupt, and polls until nothing finished is left.
    fn clean(&mut self) {
        self.last_interrupt_ps = self.now_ps;
        self.interrupts += 1;
        self.now_ps += ps_from_ns(self.config.irq_ns);
        let budget = u64::from(self.config.budget);
        loop {
            let finished = (self.sent() - self.cleaned).min(budget);
            self.now_ps += ps_from_ns(self.config.clean_ns * finished as f64);
            self.cleaned += finished;
            if finished < budget {
                return;
            }
        }
    }

    /// The ring is full: the sender waits until a frame has left and an interrupt may come.
    fn wait(&mut self) {
        let moderated_ps = self.last_interrupt_ps + self.rx_ps;
        let in_ring = self.queued - self.cleaned;
        let first_out_ps = self.link_free_ps.saturating_sub((in_ring - 1) * self.wire_ps);
        let until_ps = moderated_ps.max(first_out_ps).max(self.now_ps + 1);
        self.waited_ps += until_ps - self.now_ps;
        self.now_ps = until_ps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mpps(change: impl FnOnce(&mut Transmit)) -> f64 {
        let mut config = Transmit::default();
        change(&mut config);
        config.simulate().unwrap().sent_pps / 1e6
    }

    #[test]
    fn the_record_s_bursts_are_met_within_five_per_cent() {
        for (burst, published) in [(1, 9.2), (2, 13.5), (3, 14.5), (32, 14.8)] {
            let rate = mpps(|c| c.burst = burst);
            assert!(
                (rate / published - 1.0).abs() < 0.05,
                "burst {burst}: {rate} Mpps, published {published}"
            );
        }
    }

    #[test]
    fn a_ring_that_runs_full_before_the_interrupt_caps_the_rate() {
        // 512 descriptors of 67.2 ns last 34.4 us
        assert!(mpps(|c| c.rx_usecs = 30.0) > 14.5);
        let late = mpps(|c| c.rx_usecs = 100.0);
        assert!((late / (512.0 / 100.0) - 1.0).abs() < 0.1, "{late}");
        assert!(mpps(|c| (c.rx_usecs, c.ring) = (100.0, 4096)) > 14.5);
    }

    #[test]
    fn interrupts_without_moderation_cost_the_sender_its_time() {
        let often = Transmit { rx_usecs: 0.0, burst: 2, ..Transmit::default() }.simulate().unwrap();
        assert!(often.sent_pps < 0.8 * mpps(|c| c.burst = 2) * 1e6, "{often:?}");
        assert!(often.interrupts_per_s > 1e6);
    }

    #[test]
    fn the_link_is_never_overtaken() {
        let fast =
            Transmit { frame_ns: 1.0, doorbell_ns: 0.0, irq_ns: 0.0, clean_ns: 0.0, ..Transmit::default() };
        let sent = fast.simulate().unwrap();
        assert!(sent.link_busy_ratio <= 1.0 && sent.sent_pps <= 1e12 / 67_200.0, "{sent:?}");
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = Transmit { ring: 8, burst: 9, ..Transmit::default() }.simulate().unwrap_err();
        assert!(refused.to_string().contains("a burst of 9 does not fit a ring of 8"));
        assert!(Transmit { frame_ns: 0.0, doorbell_ns: 0.0, ..Transmit::default() }.validate().is_err());
    }
}
