//! `cargo bench -p linerate-port --bench xsk`: [`XskTx`] and [`XskRx`] against the crate `xdp`'s own loop on the
//! same lab and CPU, in rotation; medians and their ratio.
//!
//! Sending: 64-byte frames with their own sequence, dropped at the far end by an XDP program. Receiving: a ring is
//! filled while the clock is stopped, then emptied and its frames returned while it runs, because filling it
//! costs the kernel more than emptying it costs either receiver. The clock is the thread's CPU time, so that
//! other work of the machine is charged to neither.

use std::{
    env,
    error::Error,
    thread,
    time::{Duration, Instant},
};

use bpf::{Count, CountOptions, Mode, Redirect, RedirectOptions};
use lab::{Lab, LabPlan};
use port::{RxPort, TxPort, Wait, XskRx, XskRxOptions, XskShape, XskTx, XskTxOptions};
use wire::{FrameSpec, ProbeHeader, Template, UdpFrame};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Turns of each side.
const ROUNDS: usize = 9;
/// How long a side sends in a turn.
const TURN: Duration = Duration::from_millis(250);
/// Frames of a UMEM and slots of its rings: the same for both.
const SHAPE: XskShape = XskShape { frame_size: 2048, frames: 4096, ring_slots: 2048 };
/// Packets in a receiver's ring at the start.
const RING_FULL: usize = 1024;
/// Full rings per turn.
const FILLINGS: usize = 100;
/// The best batch sizes for `xdp`: sendto reads at most 32 descriptors.
const XDP_BATCHES: [usize; 2] = [32, 256];
const CPU: u32 = 0;

fn main() -> Outcome<()> {
    // `cargo test --benches` only checks that it runs.
    let rounds = if env::args().any(|word| word == "--bench") { ROUNDS } else { 1 };
    lab::gain_access()?;
    let lab = Lab::create(&LabPlan::default())?;
    sys::cpu::pin_to(CPU)?;
    println!("64-byte frames, one queue, CPU {CPU}, medians of {rounds} turns");
    compare_senders(&lab, rounds)?;
    compare_receivers(&lab, rounds)
}

fn compare_senders(lab: &Lab, rounds: usize) -> Outcome<()> {
    let template = Template::new(&FrameSpec::default())?;
    let index = lab.rx().index();
    let _drop = lab.rx().run(|| Count::attach(index, Mode::Native, &CountOptions::default()))??;
    let mut ours = [Vec::new(), Vec::new()];
    let mut theirs = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (batch, rates) in [64, 256].into_iter().zip(&mut ours) {
            rates.push(send_ours(lab, &template, batch)?);
        }
        for (batch, rates) in XDP_BATCHES.into_iter().zip(&mut theirs) {
            rates.push(baseline::send(lab, &template, batch)?);
        }
    }
    let [ours_64, ours_256] = ours.map(median);
    let [theirs_32, theirs_256] = theirs.map(median);
    println!("send     linerate batch 64   {:7.3} Mpps", ours_64 / 1e6);
    println!("send     linerate batch 256  {:7.3} Mpps", ours_256 / 1e6);
    println!("send     xdp 0.8  batch 32   {:7.3} Mpps", theirs_32 / 1e6);
    println!("send     xdp 0.8  batch 256  {:7.3} Mpps", theirs_256 / 1e6);
    println!("send     ratio of the best   {:7.3}", ours_64.max(ours_256) / theirs_32.max(theirs_256));
    Ok(())
}

fn send_ours(lab: &Lab, template: &Template, batch_size: usize) -> Outcome<f64> {
    let options = XskTxOptions { shape: SHAPE, batch_size, ..XskTxOptions::on(lab.tx().interface(), 0) };
    let mut tx = lab.tx().run(|| XskTx::open(&options))??;
    tx.prime(|slot| template.prime_frame(slot));
    let (mut sequence, mut taken) = (0u32, 0);
    let (start, clock) = (Instant::now(), thread_ns());
    while start.elapsed() < TURN {
        let sent = tx.send(batch_size, |slot| {
            sequence = sequence.wrapping_add(1);
            template.restamp_frame(slot, sequence, 0)
        })?;
        taken += sent.taken;
    }
    Ok(taken as f64 * 1e9 / (thread_ns() - clock) as f64)
}

/// This thread's CPU time in nanoseconds, the kernel's work in its calls included. `sys::cpu::thread_time` only
/// moves with the timer tick.
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn compare_receivers(lab: &Lab, rounds: usize) -> Outcome<()> {
    let template = Template::new(&FrameSpec::default())?;
    let options = XskTxOptions { shape: SHAPE, ..XskTxOptions::on(lab.tx().interface(), 0) };
    let mut tx = lab.tx().run(|| XskTx::open(&options))??;
    tx.prime(|slot| template.prime_frame(slot));
    let mut sequence = 0u32;
    let mut fill = || -> Outcome<()> {
        let mut taken = 0;
        while taken < RING_FULL {
            let wanted = (RING_FULL - taken).min(tx.batch_size());
            taken += tx
                .send(wanted, |slot| {
                    sequence = sequence.wrapping_add(1);
                    template.restamp_frame(slot, sequence, 0)
                })?
                .taken;
        }
        Ok(())
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(receive_ours(lab, &mut fill)?);
        theirs.push(baseline::receive(lab, &mut fill)?);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!("receive  linerate            {ours:7.1} ns per packet");
    println!("receive  xdp 0.8             {theirs:7.1} ns per packet");
    println!("receive  ratio               {:7.3}", theirs / ours);
    Ok(())
}

/// Nanoseconds per packet; every packet is parsed and its sequence read.
fn receive_ours(lab: &Lab, fill: &mut impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let options = XskRxOptions { shape: SHAPE, ..XskRxOptions::on(lab.rx().interface(), 0) };
    let mut rx = lab.rx().run(|| XskRx::open(&options))??.remove(0);
    drained(fill, |sum| {
        Ok(rx.recv(Wait::Spin, |received| *sum = sum.wrapping_add(sequence_of(received.bytes).into()))?)
    })
}

/// Fills a ring while the clock is stopped, and empties it while the clock runs.
fn drained(
    fill: &mut impl FnMut() -> Outcome<()>,
    mut recv: impl FnMut(&mut u64) -> Outcome<usize>,
) -> Outcome<f64> {
    let mut spent_ns = 0;
    let mut sum = 0;
    for _ in 0..FILLINGS {
        fill()?;
        let mut packets = 0;
        let (start, clock) = (Instant::now(), thread_ns());
        while packets < RING_FULL {
            packets += recv(&mut sum)?;
            assert!(start.elapsed() < Duration::from_secs(5), "{packets} of {RING_FULL} packets arrived");
        }
        spent_ns += thread_ns() - clock;
    }
    std::hint::black_box(sum);
    Ok(spent_ns as f64 / (FILLINGS * RING_FULL) as f64)
}

fn sequence_of(frame: &[u8]) -> u32 {
    let payload = UdpFrame::glance(frame).unwrap_or_default();
    ProbeHeader::read(payload).map_or(0, |probe| probe.sequence)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The same two jobs with the crate `xdp`. Its interface is unsafe throughout: it requires of its
/// callers is that packets do not outlive the UMEM, which lives to the end of each function here.
mod baseline {
    use std::collections::VecDeque;

    use super::*;
    use xdp::{
        Umem,
        nic::NicIndex,
        slab::{HeapSlab, Slab},
        socket::{PollTimeout, XdpSocket, XdpSocketBuilder},
        umem::{FrameSize, UmemCfgBuilder},
    };

    struct Opened {
        socket: XdpSocket,
        rings: xdp::WakableRings,
        umem: Umem,
    }

    /// The kernel releases a queue some time after its last socket was closed.
    fn open(interface: u32) -> Outcome<Opened> {
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            match try_open(interface) {
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                opened => return opened,
            }
        }
    }

    fn try_open(interface: u32) -> Outcome<Opened> {
        let config =
            UmemCfgBuilder { frame_size: FrameSize::TwoK, frame_count: SHAPE.frames, ..Default::default() };
        let umem = Umem::map(config.build()?)?;
        let mut builder = XdpSocketBuilder::new()?;
        let rings = xdp::RingConfigBuilder {
            rx_count: SHAPE.ring_slots,
            tx_count: SHAPE.ring_slots,
            fill_count: SHAPE.frames,
            completion_count: SHAPE.frames,
        };
        let (rings, mut flags) = builder.build_wakable_rings(&umem, rings.build()?)?;
        flags.force_copy();
        let socket = builder.bind(NicIndex::new(interface), 0, flags)?;
        Ok(Opened { socket, rings, umem })
    }

    pub(super) fn send(lab: &Lab, template: &Template, batch: usize) -> Outcome<f64> {
        let index = lab.tx().index();
        let opened = lab.tx().run(|| open(index).map_err(|error| error.to_string()).map(Alone))??;
        let Opened { socket, mut rings, mut umem } = opened.0;
        let mut tx = rings.tx_ring.take().ok_or("no TX ring")?;
        let mut slab = HeapSlab::with_capacity(batch);
        let mut bytes = [0u8; 60];
        template.prime_frame(&mut bytes);
        let (mut sequence, mut completed) = (0u32, 0);
        let (start, clock) = (Instant::now(), thread_ns());
        while start.elapsed() < TURN {
            completed += rings.completion_ring.dequeue(&mut umem, SHAPE.frames as usize);
            while slab.len() < batch {
                // SAFETY: the packet goes into the slab, which ends with this function, as the UMEM does.
                let Some(mut packet) = (unsafe { umem.alloc() }) else { break };
                sequence = sequence.wrapping_add(1);
                template.restamp_frame(&mut bytes, sequence, 0);
                packet.append(&bytes)?;
                slab.push_front(packet);
            }
            // SAFETY: the UMEM outlives the socket in this function.
            let queued = unsafe { tx.send(&mut slab, true) };
            match queued {
                // A full ring is not kicked by `send`: poll does it.
                Ok(0) => drop(socket.poll(PollTimeout::new(Some(Duration::ZERO)))),
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(completed as f64 * 1e9 / (thread_ns() - clock) as f64)
    }

    pub(super) fn receive(lab: &Lab, fill: &mut impl FnMut() -> Outcome<()>) -> Outcome<f64> {
        let index = lab.rx().index();
        let opened = lab.rx().run(|| {
            let opened = open(index).map_err(|error| error.to_string())?;
            let options = RedirectOptions::default();
            let redirect =
                Redirect::attach(index, Mode::Native, &options).map_err(|error| error.to_string())?;
            Ok::<_, String>(Alone((opened, redirect)))
        })??;
        let (Opened { socket, mut rings, mut umem }, mut redirect) = opened.0;
        redirect.insert(0, &Descriptor(&socket))?;
        let mut rx = rings.rx_ring.take().ok_or("no RX ring")?;
        let mut slab = HeapSlab::with_capacity(256);
        let mut done = VecDeque::with_capacity(256);
        // SAFETY: the UMEM outlives the socket in this function.
        unsafe { rings.fill_ring.enqueue(&mut umem, SHAPE.frames as usize, false) }?;
        drained(fill, |sum| {
            // SAFETY: the packets go back to the UMEM below.
            let received = unsafe { rx.recv(&umem, &mut slab) };
            while let Some(packet) = slab.pop_back() {
                *sum = sum.wrapping_add(sequence_of(&packet).into());
                done.push_back(packet);
            }
            done.drain(..).for_each(|packet| umem.free_packet(packet));
            // SAFETY: the UMEM outlives the socket in this function.
            unsafe { rings.fill_ring.enqueue(&mut umem, received, false) }?;
            Ok(received)
        })
    }

    /// Carries the crate's types, which hold plain addresses, to the one thread that uses them.
    struct Alone<T>(T);

    // SAFETY: the thread that created the value has ended when another one receives it.
    unsafe impl<T> Send for Alone<T> {}

    /// The socket only lends its descriptor.
    struct Descriptor<'s>(&'s XdpSocket);

    impl std::os::fd::AsFd for Descriptor<'_> {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            // SAFETY: the socket is open as long as it is borrowed.
            unsafe { std::os::fd::BorrowedFd::borrow_raw(self.0.raw_fd()) }
        }
    }
}
