//! CPUs: those that this thread may use, its pinning, and its CPU time.

use std::{io, mem};

/// CPU time of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// User time in nanoseconds.
    pub user_ns: u64,
    /// System time in nanoseconds, including softirqs in the thread's context unless the kernel accounts
    /// interrupt time precisely.
    pub system_ns: u64,
}

/// The CPUs that this thread may run on, ascending.
///
/// # Errors
/// What the kernel said.
pub fn allowed() -> io::Result<Vec<u32>> {
    let mut set: libc::cpu_set_t = empty_set();
    // SAFETY: `set` is as large as the size given, and writable.
    let status = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..libc::CPU_SETSIZE as u32)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu as usize, &set) })
        .collect())
}

/// Pins this thread to one CPU.
///
/// # Errors
/// `EINVAL` for a CPU that is offline, absent or outside the thread's cpuset.
pub fn pin_to(cpu: u32) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as u32 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set: libc::cpu_set_t = empty_set();
    // SAFETY: the index is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: `set` is as large as the size given.
    let status = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets this thread run on these CPUs alone.
///
/// # Errors
/// `EINVAL` where none of them can be used.
pub fn run_on(cpus: &[u32]) -> io::Result<()> {
    let mut set: libc::cpu_set_t = empty_set();
    for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as u32) {
        // SAFETY: the index is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(*cpu as usize, &mut set) };
    }
    // SAFETY: `set` is as large as the size given.
    let status = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this thread the lowest priority of ordinary threads (nice 19): others on its CPU go first.
///
/// # Errors
/// The kernel's error; none is expected.
pub fn give_way() -> io::Result<()> {
    const LEAST: libc::c_int = 19;
    // SAFETY: no pointers; 0 is the calling thread.
    let status = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LEAST) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a thread outrank all ordinary ones on its CPU (`SCHED_FIFO`, lowest priority); 0 is the calling one. For threads that
/// need little CPU time, but at once.
///
/// # Errors
/// `EPERM` without CAP_SYS_NICE, `ESRCH`.
pub fn go_first(thread: u32) -> io::Result<()> {
    let thread = libc::pid_t::try_from(thread).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // The kernel's `struct sched_param`. The system call itself: musl's function always fails.
    let priority: libc::c_int = 1;
    // SAFETY: the parameters live as long as the call.
    let status =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, libc::SCHED_FIFO, &raw const priority) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for an RCU grace period: softirqs that run now have then ended.
///
/// # Errors
/// The kernel's error: it refuses with tickless CPUs (`nohz_full`).
pub fn wait_for_readers() -> io::Result<()> {
    // SAFETY: no pointers.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The CPU this thread runs on now.
pub fn current() -> Option<u32> {
    // SAFETY: takes nothing and touches no memory.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).ok()
}

/// CPU time this thread has used (`getrusage(RUSAGE_THREAD)`), to the microsecond; the split between user and
/// system has the resolution of a timer tick.
pub fn thread_time() -> CpuTime {
    // getrusage alone returns the state of the last tick, milliseconds ago; reading this clock updates it.
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec for the call to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    used_by(libc::RUSAGE_THREAD)
}

/// CPU time that ended child processes and their own ended children have used (`getrusage(RUSAGE_CHILDREN)`); a
/// child counts once it has been waited for.
pub fn children_time() -> CpuTime {
    used_by(libc::RUSAGE_CHILDREN)
}

/// CPU time that this process has used, all its threads together (`getrusage(RUSAGE_SELF)`).
pub fn process_time() -> CpuTime {
    used_by(libc::RUSAGE_SELF)
}

fn used_by(whom: libc::c_int) -> CpuTime {
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is a valid rusage for the call to write to.
    let status = unsafe { libc::getrusage(whom, &mut usage) };
    assert_eq!(status, 0, "every kernel has RUSAGE_THREAD, RUSAGE_CHILDREN and RUSAGE_SELF");
    let nanos = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    CpuTime { user_ns: nanos(usage.ru_utime), system_ns: nanos(usage.ru_stime) }
}

/// The peak resident memory of this process in bytes (`getrusage`).
pub fn peak_memory_bytes() -> u64 {
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is a valid rusage for the call to write to.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage.ru_maxrss as u64 * 1024
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: an all-zero set is a valid, empty one.
    unsafe { mem::zeroed() }
}

impl CpuTime {
    /// Time used since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// User and system together.
    pub fn total_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gives_way_is_at_nice_19_and_no_other_is() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, rest) = stat.rsplit_once(") ").unwrap();
            rest.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
        };
        let before = nice();
        let there = std::thread::spawn(move || give_way().map(|()| nice())).join().unwrap();
        assert_eq!((there.unwrap(), nice()), (19, before));
    }

    #[test]
    fn a_thread_goes_first_where_it_may() {
        let (outcome, policy) = std::thread::spawn(|| {
            let outcome = go_first(0);
            // SAFETY: no pointers; 0 is the calling thread.
            (outcome, unsafe { libc::sched_getscheduler(0) })
        })
        .join()
        .unwrap();
        match outcome {
            Ok(()) => assert_eq!(policy, libc::SCHED_FIFO),
            Err(error) => assert_eq!((error.raw_os_error(), policy), (Some(libc::EPERM), libc::SCHED_OTHER)),
        }
        assert_eq!(go_first(u32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_pinned_thread_runs_there() {
        std::thread::spawn(|| {
            let last = *allowed().unwrap().last().unwrap();
            pin_to(last).unwrap();
            assert_eq!(current(), Some(last));
            assert_eq!(allowed().unwrap(), vec![last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_s_time_grows_by_less_than_a_timer_tick() {
        let growth_ns = || {
            let before = thread_time();
            loop {
                let grown_ns = thread_time().since(before).total_ns();
                if grown_ns > 0 {
                    return grown_ns;
                }
            }
        };
        assert!((0..50).map(|_| growth_ns()).min() < Some(500_000), "ticks are 1 to 10 ms apart");
    }

    #[test]
    fn a_child_s_time_counts_once_it_was_waited_for() {
        let before = children_time();
        std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
            .status()
            .unwrap();
        assert!(children_time().since(before).total_ns() > 0);
    }

    #[test]
    fn an_absent_cpu_is_refused() {
        for absent in [1023, 1024, u32::MAX] {
            assert_eq!(pin_to(absent).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
    }
}
