//! What measuring a packet takes, tried with packets made for it.

use std::{hint, net::Ipv4Addr};

use measure::StatisticsLevel;
use port::MeasuringCost;
use sys::clock;
use wire::{Addresses, FlowKey, PROTOCOL_UDP, ProbeHeader};

use super::{Arrival, Collector, ReaderPlace};

/// Measures some thousand packets; of several such rows the fastest counts, for others may want the CPU too.
pub(crate) fn measuring_cost() -> MeasuringCost {
    let mut collector = Collector::new(StatisticsLevel::Time, ReaderPlace::default());
    let mut least = |apart_ns| {
        let rows = (0..4).map(|_| row(&mut collector, apart_ns));
        rows.min_by(f64::total_cmp).expect("four rows")
    };
    MeasuringCost { alone_ns: least(1000), together_ns: least(0) }
}

/// Nanoseconds a packet.
fn row(collector: &mut Collector, apart_ns: u64) -> f64 {
    const PACKETS: u32 = 1000;
    collector.reset();
    let addresses = Addresses::V4 { src: Ipv4Addr::LOCALHOST, dst: Ipv4Addr::LOCALHOST };
    let flow = FlowKey { addresses, src_port: 9, dst_port: 9, protocol: PROTOCOL_UDP };
    let start = clock::monotonic_ns();
    for sequence in 0..PACKETS {
        let sent_ns = start + apart_ns * u64::from(sequence);
        collector.add(hint::black_box(&Arrival {
            header: ProbeHeader { sequence, raw_time: sent_ns, stream: 0 },
            flow,
            payload_bytes: 18,
            frame_bytes: 64,
            sent_ns: Some(sent_ns),
            is_sent_by_wall: false,
            arrived_ns: sent_ns + 5000,
        }));
    }
    (clock::monotonic_ns() - start) as f64 / f64::from(PACKETS)
}
