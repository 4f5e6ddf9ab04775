//! The interrupt and the NAPI poll: what the driver does per interrupt, per poll and per frame, and on which
//! CPU.

use serde::{Deserialize, Serialize};

use crate::parameter::{Parameter, Problems};

/// The driver's work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Poll {
    /// The CPU that serves queue 0.
    pub first_cpu: u32,
    /// CPUs that serve queues, in turn from `first_cpu` on.
    pub cpus: u32,
    /// Frames of one poll at most (NAPI weight).
    pub budget: u32,
    /// Frames that the driver takes before it refills their descriptors; fewer wait for the next poll. 0 refills
    /// all at the end of every poll.
    pub refill_after: u32,
    /// CPU time of an interrupt until the poll starts, in nanoseconds.
    pub irq_ns: f64,
    /// CPU time of a poll without its frames, in nanoseconds.
    pub poll_ns: f64,
    /// CPU time of the driver for a frame, in nanoseconds; buffers and stack not included.
    pub driver_ns: f64,
    /// How long interrupts and polls may keep a waiting program off their CPU, in microseconds.
    pub slice_us: f64,
}

impl Default for Poll {
    fn default() -> Self {
        Self {
            first_cpu: 0,
            cpus: 1,
            budget: 64,
            refill_after: 16,
            irq_ns: 1500.0,
            poll_ns: 100.0,
            driver_ns: 74.0,
            slice_us: 2000.0,
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("poll.first_cpu", "CPU", "the CPU that serves queue 0"),
    Parameter::new("poll.cpus", "CPUs", "CPUs that serve queues, in turn from first_cpu on").short("cpus"),
    Parameter::new("poll.budget", "frames", "frames of one poll at most (NAPI weight)")
        .short("budget")
        .source("Linux NAPI_POLL_WEIGHT and e1000's weight: 64"),
    Parameter::new(
        "poll.refill_after",
        "frames",
        "frames taken before their descriptors are refilled; 0: all at a poll's end",
    )
    .source("Linux e1000 of 2.6.12: all at the end; ixgbe: 16"),
    Parameter::new("poll.irq_ns", "ns", "CPU time of an interrupt until the poll starts").short("irq-ns"),
    Parameter::new("poll.poll_ns", "ns", "CPU time of a poll without its frames"),
    Parameter::new(
        "poll.driver_ns",
        "ns",
        "CPU time of the driver for a frame; buffers and stack not included",
    )
    .short("driver-ns")
    .source("with xdp_ns and buffers 100 ns: XDP drops 10 Mpps per CPU (Cloudflare)"),
    Parameter::new(
        "poll.slice_us",
        "us",
        "how long interrupts and polls may keep a waiting program off their CPU",
    )
    .source("Linux MAX_SOFTIRQ_TIME: 2 ms"),
];

impl Poll {
    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.range("poll.first_cpu", self.first_cpu, 0, 1023);
        problems.range("poll.cpus", self.cpus, 1, 1024);
        problems.range("poll.budget", self.budget, 1, 1 << 20);
        problems.range("poll.refill_after", self.refill_after, 0, 1 << 20);
        problems.duration_ns("poll.irq_ns", self.irq_ns);
        problems.duration_ns("poll.poll_ns", self.poll_ns);
        problems.duration_ns("poll.driver_ns", self.driver_ns);
        problems.duration_us("poll.slice_us", self.slice_us);
    }

    /// The CPU that serves a queue.
    pub(crate) fn cpu_of(&self, queue: u32) -> u32 {
        self.first_cpu + queue % self.cpus
    }
}
