//! Receiving on a packet socket, and sending probes back to those who agreed.

use std::sync::Arc;

use wire::turn_frame_back;

use super::{PacketRx, PacketTx, PacketTxOptions, transmit::longest_frame};
use crate::{
    Layer, Loss, PortError, Received, RxPort, TimeSource, TxPort, Wait,
    returns::{ReturnCheck, ReturnList},
};

/// A [`PacketRx`] whose probes go back through a socket beside it, a block at once. What the interface does not take at
/// once is not sent.
pub struct PacketReflector {
    rx: PacketRx,
    back: Back,
}

/// The way back.
struct Back {
    tx: PacketTx,
    /// Frames one after another, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    longest: usize,
    check: ReturnCheck,
}

impl PacketReflector {
    /// Over a port on the interface of this number.
    ///
    /// # Errors
    /// As [`PacketTx::open`].
    pub fn over(rx: PacketRx, interface: u32, list: Arc<ReturnList>) -> Result<Self, PortError> {
        /// Of any network but one between programs of a host.
        const LONGEST: usize = 9216;
        let longest = longest_frame(interface)?.min(LONGEST);
        let tx = PacketTx::open(&PacketTxOptions::on(interface, longest))?;
        let check = ReturnCheck::of(list);
        Ok(Self { rx, back: Back { tx, bytes: Vec::new(), ends: Vec::new(), longest, check } })
    }
}

impl Back {
    fn take(&mut self, frame: &[u8]) {
        if frame.len() > self.longest {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        match turn_frame_back(&mut self.bytes[start..], |sender| self.check.allows(sender)) {
            Some(_) => self.ends.push(self.bytes.len()),
            None => self.bytes.truncate(start),
        }
    }

    /// A sender that is gone misses its packets: it counts them itself.
    fn send(&mut self) -> Result<(), PortError> {
        let Self { tx, bytes, ends, check, .. } = self;
        let (mut next, mut start) = (0, 0);
        while next < ends.len() {
            let sent = tx.send(ends.len() - next, |slot| {
                let frame = &bytes[start..ends[next]];
                slot[..frame.len()].copy_from_slice(frame);
                (next, start) = (next + 1, ends[next]);
                frame.len()
            })?;
            check.add_returned(sent.taken);
            if sent.taken == 0 {
                break;
            }
        }
        bytes.clear();
        ends.clear();
        Ok(())
    }
}

impl RxPort for PacketReflector {
    const LAYER: Layer = PacketRx::LAYER;

    fn recv(&mut self, wait: Wait, mut sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        let Self { rx, back } = self;
        let packets = rx.recv(wait, |received| {
            let frame = (!received.truncated).then_some(received.bytes);
            sink(received);
            if let Some(frame) = frame {
                back.take(frame);
            }
        })?;
        back.send()?;
        Ok(packets)
    }

    fn time_source(&self) -> TimeSource {
        self.rx.time_source()
    }

    fn lost_seen(&self) -> u64 {
        self.rx.lost_seen()
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        self.rx.lost()
    }

    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        self.rx.losses()
    }
}
