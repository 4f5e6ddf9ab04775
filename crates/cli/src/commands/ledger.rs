//! `linerate ledger`: where packets are lost on a machine in operation.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use ::view::{History, Phase, Snapshot};
use filter::Filter;
use ledger::{Drivers, DropReading, DropScope, DropWatch, FlowTally, MachineGrowth, MachineReading};
use report::LedgerDocument;
use sys::{
    cpu,
    cycles::{HardwareCounters, HardwareCounts, NoCounters},
    netns::NetNs,
    procfs,
    rtnetlink::RouteSocket,
    signal,
};
use trial::CpuLooks;

mod document;
mod live;
mod view;

use crate::{
    args::LedgerArgs,
    failure::{Failure, Status, in_words},
    live::Views,
    output::{Form, print_line},
    screen::Screen,
};
use document::{About, Owners, document, with_cpus};

/// How often the loop fetches headers of dropped packets and checks for signals.
const LOOK: Duration = Duration::from_millis(20);

/// What is watched and how it is printed.
struct Watch<'a> {
    args: &'a LedgerArgs,
    interfaces: Vec<String>,
    drivers: Drivers,
    drops: Option<DropWatch>,
    flow: Option<(Filter, FlowTally)>,
    cpus: CpuLooks,
    hardware: Result<Vec<HardwareCounters>, NoCounters>,
    owners: Owners,
}

pub(crate) fn run(args: &LedgerArgs) -> Result<bool, Failure> {
    let mut watch = Watch::open(args)?;
    let form = if args.json_stream { Form::JsonStream } else { Form::Text };
    let mut views = Views::open(&args.view, form)?;
    let run = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut history = History::default();
    let is_text = !args.json && !args.json_stream;
    let mut screen = (is_text && !args.view.plain && !views.has_screen()).then(Screen::new).transpose()?;
    let first = watch.read()?;
    let began = Instant::now();
    let mut before = (first.clone(), cpu::process_time());
    let first_counts = watch.hardware_counts();
    let mut counts_before = first_counts;
    let mut own_ns = 0;
    loop {
        let over = watch.wait(began);
        let now = watch.read()?;
        let cost = cpu::process_time();
        let spent = cost.since(before.1).total_ns();
        own_ns += spent;
        let (whole, last) = (watch.between(&first, &now), watch.between(&before.0, &now));
        let [cpus_last, cpus_whole] =
            watch.cpus.look().map_err(|error| Failure::of(Status::Refused, &error))?;
        let counts = watch.hardware_counts();
        let counted = |since: Option<HardwareCounts>| counts.zip(since).map(|(to, from)| to.since(from));
        let total = with_cpus(watch.document(&whole, own_ns), cpus_whole, counted(first_counts));
        let interval = with_cpus(watch.document(&last, spent), cpus_last, counted(counts_before));
        before = (now, cost);
        counts_before = counts;
        if views.is_watched() {
            let phase = if over { Phase::Ended } else { Phase::Running };
            let now = live::snapshot(&interval, &total, &mut history);
            views.publish(Snapshot { run: run.clone(), phase, ..now });
        }
        if args.json_stream {
            print_line(&interval.to_line("interval"))?;
        }
        if let Some(screen) = &mut screen {
            screen.draw(&view::screen(&interval, &total, screen.columns()))?;
        } else if is_text && (args.view.plain || over) {
            // Leaving the screen clears it; the last block is printed again.
            drop(over.then(|| std::mem::replace(&mut views, Views::none())));
            print_line(&view::screen(&interval, &total, None))?;
        }
        if over {
            if args.json_stream {
                print_line(&total.to_line("end"))?;
            } else if args.json {
                print_line(&total.to_text())?;
            }
            return Ok(true);
        }
    }
}

impl<'a> Watch<'a> {
    fn open(args: &'a LedgerArgs) -> Result<Self, Failure> {
        let mut drivers = Drivers::built_in();
        if let Some(path) = &args.drivers {
            let text = fs::read_to_string(path).map_err(|error| {
                Failure::new(Status::Refused, format!("cannot read {}: {error}", path.display()))
            })?;
            drivers.extend(&text).map_err(|error| {
                Failure::new(Status::Usage, format!("{}: {}", path.display(), in_words(&error)))
                    .hint("docs/ledger.md lists the places and describes the format")
            })?;
        }
        let filter = args.flow.as_deref().map(compile).transpose()?;
        let (interfaces, index) = interfaces(args.interface.as_deref())?;
        let scope = DropScope { interface: index, headers: filter.is_some(), ..DropScope::default() };
        let namespace = NetNs::current().map_err(|error| Failure::of(Status::Refused, &error))?;
        let drops = match DropWatch::over(&[&namespace], &scope) {
            Ok(drops) => Some(drops),
            Err(error) if filter.is_some() => {
                return Err(Failure::of(Status::Missing, &error)
                    .with_status(Status::Missing)
                    .hint("only the kernel's drop reasons distinguish flows: run as root, or omit --flow"));
            }
            Err(error) => {
                match Failure::of(Status::Refused, &error).status {
                    Status::Missing => eprintln!("drop reasons need root; showing counters only"),
                    _ => eprintln!("no drop reasons; showing counters only: {}", in_words(&error)),
                }
                None
            }
        };
        let flow = filter.map(|filter| (filter, FlowTally::default()));
        let cpus = CpuLooks::start().map_err(|error| Failure::of(Status::Refused, &error))?;
        let all_cpus = procfs::stat().map_err(|error| Failure::of(Status::Refused, &error))?.cpus;
        let hardware = all_cpus.into_iter().map(|(cpu, _)| HardwareCounters::of_cpu(cpu)).collect();
        Ok(Self { args, interfaces, drivers, drops, flow, cpus, hardware, owners: Owners::default() })
    }

    /// Waits for the end of the interval, the end of the time, or a signal; returns whether to stop.
    fn wait(&mut self, began: Instant) -> bool {
        let interval = Instant::now();
        loop {
            if let (Some((filter, tally)), Some(drops)) = (&mut self.flow, &mut self.drops) {
                tally.collect(drops, |frame| filter.matches(frame));
            }
            if signal::caught() > 0 || self.args.duration.is_some_and(|time| began.elapsed() >= time) {
                return true;
            }
            let left = self.args.interval.saturating_sub(interval.elapsed());
            if left.is_zero() {
                return false;
            }
            let end = self.args.duration.map_or(left, |time| time.saturating_sub(began.elapsed()));
            thread::sleep(LOOK.min(left).min(end));
        }
    }

    fn read(&mut self) -> Result<MachineReading, Failure> {
        let refused = |error: &(dyn std::error::Error + 'static)| Failure::of(Status::Refused, error);
        let drops = self.drops.as_ref().map(DropWatch::read).transpose().map_err(|error| refused(&error))?;
        let drops = drops.map(|reading| match &self.flow {
            Some((_, tally)) => {
                DropReading { places: tally.places(), lost: reading.lost + tally.beyond, ..reading }
            }
            None => reading,
        });
        let everything = self.args.interface.is_none();
        MachineReading::take(&self.interfaces, everything, drops).map_err(|error| refused(&error))
    }

    /// Of all CPUs together.
    fn hardware_counts(&mut self) -> Option<HardwareCounts> {
        let each = self.hardware.as_mut().ok()?.iter_mut().map(HardwareCounters::read);
        each.collect::<Option<Vec<_>>>()?.into_iter().reduce(HardwareCounts::plus)
    }

    fn between(&self, from: &MachineReading, to: &MachineReading) -> MachineGrowth {
        to.since(from, &self.drivers)
    }

    fn document(&self, growth: &MachineGrowth, own_ns: u64) -> LedgerDocument {
        let about = About {
            interface: self.args.interface.as_deref(),
            drivers: &self.drivers,
            owners: &self.owners,
            own_ns,
        };
        let document = match &self.flow {
            Some((filter, _)) => {
                let places = growth.drops.as_ref().map(|drops| drops.places.clone()).unwrap_or_default();
                let only = growth.only(places);
                LedgerDocument { flow: Some(filter.expression().to_owned()), ..document(&only, &about) }
            }
            None => document(growth, &about),
        };
        LedgerDocument {
            interrupt_accounting: self.cpus.accounting(),
            no_hardware_counters: self.hardware.as_ref().err().map(|error| in_words(error)),
            ..document
        }
    }
}

fn compile(expression: &str) -> Result<Filter, Failure> {
    if expression.trim().is_empty() {
        return Err(Failure::new(
            Status::Usage,
            "--flow: the expression is empty and would match every packet",
        )
        .hint("try --flow 'udp dst port 53', or omit --flow"));
    }
    Filter::compile(expression).map_err(|error| {
        let marked = error.marked(expression).replace('\n', "\n       ");
        Failure::new(Status::Usage, format!("--flow: {}\n       {marked}", in_words(&error)))
            .hint("use tcpdump's filter language: --flow 'udp dst port 53 and net 10.0.0.0/8'")
    })
}

/// The names of the interfaces to watch, and the index of the chosen one.
fn interfaces(chosen: Option<&str>) -> Result<(Vec<String>, u32), Failure> {
    let refused = |error: sys::NetlinkError| {
        Failure::of(Status::Refused, &error).hint("ip link lists the interfaces of this host")
    };
    let mut route = RouteSocket::open().map_err(refused)?;
    if let Some(name) = chosen {
        let link = route.link_by_name(name).map_err(refused)?;
        return Ok((vec![link.name], link.index));
    }
    let links = route.links().map_err(refused)?;
    let names = links.into_iter().map(|link| link.name).filter(|name| name != "lo");
    Ok((names.collect(), 0))
}
