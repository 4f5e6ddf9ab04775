//! The kernel's softirq threads: they take over receiving when it takes too long, or when NAPI is threaded.

use std::{fs, path::PathBuf};

/// `ksoftirqd/N`, the thread that takes over CPU N's softirqs when they would starve other work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoftirqThreads {
    found: Vec<(u32, PathBuf)>,
}

impl SoftirqThreads {
    /// Finds one per CPU; none are visible in a container with its own PID namespace.
    pub fn find() -> Self {
        let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
            .filter_map(|entry| {
                let name = fs::read_to_string(entry.path().join("comm")).ok()?;
                let cpu = name.trim_end().strip_prefix("ksoftirqd/")?.parse().ok()?;
                // A user process may have any name; a kernel thread has no command line.
                let is_kernels = fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.is_empty());
                is_kernels.then(|| (cpu, entry.path().join("schedstat")))
            })
            .collect();
        found.sort_unstable();
        Self { found }
    }

    /// Nanoseconds of CPU time of each so far, by CPU number; unreadable ones are left out.
    pub fn run_ns(&self) -> Vec<(u32, u64)> {
        let read = |path: &PathBuf| run_ns(&fs::read_to_string(path).ok()?);
        self.found.iter().filter_map(|(cpu, path)| read(path).map(|ns| (*cpu, ns))).collect()
    }
}

/// The first number of a `schedstat` file: nanoseconds on a CPU (`proc_pid_schedstat` in `fs/proc/base.c`).
fn run_ns(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_time_is_the_first_number_of_its_schedstat() {
        assert_eq!(run_ns("123456 7 8\n"), Some(123_456));
        assert_eq!((run_ns(""), run_ns("x 1 2")), (None, None));
    }

    #[test]
    fn a_process_that_bears_the_name_is_not_taken_for_the_kernel_s() {
        let threads = SoftirqThreads::find();
        let own = format!("/proc/{}/schedstat", std::process::id());
        assert!(threads.found.iter().all(|(_, path)| path.as_os_str() != own.as_str()));
        assert_eq!(threads.run_ns().len(), threads.found.len());
    }
}
