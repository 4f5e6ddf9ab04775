//! `--hold-cpu`: the CPUs' frequency and idle states, held while a command runs.

use sys::cpu_control::{CpuControl, HeldCpus};

use crate::{
    args::Command,
    failure::{Failure, Status},
};

/// Holds the CPUs if the command requests it, until the result is dropped or the process ends in any way.
pub(crate) fn of(command: &Command) -> Result<Option<HeldCpus>, Failure> {
    if !command.holds_cpus() {
        return Ok(None);
    }
    let held = HeldCpus::hold().map_err(|error| {
        let failure = Failure::of(Status::Refused, &error);
        match error.source.kind() {
            std::io::ErrorKind::WouldBlock => {
                failure.hint("another linerate holds them: wait until it has finished")
            }
            std::io::ErrorKind::PermissionDenied => failure.hint("run as root, or without --hold-cpu"),
            _ => failure,
        }
    })?;
    let is_virtual = CpuControl::read().is_virtual;
    let place = if is_virtual { "in this virtual machine" } else { "on this machine" };
    if !held.frequency {
        eprintln!("note: --hold-cpu: the CPUs' frequency is not visible {place}, so it is not held");
    }
    if !held.idle {
        eprintln!("note: --hold-cpu: idle states are not visible {place}, so they are not held");
    } else if is_virtual {
        eprintln!(
            "note: --hold-cpu: idle states of this virtual machine are held; the hypervisor has its own"
        );
    }
    Ok(Some(held))
}
