//! A program that changes nothing.

use crate::{
    error::BpfError,
    mode::Mode,
    program::{Program, object},
};

/// Passes every packet to the kernel. Attached natively to a veth, it gives that end receive rings; without them,
/// frames that XDP sends to it are lost silently.
#[derive(Debug)]
pub struct Pass {
    _program: Program,
}

impl Pass {
    /// Attaches to the interface of this number, until dropped.
    ///
    /// # Errors
    /// [`BpfError::InUse`], [`BpfError::Unsupported`], [`BpfError::MissingCapability`] and others.
    pub fn attach(interface: u32, mode: Mode) -> Result<Self, BpfError> {
        let mut program = Program::load("pass", object!("pass"), |_| ())?;
        program.attach(interface, mode)?;
        Ok(Self { _program: program })
    }
}
