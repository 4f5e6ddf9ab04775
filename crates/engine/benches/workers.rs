//! `make bench-workers`: what a worker (schedule, publishing, telling streams apart, its losses) costs over the bare
//! loop around its port, both ways, on the lab, turn by turn; medians and ratios.
//!
//! Packets per second of the thread's own CPU time: what else the machine does hardly counts. Both sides of a ratio
//! run on the same CPU with the same port, batches and frames. Words behind `--` choose rows: those with one in their name.

mod asked;

use std::{
    error::Error,
    fs,
    hint::black_box,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use asked::is_asked;
use engine::{
    Departures, Limit, PacketRxPlan, PacketTxPlan, Placement, Receiver, ReceiverPlan, RxEngine, Sender,
    SenderPlan, TxEngine, TxWorkerPlan, UdpRxPlan, UdpTxPlan, XdpTxPlan, XskRxPlan, XskTxPlan,
};
use lab::{Lab, LabPlan, Side};
use measure::median;
use port::{
    CountOptions, Layer, PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, RxPort, TxPort, UdpRx,
    UdpRxOptions, UdpTx, UdpTxOptions, Wait, XdpMode, XdpRx, XdpTx, XdpTxOptions, XskRx, XskRxOptions, XskTx,
    XskTxOptions,
};
use sys::cpu;
use wire::{FrameSpec, MacAddr, ProbeHeader, Template, UdpFrame};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 21;
const TURN: Duration = Duration::from_millis(250);
/// Of whom is measured, and of who floods a receiver.
const CPU: u32 = 0;
const OTHER_CPU: u32 = 1;
const PORT: u16 = 4321;
const BATCH: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Udp,
    Packet,
    Xsk,
    Xdp,
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
    println!("{:<18}{:>14}{:>14}{:>12}", "64-byte frames", "bare loop", "worker", "overhead");
    use Path::{Packet, Udp, Xdp, Xsk};
    for (name, path) in [("send udp", Udp), ("send packet", Packet), ("send xsk", Xsk), ("send xdp", Xdp)] {
        compare(name, |lab| bare_sender(lab, path), |lab| sender(lab, path))?;
    }
    for (name, path) in [("receive udp", Udp), ("receive packet", Packet), ("receive xsk", Xsk)] {
        compare(name, |lab| flooded(lab, path, bare_receiver), |lab| flooded(lab, path, receiver))?;
    }
    Ok(())
}

fn compare(
    name: &str,
    bare: impl Fn(&Lab) -> Outcome<PerCpuSecond>,
    worker: impl Fn(&Lab) -> Outcome<PerCpuSecond>,
) -> Outcome<()> {
    if !is_asked(|word| name.contains(word)) {
        return Ok(());
    }
    let (mut bares, mut workers, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let lab = || Lab::create(&LabPlan { queues: 1, ..LabPlan::default() });
        // Who goes first changes from round to round.
        let (bare, worker) = if round % 2 == 0 {
            let first = bare(&lab()?)?;
            (first, worker(&lab()?)?)
        } else {
            let first = worker(&lab()?)?;
            (bare(&lab()?)?, first)
        };
        bares.push(bare);
        workers.push(worker);
        ratios.push(bare / worker - 1.0);
    }
    let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    let percent = of(&ratios) * 100.0;
    println!("{name:<18}{:>14.0}{:>14.0}{percent:>11.1} %", of(&bares), of(&workers));
    Ok(())
}

/// For a station that is not there where frames are made, so that receiving costs little.
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

/// What takes the packets without much ado: a program that drops them for frames, a full socket for datagrams.
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
                measured(|| Ok(tx.send(XdpTx::WORTHWHILE_PACKETS, 0)?.taken))
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

/// Repeats a call for a turn; the clock is read once in many calls.
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
        Path::Udp => TxEngine::Udp(UdpTxPlan::default()),
        Path::Packet => TxEngine::Packet(PacketTxPlan { qdisc_bypass: true }),
        Path::Xsk => TxEngine::Xsk(XskTxPlan::default()),
        Path::Xdp => TxEngine::Xdp(XdpTxPlan::default()),
    };
    let worker = TxWorkerPlan {
        target: (lab.rx().ipv4()[0], PORT).into(),
        local: (lab.tx().ipv4()[0], 0).into(),
        flows: 1,
        stream: 0,
    };
    let plan = SenderPlan {
        engine,
        workers: vec![worker],
        interface: Some(lab.tx().interface().into()),
        frames: spec(lab),
        rate_pps: None,
        departures: Departures::Constant,
        limit: Limit { count: None, duration_ns: Some(TURN.as_nanos() as u64) },
        batch_size: BATCH,
        seed: 1,
    };
    let sender = Sender::prepare(&plan, &placement(lab.tx())?)?;
    sender.begin();
    let result = sender.join().remove(0);
    if let Some(error) = result.error {
        return Err(error.into());
    }
    Ok(result.tally.packets as f64 * 1e9 / (result.cost.user_ns + result.cost.system_ns) as f64)
}

/// Runs a receiver while live frames come from another CPU, faster than any receiver takes them.
fn flooded(
    lab: &Lab,
    path: Path,
    receive: impl FnOnce(&Lab, Path, &AtomicBool) -> Outcome<PerCpuSecond>,
) -> Outcome<PerCpuSecond> {
    let template = Template::new(&spec(lab))?;
    // Frames of XDP need receive rings at the other end; AF_XDP brings a program along.
    let _rings = match path {
        Path::Xsk => None,
        _ => Some(lab.rx().run(|| bpf::Pass::attach(lab.rx().index(), XdpMode::Native))??),
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let flood = scope.spawn(|| {
            lab.tx().run(|| -> Outcome<()> {
                cpu::pin_to(OTHER_CPU)?;
                let mut tx = None;
                while !is_over.load(Relaxed) {
                    let tx = match &mut tx {
                        Some(tx) => tx,
                        none => {
                            none.insert(XdpTx::open(template.recipe(), &XdpTxOptions::on(lab.tx().index()))?)
                        }
                    };
                    // The other end may not have its rings yet.
                    tx.send(1024, 0).ok();
                }
                Ok(())
            })
        });
        let received = receive(lab, path, &is_over);
        is_over.store(true, Relaxed);
        flood.join().expect("the flood does not panic")??;
        received
    })
}

fn bare_receiver(lab: &Lab, path: Path, _: &AtomicBool) -> Outcome<PerCpuSecond> {
    let side = lab.rx();
    side.run(|| -> Outcome<PerCpuSecond> {
        cpu::pin_to(CPU)?;
        match path {
            Path::Udp => {
                let options =
                    UdpRxOptions { batch_size: BATCH, ..UdpRxOptions::at((side.ipv4()[0], PORT).into()) };
                receive_bare(UdpRx::open(&options)?)
            }
            Path::Packet => receive_bare(PacketRx::open(&PacketRxOptions::on(side.index()))?),
            _ => {
                let options = XskRxOptions { dst_port: PORT, ..XskRxOptions::on(side.interface(), 0) };
                receive_bare(XskRx::open(&options)?.remove(0))
            }
        }
    })?
}

/// Finds the number in each packet, which is what a loop is for, and remembers nothing.
fn receive_bare<P: RxPort>(mut port: P) -> Outcome<PerCpuSecond> {
    // The flood takes its time to begin.
    while port.recv(Wait::Block, |_| ())? == 0 {}
    measured(|| {
        Ok(port.recv(Wait::Block, |received| {
            let payload = match P::LAYER {
                Layer::Payload => received.bytes,
                Layer::Frame => UdpFrame::glance(received.bytes).map_or(&[][..], |(payload, _)| payload),
            };
            black_box(ProbeHeader::read(payload));
        })?)
    })
}

fn receiver(lab: &Lab, path: Path, is_over: &AtomicBool) -> Outcome<PerCpuSecond> {
    let engine = match path {
        Path::Udp => RxEngine::Udp(UdpRxPlan::default()),
        Path::Packet => RxEngine::Packet(PacketRxPlan {}),
        _ => RxEngine::Xsk(XskRxPlan::default()),
    };
    let plan = ReceiverPlan {
        reflect: false,
        work_ns: 0,
        engine,
        local: (lab.rx().ipv4()[0], PORT).into(),
        interface: Some(lab.rx().interface().into()),
        workers: 1,
        spin: false,
        batch_size: BATCH,
        statistics: None,
    };
    let receiver = Receiver::start(&plan, &placement(lab.rx())?)?;
    // The flood takes its time to begin. Both sides are measured between packets: without what their threads and ports cost
    // to set up and take down.
    while receiver.snapshot().packets == 0 && !receiver.is_finished() {
        thread::sleep(Duration::from_millis(1));
    }
    let before = (receiver.snapshot(), worker_time()?);
    thread::sleep(TURN);
    let after = (receiver.snapshot(), worker_time()?);
    is_over.store(true, Relaxed);
    if let Some(error) = receiver.stop().workers.remove(0).error {
        return Err(error.into());
    }
    let packets = after.0.packets + after.0.foreign - before.0.packets - before.0.foreign;
    Ok(packets as f64 * 1e9 / (after.1 - before.1) as f64)
}

/// CPU time of the receiver's only worker so far, in nanoseconds.
fn worker_time() -> Outcome<u64> {
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == "recv 0" {
            let spent = fs::read_to_string(task.join("schedstat"))?;
            return Ok(spent.split(' ').next().ok_or("schedstat is empty")?.parse()?);
        }
    }
    Err("no thread is called 'recv 0'".into())
}
