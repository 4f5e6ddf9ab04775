//! Dropping one flood, and nothing else.

use std::{fmt, net::SocketAddrV4};

use aya::maps::{MapData, PerCpuArray};

use crate::{
    error::BpfError,
    program::{Mode, Program, object},
};

/// Drops UDP packets from one IPv4 address to one port, as bare as a program can: what others are measured against.
pub struct DropFlood {
    _program: Program,
    dropped: PerCpuArray<MapData, u64>,
}

impl DropFlood {
    /// Attaches to the interface of this number, until dropped. `flood` is where the packets come from and the port
    /// that they go to.
    ///
    /// # Errors
    /// [`BpfError::InUse`], [`BpfError::Unsupported`], [`BpfError::MissingCapability`] and others.
    pub fn attach(interface: u32, mode: Mode, flood: SocketAddrV4) -> Result<Self, BpfError> {
        let (source, dst_port) = (u32::from_ne_bytes(flood.ip().octets()), flood.port());
        let mut program = Program::load("drop", object!("drop"), |loader| {
            loader.override_global("source", &source, true).override_global("dst_port", &dst_port, true);
        })?;
        let dropped = program.take_map("dropped")?;
        program.attach(interface, mode)?;
        Ok(Self { _program: program, dropped })
    }

    /// Packets dropped so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn dropped(&self) -> Result<u64, BpfError> {
        let counts = self.dropped.get(&0, 0).map_err(BpfError::map("read the dropped packets"))?;
        Ok(counts.iter().sum())
    }
}

impl fmt::Debug for DropFlood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DropFlood").finish_non_exhaustive()
    }
}
