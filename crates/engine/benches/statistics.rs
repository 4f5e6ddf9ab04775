//! `make bench-stats`: what receive statistics cost a packet, level by level, on the lab, turn by turn; medians, and medians
//! of the differences within a round.
//!
//! Sender and receiver share one CPU: packets go through the veth and its program in the sender's calls, and the sender
//! waits for the worker that reads them (`xsk`). So nothing is lost or left to another CPU, and the time that passes on
//! the CPU is what packets cost. Sent in batches that share a time, as senders of XDP do. Words behind `--` choose receivers.

mod asked;

use std::{
    error::Error,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use asked::is_asked;
use engine::{Placement, Receiver, ReceiverPlan, RxEngine, StatisticsPlan, TimeSource, XdpRxPlan, XskRxPlan};
use lab::{Lab, LabPlan};
use measure::{StatisticsLevel, median};
use port::{XdpTx, XdpTxOptions};
use sys::{clock, cpu};
use wire::{FrameSpec, MacAddr, Template};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 31;
const TURN: Duration = Duration::from_millis(40);
const CPU: u32 = 0;
const PORT: u16 = 4321;
/// Packets of a call: a quarter of what an AF_XDP socket's ring holds.
const BATCH: usize = 512;

/// What is measured, and when the clock is looked at.
type Asked = Option<(StatisticsLevel, Option<TimeSource>)>;

const NOTHING: (&str, Asked) = ("none", None);
const COUNTER: (&str, Asked) = ("counter", Some((StatisticsLevel::Counter, None)));
const TIME: (&str, Asked) = ("time", Some((StatisticsLevel::Time, None)));
const PROGRAM: (&str, Asked) = ("time, program", Some((StatisticsLevel::Time, Some(TimeSource::Program))));
const LOOP: (&str, Asked) = ("time, loop", Some((StatisticsLevel::Time, Some(TimeSource::Loop))));

fn main() -> Outcome<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(()); // built and started by `cargo test`, which measures nothing
    }
    lab::gain_access()?;
    println!("{ROUNDS} rounds of {TURN:?} each on CPU {CPU}; nanoseconds a packet, sending included");
    println!("`time` looks at the clock once a poll; with `program` once a packet, with `loop` once a batch");
    compare("xdp", RxEngine::Xdp(XdpRxPlan::default()), &[NOTHING, COUNTER, TIME, PROGRAM])?;
    compare("xsk", RxEngine::Xsk(XskRxPlan::default()), &[NOTHING, COUNTER, TIME, LOOP, PROGRAM])
}

fn compare(name: &str, engine: RxEngine, levels: &[(&str, Asked)]) -> Outcome<()> {
    if !is_asked(|word| word == name) {
        return Ok(());
    }
    let lab = Lab::create(&LabPlan { queues: 1, ..LabPlan::default() })?;
    let mut costs = vec![Vec::new(); levels.len()];
    for round in 0..ROUNDS {
        // Who goes first changes from round to round.
        for turn in 0..levels.len() {
            let level = (round + turn) % levels.len();
            costs[level].push(cost_ns(&lab, &engine, levels[level].1)?);
        }
    }
    let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    for (level, (words, _)) in levels.iter().enumerate() {
        // Counters over nothing, times over counters.
        let below = level.min(2).saturating_sub(1);
        let more: Vec<f64> = costs[level].iter().zip(&costs[below]).map(|(ns, below)| ns - below).collect();
        let over =
            if level == 0 { String::new() } else { format!("{:+8.1} over {}", of(&more), levels[below].0) };
        println!("{name:<5}{words:<14}{:>8.1}{over}", of(&costs[level]));
    }
    Ok(())
}

fn cost_ns(lab: &Lab, engine: &RxEngine, asked: Asked) -> Outcome<f64> {
    let plan = ReceiverPlan {
        engine: engine.clone(),
        local: (lab.rx().ipv4()[0], PORT).into(),
        interface: Some(lab.rx().interface().into()),
        workers: 1,
        spin: false,
        batch_size: 256,
        statistics: asked.map(|(level, stamp)| StatisticsPlan { level, probe_clock: None, stamp }),
        reflect: false,
        work_ns: 0,
    };
    let namespace = lab.rx().namespace().try_clone()?;
    let placement = Placement { enter: Some(Arc::new(move || namespace.enter())), cpus: vec![CPU] };
    let receiver = Receiver::start(&plan, &placement)?;
    let is_read_by_worker = matches!(engine, RxEngine::Xsk(_));
    let sent = lab.tx().run(|| flood(lab, is_read_by_worker.then_some(&receiver)))?;
    let result = receiver.stop();
    let (sent, ns) = sent?;
    let received = result.tally().packets;
    if received != sent {
        return Err(format!("of {sent} packets {received} were received").into());
    }
    Ok(ns / sent as f64)
}

/// Sends for a turn; how many packets, and how long it took. With a receiver, each batch once it has read the one before.
fn flood(lab: &Lab, reader: Option<&Receiver>) -> Outcome<(u64, f64)> {
    cpu::pin_to(CPU)?;
    let template = Template::new(&FrameSpec {
        src_addr: lab.tx().ipv4()[0].to_string().parse()?,
        dst_addr: lab.rx().ipv4()[0].to_string().parse()?,
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        src_port: 20_000.into(),
        dst_port: PORT.into(),
        ..FrameSpec::default()
    })?;
    // So many as a poll takes: of more at once a veth's ring loses some when the CPU is the receiver's too.
    let options = XdpTxOptions { batch_size: 64, ..XdpTxOptions::on(lab.tx().index()) };
    let mut tx = XdpTx::open(template.recipe(), &options)?;
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        sent += tx.send(BATCH, clock::monotonic_ns())?.taken as u64;
        let Some(receiver) = reader else { continue };
        let given = Instant::now();
        while receiver.snapshot().packets < sent {
            if given.elapsed() > Duration::from_secs(1) {
                return Err("the receiver does not read what was sent".into());
            }
            thread::yield_now();
        }
    }
    Ok((sent, start.elapsed().as_nanos() as f64))
}
