//! `make bench-workers`: the cost of a worker (schedule, publishing, distinguishing streams, its losses) over the bare
//! loop around its port, both ways, on the lab; medians, and of the ratios within a round. Senders alternate, receivers run
//! at once.
//!
//! Packets per second of the thread's own CPU time: other work of the machine hardly counts. Both sides of a ratio
//! run on the same CPU with the same port, batches and frames. The difference of a second bare loop to the first is the
//! machine's noise. Words after `--` choose rows: those with one in their name.

mod asked;
mod threads;

use std::{
    error::Error,
    hint::{self, black_box},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use asked::is_asked;
use lab::{Lab, LabPlan, Side};
use measure::median;
use port::{
    CountOptions, Layer, PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, RxPort, TxPort, UdpRx,
    UdpRxOptions, UdpTx, UdpTxOptions, Wait, XdpMode, XdpRx, XdpTx, XdpTxOptions, XskRx, XskRxOptions, XskTx,
    XskTxOptions,
};
use sys::cpu;
use threads::Thread;
use traffic::{
    Departures, Limit, Placement, Receiver, ReceiverPlan, RxTraffic, SenderPlan, TxTraffic, TxWorkerPlan,
};
use wire::{FrameSpec, MacAddr, ProbeHeader, Template, UdpFrame};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Four rounds make a set: both orders of contenders and of labs.
const ROUNDS: usize = 24;
const TURN: Duration = Duration::from_millis(250);
/// Packets per call of the flood, and calls that fill three quarters of a packet socket's ring.
const A_CALL: usize = 1024;
const RING_CALLS: usize = 36;
/// How long both may read their rings.
const READING: Duration = Duration::from_millis(5);
/// CPUs of the measured threads, and of the flood.
const CPU: u32 = 0;
const OTHER_CPU: u32 = 1;
const PORT: u16 = 4321;
const BATCH: usize = 256;
/// Names of the measured threads.
const BARE_NAME: &str = "bare";
const WORKER_NAME: &str = "recv 0";
/// No station's address.
const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xfe]);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Udp,
    Packet,
    Xsk,
    Xdp,
}

/// The contender of a bare loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Worker,
    /// Another bare loop, to show the noise.
    BareLoop,
}

/// A receiver at work.
enum Reader<'r> {
    Worker(Receiver),
    BareLoop { packets: &'r AtomicU64, thread: thread::ScopedJoinHandle<'r, Outcome<()>> },
}

/// Packets per second of CPU time.
type PerCpuSecond = f64;

fn main() -> Outcome<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(()); // built and started by `cargo test`, which measures nothing
    }
    lab::gain_access()?;
    println!(
        "{ROUNDS} turns of {TURN:?} each, CPU {CPU}; packets per second of the thread's CPU time, medians"
    );
    println!("{:<22}{:>14}{:>14}{:>12}", "64-byte frames", "bare loop", "worker", "overhead");
    use Path::{Packet, Udp, Xdp, Xsk};
    for (name, path) in [("send udp", Udp), ("send packet", Packet), ("send xsk", Xsk), ("send xdp", Xdp)] {
        compare(name, |round| senders(round, path))?;
    }
    for (name, path) in [("receive udp", Udp), ("receive packet", Packet), ("receive xsk", Xsk)] {
        compare(name, |round| receivers(round, path, Beside::Worker))?;
        compare(&format!("{name}: bare"), |round| receivers(round, path, Beside::BareLoop))?;
    }
    Ok(())
}

/// Prints the medians of rounds, each of which returns the rates of the bare loop and of the worker.
fn compare(name: &str, round: impl Fn(usize) -> Outcome<(PerCpuSecond, PerCpuSecond)>) -> Outcome<()> {
    if !is_asked(|word| name.contains(word)) {
        return Ok(());
    }
    let (mut bares, mut workers, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        let (bare, worker) = round(number)?;
        bares.push(bare);
        workers.push(worker);
        ratios.push(bare / worker - 1.0);
    }
    let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    let percent = of(&ratios) * 100.0;
    println!("{name:<22}{:>14.0}{:>14.0}{percent:>11.1} %", of(&bares), of(&workers));
    Ok(())
}

fn spec(lab: &Lab) -> FrameSpec {
    FrameSpec {
        src_addr: lab.tx().ipv4()[0].to_string().parse().expect("an address"),
        dst_addr: lab.rx().ipv4()[0].to_string().parse().expect("an address"),
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        src_port: 20_000.into(),
        dst_port: PORT.into(),
        ..FrameSpec::default()
    }
}

fn lab() -> Outcome<Lab> {
    Ok(Lab::create(&LabPlan { queues: 1, ..LabPlan::default() })?)
}

/// One after the other; the order changes from round to round.
fn senders(round: usize, path: Path) -> Outcome<(PerCpuSecond, PerCpuSecond)> {
    if round.is_multiple_of(2) {
        let bare = bare_sender(&lab()?, path)?;
        return Ok((bare, sender(&lab()?, path)?));
    }
    let worker = sender(&lab()?, path)?;
    Ok((bare_sender(&lab()?, path)?, worker))
}

/// The cheapest receiver: a program that drops frames, a full socket for datagrams.
fn sink(lab: &Lab, path: Path) -> Outcome<Box<dyn std::any::Any>> {
    let side = lab.rx();
    if path == Path::Udp {
        let at = SocketAddr::new(side.ipv4()[0].into(), PORT);
        return Ok(Box::new(side.run(|| std::net::UdpSocket::bind(at))??));
    }
    let open = || XdpRx::open(side.index(), XdpMode::Native, &CountOptions::default());
    Ok(Box::new(side.run(open)??))
}

fn bare_sender(lab: &Lab, path: Path) -> Outcome<PerCpuSecond> {
    let _sink = sink(lab, path)?;
    let (side, template) = (lab.tx(), Template::new(&spec(lab))?);
    let frame_bytes = template.max_frame_len();
    side.run(|| -> Outcome<PerCpuSecond> {
        cpu::pin_to(CPU)?;
        match path {
            Path::Udp => {
                let options = UdpTxOptions {
                    batch_size: BATCH,
                    ..UdpTxOptions::to((lab.rx().ipv4()[0], PORT).into(), template.max_payload_len())
                };
                send_bare(UdpTx::open(&options)?, &template)
            }
            Path::Packet => {
                send_bare(PacketTx::open(&PacketTxOptions::on(side.index(), frame_bytes))?, &template)
            }
            Path::Xsk => send_bare(XskTx::open(&XskTxOptions::on(side.interface(), 0))?, &template),
            Path::Xdp => {
                let mut tx = XdpTx::open(template.recipe(), &XdpTxOptions::on(side.index()))?;
                measured(|| Ok(tx.send(tx.worthwhile_packets(), 0)?.taken))
            }
        }
    })?
}

fn send_bare<P: TxPort>(mut port: P, template: &Template) -> Outcome<PerCpuSecond> {
    port.prime(|slot| match P::LAYER {
        Layer::Payload => template.prime_payload(slot),
        Layer::Frame => template.prime_frame(slot),
    });
    let (mut sequence, batch) = (0u32, port.batch_size());
    measured(|| {
        let sent = port.send(batch, |slot| {
            sequence = sequence.wrapping_add(1);
            match P::LAYER {
                Layer::Payload => template.restamp_payload(slot, sequence, 0),
                Layer::Frame => template.restamp_frame(slot, sequence, 0),
            }
        })?;
        Ok(sent.taken)
    })
}

/// Repeats a call for a turn; the clock is read once per many calls.
fn measured(mut call: impl FnMut() -> Outcome<usize>) -> Outcome<PerCpuSecond> {
    let (start, before, mut packets) = (Instant::now(), cpu::thread_time(), 0);
    while start.elapsed() < TURN {
        for _ in 0..16 {
            packets += call()?;
        }
    }
    Ok(packets as f64 * 1e9 / cpu::thread_time().since(before).total_ns() as f64)
}

fn placement(side: &Side) -> Outcome<Placement> {
    let namespace = side.namespace().try_clone()?;
    Ok(Placement { enter: Some(Arc::new(move || namespace.enter())), cpus: vec![CPU] })
}

fn sender(lab: &Lab, path: Path) -> Outcome<PerCpuSecond> {
    let _sink = sink(lab, path)?;
    let engine = match path {
        Path::Udp => "udp",
        Path::Packet => "packet",
        Path::Xsk => "xsk",
        Path::Xdp => "xdp",
    };
    let worker = TxWorkerPlan {
        target: (lab.rx().ipv4()[0], PORT).into(),
        local: (lab.tx().ipv4()[0], 0).into(),
        flows: 1,
        stream: 0,
    };
    let plan = SenderPlan {
        engine: engine.parse()?,
        traffic: TxTraffic {
            workers: vec![worker],
            interface: Some(lab.tx().interface().into()),
            frames: spec(lab),
            rate_pps: None,
            departures: Departures::Constant,
            limit: Limit { count: None, duration_ns: Some(TURN.as_nanos() as u64) },
            batch_size: BATCH,
            seed: 1,
        },
    };
    let sender = plan.prepare(&placement(lab.tx())?)?;
    sender.begin();
    let result = sender.join().remove(0);
    if let Some(error) = result.error {
        return Err(error.into());
    }
    Ok(result.tally.packets as f64 * 1e9 / (result.cost.user_ns + result.cost.system_ns) as f64)
}

/// Both at once on the same CPU, each in its own lab, while another CPU sends live frames to both alternately: the
/// machine's present speed is the same for both. The order of starting (the first wakes up in a colder cache) and the
/// order of labs change from round to round.
fn receivers(round: usize, path: Path, beside: Beside) -> Outcome<(PerCpuSecond, PerCpuSecond)> {
    let labs = [lab()?, lab()?];
    let (bare_lab, other_lab) = (&labs[round % 2], &labs[(round + 1) % 2]);
    let is_bare_first = (round / 2).is_multiple_of(2);
    // XDP frames need receive rings at the other end; AF_XDP attaches a program.
    let rings = |lab: &Lab| -> Outcome<_> {
        let attach = || bpf::Pass::attach(lab.rx().index(), XdpMode::Native);
        Ok(if path == Path::Xsk { None } else { Some(lab.rx().run(attach)??) })
    };
    let _rings = [rings(&labs[0])?, rings(&labs[1])?];
    let (counts, is_over) = ([AtomicU64::new(0), AtomicU64::new(0)], AtomicBool::new(false));
    thread::scope(|scope| {
        let (is_over, counts) = (&is_over, &counts);
        let bare_loop = |name: &str, lab, packets| -> Outcome<_> {
            let thread = thread::Builder::new().name(name.into());
            let thread = thread.spawn_scoped(scope, move || bare_receiver(lab, path, packets, is_over))?;
            Ok(Reader::BareLoop { packets, thread })
        };
        let other = || match beside {
            Beside::BareLoop => bare_loop(WORKER_NAME, other_lab, &counts[1]),
            Beside::Worker => {
                let plan = receiver_plan(other_lab, path);
                Ok(Reader::Worker(plan.start(&placement(other_lab.rx())?)?))
            }
        };
        let early = if is_bare_first { None } else { Some(other()?) };
        let bare = bare_loop(BARE_NAME, bare_lab, &counts[0])?;
        let other = early.map_or_else(other, Ok)?;
        let flood = scope.spawn(|| flood(&labs, path, is_over));
        let measured = measured_beside(&bare, &other);
        is_over.store(true, Relaxed);
        flood.join().expect("the flood does not panic")?;
        bare.end()?;
        other.end()?;
        measured
    })
}

/// The packets that the two threads with these names receive in a turn.
fn measured_beside(bare: &Reader, other: &Reader) -> Outcome<(PerCpuSecond, PerCpuSecond)> {
    // The flood starts slowly. Both are measured between packets: without the cost of threads and ports to
    // set up and tear down.
    while bare.packets().min(other.packets()) == 0 && !bare.is_finished() && !other.is_finished() {
        thread::sleep(Duration::from_millis(1));
    }
    let now = || -> Outcome<_> {
        Ok([(bare.packets(), time_of(BARE_NAME)?), (other.packets(), time_of(WORKER_NAME)?)])
    };
    let before = now()?;
    thread::sleep(TURN);
    let after = now()?;
    let rate = |of: usize| (after[of].0 - before[of].0) as f64 * 1e9 / (after[of].1 - before[of].1) as f64;
    Ok((rate(0), rate(1)))
}

impl Reader<'_> {
    fn packets(&self) -> u64 {
        match self {
            Self::BareLoop { packets, .. } => packets.load(Relaxed),
            Self::Worker(receiver) => {
                let tally = receiver.snapshot();
                tally.packets + tally.foreign
            }
        }
    }

    fn is_finished(&self) -> bool {
        match self {
            Self::BareLoop { thread, .. } => thread.is_finished(),
            Self::Worker(receiver) => receiver.is_finished(),
        }
    }

    fn end(self) -> Outcome<()> {
        match self {
            Self::BareLoop { thread, .. } => thread.join().expect("a bare loop does not panic"),
            Self::Worker(receiver) => {
                let error = receiver.stop().workers.remove(0).error;
                error.map_or(Ok(()), |error| Err(error.into()))
            }
        }
    }
}

/// Sends to both labs alternately until the end, faster than they are read. No sender is faster than packet sockets are
/// read: theirs are filled while no reader has the CPU, so that the bench measures reading, not wakeups.
fn flood(labs: &[Lab; 2], path: Path, is_over: &AtomicBool) -> Outcome<()> {
    cpu::pin_to(OTHER_CPU)?;
    let mut senders = Vec::new();
    for lab in labs {
        let mut spec = spec(lab);
        if path == Path::Packet {
            // Packet sockets see frames for stations that do not exist, and the kernel does no further work on them.
            spec.dst_mac = NOBODY;
        }
        let template = Template::new(&spec)?;
        let open = || XdpTx::open(template.recipe(), &XdpTxOptions::on(lab.tx().index()));
        senders.push((lab.tx(), lab.tx().run(open)??));
    }
    let mut send = |times: usize| -> Outcome<()> {
        for _ in 0..times {
            for (side, tx) in &mut senders {
                side.namespace().enter()?;
                // The other end may not have its rings yet.
                tx.send(A_CALL, 0).ok();
            }
        }
        Ok(())
    };
    if path != Path::Packet {
        while !is_over.load(Relaxed) {
            send(1)?;
        }
        return Ok(());
    }
    let is_held = AtomicBool::new(false);
    thread::scope(|scope| {
        let holder = scope.spawn(|| hold(&is_held, is_over));
        while !is_over.load(Relaxed) {
            is_held.store(true, Relaxed);
            holder.thread().unpark();
            let sent = send(RING_CALLS);
            is_held.store(false, Relaxed);
            sent?;
            thread::sleep(READING);
        }
        holder.join().expect("the holder does not panic")
    })
}

/// Keeps ordinary threads off the measured CPU while the flag is set.
fn hold(is_held: &AtomicBool, is_over: &AtomicBool) -> Outcome<()> {
    cpu::pin_to(CPU)?;
    cpu::go_first(0)?;
    while !is_over.load(Relaxed) {
        while is_held.load(Relaxed) {
            hint::spin_loop();
        }
        thread::park_timeout(READING);
    }
    Ok(())
}

fn bare_receiver(lab: &Lab, path: Path, packets: &AtomicU64, is_over: &AtomicBool) -> Outcome<()> {
    let side = lab.rx();
    side.namespace().enter()?;
    cpu::pin_to(CPU)?;
    match path {
        Path::Udp => {
            let at = (side.ipv4()[0], PORT).into();
            let options = UdpRxOptions { batch_size: BATCH, ..UdpRxOptions::at(at) };
            receive_bare(UdpRx::open(&options)?, packets, is_over)
        }
        Path::Packet => receive_bare(PacketRx::open(&PacketRxOptions::on(side.index()))?, packets, is_over),
        _ => {
            let options = XskRxOptions { dst_port: PORT, ..XskRxOptions::on(side.interface(), 0) };
            receive_bare(XskRx::open(&options)?.remove(0), packets, is_over)
        }
    }
}

/// Finds the sequence number in each packet, and only counts the packets.
fn receive_bare<P: RxPort>(mut port: P, packets: &AtomicU64, is_over: &AtomicBool) -> Outcome<()> {
    while !is_over.load(Relaxed) {
        let received = port.recv(Wait::Block, |received| {
            let payload = match P::LAYER {
                Layer::Payload => received.bytes,
                Layer::Frame => UdpFrame::glance(received.bytes).unwrap_or_default(),
            };
            black_box(ProbeHeader::read(payload));
        })?;
        packets.store(packets.load(Relaxed) + received as u64, Relaxed);
    }
    Ok(())
}

fn receiver_plan(lab: &Lab, path: Path) -> ReceiverPlan {
    let engine = match path {
        Path::Udp => "udp",
        Path::Packet => "packet",
        _ => "xsk",
    };
    ReceiverPlan {
        engine: engine.parse().expect("an engine of the registry"),
        traffic: RxTraffic {
            reflect: false,
            work_ns: 0,
            local: (lab.rx().ipv4()[0], PORT).into(),
            interface: Some(lab.rx().interface().into()),
            workers: 1,
            spin: false,
            batch_size: BATCH,
            statistics: None,
        },
    }
}

/// CPU time so far of the only thread of this name, in nanoseconds.
fn time_of(name: &str) -> Outcome<u64> {
    Thread::called(name)?.first().ok_or_else(|| format!("no thread is called '{name}'"))?.time_ns()
}
