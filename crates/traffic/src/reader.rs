//! The loops of a receiver's workers, over any port.

use std::{hint, sync::Arc};

use port::{Layer, PortError, Received, RxPort, Wait};
use sys::clock;
use wire::UdpFrame;

use crate::{
    error::EngineError,
    observe::Observer,
    publish::RxPublished,
    received::RxResult,
    tally::{Probes, Tally},
    window::{AfterReading, Window},
    worker::{Meter, WorkerContext},
};

/// A port that keeps receiving is drained at most for this long.
const LONGEST_DRAIN_NS: u64 = 1_000_000_000;

/// How often a busy receiver requests its losses, which is an extra system call, unless its packets report them.
const LOSSES_EVERY_NS: u64 = 10_000_000;

/// Where a worker publishes its results.
#[derive(Default)]
pub(crate) struct RxOutput {
    pub(crate) published: Arc<RxPublished>,
    pub(crate) window: Arc<Window>,
}

/// The CPU time that an application would spend on packets; a batch's work is done in one go.
fn work(until_ns: u64) {
    while clock::monotonic_ns() < until_ns {
        hint::spin_loop();
    }
}

/// The hot loop: per batch one call, one clock read, one publish.
pub(crate) fn receive<P: RxPort>(
    port: &mut P,
    wait: Wait,
    (probes, mut observer): (Probes, Option<Observer>),
    context: &WorkerContext,
    (RxOutput { published, window }, work_ns): (&RxOutput, u64),
) -> RxResult {
    let mut meter = Meter::start();
    let mut tally = Tally::new(probes);
    let (mut first_ns, mut last_ns) = (None, None);
    let mut drain_until_ns = u64::MAX;
    let mut was_idle = false;
    let mut losses_due_ns = 0;
    let error = loop {
        // Read before the last poll, so that packets from before the stop request are counted.
        let is_over = context.should_stop();
        let wait = if is_over { Wait::Spin } else { wait };
        let (before, mut train, mut frame_bytes) = (tally.total(), tally.begin(0), 0);
        let received = match &mut observer {
            None => port.recv(wait, |received| {
                tally.add(&mut train, payload::<P>(&received));
            }),
            Some(observer) if observer.only_counts() => port.recv(wait, |received| {
                if tally.add(&mut train, payload::<P>(&received)).is_some() {
                    frame_bytes += observer.frame_bytes(P::LAYER, &received) as u64;
                }
            }),
            Some(observer) => {
                observer.begin_batch();
                let received = port
                    .recv(wait, |received| observer.observe(P::LAYER, &received, (&mut tally, &mut train)));
                observer.end_row((&mut tally, &mut train));
                received
            }
        };
        tally.settle(train);
        if let Some(observer) = observer.as_mut().filter(|observer| observer.only_counts()) {
            observer.count(&before, &tally.total(), frame_bytes);
        }
        if let Some(observer) = &mut observer {
            window.show(|then| observer.readings(then));
        }
        let packets = match received {
            Ok(0) if is_over => break None,
            // The count that packets carry lags; now there is time for the exact one.
            Ok(0) if !was_idle => {
                was_idle = true;
                if let Err(error) = read_losses(port, &mut tally) {
                    break Some(error);
                }
                tally.publish(published);
                continue;
            }
            Ok(0) => continue,
            Ok(packets) => packets as u64,
            Err(error) => break Some(error.into()),
        };
        was_idle = false;
        let now = clock::monotonic_ns();
        if is_over {
            drain_until_ns = drain_until_ns.min(now + LONGEST_DRAIN_NS);
            if now > drain_until_ns {
                break None;
            }
        }
        first_ns.get_or_insert(now);
        last_ns = Some(now);
        if now > losses_due_ns {
            losses_due_ns = now + LOSSES_EVERY_NS;
            if let Some(observer) = &mut observer {
                observer.check_clocks();
            }
            if !P::PACKETS_TELL_LOSSES
                && let Err(error) = read_losses(port, &mut tally)
            {
                break Some(error);
            }
        }
        tally.raise_lost(port.lost_seen());
        if let Some(joined) = port.joined() {
            tally.set_joined(joined);
        }
        tally.publish(published);
        if work_ns > 0 {
            work(now + packets * work_ns);
        }
    };
    let error = error.or_else(|| read_losses(port, &mut tally).err());
    let (losses, error) = match port.losses() {
        Ok(losses) => (losses, error),
        Err(cause) => (Vec::new(), error.or(Some(cause.into()))),
    };
    let ring = port.ring();
    tally.publish(published);
    let statistics =
        observer.map(|mut observer| observer.readings(AfterReading::Continue)).unwrap_or_default();
    RxResult { tally: tally.total(), first_ns, last_ns, losses, ring, cost: meter.read(), statistics, error }
}

/// The payload of a UDP datagram; nothing for other frames.
#[inline(always)]
fn payload<'p, P: RxPort>(received: &Received<'p>) -> &'p [u8] {
    match P::LAYER {
        Layer::Payload => received.bytes,
        Layer::Frame => UdpFrame::glance(received.bytes).unwrap_or_default(),
    }
}

fn read_losses<P: RxPort>(port: &mut P, tally: &mut Tally) -> Result<(), EngineError> {
    tally.set_lost(port.lost().map_err(|error: PortError| EngineError::from(error))?);
    Ok(())
}

#[cfg(test)]
mod tests;
