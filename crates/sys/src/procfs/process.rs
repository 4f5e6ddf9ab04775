//! Identifies processes: ids are reused, a pair of id and start time is not.

use std::fs;

/// A process, unique until reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its start in clock ticks since boot (field 22 of `proc_pid_stat(5)`).
    pub start_ticks: u64,
}

impl Process {
    /// This process.
    pub fn this() -> Self {
        let pid = std::process::id();
        Self { pid, start_ticks: start_ticks(pid).unwrap_or(0) }
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// When the process with this id started; `None` if it has ended.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the last parenthesis may contain any characters.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_alive_until_it_ends_and_another_with_its_number_is_another() {
        let this = Process::this();
        assert!(this.is_alive() && this.start_ticks > 0);
        assert!(!Process { start_ticks: this.start_ticks - 1, ..this }.is_alive());
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let its = Process { pid: child.id(), start_ticks: start_ticks(child.id()).unwrap() };
        assert!(its.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!its.is_alive());
    }
}
