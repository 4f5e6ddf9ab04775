//! Re-injecting packets into the kernel.

use std::fmt;

use aya::maps::{Array, MapData};
use sys::bpf_map::ArrayMemory;

use crate::{
    error::BpfError,
    live::{ended_early, in_words},
    parking::Parking,
    program::{Program, ProgramRun, object},
};

/// Passes frames to the kernel as if they had just arrived on an interface (`BPF_PROG_RUN` with live frames, since
/// Linux 5.18). XDP programs attached there natively do not see them; generic ones would, repeatedly.
///
/// The kernel assumes nothing: it verifies checksums, adds timestamps and reads VLAN tags as for any
/// received frame.
pub struct Inject {
    program: Program,
    slots: ArrayMemory,
    cursor: Array<MapData, u32>,
    _parking: Option<Parking>,
    /// Slots filled since all were empty, and how many of those the kernel took.
    filled: usize,
    taken: usize,
    interface: u32,
}

/// `sizeof(struct slot)` of `inject.bpf.c`, and the bytes of that in front of a frame.
const SLOT_BYTES: usize = 2048;
const HEAD_BYTES: usize = 8;

impl Inject {
    /// The most frames of one call.
    pub const SLOTS: usize = 256;
    /// The longest frame without FCS.
    pub const LONGEST: usize = SLOT_BYTES - HEAD_BYTES;
    /// The shortest one: an Ethernet header.
    pub const SHORTEST: usize = 14;

    /// Loads the program for the interface of this number.
    ///
    /// # Errors
    /// [`BpfError::MissingCapability`], [`BpfError::Load`], [`BpfError::Map`].
    pub fn load(interface: u32) -> Result<Self, BpfError> {
        let mut program = Program::load("inject", object!("inject"), |_| ())?;
        let slots = program.map_array("slots", Self::SLOTS, SLOT_BYTES)?;
        let cursor = program.take_map("cursor")?;
        let _parking = Parking::of(&mut program);
        Ok(Self { program, slots, cursor, _parking, filled: 0, taken: 0, interface })
    }

    /// Frames that wait for [`Inject::flush`].
    pub fn waiting(&self) -> usize {
        self.filled - self.taken
    }

    /// Frames that [`Inject::push`] takes before the next flush.
    pub fn room(&self) -> usize {
        Self::SLOTS - self.filled
    }

    /// Puts a frame into the next slot; false when no slot is free or the frame does not fit.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        if self.filled == Self::SLOTS || !(Self::SHORTEST..=Self::LONGEST).contains(&frame.len()) {
            return false;
        }
        let slot = self.slots.value_mut(self.filled);
        slot[..4].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        slot[HEAD_BYTES..HEAD_BYTES + frame.len()].copy_from_slice(frame);
        self.filled += 1;
        true
    }

    /// Re-injects the waiting frames in their order, and returns how many the kernel took: all, unless a signal
    /// arrived or there were too many runs in the last second ([`LIVE_RUN_GAP_NS`](crate::LIVE_RUN_GAP_NS)); the others
    /// keep waiting.
    ///
    /// # Errors
    /// [`BpfError::Unsupported`] before Linux 5.18, [`BpfError::ProgramRun`]: the interface is down or gone. Then none waits.
    pub fn flush(&mut self) -> Result<usize, BpfError> {
        /// `BASE` of `inject.bpf.c`.
        const BASE: [u8; 64] = [0; 64];
        let first = self.taken;
        while self.taken < self.filled {
            let frames = (self.filled - self.taken) as u32;
            let told = self.cursor.set(0, self.taken as u32, 0);
            told.map_err(BpfError::map("write which frames to re-inject"))?;
            let run = ProgramRun {
                input: &BASE,
                interface: self.interface,
                repeat: frames,
                live_batch: Some(frames),
            };
            let outcome = self.program.run(&run, None);
            let next = self.cursor.get(&0, 0);
            self.taken = next.map_err(BpfError::map("read which frames were re-injected"))? as usize;
            match outcome {
                Ok(_) => {}
                Err(error) if ended_early(&error) => break,
                Err(error) => {
                    (self.filled, self.taken) = (0, 0);
                    return Err(in_words(error));
                }
            }
        }
        let taken = self.taken - first;
        if self.taken == self.filled {
            (self.filled, self.taken) = (0, 0);
        }
        Ok(taken)
    }
}

impl fmt::Debug for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inject").field("interface", &self.interface).finish_non_exhaustive()
    }
}
