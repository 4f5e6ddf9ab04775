//! The packet buffer: the card's own memory, a first-in first-out queue of whole frames.

use serde::{Deserialize, Serialize};

use crate::{
    gauge::Gauge,
    parameter::{Parameter, Problems},
    run_queue::RunQueue,
};

/// The card's memory for received frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PacketBuffer {
    /// Bytes of the receive share, per port.
    pub bytes: u64,
}

impl Default for PacketBuffer {
    fn default() -> Self {
        Self { bytes: 512 * 1024 }
    }
}

pub(crate) const PARAMETERS: &[Parameter] =
    &[Parameter::new("packet_buffer.bytes", "bytes", "receive share of the card's memory, per port")
        .short("fifo")
        .source("Intel 82599 datasheet: 512 KB; RDR paper's card: 48 of 64 KB")];

impl PacketBuffer {
    pub(crate) fn check(&self, largest_frame: u32, problems: &mut Problems) {
        if self.bytes < u64::from(largest_frame) {
            let bytes = self.bytes;
            problems.add(
                "packet_buffer.bytes",
                format!("{bytes} bytes cannot hold one frame of {largest_frame} bytes"),
            );
        }
    }
}

/// A frame on the card: its size and the queue that RSS chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Frame {
    pub(crate) bytes: u32,
    pub(crate) queue: u16,
}

/// One port's packet buffer.
#[derive(Debug)]
pub(crate) struct Fifo {
    frames: RunQueue<Frame>,
    bytes: u64,
    capacity: u64,
    pub(crate) occupancy: Gauge,
}

impl Fifo {
    pub(crate) fn new(config: &PacketBuffer) -> Self {
        Self { frames: RunQueue::new(), bytes: 0, capacity: config.bytes, occupancy: Gauge::default() }
    }

    /// Takes a frame; false when it does not fit.
    #[inline]
    pub(crate) fn push(&mut self, now_ps: u64, frame: Frame) -> bool {
        let bytes = self.bytes + u64::from(frame.bytes);
        if bytes > self.capacity {
            return false;
        }
        self.bytes = bytes;
        self.frames.push(frame);
        self.occupancy.set(now_ps, self.frames.len());
        true
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<Frame> {
        self.frames.front()
    }

    /// Removes the oldest frame: it has left over the bus, or it was dropped.
    #[inline]
    pub(crate) fn pop(&mut self, now_ps: u64) -> Option<Frame> {
        let frame = self.frames.pop()?;
        self.bytes -= u64::from(frame.bytes);
        self.occupancy.set(now_ps, self.frames.len());
        Some(frame)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> u64 {
        self.frames.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_do_not_fit_are_refused_and_space_comes_back() {
        let mut fifo = Fifo::new(&PacketBuffer { bytes: 200 });
        let frame = |bytes| Frame { bytes, queue: 0 };
        assert!(fifo.push(0, frame(128)));
        assert!(!fifo.push(1, frame(128)));
        assert!(fifo.push(2, frame(64)));
        assert_eq!(fifo.pop(3), Some(frame(128)));
        assert!(fifo.push(4, frame(128)));
        assert_eq!((fifo.bytes(), fifo.len()), (192, 2));
    }
}
