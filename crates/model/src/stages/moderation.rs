//! Interrupt moderation: how long the card waits before it interrupts the CPU.

use serde::{Deserialize, Serialize};

use crate::{
    parameter::{Parameter, Problems},
    units::{PS_PER_US, ps_from_us},
};

/// When a queue may interrupt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Moderation {
    /// The rule.
    pub mode: ModerationMode,
    /// The rule's time in microseconds.
    pub rx_usecs: f64,
    /// Frames that end the wait early; 0 is never.
    pub rx_frames: u32,
}

/// Rules of interrupt moderation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModerationMode {
    /// Every frame requests an interrupt at once.
    None,
    /// An interrupt follows the first waiting frame by `rx_usecs`.
    Delay,
    /// At least `rx_usecs` pass between two interrupts (interrupt throttling, ITR).
    Throttle,
    /// Throttling that adapts to what the last interrupt found, as the Intel drivers do.
    Adaptive,
    /// `rx_usecs` as Linux igb reads it: 0 off, 1 adaptive, 3 adaptive but never above 20 000 a second,
    /// anything else throttling by that time.
    Igb,
    /// The program polls; the card never interrupts (busy polling, netmap, DPDK).
    Polled,
}

impl Default for Moderation {
    fn default() -> Self {
        Self { mode: ModerationMode::Throttle, rx_usecs: 10.0, rx_frames: 0 }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("moderation.mode", "", "none, delay, throttle, adaptive, igb or polled")
        .short("moderation"),
    Parameter::new("moderation.rx_usecs", "us", "the rule's time (ethtool -C rx-usecs)")
        .short("rx-usecs")
        .source("e1000: 8000 interrupts/s = 125; igb: 3, which it reads as 20 000/s at most"),
    Parameter::new("moderation.rx_frames", "frames", "frames that end the wait early (rx-frames); 0: never")
        .short("rx-frames"),
];

impl Moderation {
    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.duration_us("moderation.rx_usecs", self.rx_usecs);
        let delays = matches!(self.mode, ModerationMode::Delay | ModerationMode::Throttle);
        if self.mode == ModerationMode::Delay && self.rx_usecs == 0.0 && self.rx_frames == 0 {
            problems.add("moderation.mode", "must be above 0 in mode delay: set moderation.mode to none");
        }
        if self.rx_frames > 0 && !delays {
            problems.add("moderation.rx_frames", "only the modes delay and throttle use it");
        }
    }
}

/// The moderation of one queue.
#[derive(Debug)]
pub(crate) struct Moderator {
    mode: ModerationMode,
    rx_ps: u64,
    rx_frames: u64,
    igb_usecs: u64,
    /// When the next interrupt may come at the earliest.
    not_before_ps: u64,
    pub(crate) interrupts: u64,
}

/// What the Intel drivers allow by class of traffic: lowest latency 70 000, low latency 20 000 and bulk 4 000
/// interrupts per second (igb, `IGB_70K_ITR` and its kin).
const LOWEST_PS: u64 = PS_PER_US * 1000 / 70;
const LOW_PS: u64 = PS_PER_US * 50;
const BULK_PS: u64 = PS_PER_US * 250;

impl Moderator {
    pub(crate) fn new(config: &Moderation) -> Self {
        Self {
            mode: config.mode,
            rx_ps: ps_from_us(config.rx_usecs),
            rx_frames: u64::from(config.rx_frames),
            igb_usecs: config.rx_usecs as u64,
            not_before_ps: 0,
            interrupts: 0,
        }
    }

    /// When the interrupt for a frame that waits since now may be raised, given how many wait in all.
    #[inline]
    pub(crate) fn due_ps(&self, now_ps: u64, waiting: u64) -> u64 {
        let enough = self.rx_frames > 0 && waiting >= self.rx_frames;
        match self.mode {
            _ if enough => now_ps,
            ModerationMode::None | ModerationMode::Polled => now_ps,
            ModerationMode::Delay => now_ps + self.rx_ps,
            ModerationMode::Throttle | ModerationMode::Adaptive | ModerationMode::Igb => {
                self.not_before_ps.max(now_ps)
            }
        }
    }

    /// Whether more waiting frames can bring the interrupt forward.
    #[inline]
    pub(crate) fn counts_frames(&self) -> bool {
        self.rx_frames > 0
    }

    /// The card raises the interrupt.
    #[inline]
    pub(crate) fn raised(&mut self, now_ps: u64) {
        self.interrupts += u64::from(self.mode != ModerationMode::Polled);
        if self.mode == ModerationMode::Throttle {
            self.not_before_ps = now_ps + self.rx_ps;
        }
    }

    /// The CPU has served the interrupt. Here the adaptive drivers set the next interval; igb's
    /// source says that this write restarts the card's timer.
    #[inline]
    pub(crate) fn served(&mut self, now_ps: u64, frames: u64, bytes: u64) {
        let interval_ps = match (self.mode, self.igb_usecs) {
            (ModerationMode::Adaptive, _) | (ModerationMode::Igb, 1) => adaptive_ps(frames, bytes),
            (ModerationMode::Igb, 3) => adaptive_ps(frames, bytes).max(LOW_PS),
            (ModerationMode::Igb, _) => self.rx_ps,
            _ => return,
        };
        self.not_before_ps = now_ps + interval_ps;
    }
}

/// Few small frames need low latency; many or large frames need few interrupts.
fn adaptive_ps(frames: u64, bytes: u64) -> u64 {
    match frames {
        0..=2 if bytes < 512 => LOWEST_PS,
        1.. if bytes / frames > 1200 => BULK_PS,
        _ => LOW_PS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moderator(mode: ModerationMode, rx_usecs: f64, rx_frames: u32) -> Moderator {
        Moderator::new(&Moderation { mode, rx_usecs, rx_frames })
    }

    #[test]
    fn throttling_counts_from_the_last_interrupt_and_a_delay_from_the_first_frame() {
        let mut throttle = moderator(ModerationMode::Throttle, 125.0, 0);
        assert_eq!(throttle.due_ps(5, 1), 5);
        throttle.raised(5);
        assert_eq!(throttle.due_ps(10, 1), 125_000_005);
        let delay = moderator(ModerationMode::Delay, 2.0, 3);
        assert_eq!(delay.due_ps(10, 1), 2_000_010);
        assert_eq!(delay.due_ps(10, 3), 10);
    }

    #[test]
    fn igb_reads_3_as_at_most_20_000_a_second_and_0_as_off() {
        let mut three = moderator(ModerationMode::Igb, 3.0, 0);
        three.served(0, 1, 64);
        assert_eq!(three.due_ps(0, 1), 50 * PS_PER_US);
        let mut off = moderator(ModerationMode::Igb, 0.0, 0);
        off.served(7, 1, 64);
        assert_eq!(off.due_ps(7, 1), 7);
    }

    #[test]
    fn adaptive_moderation_waits_longer_for_larger_frames() {
        assert!(adaptive_ps(1, 64) < adaptive_ps(10, 640));
        assert!(adaptive_ps(10, 640) < adaptive_ps(10, 15_000));
    }
}
