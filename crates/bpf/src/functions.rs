//! Names of the kernel's functions where it hides their addresses.

use std::fmt;

use aya::maps::{Array, MapData};

use crate::{
    error::BpfError,
    program::{Program, ProgramRun, object},
};

/// `sizeof(struct state)` of `functions.bpf.c`: the address, then the name.
const STATE_BYTES: usize = 72;
const ADDRESS_BYTES: usize = 8;

/// The kernel's own names of its functions. Needs no CAP_SYSLOG, and works with any `kernel.kptr_restrict`: a process that may
/// trace the kernel has the addresses already.
pub struct FunctionNames {
    program: Program,
    state: Array<MapData, [u8; STATE_BYTES]>,
}

impl FunctionNames {
    /// Loads the program.
    ///
    /// # Errors
    /// [`BpfError::MissingCapability`], [`BpfError::Load`]: kernels before 5.13.
    pub fn load() -> Result<Self, BpfError> {
        let mut program = Program::load("functions", object!("functions"), |_| ())?;
        let state = program.take_map(".bss")?;
        Ok(Self { program, state })
    }

    /// The function that an address lies in, without its module, cut after 63 bytes; `None` for an address in none.
    ///
    /// # Errors
    /// [`BpfError::Map`], [`BpfError::ProgramRun`].
    pub fn name(&mut self, address: u64) -> Result<Option<String>, BpfError> {
        let mut state = [0; STATE_BYTES];
        state[..ADDRESS_BYTES].copy_from_slice(&address.to_ne_bytes());
        self.state.set(0, state, 0).map_err(BpfError::map("write an address"))?;
        // A frame that nothing reads.
        let run = ProgramRun { input: &[0; 64], interface: 0, repeat: 1, live_batch: None };
        self.program.run(&run, None)?;
        let state = self.state.get(&0, 0).map_err(BpfError::map("read a function's name"))?;
        let text = &state[ADDRESS_BYTES..];
        let text = &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())];
        let text = String::from_utf8_lossy(text);
        // `veth_xmit [veth]`.
        let name = text.split(' ').next().unwrap_or_default();
        Ok((!name.is_empty() && !name.starts_with("0x")).then(|| name.to_owned()))
    }
}

impl fmt::Debug for FunctionNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionNames").field("program", &self.program).finish_non_exhaustive()
    }
}
