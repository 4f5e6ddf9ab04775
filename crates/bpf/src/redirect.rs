//! Packets to AF_XDP sockets.

use std::{
    fmt,
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
    /// Slots for sockets: one more than the largest queue number.
    pub queues: u32,
}

/// Hands matching packets of queue q to the AF_XDP socket in slot q, and all others to the kernel.
pub struct Redirect {
    // Before the sockets: nothing is redirected any more when their slots go.
    _program: Program,
    sockets: XskMap<MapData>,
}

impl Default for RedirectOptions {
    /// Everything, from up to 64 queues.
    fn default() -> Self {
        Self { dst_port: 0, queues: 64 }
    }
}

impl Redirect {
    /// Attaches to the interface of this number, until dropped; without sockets, everything goes to the kernel.
    ///
    /// # Errors
    /// [`BpfError::InUse`], [`BpfError::Unsupported`], [`BpfError::MissingCapability`] and others.
    pub fn attach(interface: u32, mode: Mode, options: &RedirectOptions) -> Result<Self, BpfError> {
        let mut program = Program::load("redirect", object!("redirect"), |loader| {
            loader.override_global("dst_port", &options.dst_port, true);
            loader.map_max_entries("sockets", options.queues);
        })?;
        let sockets = program.take_map("sockets")?;
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
