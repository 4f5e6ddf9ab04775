//! Packets to AF_XDP sockets.

use std::{
    fmt,
    num::NonZero,
    os::fd::{AsFd, AsRawFd},
};

use aya::maps::{MapData, XskMap};

use crate::{
    error::BpfError,
    program::{Mode, Program, object},
};

/// What goes to the sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectOptions {
    /// UDP datagrams to this port, over IPv4 or IPv6, with up to two VLAN tags; 0: every frame.
    pub dst_port: u16,
    /// Of those, only datagrams with a probe header.
    pub only_probes: bool,
    /// Each packet for a socket carries when it came in place of its destination address ([`Stamp::of`]).
    pub stamps: bool,
    /// Look at the clock for stamps once a poll of the device instead of once a packet.
    pub by_poll: bool,
    /// Slots for sockets: one more than the largest queue number.
    pub queues: u32,
}

/// When a packet came: the lower 48 bits of the monotonic clock, in nanoseconds, below a bit that is set.
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
        Self { dst_port: 0, only_probes: false, stamps: false, by_poll: false, queues: 64 }
    }
}

impl Stamp {
    const BYTES: usize = 6;
    /// The bit above.
    const PRESENT: u64 = 1 << (8 * Self::BYTES);
    /// By how much a packet may have come after `now_ns` was read.
    const AHEAD_NS: u64 = 1_000_000_000;

    /// That of a frame: in place of its destination address.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let &[a, b, c, d, e, f] = frame.first_chunk::<{ Self::BYTES }>()?;
        NonZero::new(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | Self::PRESENT).map(Self)
    }

    /// When the packet came, in nanoseconds of the monotonic clock; `now_ns` is about then: at most a second before, and
    /// not 78 hours after.
    #[inline]
    pub fn arrival_ns(self, now_ns: u64) -> u64 {
        const MASK: u64 = Stamp::PRESENT - 1;
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
        let [only_probes, stamps, by_poll] =
            [options.only_probes, options.stamps, options.by_poll].map(u32::from);
        let mut program = Program::load("redirect", object!("redirect"), |loader| {
            loader.override_global("dst_port", &options.dst_port, true);
            loader.override_global("only_probes", &only_probes, true);
            loader.override_global("stamps", &stamps, true);
            loader.override_global("by_poll", &by_poll, true);
            loader.map_max_entries("sockets", options.queues);
        })?;
        let sockets = program.take_map("sockets")?;
        if options.stamps && options.by_poll {
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
        for arrived_ns in [5u64, (1 << 48) - 1, 1 << 48, (7 << 48) + 12_345] {
            let stamp = Stamp::of(&arrived_ns.to_le_bytes()).unwrap();
            for now_ns in
                [arrived_ns, arrived_ns + 1, arrived_ns + 78 * HOUR_NS, arrived_ns.saturating_sub(900)]
            {
                assert_eq!(stamp.arrival_ns(now_ns), arrived_ns, "at {now_ns}");
            }
        }
    }
}
