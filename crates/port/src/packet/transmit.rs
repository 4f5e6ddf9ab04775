//! Sending: from a ring that the kernel reads, or in `sendmmsg` calls.

use std::{io, ops::Range, time::Duration};

use sys::{
    packet::{PacketSocket, TxRing, TxRingLayout},
    rtnetlink::RouteSocket,
    udp::SendBatch,
};

use super::{failed, open};
use crate::{Layer, PortError, Sent, TxPort};

/// How long a `sendmmsg` may wait for the send buffer before it comes back.
const TIMEOUT: Duration = Duration::from_millis(20);
/// Bytes of a frame beyond the interface's MTU: Ethernet header and one VLAN tag. The kernel refuses longer ones.
const BEYOND_MTU: usize = 14 + 4;

/// How to open a [`PacketTx`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketTxOptions {
    /// The interface's number in the network namespace of the thread that opens the port.
    pub interface: u32,
    /// The longest frame in bytes, without FCS.
    pub frame_bytes: usize,
    /// Frames a call, at most.
    pub batch_size: usize,
    /// Hand frames to the driver past the queueing discipline. A full driver then refuses a frame instead of
    /// the discipline dropping it.
    pub qdisc_bypass: bool,
    /// How frames reach the kernel.
    pub mode: PacketTxMode,
}

/// How frames reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacketTxMode {
    /// From a ring in shared memory (`PACKET_TX_RING`), one call a batch: the faster one, as
    /// `cargo bench -p linerate-port --bench packet` shows.
    #[default]
    Ring,
    /// As messages, one `sendmmsg` a batch.
    Sendmmsg,
}

/// Sends frames on an interface.
///
/// A frame that the interface refuses stays in the port and goes later. Drivers count the refusal as a drop all
/// the same (`tx_dropped`), so [`Sent::turned_away`] counts refusals too, and only them: `tx_dropped` less
/// `turned_away` is what was lost. That is exact for a ring; `sendmmsg` does not tell a refusal from a send buffer
/// that stayed full for 20 ms, and both are counted.
pub struct PacketTx {
    socket: PacketSocket,
    frames: Frames,
    batch_size: usize,
    interface: u32,
}

/// Where frames wait.
enum Frames {
    Ring(TxRing),
    Batch { batch: SendBatch, waiting: Range<usize> },
}

impl PacketTxOptions {
    /// Frames a call: more bring nothing.
    pub const BATCH_SIZE: usize = 128;

    /// A ring for frames of up to `frame_bytes` bytes, in batches of 128, past the queueing discipline.
    pub fn on(interface: u32, frame_bytes: usize) -> Self {
        Self {
            interface,
            frame_bytes,
            batch_size: Self::BATCH_SIZE,
            qdisc_bypass: true,
            mode: PacketTxMode::default(),
        }
    }
}

impl PacketTx {
    /// Opens a socket and makes room for frames.
    ///
    /// # Errors
    /// [`PortError::Capability`] without CAP_NET_RAW, [`PortError::FrameTooLong`] when the interface cannot carry
    /// such frames, [`PortError::Interface`] for all else.
    pub fn open(options: &PacketTxOptions) -> Result<Self, PortError> {
        let &PacketTxOptions { interface, frame_bytes, batch_size, qdisc_bypass, mode } = options;
        let socket = open(interface)?;
        // The kernel checks this for messages only, and a driver drops what is too long without a word.
        let longest = longest_frame(interface)?.min(TxRingLayout::MOST_FRAME_BYTES);
        if frame_bytes > longest {
            return Err(PortError::FrameTooLong { frame_bytes, longest, interface });
        }
        socket
            .set_qdisc_bypass(qdisc_bypass)
            .map_err(failed("set PACKET_QDISC_BYPASS for sending", interface))?;
        let frames = match mode {
            PacketTxMode::Ring => {
                // One half can be filled while a card still sends the other.
                let ring = socket.transmit_ring(TxRingLayout::new(2 * batch_size, frame_bytes));
                Frames::Ring(ring.map_err(failed("map a ring for sending", interface))?)
            }
            PacketTxMode::Sendmmsg => {
                socket.set_send_timeout(TIMEOUT).map_err(failed("set SO_SNDTIMEO for sending", interface))?;
                Frames::Batch { batch: SendBatch::new(batch_size, 1, frame_bytes), waiting: 0..0 }
            }
        };
        socket.bind_to_send(interface).map_err(failed("bind a packet socket for sending", interface))?;
        Ok(Self { socket, frames, batch_size, interface })
    }
}

impl Frames {
    /// Fills up to `packets` slots if none waits.
    fn fill(&mut self, packets: usize, mut fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        match self {
            Self::Ring(ring) if ring.waiting() == 0 => ring.fill(packets, fill),
            Self::Batch { batch, waiting } if waiting.start == waiting.end => {
                for slot in 0..packets {
                    let len = fill(batch.slot_mut(slot));
                    batch.set_len(slot, len);
                }
                *waiting = 0..packets;
                packets
            }
            _ => 0,
        }
    }

    fn waiting(&self) -> usize {
        match self {
            Self::Ring(ring) => ring.waiting(),
            Self::Batch { waiting, .. } => waiting.len(),
        }
    }

    /// Hands over what waits: how many frames were taken, and what the kernel says about the next.
    fn hand_over(&mut self, socket: &PacketSocket) -> (usize, io::Result<()>) {
        match self {
            Self::Ring(ring) => {
                let said = socket.transmit();
                (ring.count_taken(), said)
            }
            Self::Batch { batch, waiting } => match batch.send(socket, waiting.start, waiting.end) {
                Ok(taken) => {
                    waiting.start += taken;
                    // `sendmmsg` keeps the reason to itself when it took some; it waits for the send buffer.
                    let refused = || io::Error::from_raw_os_error(libc::ENOBUFS);
                    (taken, if waiting.start == waiting.end { Ok(()) } else { Err(refused()) })
                }
                Err(error) => (0, Err(error)),
            },
        }
    }
}

impl TxPort for PacketTx {
    const LAYER: Layer = Layer::Frame;

    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn prime(&mut self, mut fill: impl FnMut(&mut [u8])) {
        match &mut self.frames {
            Frames::Ring(ring) => (0..ring.slots()).for_each(|slot| fill(ring.frame_mut(slot))),
            Frames::Batch { batch, .. } => (0..batch.slots()).for_each(|slot| fill(batch.slot_mut(slot))),
        }
    }

    fn send(&mut self, packets: usize, fill: impl FnMut(&mut [u8]) -> usize) -> Result<Sent, PortError> {
        let filled = self.frames.fill(packets.min(self.batch_size), fill);
        if self.frames.waiting() == 0 {
            return Ok(Sent::default());
        }
        let (taken, said) = self.frames.hand_over(&self.socket);
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
