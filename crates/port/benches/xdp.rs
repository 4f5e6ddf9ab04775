//! `make bench-xdp`: the XDP path against a plain live-frames sender with a redirect map and a program that only
//! drops (`benches/xdp/plain.bpf.c`), on labs of one kind, in the same run, turn by turn; medians and ratios.
//!
//! 64-byte frames, one thread. `delivered` is what the receiving interface took in a second of the clock; `per CPU
//! second` leaves out the time in which others had the CPU, and holds on a busy machine. The bound is what the
//! kernel needs to make frames that go nowhere. `cargo bench … -- NAME…` takes only those whose names hold a NAME.

use std::{
    any::Any,
    error::Error,
    time::{Duration, Instant},
};

use aya::{
    Ebpf, TestRun, TestRunAttrs, TestRunOptions, include_bytes_aligned,
    maps::DevMap,
    programs::{Xdp, xdp::XdpMode as AyaMode},
};
use lab::{Lab, LabPlan, Side};
use measure::median;
use port::{CountOptions, SendPath, XdpMode, XdpRx, XdpTx, XdpTxOptions};
use sys::cpu;
use wire::{FrameSpec, Template};

type Outcome<T> = Result<T, Box<dyn Error>>;
/// Sends a call's packets and says how many.
type Send = Box<dyn FnMut() -> Outcome<u64> + std::marker::Send>;

const ROUNDS: usize = 11;
const TURN: Duration = Duration::from_millis(100);
/// Packets a call of the plain sender: so many that the time the kernel takes to begin and end hardly counts.
const MANY: u32 = 1 << 20;
const CPU: u32 = 0;

/// How linerate sends.
#[derive(Clone, Copy)]
struct Way {
    path: SendPath,
    batch_size: u32,
    packets: usize,
}

/// A way to send on the lab's sending side, and what receives on the other.
struct Contender {
    name: &'static str,
    send: Send,
    _receiver: Receiver,
    lab: Lab,
    delivered_pps: Vec<f64>,
    per_cpu_second: Vec<f64>,
}

/// Held for its link.
type Receiver = Box<dyn Any>;

fn main() -> Outcome<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(()); // built and started by `cargo test`, which measures nothing
    }
    lab::gain_access()?;
    let fixed = FrameSpec::default();
    let varying = FrameSpec {
        src_addr: "198.18.0.0/16".parse()?,
        dst_addr: "random:198.19.0.0/16".parse()?,
        src_port: "1024-65535".parse()?,
        ..FrameSpec::default()
    };
    let way = Way { path: SendPath::Tx, batch_size: 192, packets: 16_384 };
    let mut contenders = vec![
        Contender::new("plain: redirect map, to drop", |lab| plain(lab.tx(), "redirect_all", MANY), to_drop)?,
        Contender::new("plain: XDP_TX, to drop", |lab| plain(lab.tx(), "tx_all", MANY), to_drop)?,
        Contender::new("plain, a number each, to drop", |lab| plain(lab.tx(), "tx_numbered", MANY), to_drop)?,
        Contender::new(
            "plain, 16384 a call, to drop",
            |lab| plain(lab.tx(), "redirect_all", 16_384),
            to_drop,
        )?,
        Contender::new("fixed frames, to drop", |lab| ours(lab.tx(), &fixed, way), to_drop)?,
        Contender::new("fixed frames, to count", |lab| ours(lab.tx(), &fixed, way), to_count)?,
        Contender::new("varying flows, to count", |lab| ours(lab.tx(), &varying, way), to_count)?,
        Contender::new(
            "fixed, redirect map, to count",
            |lab| ours(lab.tx(), &fixed, Way { path: SendPath::Map, ..way }),
            to_count,
        )?,
        Contender::new(
            "fixed, batches of 32, to count",
            |lab| ours(lab.tx(), &fixed, Way { batch_size: 32, ..way }),
            to_count,
        )?,
        Contender::new(
            "fixed, batches of 64, to count",
            |lab| ours(lab.tx(), &fixed, Way { batch_size: 64, ..way }),
            to_count,
        )?,
        Contender::new(
            "fixed, 64 a call, to count",
            |lab| ours(lab.tx(), &fixed, Way { packets: 64, ..way }),
            to_count,
        )?,
        Contender::new(
            "fixed, 1024 a call, to count",
            |lab| ours(lab.tx(), &fixed, Way { packets: 1024, ..way }),
            to_count,
        )?,
        Contender::new(
            "fixed frames, made only",
            |lab| ours(lab.tx(), &fixed, Way { path: SendPath::Dropped, ..way }),
            to_drop,
        )?,
        Contender::new(
            "varying flows, made only",
            |lab| ours(lab.tx(), &varying, Way { path: SendPath::Dropped, ..way }),
            to_drop,
        )?,
        Contender::new("bound: nothing made, all dropped", |lab| plain(lab.tx(), "drop_all", MANY), to_drop)?,
    ];
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    contenders.retain(|contender| only.is_empty() || only.iter().any(|part| contender.name.contains(part)));
    for _ in 0..ROUNDS {
        for contender in &mut contenders {
            contender.take_turn()?;
        }
    }
    let medians = |contender: &Contender| {
        let mpps = |pps: &[f64]| median(pps).unwrap_or(f64::NAN) / 1e6;
        (mpps(&contender.delivered_pps), mpps(&contender.per_cpu_second))
    };
    let (base_pps, base_cpu) = medians(&contenders[0]);
    println!(
        "{ROUNDS} turns of {TURN:?} and more on CPU {CPU}; batches of 64 and {MANY} packets a call for plain senders, of 192 and 16384 for ours, unless said; Mpps"
    );
    println!("{:<34}{:>10}{:>8}{:>16}{:>8}", "", "delivered", "ratio", "per CPU second", "ratio");
    for contender in &contenders {
        let (pps, cpu) = medians(contender);
        let name = contender.name;
        println!("{name:<34}{pps:>10.2}{:>8.2}{cpu:>16.2}{:>8.2}", pps / base_pps, cpu / base_cpu);
    }
    Ok(())
}

impl Contender {
    fn new(
        name: &'static str,
        sender: impl FnOnce(&Lab) -> Outcome<Send>,
        receiver: fn(&Side) -> Outcome<Receiver>,
    ) -> Outcome<Self> {
        let lab = Lab::create(&LabPlan { queues: 1, ..LabPlan::default() })?;
        let _receiver = receiver(lab.rx())?;
        let send = sender(&lab)?;
        Ok(Self { name, send, _receiver, lab, delivered_pps: Vec::new(), per_cpu_second: Vec::new() })
    }

    fn take_turn(&mut self) -> Outcome<()> {
        let before = self.lab.rx().link()?.stats.rx_packets;
        let send = &mut self.send;
        let turn = || -> Result<_, String> {
            cpu::pin_to(CPU).map_err(|error| error.to_string())?;
            let (start, cpu_before, mut made) = (Instant::now(), cpu::thread_time(), 0);
            while start.elapsed() < TURN {
                made += send().map_err(|error| error.to_string())?;
            }
            Ok((start.elapsed(), cpu::thread_time().since(cpu_before).total_ns(), made))
        };
        let (wall, cpu_ns, made) = self.lab.tx().run(turn)??;
        let packets = match self.lab.rx().link()?.stats.rx_packets - before {
            0 => made, // those that go nowhere
            arrived => arrived,
        };
        self.delivered_pps.push(packets as f64 / wall.as_secs_f64());
        self.per_cpu_second.push(packets as f64 * 1e9 / cpu_ns as f64);
        Ok(())
    }
}

fn to_count(side: &Side) -> Outcome<Receiver> {
    let open = || XdpRx::open(side.index(), XdpMode::Native, &CountOptions::default());
    Ok(Box::new(side.run(open)??))
}

fn to_drop(side: &Side) -> Outcome<Receiver> {
    let mut ebpf = load("drop_all")?;
    side.run(|| program(&mut ebpf, "drop_all").attach_to_if_index(side.index(), AyaMode::Driver))??;
    Ok(Box::new(ebpf))
}

fn ours(side: &Side, spec: &FrameSpec, way: Way) -> Outcome<Send> {
    let template = Template::new(spec)?;
    let options =
        XdpTxOptions { path: way.path, batch_size: way.batch_size, ..XdpTxOptions::on(side.index()) };
    let mut tx = side.run(|| XdpTx::open(template.recipe(), &options))??;
    Ok(Box::new(move || Ok(tx.send(way.packets, 0)?.taken as u64)))
}

fn plain(side: &Side, name: &'static str, packets: u32) -> Outcome<Send> {
    let mut ebpf = load(name)?;
    let interface = side.index();
    let mut target = DevMap::try_from(ebpf.take_map("target").ok_or("no map")?)?;
    side.run(|| target.set(0, interface, None, 0))??;
    // `struct xdp_md`: where data ends, and the interface it is from.
    let mut context = [0; 24];
    context[4..8].copy_from_slice(&60u32.to_ne_bytes());
    context[12..16].copy_from_slice(&interface.to_ne_bytes());
    Ok(Box::new(move || {
        let _held = &target;
        let mut options = TestRunOptions::new();
        options.data_in = Some(&[0; 60]);
        options.ctx_in = Some(&context);
        options.repeat = packets;
        options.attrs = TestRunAttrs::new().xdp_live_frames(64);
        program(&mut ebpf, name).test_run(options)?;
        Ok(packets.into())
    }))
}

fn load(name: &str) -> Outcome<Ebpf> {
    let mut ebpf = Ebpf::load(include_bytes_aligned!("xdp/plain.bpf.o"))?;
    program(&mut ebpf, name).load()?;
    Ok(ebpf)
}

fn program<'e>(ebpf: &'e mut Ebpf, name: &str) -> &'e mut Xdp {
    ebpf.program_mut(name).expect("the object defines it").try_into().expect("it is XDP")
}
