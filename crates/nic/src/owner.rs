//! The owner of the changes in a journal.

use std::{env, fmt};

use serde::{Deserialize, Serialize};
use sys::procfs::Process;

/// A command that changes an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process.
    pub pid: u32,
    /// Its start in clock ticks since boot: process ids are reused.
    pub start_ticks: u64,
    /// The command with its arguments.
    pub command: String,
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Self {
        let Process { pid, start_ticks } = Process::this();
        Self {
            pid,
            start_ticks,
            command: command_line(env::args_os().map(|arg| arg.to_string_lossy().into())),
        }
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        Process { pid: self.pid, start_ticks: self.start_ticks }.is_alive()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.command, self.pid)
    }
}

/// A command that can be typed again: the program's name without its folder, arguments quoted where needed.
fn command_line(mut args: impl Iterator<Item = String>) -> String {
    let program = args.next().unwrap_or_default();
    let mut line = program.rsplit('/').next().unwrap_or_default().to_owned();
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_=.,:/%+@[]".contains(letter);
    for arg in args {
        line.push(' ');
        if !arg.is_empty() && arg.chars().all(is_plain) {
            line.push_str(&arg);
        } else {
            line.push_str(&format!("'{}'", arg.replace('\'', "'\\''")));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_written_as_it_can_be_typed_again() {
        let args = ["/usr/bin/linerate", "divert", "eth0", "--match", "udp port 53", "it's", ""];
        let line = command_line(args.iter().map(|arg| (*arg).to_owned()));
        assert_eq!(line, "linerate divert eth0 --match 'udp port 53' 'it'\\''s' ''");
        let owner = Owner { pid: 7, start_ticks: 1, command: "linerate nic apply eth0".into() };
        assert_eq!(owner.to_string(), "linerate nic apply eth0 (process 7)");
    }
}
