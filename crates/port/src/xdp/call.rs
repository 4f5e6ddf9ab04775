//! The default number of packets per call.

/// Packets of a call that is long enough for its fixed cost to be small, and short enough to report sent packets soon:
/// the kernel reports them only after the call. The time per packet depends on the receiver and its place: 70 ns and less
/// if another CPU drops it, some microseconds if a socket on the same CPU gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallSize {
    packets: usize,
}

impl CallSize {
    /// Packets of the shortest call; preparing its pages takes the kernel some 20 µs (`make bench-xdp`).
    const LEAST: usize = 4096;
    /// Packets of the longest call; twice as many are hardly faster.
    const MOST: usize = 16_384;
    /// Nanoseconds that a call may take; longer calls become shorter again.
    const LONGEST_NS: u64 = 1_500_000;

    pub(super) fn new() -> Self {
        Self { packets: Self::LEAST }
    }

    pub(super) fn packets(self) -> usize {
        self.packets
    }

    /// The size of the next call, after one that made `packets` in `took_ns`; shorter ones are ignored.
    pub(super) fn after(self, packets: usize, took_ns: u64) -> Self {
        if packets < self.packets {
            return self;
        }
        let packets = if took_ns < Self::LONGEST_NS / 2 {
            self.packets * 2
        } else if took_ns <= Self::LONGEST_NS {
            self.packets
        } else {
            self.packets / 2
        };
        Self { packets: packets.clamp(Self::LEAST, Self::MOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size that calls converge to when each packet takes this long.
    fn at(ns_per_packet: f64) -> usize {
        let after_a_call =
            |size: CallSize, _| size.after(size.packets(), (size.packets() as f64 * ns_per_packet) as u64);
        (0..100).fold(CallSize::new(), after_a_call).packets()
    }

    #[test]
    fn a_call_takes_a_millisecond_or_so() {
        assert_eq!(
            [at(60.0), at(90.0), at(100.0), at(180.0), at(200.0), at(5000.0)],
            [16_384, 16_384, 8192, 8192, 4096, 4096]
        );
    }

    #[test]
    fn calls_become_shorter_when_packets_take_longer() {
        let long = CallSize { packets: CallSize::MOST };
        assert_eq!(long.after(CallSize::MOST, 20_000_000).packets(), 8192);
        assert_eq!(long.after(100, 20_000_000), long, "a call of a few packets is ignored");
    }
}
