//! The socket buffer: frames that wait for the program.

use serde::{Deserialize, Serialize};

use crate::{
    gauge::Gauge,
    parameter::{Parameter, Problems},
    run_queue::RunQueue,
    stages::packet_buffer::Frame,
};

/// Where frames wait for the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Socket {
    /// Kernel path: bytes of the receive buffer (SO_RCVBUF as the kernel doubles it).
    pub bytes: u64,
    /// Kernel path: bytes that a frame counts for, with its bookkeeping (`skb->truesize`).
    pub truesize_bytes: u32,
    /// AF_XDP: slots of the receive ring.
    pub xsk_slots: u32,
    /// One socket per program thread (SO_REUSEPORT), chosen by queue; otherwise all share one.
    pub reuseport: bool,
}

impl Default for Socket {
    fn default() -> Self {
        Self { bytes: 212_992, truesize_bytes: 768, xsk_slots: 2048, reuseport: false }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("socket.bytes", "bytes", "receive buffer of a socket, as the kernel doubles it")
        .short("rcvbuf")
        .source("Linux net.core.rmem_default: 212992"),
    Parameter::new("socket.truesize_bytes", "bytes", "bytes that a frame counts for (skb->truesize)")
        .source("Linux: 768 for a small frame in an own head, 2304 in half a page"),
    Parameter::new("socket.xsk_slots", "slots", "AF_XDP: slots of the receive ring").source("libxdp: 2048"),
    Parameter::new("socket.reuseport", "", "a socket per thread (SO_REUSEPORT) instead of one for all")
        .short("reuseport"),
];

impl Socket {
    /// Frames that fit.
    pub(crate) fn slots(&self, af_xdp: bool) -> u64 {
        if af_xdp { u64::from(self.xsk_slots) } else { self.bytes / u64::from(self.truesize_bytes) }
    }

    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.range("socket.truesize_bytes", self.truesize_bytes, 1, 1 << 20);
        problems.range("socket.xsk_slots", self.xsk_slots, 1, 1 << 20);
        if self.bytes < u64::from(self.truesize_bytes) {
            let (bytes, truesize) = (self.bytes, self.truesize_bytes);
            problems.add(
                "socket.bytes",
                format!("{bytes} bytes cannot hold one frame, which counts for {truesize}"),
            );
        }
    }
}

/// One socket's queue.
#[derive(Debug)]
pub(crate) struct Backlog {
    frames: RunQueue<Frame>,
    slots: u64,
    /// Frames that threads are reading; they hold their place until they are read.
    claimed: u64,
    pub(crate) occupancy: Gauge,
}

impl Backlog {
    pub(crate) fn new(slots: u64) -> Self {
        Self { frames: RunQueue::new(), slots, claimed: 0, occupancy: Gauge::default() }
    }

    /// Takes a frame; false when the buffer is full.
    #[inline]
    pub(crate) fn push(&mut self, now_ps: u64, frame: Frame) -> bool {
        if self.frames.len() >= self.slots {
            return false;
        }
        self.frames.push(frame);
        self.occupancy.set(now_ps, self.frames.len());
        true
    }

    /// A thread begins to read a frame.
    #[inline]
    pub(crate) fn claim(&mut self) {
        self.claimed += 1;
    }

    /// Frames that no thread is reading.
    #[inline]
    pub(crate) fn unclaimed(&self) -> u64 {
        self.frames.len() - self.claimed
    }

    /// Ends the reading of the oldest frame.
    #[inline]
    pub(crate) fn pop(&mut self, now_ps: u64) -> Option<Frame> {
        let frame = self.frames.pop()?;
        self.claimed -= 1;
        self.occupancy.set(now_ps, self.frames.len());
        Some(frame)
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.frames.len()
    }
}
