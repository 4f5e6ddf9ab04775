//! The program that reads the socket: its threads, their CPUs and what a call and a frame cost.

use serde::{Deserialize, Serialize};

use crate::parameter::{Parameter, Problems};

/// The reading program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct App {
    /// Reading threads; with 0, frames count as delivered when the stack has finished with them.
    pub threads: u32,
    /// The CPU of thread 0.
    pub first_cpu: u32,
    /// CPUs that threads run on, in turn from `first_cpu` on.
    pub cpus: u32,
    /// Frames of one call at most.
    pub batch: u32,
    /// CPU time of a call without its frames, in nanoseconds.
    pub syscall_ns: f64,
    /// CPU time to wake a sleeping thread, in nanoseconds.
    pub wakeup_ns: f64,
    /// CPU time to read one frame, in nanoseconds.
    pub recv_ns: f64,
    /// How the time for one frame is distributed.
    pub service: Service,
}

/// Distribution of the time for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Always the same.
    Fixed,
    /// Exponential with `recv_ns` as mean.
    Exponential,
}

impl Default for App {
    fn default() -> Self {
        Self {
            threads: 1,
            first_cpu: 1,
            cpus: 1024,
            batch: 512,
            syscall_ns: 250.0,
            wakeup_ns: 2000.0,
            recv_ns: 2700.0,
            service: Service::Fixed,
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("app.threads", "threads", "reading threads; 0: the stack itself consumes")
        .short("threads"),
    Parameter::new("app.first_cpu", "CPU", "the CPU of thread 0"),
    Parameter::new("app.cpus", "CPUs", "CPUs that threads run on, in turn from first_cpu on"),
    Parameter::new("app.batch", "frames", "frames of one call at most (recvmmsg)").short("batch"),
    Parameter::new("app.syscall_ns", "ns", "a call without its frames").short("syscall-ns"),
    Parameter::new("app.wakeup_ns", "ns", "waking a sleeping thread").short("wakeup-ns"),
    Parameter::new("app.recv_ns", "ns", "reading one frame")
        .short("recv-ns")
        .source("370 kpps by one pinned thread (Cloudflare)"),
    Parameter::new("app.service", "", "time for one frame: fixed or exponential"),
];

impl App {
    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.range("app.threads", self.threads, 0, 1024);
        problems.range("app.first_cpu", self.first_cpu, 0, 1023);
        problems.range("app.cpus", self.cpus, 1, 1024);
        problems.range("app.batch", self.batch, 1, 1 << 20);
        problems.duration_ns("app.syscall_ns", self.syscall_ns);
        problems.duration_ns("app.wakeup_ns", self.wakeup_ns);
        problems.duration_ns("app.recv_ns", self.recv_ns);
    }
}
