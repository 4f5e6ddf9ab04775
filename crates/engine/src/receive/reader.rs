//! The loops of a receiver's workers, over whatever port they read.

use std::{hint, time::Duration};

use port::{Layer, PortError, Received, RxPort, TcpRx, Wait};
use sys::clock;
use wire::{PROBE_MAGIC, ProbeHeader, RETURNED_MAGIC, UdpFrame};

use super::RxResult;
use crate::{
    error::EngineError,
    observe::{Observer, Then, Window},
    publish::{RxPublished, RxSnapshot, STREAMS, StreamCount},
    worker::{Meter, Shift},
};

/// Which probes a receiver counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probes {
    /// Those that a sender sends.
    Sent,
    /// Those that come back to it.
    Returned,
}

impl Probes {
    /// What they begin with.
    fn magic(self) -> [u8; 4] {
        match self {
            Self::Sent => PROBE_MAGIC.to_be_bytes(),
            Self::Returned => RETURNED_MAGIC.to_be_bytes(),
        }
    }
}

/// What the hot loop adds up; decides about packets, and knows no port.
pub(crate) struct Tally {
    magic: [u8; 4],
    total: RxSnapshot,
    streams: [StreamCount; STREAMS],
    touched: [u64; STREAMS / 64],
}

/// Packets of a batch that the tally does not have yet, probes of one stream after another, and all that is asked and
/// changed for each: `make bench-workers` shows every instruction more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    magic: [u8; 4],
    stream: u16,
    /// Packets above the lower bits, which count payload bytes: one addition for both.
    count: u64,
    foreign: u64,
}

/// Bits for the payload bytes of a run, which is no longer than a batch.
const BYTES_BITS: u32 = 40;

impl Tally {
    pub(crate) fn new(probes: Probes) -> Self {
        Self {
            magic: probes.magic(),
            total: RxSnapshot::default(),
            streams: [StreamCount::default(); STREAMS],
            touched: [0; STREAMS / 64],
        }
    }

    /// A run of nothing yet.
    pub(crate) fn begin(&self, stream: u16) -> Run {
        Run { magic: self.magic, stream, count: 0, foreign: 0 }
    }

    /// Takes a payload into the run; returns its header when it is a probe's.
    // Always: a call for each packet costs as much as all else in here.
    #[inline(always)]
    pub(crate) fn add(&mut self, run: &mut Run, payload: &[u8]) -> Option<ProbeHeader> {
        let header = ProbeHeader::read_behind(run.magic, payload);
        let Some(header) =
            header.filter(|header| header.stream == run.stream || self.turn(run, header.stream))
        else {
            run.foreign += 1;
            return None;
        };
        run.count += 1 << BYTES_BITS | payload.len() as u64;
        Some(header)
    }

    /// Takes probes of a batch, of a stream that is told apart.
    pub(crate) fn add_many(&mut self, run: &mut Run, stream: u16, count: StreamCount) {
        if stream == run.stream || self.turn(run, stream) {
            run.count += count.packets << BYTES_BITS | count.payload_bytes;
        }
    }

    /// Begins a run of another stream, if it is one of those that are told apart.
    #[inline(never)]
    fn turn(&mut self, run: &mut Run, stream: u16) -> bool {
        let is_told_apart = usize::from(stream) < STREAMS;
        if is_told_apart {
            self.settle(*run);
            *run = self.begin(stream);
        }
        is_told_apart
    }

    /// Takes over what a run has gathered.
    #[inline(never)]
    fn settle(&mut self, Run { stream, count, foreign, .. }: Run) {
        let count =
            StreamCount { packets: count >> BYTES_BITS, payload_bytes: count & ((1 << BYTES_BITS) - 1) };
        self.total.foreign += foreign;
        if count.packets == 0 {
            return;
        }
        self.total.packets += count.packets;
        self.total.payload_bytes += count.payload_bytes;
        let stream = usize::from(stream);
        self.streams[stream] = self.streams[stream].plus(count);
        self.touched[stream / 64] |= 1 << (stream % 64);
    }

    fn publish(&mut self, published: &RxPublished) {
        published.store(&self.total);
        for (word, touched) in self.touched.iter_mut().enumerate() {
            while *touched != 0 {
                let stream = word * 64 + touched.trailing_zeros() as usize;
                published.store_stream(stream, &self.streams[stream]);
                *touched &= *touched - 1;
            }
        }
    }
}

/// A port that others keep filling is not emptied for longer than this.
const LONGEST_DRAIN_NS: u64 = 1_000_000_000;

/// How often a busy receiver asks for its losses, a system call more, unless its packets tell.
const LOSSES_EVERY_NS: u64 = 10_000_000;

/// Where a worker shows what it has, and how long it works for each packet.
pub(crate) struct Outlets<'o> {
    pub(crate) published: &'o RxPublished,
    pub(crate) window: &'o Window,
    pub(crate) work_ns: u64,
}

/// What an application would do with packets, as far as time goes: a batch's work is done in one stretch.
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
    shift: &Shift,
    Outlets { published, window, work_ns }: Outlets<'_>,
) -> RxResult {
    let mut meter = Meter::start();
    let mut tally = Tally::new(probes);
    let (mut first_ns, mut last_ns) = (None, None);
    let mut drain_until_ns = u64::MAX;
    let mut was_idle = false;
    let mut losses_due_ns = 0;
    let error = loop {
        // Asked before the last look: what arrived before the request to stop is counted.
        let is_over = shift.is_over();
        let wait = if is_over { Wait::Spin } else { wait };
        let (before, mut run, mut frame_bytes) = (tally.total, tally.begin(0), 0);
        let received = match &mut observer {
            None => port.recv(wait, |received| {
                tally.add(&mut run, payload::<P>(&received));
            }),
            Some(observer) if observer.only_counts() => port.recv(wait, |received| {
                if tally.add(&mut run, payload::<P>(&received)).is_some() {
                    frame_bytes += observer.frame_bytes(P::LAYER, &received) as u64;
                }
            }),
            Some(observer) => {
                observer.begin_batch();
                let received =
                    port.recv(wait, |received| observer.observe(P::LAYER, &received, (&mut tally, &mut run)));
                observer.end_row((&mut tally, &mut run));
                received
            }
        };
        tally.settle(run);
        if let Some(observer) = observer.as_mut().filter(|observer| observer.only_counts()) {
            observer.count(&before, &tally.total, frame_bytes);
        }
        if let Some(observer) = &mut observer {
            window.show(|then| observer.readings(then));
        }
        let packets = match received {
            Ok(0) if is_over => break None,
            // The count that packets carry lags behind; there is time for the exact one now.
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
        tally.total.lost = tally.total.lost.max(port.lost_seen());
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
    tally.publish(published);
    let statistics = observer.map(|mut observer| observer.readings(Then::GoOn)).unwrap_or_default();
    RxResult { tally: tally.total, first_ns, last_ns, losses, cost: meter.read(), statistics, error }
}

/// A receiver without data looks up this often, to hear that it shall stop.
const STREAM_WAIT: Duration = Duration::from_millis(20);

/// Reads streams until it shall stop and nothing is left to read.
pub(crate) fn take_streams(port: &mut TcpRx, shift: &Shift, published: &RxPublished) -> RxResult {
    let mut meter = Meter::start();
    let mut total = RxSnapshot::default();
    let (mut first_ns, mut last_ns) = (None, None);
    let error = loop {
        let is_over = shift.is_over();
        let wait = if is_over { Duration::ZERO } else { STREAM_WAIT };
        match port.receive(wait) {
            Ok(0) if is_over => break None,
            Ok(0) => continue,
            Ok(_) => {}
            Err(error) => break Some(error.into()),
        }
        let now = clock::monotonic_ns();
        first_ns.get_or_insert(now);
        last_ns = Some(now);
        total.packets = port.received_messages();
        total.payload_bytes = port.received_bytes();
        published.store(&total);
    };
    let (losses, statistics) = (Vec::new(), Vec::new());
    RxResult { tally: total, first_ns, last_ns, losses, cost: meter.read(), statistics, error }
}

/// What a UDP datagram carries; nothing for other frames.
#[inline(always)]
fn payload<'p, P: RxPort>(received: &Received<'p>) -> &'p [u8] {
    match P::LAYER {
        Layer::Payload => received.bytes,
        Layer::Frame => UdpFrame::glance(received.bytes).unwrap_or_default(),
    }
}

fn read_losses<P: RxPort>(port: &mut P, tally: &mut Tally) -> Result<(), EngineError> {
    tally.total.lost = port.lost().map_err(|error: PortError| EngineError::from(error))?;
    Ok(())
}

#[cfg(test)]
mod tests;
