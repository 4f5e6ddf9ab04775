//! Picoseconds: the model's only unit of time, as integers, so that every machine gets the same result.

/// Picoseconds in a microsecond.
pub(crate) const PS_PER_US: u64 = 1_000_000;
/// Picoseconds in a second.
pub(crate) const PS_PER_S: u64 = 1_000_000_000_000;

/// Nanoseconds as picoseconds, rounded.
pub(crate) fn ps_from_ns(ns: f64) -> u64 {
    (ns * 1e3).round() as u64
}

/// Microseconds as picoseconds, rounded.
pub(crate) fn ps_from_us(us: f64) -> u64 {
    (us * 1e6).round() as u64
}

/// The time of a number of bytes at a speed, rounded.
pub(crate) fn ps_for_bytes(bytes: u32, bps: u64) -> u64 {
    let bits_ps = u128::from(bytes) * 8 * u128::from(PS_PER_S);
    ((bits_ps + u128::from(bps) / 2) / u128::from(bps)) as u64
}

/// Picoseconds as seconds.
pub(crate) fn seconds(ps: u64) -> f64 {
    ps as f64 / PS_PER_S as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smallest_frame_takes_672_ns_of_a_gigabit() {
        assert_eq!(ps_for_bytes(84, 1_000_000_000), 672_000);
        assert_eq!(ps_for_bytes(84, 10_000_000_000), 67_200);
        assert_eq!(ps_for_bytes(84, 400_000_000_000), 1_680);
    }
}
