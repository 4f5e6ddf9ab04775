//! Receives on a packet socket, and returns probes to senders that agreed.

use std::sync::Arc;

use wire::turn_frame_back;

use super::{PacketRx, PacketTx, PacketTxOptions, transmit::longest_frame};
use crate::{
    PortError, Received, TxPort,
    reflector::{Back, Reflector},
    returns::{ReturnCheck, ReturnList},
};

/// A [`PacketRx`] whose probes return through a second socket, one block at a time. Packets that the interface refuses at
/// once is not sent.
pub type PacketReflector = Reflector<PacketRx, PacketBack>;

/// The way back.
pub struct PacketBack {
    tx: PacketTx,
    /// Concatenated frames, and the end of each.
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
        /// Any network except one between programs of the same host.
        const LONGEST: usize = 9216;
        let longest = longest_frame(interface)?.min(LONGEST);
        let tx = PacketTx::open(&PacketTxOptions::on(interface, longest))?;
        let check = ReturnCheck::of(list);
        Ok(Self { rx, back: PacketBack { tx, bytes: Vec::new(), ends: Vec::new(), longest, check } })
    }
}

impl Back for PacketBack {
    fn take(&mut self, received: &Received<'_>) {
        let frame = received.bytes;
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

    /// A sender that no longer exists misses its packets and counts them itself.
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
