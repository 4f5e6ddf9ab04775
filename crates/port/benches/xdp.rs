//! `make bench-xdp`: the XDP path against a plain live-frames sender with a redirect map and a program that only
//! drops (`benches/xdp/plain.bpf.c`), on labs of one kind, in the same run, in rotation; medians of the rates, and of the
//! ratios within a round.
//!
//! 64-byte frames, one thread. `delivered` is what the receiving interface accepted per second of wall time; `per CPU
//! second` leaves out time in which other work had the CPU, and is valid on a busy machine. Two bounds: frames that are not
//! written, sent and passed on like linerate's, and frames that are dropped at once. `cargo bench … -- NAME…` takes only those whose names hold a NAME.

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
/// Sends a call's packets and returns their number.
type Send = Box<dyn FnMut() -> Outcome<u64> + std::marker::Send>;

const ROUNDS: usize = 31;
const TURN: Duration = Duration::from_millis(50);
/// Packets per call of plain senders: many, so that the fixed cost of a call matters little.
const PLAIN: Way = Way { path: SendPath::Map, batch_size: 64, packets: Some(1 << 20) };
/// How `linerate` sends.
const OURS: Way = Way { path: SendPath::Tx, batch_size: XdpTxOptions::USUAL_BATCH_SIZE, packets: None };
/// Frames that are not written, in calls as long as linerate's longest.
const BOUND: Way = Way { packets: Some(16_384), ..OURS };
const CPU: u32 = 0;
/// When a kernel thread receives the packets.
const RECEIVING_CPU: u32 = 1;

/// How a contender sends; plain programs choose their path themselves.
#[derive(Clone, Copy)]
struct Way {
    path: SendPath,
    batch_size: u32,
    /// Packets per call; `None`: the sender chooses.
    packets: Option<usize>,
}

/// The contenders in labs of one kind.
struct Field<'f> {
    plan: &'f LabPlan,
    /// Parts of the requested names; empty for all.
    only: &'f [String],
    contenders: Vec<Contender>,
}

/// A sender on the lab's sending side, and the receiver on the other.
struct Contender {
    name: String,
    send: Send,
    _receiver: Receiver,
    lab: Lab,
    delivered_pps: Vec<f64>,
    per_cpu_second: Vec<f64>,
    delivered_share: Vec<f64>,
}

/// Held for its link.
type Receiver = Box<dyn Any>;

fn main() -> Outcome<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(()); // built and started by `cargo test`, which measures nothing
    }
    lab::gain_access()?;
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let on_one_cpu = LabPlan { queues: 1, ..LabPlan::default() };
    let with_threads = LabPlan { threaded_napi: true, napi_cpus: vec![RECEIVING_CPU], ..on_one_cpu.clone() };
    println!(
        "{ROUNDS} turns of {TURN:?} and more on CPU {CPU}; batches of {} and 2^20 packets per call for plain senders, of {} and a millisecond or so for others, unless said; Mpps",
        PLAIN.batch_size, OURS.batch_size
    );
    compare("received on the sender's CPU", &on_one_cpu, &only, more_rows)?;
    compare("received on the other CPU (threaded NAPI)", &with_threads, &only, |_| Ok(()))
}

/// Measures contenders in rotation in labs of one kind, and prints their results.
fn compare(
    title: &str,
    plan: &LabPlan,
    only: &[String],
    more_rows: impl Fn(&mut Field) -> Outcome<()>,
) -> Outcome<()> {
    let mut field = Field { plan, only, contenders: Vec::new() };
    field.add("plain: redirect map, to drop", &|lab| plain(lab, "redirect_all", PLAIN), to_drop)?;
    field.add("plain: XDP_TX, to drop", &|lab| plain(lab, "tx_all", PLAIN), to_drop)?;
    field.add("fixed frames, to drop", &|lab| ours(lab, &fixed(), OURS), to_drop)?;
    field.add("fixed frames, to count", &|lab| ours(lab, &fixed(), OURS), to_count)?;
    field.add("varying flows, to drop", &|lab| ours(lab, &varying(), OURS), to_drop)?;
    field.add("varying flows, to count", &|lab| ours(lab, &varying(), OURS), to_count)?;
    field.add("bound: none made, to drop", &|lab| kept(lab, "tx_all", BOUND), to_drop)?;
    more_rows(&mut field)?;
    let contenders = &mut field.contenders;
    for _ in 0..ROUNDS {
        for contender in &mut *contenders {
            contender.take_turn()?;
        }
    }
    let Some(first) = contenders.first() else { return Ok(()) };
    println!(
        "{title:<45}{:>10}{:>8}{:>16}{:>8}{:>10}",
        "delivered", "ratio", "per CPU second", "ratio", "of sent"
    );
    for contender in &*contenders {
        let (pps, pps_ratio) = beside(&contender.delivered_pps, &first.delivered_pps);
        let (cpu, cpu_ratio) = beside(&contender.per_cpu_second, &first.per_cpu_second);
        let share = median(&contender.delivered_share).unwrap_or(f64::NAN) * 100.0;
        println!(
            "{:<45}{pps:>10.2}{pps_ratio:>8.2}{cpu:>16.2}{cpu_ratio:>8.2}{share:>8.1} %",
            contender.name
        );
    }
    Ok(())
}

/// Other sizes of batches and calls, and frames that are dropped at once.
fn more_rows(field: &mut Field) -> Outcome<()> {
    let (to_map, nowhere) = (Way { path: SendPath::Map, ..OURS }, Way { path: SendPath::Dropped, ..OURS });
    field.add("fixed, redirect map, to drop", &|lab| ours(lab, &fixed(), to_map), to_drop)?;
    for batch_size in [32, 64, 192] {
        let way = Way { batch_size, ..OURS };
        field.add(
            &format!("fixed, batches of {batch_size}, to drop"),
            &|lab| ours(lab, &fixed(), way),
            to_drop,
        )?;
    }
    for packets in [64, 1024, 4096, 16_384, 65_536] {
        let way = Way { packets: Some(packets), ..OURS };
        field.add(
            &format!("fixed, {packets} per call, to drop"),
            &|lab| ours(lab, &fixed(), way),
            to_drop,
        )?;
    }
    field.add("fixed frames, made only", &|lab| ours(lab, &fixed(), nowhere), to_drop)?;
    field.add("varying flows, made only", &|lab| ours(lab, &varying(), nowhere), to_drop)?;
    field.add("bound: none made, all dropped", &|lab| kept(lab, "drop_all", BOUND), to_drop)
}

fn fixed() -> FrameSpec {
    FrameSpec::default()
}

fn varying() -> FrameSpec {
    let random = |block: &str| block.parse().expect("a range of addresses");
    FrameSpec {
        src_addr: random("198.18.0.0/16"),
        dst_addr: random("random:198.19.0.0/16"),
        src_port: "1024-65535".parse().expect("a range of ports"),
        ..FrameSpec::default()
    }
}

impl Field<'_> {
    /// Only requested programs are loaded: each program in the kernel's list makes lookups of all others slower.
    fn add(
        &mut self,
        name: &str,
        sender: &dyn Fn(&Lab) -> Outcome<Send>,
        receiver: fn(&Side) -> Outcome<Receiver>,
    ) -> Outcome<()> {
        if self.only.is_empty() || self.only.iter().any(|part| name.contains(part)) {
            self.contenders.push(Contender::new(name, self.plan, sender, receiver)?);
        }
        Ok(())
    }
}

/// The median in Mpps, and the median ratio to another's rate in the same round.
fn beside(rates: &[f64], others: &[f64]) -> (f64, f64) {
    let ratios: Vec<f64> = rates.iter().zip(others).map(|(rate, other)| rate / other).collect();
    (median(rates).unwrap_or(f64::NAN) / 1e6, median(&ratios).unwrap_or(f64::NAN))
}

impl Contender {
    fn new(
        name: &str,
        plan: &LabPlan,
        sender: &dyn Fn(&Lab) -> Outcome<Send>,
        receiver: fn(&Side) -> Outcome<Receiver>,
    ) -> Outcome<Self> {
        let lab = Lab::create(plan)?;
        let _receiver = receiver(lab.rx())?;
        let send = sender(&lab)?;
        Ok(Self {
            name: name.into(),
            send,
            _receiver,
            lab,
            delivered_pps: Vec::new(),
            per_cpu_second: Vec::new(),
            delivered_share: Vec::new(),
        })
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
        self.delivered_share.push(packets as f64 / made as f64);
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

fn ours(lab: &Lab, spec: &FrameSpec, way: Way) -> Outcome<Send> {
    let template = Template::new(spec)?;
    let side = lab.tx();
    let options =
        XdpTxOptions { path: way.path, batch_size: way.batch_size, ..XdpTxOptions::on(side.index()) };
    let mut tx = side.run(|| XdpTx::open(template.recipe(), &options))??;
    Ok(Box::new(move || {
        let packets = way.packets.unwrap_or(tx.worthwhile_packets());
        Ok(tx.send(packets, 0)?.taken as u64)
    }))
}

/// A program of `plain.bpf.c`, which the kernel adds to its list of XDP programs and removes again in each call.
fn plain(lab: &Lab, name: &'static str, way: Way) -> Outcome<Send> {
    runs(load(name)?, lab.tx(), name, way)
}

/// The same, but kept in that list, like linerate's: it is attached to the sending side, where no packet arrives.
fn kept(lab: &Lab, name: &'static str, way: Way) -> Outcome<Send> {
    let (mut ebpf, side) = (load(name)?, lab.tx());
    side.run(|| program(&mut ebpf, name).attach_to_if_index(side.index(), AyaMode::Driver))??;
    runs(ebpf, side, name, way)
}

fn runs(mut ebpf: Ebpf, side: &Side, name: &'static str, way: Way) -> Outcome<Send> {
    let interface = side.index();
    let mut target = DevMap::try_from(ebpf.take_map("target").ok_or("no map")?)?;
    side.run(|| target.set(0, interface, None, 0))??;
    // `struct xdp_md`: where data ends, and the receiving interface.
    let mut context = [0; 24];
    context[4..8].copy_from_slice(&60u32.to_ne_bytes());
    context[12..16].copy_from_slice(&interface.to_ne_bytes());
    let packets = way.packets.ok_or("a plain program's calls have a size")?;
    Ok(Box::new(move || {
        let _held = &target;
        let mut options = TestRunOptions::new();
        options.data_in = Some(&[0; 60]);
        options.ctx_in = Some(&context);
        options.repeat = packets.try_into()?;
        options.attrs = TestRunAttrs::new().xdp_live_frames(way.batch_size);
        program(&mut ebpf, name).test_run(options)?;
        Ok(packets as u64)
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
