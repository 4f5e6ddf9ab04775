//! Threads of this process by name, and their CPU time.

use std::{error::Error, fs};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A thread of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread {
    id: u32,
}

impl Thread {
    /// All with this name.
    pub(crate) fn called(name: &str) -> Outcome<Vec<Self>> {
        let mut threads = Vec::new();
        for task in fs::read_dir("/proc/self/task")? {
            let task = task?;
            // A thread may have ended since.
            if fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name) {
                threads.push(Self { id: task.file_name().to_string_lossy().parse()? });
            }
        }
        Ok(threads)
    }

    /// CPU time so far, in nanoseconds.
    pub(crate) fn time_ns(self) -> Outcome<u64> {
        let spent = fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.id))?;
        Ok(spent.split(' ').next().ok_or("schedstat is empty")?.parse()?)
    }
}
