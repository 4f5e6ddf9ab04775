//! Which CPUs views run on: those that no worker is pinned to.

use std::sync::OnceLock;

use sys::cpu;

/// CPUs that the process may use, as the first view found them.
static ALLOWED: OnceLock<Vec<u32>> = OnceLock::new();

/// Keeps the calling thread off these CPUs, as far as others are left.
pub(crate) fn avoid(workers: &[u32]) {
    let allowed = ALLOWED.get_or_init(|| cpu::allowed().unwrap_or_default());
    cpu::run_on(&free(allowed, workers)).ok();
}

/// The CPUs without a worker; all of them where each has one.
fn free(allowed: &[u32], workers: &[u32]) -> Vec<u32> {
    let free: Vec<u32> = allowed.iter().copied().filter(|cpu| !workers.contains(cpu)).collect();
    if free.is_empty() { allowed.to_vec() } else { free }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_take_the_cpus_that_no_worker_has() {
        assert_eq!(free(&[0, 1, 2, 3], &[1, 3]), [0, 2]);
        assert_eq!(free(&[0, 1], &[0, 1]), [0, 1], "none is free");
        assert_eq!(free(&[0, 1], &[]), [0, 1]);
    }

    #[test]
    fn a_thread_that_avoids_a_cpu_does_not_run_there() {
        let allowed = cpu::allowed().unwrap();
        std::thread::spawn(move || {
            avoid(&allowed[..1]);
            let now = cpu::allowed().unwrap();
            assert!(allowed.len() == 1 || !now.contains(&allowed[0]), "{now:?} of {allowed:?}");
        })
        .join()
        .unwrap();
    }
}
