//! Receiving: blocks of packets from a ring, alone or shared with other sockets.

use std::{
    hint, io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use measure::Place;
use sys::{
    clock,
    packet::{FanoutMode, Packet, PacketSocket, RxRing, RxRingLayout, Statistics},
};

use super::{failed, open};
use crate::{Layer, Loss, PortError, Received, RxPort, TimeSource, Wait};

/// How long a blocking call waits before it returns to check for a stop.
const TIMEOUT: Duration = Duration::from_millis(20);

/// How long a block with packets may stay open: the kernel closes it in [`PacketRxOptions::retire_after`], or as soon as
/// it has a CPU.
const LATEST_CLOSE: Duration = Duration::from_secs(1);

/// How to open a [`PacketRx`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketRxOptions {
    /// The interface's number in the network namespace of the thread that opens the port.
    pub interface: u32,
    /// Share the interface's packets with other ports of the same group instead of receiving all.
    pub fanout: Option<Fanout>,
    /// Bytes of a block: a multiple of 4096. A longer packet is truncated; with GRO the kernel makes packets of 64 KiB.
    pub block_bytes: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// The longest time that a packet waits for its block to fill up, in whole milliseconds, at least 1.
    pub retire_after: Duration,
    /// The timestamp source: the kernel, or the card if it is set to stamp.
    pub stamp: TimeSource,
}

/// A group of ports that share an interface's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fanout {
    /// The group's number, free to choose in a network namespace.
    pub group: u16,
    /// How they share; the same for all of the group.
    pub mode: FanoutMode,
}

/// Receives the frames that come in at an interface, of all protocols; the kernel still gets them too.
pub struct PacketRx {
    socket: PacketSocket,
    ring: RxRing,
    statistics: Statistics,
    interface: u32,
    stamp: TimeSource,
}

impl PacketRxOptions {
    /// Bytes of the ring that [`PacketRxOptions::on`] requests.
    pub const USUAL_RING_BYTES: usize = 32 * (256 << 10);

    /// All packets of an interface, in 32 blocks of 256 KiB, each packet at most 4 ms late.
    pub fn on(interface: u32) -> Self {
        Self {
            interface,
            fanout: None,
            block_bytes: 256 << 10,
            blocks: Self::USUAL_RING_BYTES / (256 << 10),
            retire_after: Duration::from_millis(4),
            stamp: TimeSource::Kernel,
        }
    }
}

impl PacketRx {
    /// Opens a socket with a ring, which receives from now on.
    ///
    /// # Errors
    /// [`PortError::Capability`] without CAP_NET_RAW, [`PortError::Interface`] for all else.
    pub fn open(options: &PacketRxOptions) -> Result<Self, PortError> {
        let &PacketRxOptions { interface, fanout, block_bytes, blocks, retire_after, stamp } = options;
        let socket = open(interface)?;
        let ring = socket
            .receive_ring(RxRingLayout { block_bytes, blocks, retire_after })
            .map_err(failed("map a ring for receiving", interface))?;
        if stamp == TimeSource::Card {
            socket.ask_card().map_err(failed("request the card's stamps", interface))?;
        }
        match fanout {
            None => socket.bind_to_receive(interface),
            Some(Fanout { group, mode }) => socket.bind_to_share(interface, group, mode),
        }
        .map_err(failed("bind a packet socket for receiving", interface))?;
        Ok(Self { socket, ring, statistics: Statistics::default(), interface, stamp })
    }

    /// Packets for this port, the lost ones among them, and how often its ring was full.
    ///
    /// # Errors
    /// [`PortError::Interface`] when the kernel does not report them.
    pub fn statistics(&mut self) -> Result<Statistics, PortError> {
        let more = self.socket.take_statistics();
        let more = more.map_err(failed("read PACKET_STATISTICS", self.interface))?;
        self.statistics = self.statistics.plus(more);
        Ok(self.statistics)
    }

    /// Spins while the kernel fills the next block: a check must not miss packets that have already arrived.
    fn wait_while_filling(&self) {
        let deadline = clock::monotonic_ns() + clock::nanos(LATEST_CLOSE);
        while self.ring.is_filling() && !self.ring.is_ready() && clock::monotonic_ns() < deadline {
            hint::spin_loop();
        }
    }
}

impl AsFd for PacketRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl RxPort for PacketRx {
    const LAYER: Layer = Layer::Frame;
    /// Set by `TP_STATUS_LOSING`, which makes `recv` read the counters.
    const PACKETS_TELL_LOSSES: bool = true;

    /// At most one block per call. With [`Wait::Spin`] it waits for a block that already holds packets.
    fn recv(&mut self, wait: Wait, mut sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        if !self.ring.is_ready() {
            match wait {
                Wait::Spin => self.wait_while_filling(),
                Wait::Block => {
                    self.socket.wait_for_block(TIMEOUT).map_err(failed("receive", self.interface))?;
                }
            }
        }
        let by_card = self.stamp == TimeSource::Card;
        let read = self.ring.read_block(|Packet { bytes, truncated, stamped_ns, is_by_card }| {
            // Without the card's stamp the kernel's is present, which was not requested.
            let arrived_ns = (is_by_card == by_card).then_some(stamped_ns);
            sink(Received { bytes, truncated, arrived_ns, source: None });
        });
        let Some(read) = read else { return Ok(0) };
        if read.malformed {
            let source = io::Error::new(io::ErrorKind::InvalidData, "a block of the ring is invalid");
            return Err(failed("receive", self.interface)(source));
        }
        if read.losing {
            self.statistics()?;
        }
        Ok(read.packets)
    }

    fn time_source(&self) -> TimeSource {
        self.stamp
    }

    fn lost_seen(&self) -> u64 {
        self.statistics.drops
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        Ok(self.statistics()?.drops)
    }

    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        Ok(vec![Loss {
            place: Place::PacketRing,
            packets: self.lost()?,
            source: "PACKET_STATISTICS tp_drops",
            remedy: "the reader does not keep up: more threads, or more blocks",
        }])
    }
}
