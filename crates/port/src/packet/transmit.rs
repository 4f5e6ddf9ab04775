//! Sending: from a ring in shared memory (`PACKET_TX_RING`), one call per batch.

use std::io;

use sys::{
    packet::{PacketSocket, TxRing, TxRingLayout},
    rtnetlink::RouteSocket,
};

use super::{failed, open};
use crate::{Layer, PortError, Sent, TxPort};

/// Bytes of a frame beyond the interface's MTU: Ethernet header and one VLAN tag. The kernel refuses longer ones.
const BEYOND_MTU: usize = 14 + 4;

/// How to open a [`PacketTx`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketTxOptions {
    /// The interface's number in the network namespace of the thread that opens the port.
    pub interface: u32,
    /// The longest frame in bytes, without FCS.
    pub frame_bytes: usize,
    /// The most frames per call.
    pub batch_size: usize,
    /// Pass frames to the driver, bypassing the queueing discipline. A full driver then refuses a frame instead of
    /// the discipline dropping it.
    pub qdisc_bypass: bool,
}

/// Sends frames on an interface.
///
/// A frame that the interface refuses stays in the port and is sent later. Drivers still count the refusal as a drop
/// (`tx_dropped`), so [`Sent::turned_away`] counts refusals too, and only them: `tx_dropped` less
/// `turned_away` is the loss.
pub struct PacketTx {
    socket: PacketSocket,
    ring: TxRing,
    batch_size: usize,
    interface: u32,
}

impl PacketTxOptions {
    /// Frames per call: more do not help.
    pub const BATCH_SIZE: usize = 128;

    /// A ring for frames of up to `frame_bytes` bytes, in batches of 128, bypassing the queueing discipline.
    pub fn on(interface: u32, frame_bytes: usize) -> Self {
        Self { interface, frame_bytes, batch_size: Self::BATCH_SIZE, qdisc_bypass: true }
    }
}

impl PacketTx {
    /// Opens a socket and allocates the ring.
    ///
    /// # Errors
    /// [`PortError::Capability`] without CAP_NET_RAW, [`PortError::FrameTooLong`] when the interface cannot carry
    /// such frames, [`PortError::Interface`] for all other errors.
    pub fn open(options: &PacketTxOptions) -> Result<Self, PortError> {
        let &PacketTxOptions { interface, frame_bytes, batch_size, qdisc_bypass } = options;
        let socket = open(interface)?;
        // The kernel checks this for messages only, and a driver drops longer frames silently.
        let longest = longest_frame(interface)?.min(TxRingLayout::MOST_FRAME_BYTES);
        if frame_bytes > longest {
            return Err(PortError::FrameTooLong { frame_bytes, longest, interface });
        }
        socket
            .set_qdisc_bypass(qdisc_bypass)
            .map_err(failed("set PACKET_QDISC_BYPASS for sending", interface))?;
        // One half can be filled while a card still sends the other.
        let ring = socket.transmit_ring(TxRingLayout::new(2 * batch_size, frame_bytes));
        let ring = ring.map_err(failed("map a ring for sending", interface))?;
        socket.bind_to_send(interface).map_err(failed("bind a packet socket for sending", interface))?;
        Ok(Self { socket, ring, batch_size, interface })
    }
}

impl TxPort for PacketTx {
    const LAYER: Layer = Layer::Frame;

    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn prime(&mut self, mut fill: impl FnMut(&mut [u8])) {
        (0..self.ring.slots()).for_each(|slot| fill(self.ring.frame_mut(slot)));
    }

    fn send(&mut self, packets: usize, fill: impl FnMut(&mut [u8]) -> usize) -> Result<Sent, PortError> {
        let filled = match self.ring.waiting() {
            0 => self.ring.fill(packets.min(self.batch_size), fill),
            _ => 0,
        };
        if self.ring.waiting() == 0 {
            return Ok(Sent::default());
        }
        let said = self.socket.transmit();
        let taken = self.ring.count_taken();
        let mut sent = Sent { filled, taken, ..Sent::default() };
        if let Err(source) = said {
            match source.raw_os_error() {
                Some(libc::ENOBUFS) => sent.turned_away = 1,
                Some(libc::EAGAIN | libc::EINTR) => {}
                _ => return Err(failed("send", self.interface)(source)),
            }
        }
        Ok(sent)
    }
}

pub(super) fn longest_frame(interface: u32) -> Result<usize, PortError> {
    let mtu = RouteSocket::open().and_then(|mut route| Ok(route.link_by_index(interface)?.mtu));
    let unknown = |error| failed("read the MTU for sending", interface)(io::Error::other(error));
    Ok(mtu.map_err(unknown)? as usize + BEYOND_MTU)
}
