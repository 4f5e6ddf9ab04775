//! Head, tail and missed frames of a ring, poll by poll.

use measure::RingTrace;
use sys::clock;

/// The most moments of a trace: a page draws and lists all of them.
const ROOM: usize = 4096;

/// A trace that is being written.
pub(super) struct Trace {
    trace: RingTrace,
    began_ns: u64,
}

impl Trace {
    pub(super) fn new(slots: u32) -> Self {
        // Allocated now: no allocation while frames arrive.
        let moments = Vec::with_capacity(ROOM);
        Self { trace: RingTrace { slots, is_cut: false, moments }, began_ns: 0 }
    }

    /// Records a poll if something changed; the trace begins with the last poll before the first change.
    pub(super) fn note(&mut self, now: (u32, u32, u64)) {
        let Self { trace, began_ns } = self;
        let now_ns = clock::monotonic_ns();
        let (head, tail, missed) = now;
        match &trace.moments[..] {
            [.., (_, h, t, m)] if (*h, *t, *m) == now && trace.moments.len() > 1 => {}
            [(_, h, t, m)] if (*h, *t, *m) == now => *began_ns = now_ns,
            [] => {
                *began_ns = now_ns;
                trace.moments.push((0, head, tail, missed));
            }
            [..] if trace.moments.len() == ROOM => trace.is_cut = true,
            [..] => trace.moments.push((now_ns - *began_ns, head, tail, missed)),
        }
    }

    /// The trace so far.
    pub(super) fn so_far(&self) -> RingTrace {
        self.trace.clone()
    }
}
