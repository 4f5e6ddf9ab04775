//! What a packet costs before any system call: `cargo bench -p linerate-wire`.
//!
//! Stamping goes over a ring of 2048-byte slots as an engine does, so that L1 misses are included.

use std::net::Ipv4Addr;

use divan::{Bencher, black_box, counter::ItemsCount};
use wire::{
    Addresses, Checksum, FlowKey, FrameSpec, HashFields, PROTOCOL_UDP, RssKey, Sizes, Template, Toeplitz,
    UdpFrame,
};

const PACKETS: usize = 4096;
const SLOT_LEN: usize = 2048;

fn main() {
    divan::main();
}

/// Slots in the ring: a ring that fits the L1 cache, and one of a typical ring's length.
const RINGS: [usize; 2] = [16, 1024];

fn restamp(bencher: Bencher<'_, '_>, spec: &FrameSpec, slots: usize) {
    let template = Template::new(spec).unwrap();
    let mut ring = vec![0; slots * SLOT_LEN];
    ring.chunks_exact_mut(SLOT_LEN).for_each(|slot| template.prime_frame(slot));
    let mut sequence = 0u32;
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        let mut bytes = 0;
        let time_ns = black_box(1_700_000_000_123_456_789);
        for _ in 0..PACKETS / slots {
            for slot in ring.chunks_exact_mut(SLOT_LEN) {
                bytes += template.restamp_frame(slot, sequence, time_ns);
                sequence = sequence.wrapping_add(1);
            }
        }
        bytes
    });
}

#[divan::bench(args = RINGS)]
fn restamp_fixed(bencher: Bencher<'_, '_>, slots: usize) {
    restamp(bencher, &FrameSpec::default(), slots);
}

#[divan::bench(args = RINGS)]
fn restamp_one_port(bencher: Bencher<'_, '_>, slots: usize) {
    let dst_port = "inc:1024-2047".parse().unwrap();
    restamp(bencher, &FrameSpec { dst_port, ..FrameSpec::default() }, slots);
}

#[divan::bench(args = RINGS)]
fn restamp_random_address_and_port(bencher: Bencher<'_, '_>, slots: usize) {
    let src_addr = "random:10.0.0.0/8".parse().unwrap();
    let src_port = "random:1024-65535".parse().unwrap();
    restamp(bencher, &FrameSpec { src_addr, src_port, ..FrameSpec::default() }, slots);
}

#[divan::bench(args = RINGS)]
fn restamp_imix(bencher: Bencher<'_, '_>, slots: usize) {
    let sizes = Sizes::Frame("imix".parse().unwrap());
    restamp(bencher, &FrameSpec { sizes, ..FrameSpec::default() }, slots);
}

#[divan::bench(args = RINGS)]
fn restamp_ipv6_random_address(bencher: Bencher<'_, '_>, slots: usize) {
    let src_addr = "random:2001:db8::/96".parse().unwrap();
    let dst_addr = "2001:db8:1::1".parse().unwrap();
    let sizes = Sizes::Frame("84".parse().unwrap());
    restamp(bencher, &FrameSpec { src_addr, dst_addr, sizes, ..FrameSpec::default() }, slots);
}

#[divan::bench]
fn stamp_whole_frame(bencher: Bencher<'_, '_>) {
    let template = Template::new(&FrameSpec::default()).unwrap();
    let mut slot = [0; 64];
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        (0..PACKETS).map(|n| template.stamp_frame(black_box(&mut slot), n as u32, 1)).sum::<usize>()
    });
}

#[divan::bench(args = ["udp", "udp6"])]
fn parse_frame(bencher: Bencher<'_, '_>, family: &str) {
    let mut spec = FrameSpec::default();
    if family == "udp6" {
        spec.src_addr = "::1".parse().unwrap();
        spec.dst_addr = "::2".parse().unwrap();
        spec.sizes = Sizes::Frame("84".parse().unwrap());
    }
    let template = Template::new(&spec).unwrap();
    let mut slot = vec![0; template.max_frame_len()];
    template.stamp_frame(&mut slot, 1, 1);
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        (0..PACKETS).fold(0, |sum: u32, _| {
            let frame = UdpFrame::parse(black_box(&slot)).unwrap();
            sum.wrapping_add(frame.probe().unwrap().sequence)
        })
    });
}

#[divan::bench(args = [HashFields::Addresses, HashFields::AddressesAndPorts])]
fn toeplitz(bencher: Bencher<'_, '_>, fields: HashFields) {
    let toeplitz = Toeplitz::new(&RssKey::microsoft());
    let addresses = Addresses::V4 { src: Ipv4Addr::new(10, 0, 0, 1), dst: Ipv4Addr::new(10, 0, 0, 2) };
    let flows: Vec<FlowKey> = (0..PACKETS)
        .map(|n| FlowKey { addresses, src_port: n as u16, dst_port: (n >> 4) as u16, protocol: PROTOCOL_UDP })
        .collect();
    bencher
        .counter(ItemsCount::new(PACKETS))
        .bench_local(|| flows.iter().fold(0, |all, flow| all ^ toeplitz.hash(black_box(flow), fields)));
}

#[divan::bench(args = [20, 64, 1500])]
fn checksum(bencher: Bencher<'_, '_>, len: usize) {
    let bytes = vec![0x5a; len];
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        (0..PACKETS).fold(0, |all, _| all ^ Checksum::ZERO.add_bytes(black_box(&bytes)).finish())
    });
}
