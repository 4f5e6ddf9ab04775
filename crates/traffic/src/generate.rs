//! The hot loop of a sending worker: packets are built when they are due and passed to an emitter.

use measure::Histogram;
use sys::clock;
use wire::ProbeClock;

use crate::{
    emit::{Emit, Emitted},
    error::EngineError,
    pace::Schedule,
    publish::{TxPublished, TxSnapshot},
    worker::{Meter, WorkerContext, WorkerCost},
};

/// What a sender did.
#[derive(Debug)]
pub struct SenderResult {
    /// Packets and bytes.
    pub tally: TxSnapshot,
    /// Packets that the schedule made due.
    pub scheduled: u64,
    /// When it began, in monotonic nanoseconds.
    pub start_ns: u64,
    /// When it ended: the end of the schedule, or the last packet if that was later.
    pub end_ns: u64,
    /// How late packets left, in nanoseconds.
    pub lateness: Histogram,
    /// The longest time between two calls that accepted packets, in nanoseconds.
    pub largest_gap_ns: u64,
    /// CPU time and cycles.
    pub cost: WorkerCost,
    /// What ended it before its time.
    pub error: Option<EngineError>,
}

/// How often a sender whose packets carry the wall clock's time checks whether that was set.
const WALL_EVERY_NS: u64 = 1_000_000_000;

/// The hot loop: per batch one clock read, one call, one publish.
pub(crate) fn generate<E: Emit>(
    emitter: &mut E,
    mut schedule: Schedule,
    probe_clock: ProbeClock,
    context: &WorkerContext,
    published: &TxPublished,
) -> SenderResult {
    let mut meter = Meter::start();
    let mut tally = TxSnapshot::default();
    let mut last_ns = context.start_ns;
    let mut largest_gap_ns = 0;
    let mut due = 0; // taken from the schedule, not yet filled
    let mut waiting = 0; // filled, not yet accepted by the kernel
    let mut error = None;
    let mut next_call_ns = 0;
    let mut wall = clock::wall_offset();
    let mut wall_due_ns = context.start_ns + WALL_EVERY_NS;
    let end_ns = loop {
        let now = clock::monotonic_ns();
        if now < next_call_ns && !context.should_stop() {
            wait_for(next_call_ns, now);
            continue;
        }
        if due == 0 {
            due = schedule.take_due(now, emitter.batch_size());
        }
        if context.should_stop() || (due + waiting == 0 || now > schedule.end_ns()) && schedule.is_over(now) {
            break now;
        }
        if due + waiting == 0 {
            wait_for(schedule.next_due().unwrap_or(now), now);
            continue;
        }
        if now > wall_due_ns {
            wall = wall.checked_by(clock::wall_offset());
            wall_due_ns = now + WALL_EVERY_NS;
        }
        let time_ns = match probe_clock {
            ProbeClock::Micros => now.wrapping_add(wall.ahead_ns),
            ProbeClock::Nanos => now,
        };
        match emitter.emit(due, time_ns) {
            Ok(Emitted { sent, payload_bytes }) => {
                // not beyond the end, before which everything must be sent
                next_call_ns =
                    Some(now + E::LEAST_GAP_NS).filter(|next| *next < schedule.end_ns()).unwrap_or(now);
                due -= sent.filled;
                waiting = waiting + sent.filled - sent.taken;
                tally.packets += sent.taken as u64;
                tally.payload_bytes += payload_bytes;
                tally.refused += sent.refused as u64;
                tally.turned_away += sent.turned_away as u64;
                if sent.taken > 0 {
                    largest_gap_ns = largest_gap_ns.max(now - last_ns);
                    last_ns = now;
                }
            }
            Err(cause) => {
                error = Some(cause.into());
                break now;
            }
        }
        published.store(&tally);
    };
    if waiting > 0 && error.is_none() {
        match emitter.settle() {
            Ok(taken) => tally.packets += taken as u64,
            Err(cause) => error = Some(cause.into()),
        }
        published.store(&tally);
    }
    SenderResult {
        scheduled: schedule.scheduled(end_ns),
        tally,
        start_ns: context.start_ns,
        end_ns,
        lateness: schedule.lateness().clone(),
        largest_gap_ns,
        cost: meter.read(),
        error,
    }
}

/// Sleeps while the next packet is far away, and spins at the end: a sleeper wakes tens of microseconds
/// late. Never sleeps longer than a stop request may wait.
fn wait_for(due_ns: u64, now_ns: u64) {
    const SPIN_NS: u64 = 150_000;
    const LONGEST_SLEEP_NS: u64 = 20_000_000;
    let left = due_ns.saturating_sub(now_ns);
    if left > 2 * SPIN_NS {
        clock::sleep_until(now_ns + (left - SPIN_NS).min(LONGEST_SLEEP_NS));
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use port::{PortError, Sent};

    use super::*;
    use crate::{
        emit::Emitted,
        pace::{Departures, Limit},
    };

    /// Accepts everything, and records the packets' times.
    #[derive(Default)]
    struct Calls(Vec<u64>);

    impl Emit for Calls {
        const LEAST_GAP_NS: u64 = 1_000_000;

        fn batch_size(&self) -> usize {
            4096
        }

        fn emit(&mut self, packets: usize, time_ns: u64) -> Result<Emitted, PortError> {
            self.0.push(time_ns);
            Ok(Emitted {
                sent: Sent { filled: packets, taken: packets, ..Sent::default() },
                payload_bytes: 0,
            })
        }
    }

    #[test]
    fn calls_keep_their_distance() {
        let context = WorkerContext::until(Arc::default());
        let limit = Limit { duration_ns: Some(50_000_000), count: None };
        let schedule = Schedule::new(Some(100_000.0), Departures::Constant, limit, context.start_ns, 1);
        let mut calls = Calls::default();
        let result = generate(&mut calls, schedule, ProbeClock::Nanos, &context, &TxPublished::default());
        let last_gap_begins_ns = context.start_ns + 49_000_000;
        for pair in calls.0.windows(2).filter(|pair| pair[0] < last_gap_begins_ns) {
            assert!(pair[1] - pair[0] >= Calls::LEAST_GAP_NS, "{} ns apart", pair[1] - pair[0]);
        }
        assert_eq!(result.scheduled, 5000);
        assert!(calls.0.len() > 1 && result.tally.packets <= 5000);
    }
}
