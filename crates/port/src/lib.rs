//! Ports: one file per path through the kernel, all with the same two small traits.
//!
//! A port is chosen once, by type, and lends its frames: a sender writes into the port's slot,
//! a receiver reads in place.
//!
//! ```
//! use port::{RxPort, TxPort, UdpRx, UdpRxOptions, UdpTx, UdpTxOptions, Wait};
//!
//! let mut rx = UdpRx::open(&UdpRxOptions::at("127.0.0.1:0".parse()?))?;
//! let mut tx = UdpTx::open(&UdpTxOptions::to(rx.local_address()?, 32))?;
//! tx.send(1, |slot| { slot[0] = 7; 20 })?;
//! let mut first = 0;
//! rx.recv(Wait::Block, |frame| first = frame.bytes[0])?;
//! assert_eq!(first, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

use std::net::SocketAddr;

use measure::Place;
use serde::{Deserialize, Serialize};

mod error;
mod packet;
mod pci;
mod pktgen;
mod reflector;
mod returns;
mod tcp;
mod udp;
mod uring;
mod xdp;
mod xsk;

/// Counts of XDP programs, and their attachment.
pub use bpf::{
    BpfError, CountOptions, Counts, MeasureOptions, Measured, MeasuredFlow, MeasuredSender, MeasuredTimes,
    MeasuringCost, Mode as XdpMode, ProbeAction, ProbeTime, QueuePackets, SendPath, SocketLayer,
    SocketQueues, SocketQueuesOptions, StreamCount, WORK_AT_MOST_NS, WayBack,
};
pub use error::PortError;
pub use packet::{
    Fanout, FanoutMode, PacketReflector, PacketRx, PacketRxOptions, PacketStatistics, PacketTx,
    PacketTxOptions,
};
pub use pci::{Buffers, CardAccess, PciCounters, PciOptions, PciRx, PciTx, PretendedCard};
pub use pktgen::{PktgenProgress, PktgenThread, PktgenTx, PktgenTxOptions};
pub use returns::ReturnList;
/// Settings of sockets that poll their card.
pub use sys::xsk::BusyPoll;
pub use tcp::{FileCache, FileChoice, MessageFile, TcpRx, TcpRxOptions, TcpSend, TcpTx, TcpTxOptions};
pub use udp::{UdpReflector, UdpRx, UdpRxOptions, UdpTx, UdpTxOptions};
pub use uring::{UringRx, UringRxOptions, UringTx, UringTxOptions};
pub use xdp::{XdpAbilities, XdpMeter, XdpRx, XdpTx, XdpTxOptions, probe_xdp};
pub use xsk::{
    After, Recycling, Turn, XskGot, XskQueue, XskQueueOptions, XskReflector, XskRx, XskRxOptions, XskShape,
    XskTx, XskTxOptions, receive_losses,
};

/// The content of a port's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The UDP payload; the kernel builds the headers.
    Payload,
    /// The whole Ethernet frame without FCS.
    Frame,
}

/// How to wait for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Sleep until one arrives or the port's timeout expires.
    Block,
    /// Check and return at once.
    Spin,
}

/// The result of one call to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Newly filled slots.
    pub filled: usize,
    /// Packets that the kernel or ring accepted, including ones filled in an earlier call.
    pub taken: usize,
    /// Calls that returned the ICMP error of an earlier packet (port unreachable).
    pub refused: usize,
    /// Calls that the kernel refused for lack of buffers or time; the packets stay in the port.
    pub turned_away: usize,
}

/// Packets that a receiving port lost at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Where.
    pub place: Place,
    /// How many packets.
    pub packets: u64,
    /// The counters behind it, with the kernel's names.
    pub source: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

/// Buffers of merged datagrams (GRO), as a port received them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Joined {
    /// Buffers received.
    pub buffers: u64,
    /// Datagrams in all of them.
    pub datagrams: u64,
    /// The fewest datagrams of one buffer; 0 before the first.
    pub fewest: u64,
    /// The most datagrams of one buffer.
    pub most: u64,
}

impl Joined {
    /// Adds `buffers` buffers of `each` datagrams.
    #[inline]
    pub fn add(&mut self, buffers: u64, each: u64) {
        if buffers > 0 {
            let added = Self { buffers, datagrams: buffers * each, fewest: each, most: each };
            *self = self.plus(added);
        }
    }

    /// Both together.
    #[must_use]
    #[inline]
    pub fn plus(self, other: Self) -> Self {
        let fewest = match (self.fewest, other.fewest) {
            (0, fewest) | (fewest, 0) => fewest,
            (one, another) => one.min(another),
        };
        Self {
            buffers: self.buffers + other.buffers,
            datagrams: self.datagrams + other.datagrams,
            fewest,
            most: self.most.max(other.most),
        }
    }
}

/// A received packet, lent until the next call.
#[derive(Clone, Copy)]
pub struct Received<'p> {
    /// Payload or frame, according to [`RxPort::LAYER`].
    pub bytes: &'p [u8],
    /// Whether the packet was truncated to `bytes`.
    pub truncated: bool,
    /// When it was received, in nanoseconds of the clock that [`RxPort::time_source`] names; `None` if it was not
    /// stamps packets.
    pub arrived_ns: Option<u64>,
    /// The sender, if requested from the port and not in the bytes.
    pub source: Option<SocketAddr>,
}

/// The timestamp source of received packets, and its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeSource {
    /// None: the reading loop's own clock (monotonic), once per batch.
    #[default]
    Loop,
    /// The kernel, when the driver passes the packet on (wall clock).
    Kernel,
    /// An XDP program in the driver (monotonic clock).
    Program,
    /// The same, once per NAPI poll.
    Poll,
    /// The card, by its own clock.
    Card,
}

/// Sends packets of one flow set.
pub trait TxPort {
    /// What the slots hold.
    const LAYER: Layer;

    /// The most packets one call takes.
    fn batch_size(&self) -> usize;

    /// Lends every slot once, to write the constant part; slots keep their bytes from then on.
    fn prime(&mut self, fill: impl FnMut(&mut [u8]));

    /// Sends up to `packets` packets: `fill` completes one in a slot and returns its length. Packets that the
    /// kernel did not accept stay in the port and go first in the next call; nothing is filled before they are sent.
    ///
    /// # Errors
    /// When the path is broken, not when it is merely full.
    fn send(&mut self, packets: usize, fill: impl FnMut(&mut [u8]) -> usize) -> Result<Sent, PortError>;

    /// To be called after the last [`TxPort::send`]: how many of the packets that stayed in the port the kernel takes
    /// after all.
    ///
    /// # Errors
    /// When the path is broken.
    fn settle(&mut self) -> Result<usize, PortError> {
        Ok(0)
    }
}

/// Receives packets.
pub trait RxPort {
    /// What is lent.
    const LAYER: Layer;
    /// Whether [`RxPort::lost_seen`] includes everything lost before the last received packet: a reader that keeps receiving
    /// need not call [`RxPort::lost`].
    const PACKETS_TELL_LOSSES: bool = false;

    /// Lends each available packet and returns their number: 0 when none arrived in time.
    ///
    /// # Errors
    /// When the path is broken.
    fn recv(&mut self, wait: Wait, sink: impl FnMut(Received<'_>)) -> Result<usize, PortError>;

    /// The receive queue that it reads, if it is exactly one.
    fn queue(&self) -> Option<u32> {
        None
    }

    /// The timestamp source of the lent packets.
    fn time_source(&self) -> TimeSource {
        TimeSource::Loop
    }

    /// The buffers of merged datagrams; `None` if the kernel merges none.
    fn joined(&self) -> Option<Joined> {
        None
    }

    /// How a ring that it drives itself was used; `None` where the kernel drives it.
    fn ring(&mut self) -> Option<measure::RingUse> {
        None
    }

    /// Packets lost according to the packets received: costs nothing, and may lag.
    fn lost_seen(&self) -> u64;

    /// Packets that this port's socket or ring has lost so far, exactly.
    ///
    /// # Errors
    /// When the kernel does not report them.
    fn lost(&mut self) -> Result<u64, PortError>;

    /// The same packets by place.
    ///
    /// # Errors
    /// When the kernel does not report them.
    fn losses(&mut self) -> Result<Vec<Loss>, PortError>;
}
