//! The path after the driver: the kernel's stack, or XDP instead.

use serde::{Deserialize, Serialize};

use crate::parameter::{Parameter, Problems};

/// Where frames go after the driver, and the cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stack {
    /// The path.
    pub path: Path,
    /// Kernel path: CPU time from the driver to the socket for a frame, in nanoseconds.
    pub stack_ns: f64,
    /// XDP and AF_XDP: CPU time of the program and its verdict for a frame, in nanoseconds.
    pub xdp_ns: f64,
    /// Bypassed queue: CPU time of the program that owns it for a frame, driver work included.
    pub bypass_ns: f64,
}

/// Paths from the driver on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Through the kernel's stack to a socket.
    Kernel,
    /// An XDP program counts the frame and drops it.
    XdpDrop,
    /// An XDP program hands the frame to an AF_XDP socket of its queue.
    AfXdp,
}

impl Default for Stack {
    fn default() -> Self {
        Self { path: Path::Kernel, stack_ns: 465.0, xdp_ns: 10.0, bypass_ns: 169.0 }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("stack.path", "", "kernel, xdp-drop or af-xdp").short("path"),
    Parameter::new("stack.stack_ns", "ns", "kernel path: from the driver to the socket, for a frame")
        .short("stack-ns")
        .source("with driver and buffers 555 ns: 1.8 Mpps per CPU to tc (Cloudflare)"),
    Parameter::new("stack.xdp_ns", "ns", "XDP: the program and its verdict, for a frame").short("xdp-ns"),
    Parameter::new("stack.bypass_ns", "ns", "bypassed queue: all CPU time of its program for a frame")
        .source("single RX queue bypass: 5.9 Mpps on one core"),
];

impl Stack {
    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.duration_ns("stack.stack_ns", self.stack_ns);
        problems.duration_ns("stack.xdp_ns", self.xdp_ns);
        problems.duration_ns("stack.bypass_ns", self.bypass_ns);
    }
}
