//! The emulator's plugin that counts instructions by function, caller and thread: `counter/counter.c`, which the build
//! compiles and this program carries with it.

use std::fs::File;
use std::io;

use sys::memory_file::memory_file;

use super::plan::{Accel, VmPlan};

/// Empty where the build is not for x86-64, whose machines the emulator emulates.
const COUNTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/counter.so"));

/// The plugin for the emulator to open; `None` for a plan that counts nothing.
pub(crate) fn of(plan: &VmPlan) -> io::Result<Option<File>> {
    let counts = plan.accel == Accel::Counting && plan.share.is_some();
    counts.then(|| memory_file(c"linerate-counter.so", COUNTER)).transpose()
}
