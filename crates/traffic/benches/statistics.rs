//! `make bench-stats`: the cost of receive statistics per packet, level by level, on the lab; medians, and medians of the
//! differences within a round.
//!
//! Two receivers at a time, that of a level and that of the level below it, each in its own lab; one thread sends to both
//! alternately, and waits until a receiver has read the packets. The cost of a packet is the CPU time of the sending
//! thread (the veth and the program run in its calls) and of the reading thread on another CPU. The machine's present
//! speed is the same for both. Packets are sent in batches that share a time, as senders of XDP do. Words after `--`
//! choose
//! receivers.

mod asked;
mod threads;

use std::{
    error::Error,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use asked::is_asked;
use lab::{Lab, LabPlan};
use measure::{StatisticsLevel, median};
use port::{XdpTx, XdpTxOptions};
use sys::{clock, cpu};
use threads::Thread;
use traffic::{Placement, Receiver, ReceiverPlan, RxLayer, RxSpec, RxTraffic, StatisticsPlan, TimeSource};
use wire::{FrameSpec, MacAddr, Template};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 31;
const TURN: Duration = Duration::from_millis(80);
/// CPUs of the readers, and of the sender.
const CPU: u32 = 0;
const OTHER_CPU: u32 = 1;
const PORT: u16 = 4321;
/// Packets per call: a quarter of what an AF_XDP socket's ring holds.
const BATCH: usize = 512;

/// The measured level, and the timestamp source.
#[derive(Clone, Copy)]
struct Level {
    name: &'static str,
    asked: Option<(StatisticsLevel, Option<TimeSource>)>,
}

const NOTHING: Level = Level { name: "none", asked: None };
const COUNTER: Level = Level { name: "counter", asked: Some((StatisticsLevel::Counter, None)) };
const TIME: Level = Level { name: "time", asked: Some((StatisticsLevel::Time, None)) };
const PROGRAM: Level =
    Level { name: "time, program", asked: Some((StatisticsLevel::Time, Some(TimeSource::Program))) };
const LOOP: Level =
    Level { name: "time, loop", asked: Some((StatisticsLevel::Time, Some(TimeSource::Loop))) };

/// Nanoseconds of CPU time per packet.
#[derive(Clone, Copy, Default)]
struct Cost {
    sending_ns: f64,
    reading_ns: f64,
}

/// A measuring receiver, and the cost of its packets.
struct Measured {
    receiver: Receiver,
    reader: Option<Thread>,
    tx: XdpTx,
    sent: u64,
    sending_ns: u64,
    /// State before the first counted packet: packets sent, and CPU time of the reader.
    warm: (u64, u64),
}

fn main() -> Outcome<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(()); // built and started by `cargo test`, which measures nothing
    }
    lab::gain_access()?;
    println!("{ROUNDS} rounds of {TURN:?} each; nanoseconds of CPU time per packet, sending included");
    println!("level, level below it, difference, its part in sending, its part in reading");
    println!(
        "`time` reads the clock once per poll; with `program` once per packet, with `loop` once per batch"
    );
    let xdp = "xdp".parse::<RxSpec>()?;
    compare("xdp", &xdp, &[(NOTHING, COUNTER), (COUNTER, TIME), (COUNTER, PROGRAM)])?;
    let xsk = "xsk".parse::<RxSpec>()?;
    compare("xsk", &xsk, &[(NOTHING, COUNTER), (COUNTER, TIME), (COUNTER, LOOP), (COUNTER, PROGRAM)])
}

fn compare(name: &str, engine: &RxSpec, pairs: &[(Level, Level)]) -> Outcome<()> {
    if !is_asked(|word| word == name) {
        return Ok(());
    }
    let labs = [lab()?, lab()?];
    let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    for (below, level) in pairs {
        let (mut lower, mut upper, mut more) = (Vec::new(), Vec::new(), [(); 3].map(|()| Vec::new()));
        for round in 0..ROUNDS {
            // The order of the labs changes from round to round.
            let (first, second) = if round.is_multiple_of(2) { (below, level) } else { (level, below) };
            let [first, second] = costs(&labs, engine, [*first, *second])?;
            let (below, level) = if round.is_multiple_of(2) { (first, second) } else { (second, first) };
            lower.push(below.total_ns());
            upper.push(level.total_ns());
            let differences = [
                level.total_ns() - below.total_ns(),
                level.sending_ns - below.sending_ns,
                level.reading_ns - below.reading_ns,
            ];
            more.iter_mut().zip(differences).for_each(|(more, difference)| more.push(difference));
        }
        let (upper, lower, [more, sending, reading]) = (of(&upper), of(&lower), more.map(|more| of(&more)));
        println!(
            "{name:<5}{:<14}{upper:>8.1}   {:<8}{lower:>8.1}{more:>+8.1}{sending:>+10.1}{reading:>+10.1}",
            level.name, below.name
        );
    }
    Ok(())
}

impl Cost {
    fn total_ns(self) -> f64 {
        self.sending_ns + self.reading_ns
    }
}

fn lab() -> Outcome<Lab> {
    Ok(Lab::create(&LabPlan { queues: 1, ..LabPlan::default() })?)
}

/// The cost of a packet at both levels.
fn costs(labs: &[Lab; 2], engine: &RxSpec, levels: [Level; 2]) -> Outcome<[Cost; 2]> {
    let mut both = Vec::new();
    for (lab, level) in labs.iter().zip(levels) {
        both.push(Measured::start(lab, engine, level)?);
    }
    thread::scope(|scope| scope.spawn(|| flood(labs, &mut both)).join().expect("the flood does not panic"))?;
    let mut costs = [Cost::default(); 2];
    for (cost, measured) in costs.iter_mut().zip(both) {
        *cost = measured.end()?;
    }
    Ok(costs)
}

/// Sends to both labs alternately for a while.
fn flood(labs: &[Lab; 2], both: &mut [Measured]) -> Outcome<()> {
    cpu::pin_to(OTHER_CPU)?;
    for (lab, measured) in labs.iter().zip(&mut *both) {
        lab.tx().namespace().enter()?;
        measured.send()?;
        measured.begin()?;
    }
    let start = Instant::now();
    while start.elapsed() < TURN {
        for (lab, measured) in labs.iter().zip(&mut *both) {
            lab.tx().namespace().enter()?;
            measured.send()?;
        }
    }
    Ok(())
}

impl Measured {
    fn start(lab: &Lab, engine: &RxSpec, level: Level) -> Outcome<Self> {
        let statistics = level.asked.map(|(level, stamp)| StatisticsPlan { level, probe_clock: None, stamp });
        let plan = ReceiverPlan {
            engine: engine.clone(),
            traffic: RxTraffic {
                local: (lab.rx().ipv4()[0], PORT).into(),
                interface: Some(lab.rx().interface().into()),
                workers: 1,
                spin: false,
                batch_size: 256,
                statistics,
                reflect: false,
                work_ns: 0,
            },
        };
        let namespace = lab.rx().namespace().try_clone()?;
        let placement = Placement { enter: Some(Arc::new(move || namespace.enter())), cpus: vec![CPU] };
        let others = Thread::called("recv 0")?;
        let receiver = plan.start(&placement)?;
        let reader = match engine.facts().reads {
            RxLayer::XdpSocket => {
                Thread::called("recv 0")?.into_iter().find(|thread| !others.contains(thread))
            }
            _ => None,
        };
        let template = Template::new(&FrameSpec {
            src_addr: lab.tx().ipv4()[0].to_string().parse()?,
            dst_addr: lab.rx().ipv4()[0].to_string().parse()?,
            src_mac: MacAddr(lab.tx().mac()),
            dst_mac: MacAddr(lab.rx().mac()),
            src_port: 20_000.into(),
            dst_port: PORT.into(),
            ..FrameSpec::default()
        })?;
        // As many as one poll takes, which then share a stamp.
        let options = XdpTxOptions { batch_size: 64, ..XdpTxOptions::on(lab.tx().index()) };
        let tx = lab.tx().run(|| XdpTx::open(template.recipe(), &options))??;
        Ok(Self { receiver, reader, tx, sent: 0, sending_ns: 0, warm: (0, 0) })
    }

    /// Sends a batch, and waits until it was read.
    fn send(&mut self) -> Outcome<()> {
        let before = cpu::thread_time();
        self.sent += self.tx.send(BATCH, clock::monotonic_ns())?.taken as u64;
        self.sending_ns += cpu::thread_time().since(before).total_ns();
        let given = Instant::now();
        while self.reader.is_some() && self.receiver.snapshot().packets < self.sent {
            if given.elapsed() > Duration::from_secs(1) {
                return Err("the receiver does not read the packets".into());
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Earlier CPU time does not count.
    fn begin(&mut self) -> Outcome<()> {
        self.warm = (self.sent, self.reading_ns()?);
        self.sending_ns = 0;
        Ok(())
    }

    fn reading_ns(&self) -> Outcome<u64> {
        self.reader.map_or(Ok(0), Thread::time_ns)
    }

    fn end(self) -> Outcome<Cost> {
        let reading_ns = self.reading_ns()?;
        let received = self.receiver.stop().tally().packets;
        if received != self.sent {
            return Err(format!("of {} packets {received} were received", self.sent).into());
        }
        let packets = (self.sent - self.warm.0) as f64;
        Ok(Cost {
            sending_ns: self.sending_ns as f64 / packets,
            reading_ns: (reading_ns - self.warm.1) as f64 / packets,
        })
    }
}
