//! Receives on a UDP socket, and returns probes to senders that agreed.

use std::{net::SocketAddr, sync::Arc};

use sys::udp::{SendBatch, UdpSocket};
use wire::ProbeHeader;

use super::{UdpRx, UdpRxOptions};
use crate::{
    PortError, Received,
    reflector::{Back, Reflector},
    returns::{ReturnCheck, ReturnList},
};

/// A [`UdpRx`] that returns probes from the same socket after they were read. Packets that the kernel refuses at
/// once is not sent.
pub type UdpReflector = Reflector<UdpRx, UdpBack>;

/// The way back.
pub struct UdpBack {
    socket: UdpSocket,
    batch: SendBatch,
    waiting: usize,
    check: ReturnCheck,
}

impl UdpReflector {
    /// The most packets per call.
    const BATCH: usize = 256;
    /// The longest payload that is returned.
    const LONGEST: usize = UdpRx::SLOT_BYTES;

    /// Over a port that was opened with [`UdpRxOptions::times`], by which it knows the sender of a packet.
    ///
    /// # Errors
    /// [`PortError::Option`] when no descriptor is left.
    ///
    /// # Panics
    /// When the port does not know its packets' senders.
    pub fn over(rx: UdpRx, options: &UdpRxOptions, list: Arc<ReturnList>) -> Result<Self, PortError> {
        assert!(options.times.is_some(), "returning packets requires knowing their senders");
        let socket = rx.socket.try_clone().map_err(|source| PortError::Option { option: "dup", source })?;
        let batch = SendBatch::new(Self::BATCH, 1, Self::LONGEST).with_destinations();
        Ok(Self { rx, back: UdpBack { socket, batch, waiting: 0, check: ReturnCheck::of(list) } })
    }

    /// The address bound to.
    ///
    /// # Errors
    /// As [`UdpRx::local_address`].
    pub fn local_address(&self) -> Result<SocketAddr, PortError> {
        self.rx.local_address()
    }
}

impl UdpBack {
    /// A sender that no longer exists, or whose path is full, misses its packets and counts them itself.
    fn flush(&mut self) {
        let mut from = 0;
        while from < self.waiting {
            match self.batch.send(&self.socket, from, self.waiting) {
                Ok(taken) => {
                    self.check.add_returned(taken);
                    from += taken;
                }
                Err(_) => from += 1,
            }
        }
        self.waiting = 0;
    }
}

impl Back for UdpBack {
    #[inline]
    fn take(&mut self, received: &Received<'_>) {
        let (payload, Some(to)) = (received.bytes, received.source) else { return };
        let fits = payload.len() <= UdpReflector::LONGEST;
        if !fits || ProbeHeader::read(payload).is_none() || !self.check.allows(to.ip()) {
            return;
        }
        if self.waiting == self.batch.slots() {
            self.flush();
        }
        let slot = &mut self.batch.slot_mut(self.waiting)[..payload.len()];
        slot.copy_from_slice(payload);
        ProbeHeader::turn_back(slot);
        self.batch.set_len(self.waiting, payload.len());
        self.batch.set_destination(self.waiting, to);
        self.waiting += 1;
    }

    fn send(&mut self) -> Result<(), PortError> {
        self.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RxPort, TimeSource, TxPort, UdpTx, UdpTxOptions, Wait};

    #[test]
    fn probes_come_back_to_who_agreed_and_to_nobody_else() {
        let here = "127.0.0.1:0".parse().unwrap();
        let options = UdpRxOptions { times: Some(TimeSource::Kernel), ..UdpRxOptions::at(here) };
        let list = Arc::new(ReturnList::default());
        let rx = UdpRx::open(&options).unwrap();
        let mut reflector = UdpReflector::over(rx, &options, list.clone()).unwrap();
        let to = UdpTxOptions { returns: true, ..UdpTxOptions::to(reflector.local_address().unwrap(), 18) };
        let mut tx = UdpTx::open(&to).unwrap();
        let mut back = tx.return_ports().unwrap();
        let mut send = |magic_is_right: bool, sequence| {
            let filled = tx.send(1, |slot| {
                ProbeHeader { sequence, raw_time: 5, stream: 6 }.write(slot);
                slot[0] ^= u8::from(!magic_is_right);
                18
            });
            assert_eq!(filled.unwrap().taken, 1);
        };
        let mut pass = |packets| {
            let mut seen = 0;
            while seen < packets {
                seen += reflector.recv(Wait::Block, |_| {}).unwrap();
            }
        };
        send(true, 1);
        pass(1);
        list.allow("127.0.0.1".parse().unwrap()).unwrap();
        send(false, 2);
        send(true, 3);
        pass(2);
        let mut headers = Vec::new();
        while headers.is_empty() {
            back[0]
                .recv(Wait::Block, |received| {
                    // Some kernels do not stamp the first packets after the request.
                    headers.push(ProbeHeader::read_returned(received.bytes));
                })
                .unwrap();
        }
        assert_eq!(headers, [Some(ProbeHeader { sequence: 3, raw_time: 5, stream: 6 })]);
        assert_eq!(list.returned(), 1);
    }
}
