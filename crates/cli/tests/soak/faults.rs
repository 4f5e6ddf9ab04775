//! What happens to commands.

use std::{thread, time::Duration};

use fastrand::Rng;

use crate::commands::{Place, Running};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A signal to one process.
    Signal(&'static str),
    /// Stopped for so many milliseconds.
    Stop(u64),
    /// Host A's interface is removed.
    Removal,
    /// The record goes to a file system of 16 KB.
    DiskFull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Save {
    Here,
    Full,
}

pub(crate) fn random_fault(random: &mut Rng) -> Fault {
    match random.u8(0..12) {
        0..3 => Fault::None,
        3..5 => Fault::Signal("INT"),
        5 => Fault::Signal("TERM"),
        6..9 => Fault::Signal("KILL"),
        9 => Fault::Stop(5000),
        10 => Fault::Removal,
        _ => Fault::DiskFull,
    }
}

impl Fault {
    pub(crate) fn save(self) -> Save {
        if self == Self::DiskFull { Save::Full } else { Save::Here }
    }

    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::Signal(_))
    }

    pub(crate) fn inflict(self, place: &mut Place, running: &mut [Running], random: &mut Rng) {
        if matches!(self, Self::None | Self::DiskFull) {
            return;
        }
        thread::sleep(Duration::from_millis(random.u64(0..2500)));
        let processes: Vec<_> = running.iter().flat_map(|running| &running.processes).collect();
        let process = processes[random.usize(0..processes.len())];
        match self {
            Self::Signal(name) => process.signal(name),
            Self::Stop(ms) => {
                process.signal("STOP");
                thread::sleep(Duration::from_millis(ms));
                process.signal("CONT");
            }
            Self::Removal => place.hosts.ip(&place.hosts.a, "link del va"),
            Self::None | Self::DiskFull => {}
        }
    }
}
