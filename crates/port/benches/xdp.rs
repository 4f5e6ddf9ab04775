//! `make bench-xdp`: the XDP path against a plain live-frames sender with a redirect map and a program that only
//! drops (`benches/xdp/plain.bpf.c`), on the same kind of lab, in the same run, turn by turn; medians and ratios.
//!
//! 64-byte frames, one thread. `delivered` is what the receiving interface took; `per CPU second` leaves out the
//! time in which others had the CPU. The bound is what the kernel needs to make frames that go nowhere.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use aya::{
    Ebpf, TestRun, TestRunAttrs, TestRunOptions, include_bytes_aligned,
    maps::DevMap,
    programs::{Xdp, xdp::XdpMode as AyaMode},
};
use lab::{Lab, LabPlan};
use measure::median;
use port::{CountOptions, SendPath, XdpMode, XdpRx, XdpTx, XdpTxOptions};
use sys::cpu;
use wire::{FrameSpec, Template};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 9;
const TURN: Duration = Duration::from_millis(150);
const PACKETS_A_CALL: u32 = 65_536;
const CPU: u32 = 0;
const FRAME: [u8; 60] = [0; 60];

/// A way to send on the lab's sending side, and what receives on the other.
struct Contender {
    name: &'static str,
    send: Box<dyn FnMut() -> Outcome<()> + Send>,
    lab: Lab,
    _receiver: Receiver,
    delivered_pps: Vec<f64>,
    per_cpu_second: Vec<f64>,
}

#[expect(dead_code, reason = "held for its link")]
enum Receiver {
    Plain(Ebpf),
    Ours(XdpRx),
}

fn main() -> Outcome<()> {
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(()); // `cargo test --benches` measures nothing
    }
    lab::gain_access()?;
    cpu::pin_to(CPU)?;
    let fixed = FrameSpec::default();
    let varying = FrameSpec {
        src_addr: "198.18.0.0/16".parse()?,
        dst_addr: "random:198.19.0.0/16".parse()?,
        src_port: "1024-65535".parse()?,
        ..FrameSpec::default()
    };
    let mut contenders = vec![
        plain("plain: redirect map, 64 -> drop", "redirect_all", 64, false)?,
        plain("plain: XDP_TX, 64 -> drop", "tx_all", 64, false)?,
        plain("plain: XDP_TX, 64 -> count", "tx_all", 64, true)?,
        ours_to("fixed, XDP_TX, 64 -> drop", &fixed, SendPath::Tx, 64, true)?,
        ours("fixed, XDP_TX, 64", &fixed, SendPath::Tx, 64)?,
        ours("varying, XDP_TX, 64", &varying, SendPath::Tx, 64)?,
        ours("fixed, map, 64", &fixed, SendPath::Map, 64)?,
        ours("fixed, XDP_TX, 32", &fixed, SendPath::Tx, 32)?,
        ours("fixed, XDP_TX, 128", &fixed, SendPath::Tx, 128)?,
        ours("making fixed ones only, 64", &fixed, SendPath::Dropped, 64)?,
        ours("making varying ones only, 64", &varying, SendPath::Dropped, 64)?,
        bound("bound: made and dropped, 64", 64)?,
    ];
    for _ in 0..ROUNDS {
        for contender in &mut contenders {
            contender.take_turn()?;
        }
    }
    let of = |pps: &[f64]| median(pps).unwrap_or(0.0) / 1e6;
    let base = (of(&contenders[0].delivered_pps), of(&contenders[0].per_cpu_second));
    println!("{ROUNDS} turns of {TURN:?} each on CPU {CPU}, {PACKETS_A_CALL} packets a call; medians, Mpps");
    println!("{:<34}{:>10}{:>8}{:>16}{:>8}", "", "delivered", "ratio", "per CPU second", "ratio");
    for contender in &contenders {
        let (pps, cpu) = (of(&contender.delivered_pps), of(&contender.per_cpu_second));
        println!("{:<34}{pps:>10.2}{:>8.2}{cpu:>16.2}{:>8.2}", contender.name, pps / base.0, cpu / base.1);
    }
    Ok(())
}

impl Contender {
    fn new(
        name: &'static str,
        lab: Lab,
        receiver: Receiver,
        send: impl FnMut() -> Outcome<()> + Send + 'static,
    ) -> Self {
        Self {
            name,
            lab,
            send: Box::new(send),
            _receiver: receiver,
            delivered_pps: Vec::new(),
            per_cpu_second: Vec::new(),
        }
    }

    fn take_turn(&mut self) -> Outcome<()> {
        let before = self.lab.rx().link()?.stats.rx_packets;
        let send = &mut self.send;
        let turn = || -> Result<_, String> {
            cpu::pin_to(CPU).map_err(|error| error.to_string())?;
            let (start, cpu_before, mut calls) = (Instant::now(), cpu::thread_time(), 0u64);
            while start.elapsed() < TURN {
                send().map_err(|error| error.to_string())?;
                calls += 1;
            }
            Ok((start.elapsed(), cpu::thread_time().since(cpu_before).total_ns(), calls))
        };
        let (wall, cpu_ns, calls) = self.lab.tx().run(turn)??;
        let arrived = self.lab.rx().link()?.stats.rx_packets - before;
        // What goes nowhere is delivered to nowhere.
        let packets = if arrived > 0 { arrived } else { calls * u64::from(PACKETS_A_CALL) } as f64;
        self.delivered_pps.push(packets / wall.as_secs_f64());
        self.per_cpu_second.push(packets / (cpu_ns as f64 / 1e9));
        Ok(())
    }
}

fn ours(name: &'static str, spec: &FrameSpec, path: SendPath, batch_size: u32) -> Outcome<Contender> {
    ours_to(name, spec, path, batch_size, false)
}

fn ours_to(
    name: &'static str,
    spec: &FrameSpec,
    path: SendPath,
    batch_size: u32,
    plain: bool,
) -> Outcome<Contender> {
    let lab = Lab::create(&LabPlan { queues: 1, ..LabPlan::default() })?;
    let (tx, rx) = (lab.tx(), lab.rx());
    let receiver = receiver(&lab, plain)?;
    let template = Template::new(spec)?;
    let options = XdpTxOptions { path, batch_size, ..XdpTxOptions::on(tx.index()) };
    let mut sender = tx.run(|| XdpTx::open(template.recipe(), &options))??;
    let send = move || Ok(sender.send(PACKETS_A_CALL as usize, 0).map(drop)?);
    Ok(Contender::new(name, lab, receiver, send))
}

fn receiver(lab: &Lab, plain: bool) -> Outcome<Receiver> {
    let rx = lab.rx();
    if !plain {
        return Ok(Receiver::Ours(
            rx.run(|| XdpRx::open(rx.index(), XdpMode::Native, &CountOptions::default()))??,
        ));
    }
    let mut receiver = load("drop_all")?;
    rx.run(|| program(&mut receiver, "drop_all").attach_to_if_index(rx.index(), AyaMode::Driver))??;
    Ok(Receiver::Plain(receiver))
}

fn plain(name: &'static str, prog: &'static str, batch_size: u32, count: bool) -> Outcome<Contender> {
    let lab = Lab::create(&LabPlan { queues: 1, ..LabPlan::default() })?;
    let tx = lab.tx();
    let receiver = receiver(&lab, !count)?;
    let mut sender = load(prog)?;
    let mut target = DevMap::try_from(sender.take_map("target").ok_or("no map")?)?;
    let index = tx.index();
    tx.run(|| target.set(0, index, None, 0))??;
    let send = move || {
        let _held = &target;
        run(&mut sender, prog, batch_size, index)
    };
    Ok(Contender::new(name, lab, receiver, send))
}

fn bound(name: &'static str, batch_size: u32) -> Outcome<Contender> {
    let lab = Lab::create(&LabPlan { queues: 1, ..LabPlan::default() })?;
    let mut dropper = load("drop_all")?;
    let receiver = load("drop_all")?;
    let send = move || run(&mut dropper, "drop_all", batch_size, 1);
    Ok(Contender::new(name, lab, Receiver::Plain(receiver), send))
}

fn load(name: &'static str) -> Outcome<Ebpf> {
    let mut ebpf = Ebpf::load(include_bytes_aligned!("xdp/plain.bpf.o"))?;
    program(&mut ebpf, name).load()?;
    Ok(ebpf)
}

fn program<'e>(ebpf: &'e mut Ebpf, name: &'static str) -> &'e mut Xdp {
    ebpf.program_mut(name).expect("the object defines it").try_into().expect("it is XDP")
}

fn run(ebpf: &mut Ebpf, name: &'static str, batch_size: u32, interface: u32) -> Outcome<()> {
    let frame = FRAME;
    let mut context = [0; 24];
    context[4..8].copy_from_slice(&60u32.to_ne_bytes());
    context[12..16].copy_from_slice(&interface.to_ne_bytes());
    let mut options = TestRunOptions::new();
    options.data_in = Some(&frame);
    options.ctx_in = Some(&context);
    options.repeat = PACKETS_A_CALL;
    options.attrs = TestRunAttrs::new().xdp_live_frames(batch_size);
    program(ebpf, name).test_run(options)?;
    Ok(())
}
