//! `make bench-buffers`: the cost of buffer policies for received frames on this CPU: the policies of the engine `pci` over a
//! pretended card, and the kernel's page pool and socket buffers beside.
//!
//! No emulator: the ring, its buffers and the policies are those of the engine, and only the card's writing is done by this
//! program, outside of what is timed. `receive` is looking at the frames (their first 64 bytes are read) and handing the
//! descriptors back; `refill` is the latter alone, in the engine's own sample. `cold`: before each round a stretch of memory
//! larger than the caches is read, so that frames, descriptors and lists come from memory.
//!
//! The kernel's part needs root: frames of a page pool that an XDP program drops (`BPF_PROG_RUN`, live frames), and the same
//! handed to a stack that nobody listens on, which makes and frees a socket buffer for each.

use std::{
    hint::black_box,
    io,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use measure::median;
use port::{Buffers, PciOptions, PretendedCard, RxPort, Wait};
use sys::{bpf_program, netns::NetNs};

const FRAMES: [usize; 3] = [60, 508, 1514];
const RINGS: [u32; 4] = [64, 256, 1024, 4096];
/// Frames looked at in each round, at most: as many as a poll of the kernel takes.
const GROUP: usize = 64;
const ROUNDS: usize = 3000;
const COLD_ROUNDS: usize = 60;
/// Twice the last-level cache of large servers' share for one core group.
const FLUSH_BYTES: usize = 64 << 20;
const TRIES: usize = 5;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // built and started by `cargo test`, which measures nothing
    }
    let mut flush = vec![1u8; FLUSH_BYTES];
    println!(
        "{:<6} {:>6} {:>6} {:<8} {:>16} {:>15}",
        "cache", "ring", "frame", "buffers", "receive ns/frame", "refill ns/frame"
    );
    for is_cold in [false, true] {
        for ring in RINGS {
            for frame in FRAMES {
                for buffers in Buffers::ALL {
                    let tries: Vec<(f64, f64)> = (0..if is_cold { 1 } else { TRIES })
                        .map(|_| cost(buffers, (ring, frame), is_cold.then_some(&mut flush)))
                        .collect();
                    let middle = |of: fn(&(f64, f64)) -> f64| {
                        median(&tries.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
                    };
                    println!(
                        "{:<6} {ring:>6} {:>6} {:<8} {:>16.1} {:>15.1}",
                        if is_cold { "cold" } else { "warm" },
                        frame + 4,
                        buffers.name(),
                        middle(|cost| cost.0),
                        middle(|cost| cost.1)
                    );
                }
            }
        }
    }
    match kernel() {
        Ok(()) => {}
        Err(error) => println!("the kernel's page pool: not measured: {error}"),
    }
}

/// Nanoseconds a frame of receiving, and of handing its descriptor back. Cold rounds read all of `flush` first.
fn cost(buffers: Buffers, (ring_slots, frame): (u32, usize), mut flush: Option<&mut Vec<u8>>) -> (f64, f64) {
    let options = PciOptions { ring_slots, batch_size: GROUP, buffers, ..PciOptions::on("pretended") };
    let (mut card, mut port) = PretendedCard::receiving(&options).expect("memory for a pretended card");
    let bytes = vec![7; frame];
    let group = GROUP.min(ring_slots as usize / 2);
    let (mut times, mut seen) = (Vec::new(), 0u64);
    for _ in 0..if flush.is_some() { COLD_ROUNDS } else { ROUNDS } {
        for _ in 0..group {
            assert!(card.deliver(&mut port, &bytes), "the ring has room");
        }
        if let Some(flush) = &mut flush {
            for line in flush.chunks_mut(64) {
                line[0] = line[0].wrapping_add(1);
            }
            black_box(flush);
        }
        let began = Instant::now();
        let received = port
            .recv(Wait::Spin, |received| {
                seen += received.bytes[..60].iter().map(|byte| u64::from(*byte)).sum::<u64>()
            })
            .expect("a pretended card does not fail");
        times.push(began.elapsed().as_nanos() as f64 / received as f64);
        // With a tail that is not yet written some frames stay for the next round.
        while port.recv(Wait::Spin, |_| ()).expect("a pretended card does not fail") > 0 {}
    }
    black_box(seen);
    let refill = port.ring().and_then(|ring| ring.refill_ns).unwrap_or(f64::NAN);
    (median(&times).unwrap_or(f64::NAN), refill)
}

/// Two instructions: `r0 = ANSWER; exit`.
fn answer(answer: u8) -> [[u8; 8]; 2] {
    [[0xb7, 0, 0, 0, answer, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]]
}

fn kernel() -> io::Result<()> {
    const DROP: u8 = 1;
    const PASS: u8 = 2;
    const BATCH: u32 = 64;
    const TIMES: u32 = 1 << 20;
    // What passes arrives in a namespace where nobody listens.
    NetNs::create()?.enter()?;
    let [drop, pass] = [DROP, PASS].map(|verdict| bpf_program::load("bench_buffers", &answer(verdict)));
    let (drop, pass) = (drop?, pass?);
    for frame in FRAMES {
        let mut dropped = Vec::new();
        let mut passed = Vec::new();
        for _ in 0..TRIES {
            for (program, times) in [(&drop, &mut dropped), (&pass, &mut passed)] {
                let began = Instant::now();
                bpf_program::run_live(program.as_fd(), &vec![0; frame], (TIMES, BATCH))?;
                let took: Duration = began.elapsed();
                times.push(took.as_nanos() as f64 / f64::from(TIMES));
            }
        }
        let [dropped, passed] = [dropped, passed].map(|times| median(&times).unwrap_or(f64::NAN));
        println!(
            "kernel, frame {:>4}: {dropped:.1} ns a frame of a page pool that XDP drops; {passed:.1} ns with a socket buffer made, \
             handed to the stack and freed",
            frame + 4
        );
    }
    Ok(())
}
