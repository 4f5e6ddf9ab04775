//! The cost of measuring a packet, tried with synthetic frames.

use std::{hint, net::Ipv4Addr};

use measure::StatisticsLevel;
use port::{Layer, MeasuringCost, Received, TimeSource};
use sys::clock;
use wire::{FrameSpec, StreamTags, Template};

use crate::{
    collect::ReaderPlace,
    observe::Observer,
    plan::StatisticsPlan,
    tally::{Probes, Tally},
};

/// Measures some thousand packets; the fastest of several tries counts, because other work may use the CPU.
pub(crate) fn measuring_cost() -> MeasuringCost {
    let least = |apart_ns| {
        let tries = (0..4).map(|_| try_packets(apart_ns));
        tries.min_by(f64::total_cmp).expect("four tries")
    };
    MeasuringCost { alone_ns: least(1000), together_ns: least(0) }
}

/// Nanoseconds per packet, for packets sent and received at this distance.
fn try_packets(apart_ns: u64) -> f64 {
    const PACKETS: u32 = 1000;
    let template = Template::new(&FrameSpec::default()).expect("the default frame is valid");
    let start_ns = clock::monotonic_ns();
    let sent_ns = |number: u32| start_ns + apart_ns * u64::from(number);
    let mut frames = vec![0; template.max_frame_len() * PACKETS as usize];
    for (number, frame) in (0..).zip(frames.chunks_exact_mut(template.max_frame_len())) {
        template.prime_frame(frame);
        template.restamp_frame(frame, number, sent_ns(number));
    }

    let plan = StatisticsPlan { level: StatisticsLevel::Time, ..StatisticsPlan::default() };
    let mut observer =
        Observer::new(plan, ReaderPlace::default(), TimeSource::Program, Ipv4Addr::LOCALHOST.into());
    let mut tally = Tally::new(Probes::Sent(StreamTags::NUMBERED));
    let mut train = tally.begin(0);
    let begun_ns = clock::monotonic_ns();
    for (number, bytes) in (0..).zip(frames.chunks_exact(template.max_frame_len())) {
        let arrived_ns = Some(sent_ns(number) + 5000);
        let received = Received { bytes, truncated: false, arrived_ns, source: None };
        observer.observe(Layer::Frame, hint::black_box(&received), (&mut tally, &mut train));
    }
    observer.end_row((&mut tally, &mut train));
    (clock::monotonic_ns() - begun_ns) as f64 / f64::from(PACKETS)
}
