//! Packets to AF_XDP sockets.

use std::{
    fmt,
    num::NonZero,
    os::fd::{AsFd, AsRawFd},
};

use aya::maps::{MapData, XskMap};

use crate::{
    error::BpfError,
    mode::Mode,
    program::{Program, object},
};

/// What goes to the sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectOptions {
    /// UDP datagrams to this port, over IPv4 or IPv6, with up to two VLAN tags; 0: every frame.
    pub dst_port: u16,
    /// Of those, only datagrams with a probe header.
    pub only_probes: bool,
    /// Each packet for a socket carries its time of arrival in place of its destination address ([`Stamp::of`]).
    pub stamps: Option<Stamping>,
    /// Slots for sockets: one more than the largest queue number.
    pub queues: u32,
}

/// The timestamp source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamping {
    /// One reading of the monotonic clock per packet.
    Packet,
    /// One reading per poll of the device.
    Poll,
    /// The card's clock: the driver passes its timestamps to native programs.
    Card,
}

/// When a packet arrived: the lower 48 bits of a clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(NonZero<u64>);

/// Hands matching packets of queue q to the AF_XDP socket in slot q, and all others to the kernel.
pub struct Redirect {
    // Before the sockets: nothing is redirected any more when their slots go.
    _program: Program,
    sockets: XskMap<MapData>,
}

impl Default for RedirectOptions {
    /// Everything, from up to 64 queues.
    fn default() -> Self {
        Self { dst_port: 0, only_probes: false, stamps: None, queues: 64 }
    }
}

impl Stamp {
    const BYTES: usize = 6;
    /// How long after the reading of `now_ns` a packet may have arrived.
    const AHEAD_NS: u64 = 1_000_000_000;

    /// The stamp of a frame, in place of its destination address; `None` without one.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let &[a, b, c, d, e, f] = frame.first_chunk::<{ Self::BYTES }>()?;
        NonZero::new(u64::from_le_bytes([a, b, c, d, e, f, 0, 0])).map(Self)
    }

    /// When the packet arrived, in nanoseconds of the monotonic clock; `now_ns` is close: at most a second before, and
    /// less than 78 hours after. For a card's clock only differences are right: it may be off by any multiple of 78 hours.
    #[inline]
    pub fn arrival_ns(self, now_ns: u64) -> u64 {
        const MASK: u64 = (1 << (8 * Stamp::BYTES)) - 1;
        let latest_ns = now_ns + Self::AHEAD_NS;
        latest_ns - (latest_ns.wrapping_sub(self.0.get()) & MASK)
    }
}

impl Redirect {
    /// Attaches to the interface of this number, until dropped; without sockets, everything goes to the kernel.
    ///
    /// # Errors
    /// [`BpfError::InUse`], [`BpfError::Unsupported`], [`BpfError::MissingCapability`] and others.
    pub fn attach(interface: u32, mode: Mode, options: &RedirectOptions) -> Result<Self, BpfError> {
        let (by_poll, by_card) =
            (options.stamps == Some(Stamping::Poll), options.stamps == Some(Stamping::Card));
        let [only_probes, stamps, poll, card] =
            [options.only_probes, options.stamps.is_some(), by_poll, by_card].map(u32::from);
        let device = by_card.then_some(interface);
        let mut program = Program::load_for(device, "redirect", object!("redirect"), |loader| {
            loader.override_global("dst_port", &options.dst_port, true);
            loader.override_global("only_probes", &only_probes, true);
            loader.override_global("stamps", &stamps, true);
            loader.override_global("by_poll", &poll, true);
            loader.override_global("by_card", &card, true);
            loader.map_max_entries("sockets", options.queues);
        })?;
        let sockets = program.take_map("sockets")?;
        if by_poll {
            program.watch_tracepoint("redirect_polled", "napi_poll")?;
        }
        program.attach(interface, mode)?;
        Ok(Self { _program: program, sockets })
    }

    /// Puts a bound AF_XDP socket in a queue's slot. The kernel empties the slot when the socket is closed.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such slot, or it is no AF_XDP socket.
    pub fn insert(&mut self, queue: u32, socket: &impl AsFd) -> Result<(), BpfError> {
        let refused = BpfError::map(format!("redirect queue {queue} to an AF_XDP socket"));
        self.sockets.set(queue, socket.as_fd().as_raw_fd(), 0).map_err(refused)
    }

    /// Empties a queue's slot: its packets go to the kernel again.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such slot, or it is empty.
    pub fn remove(&mut self, queue: u32) -> Result<(), BpfError> {
        self.sockets.unset(queue).map_err(BpfError::map(format!("stop redirecting queue {queue}")))
    }
}

impl fmt::Debug for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redirect").field("queues", &self.sockets.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_and_the_clock_tell_when_a_packet_came() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        assert_eq!(Stamp::of(&[0, 0, 0, 0, 0, 0, 7]), None);
        for arrived_ns in [5u64, (1 << 48) - 1, (1 << 48) + 1, (7 << 48) + 12_345] {
            let stamp = Stamp::of(&arrived_ns.to_le_bytes()).unwrap();
            for now_ns in
                [arrived_ns, arrived_ns + 1, arrived_ns + 78 * HOUR_NS, arrived_ns.saturating_sub(900)]
            {
                assert_eq!(stamp.arrival_ns(now_ns), arrived_ns, "at {now_ns}");
            }
        }
    }
}
