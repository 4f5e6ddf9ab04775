//! Dropping one flood, and nothing else.

use std::{fmt, net::SocketAddrV4};

use aya::maps::{MapData, PerCpuArray};

use crate::{
    error::BpfError,
    mode::Mode,
    program::{Program, object},
};

/// Drops UDP packets from one IPv4 address to one port with the least code: the baseline for others.
pub struct DropFlood {
    _program: Program,
    counts: PerCpuArray<MapData, u64>,
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
        let counts = program.take_map("counts")?;
        program.attach(interface, mode)?;
        Ok(Self { _program: program, counts })
    }

    /// Packets dropped so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn dropped(&self) -> Result<u64, BpfError> {
        self.count(0)
    }

    /// Packets from other addresses to the same port, which passed.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn passed(&self) -> Result<u64, BpfError> {
        self.count(1)
    }

    /// An entry of `counts` in `drop.bpf.c`, of all CPUs.
    fn count(&self, entry: u32) -> Result<u64, BpfError> {
        let cpus = self.counts.get(&entry, 0).map_err(BpfError::map("read what a flood's filter counted"))?;
        Ok(cpus.iter().sum())
    }
}

impl fmt::Debug for DropFlood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DropFlood").finish_non_exhaustive()
    }
}
