//! `linerate recv`: counts packets, serves senders, prints a line a second.

mod ask;
mod policy;

use std::{
    io::{self, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use measure::{End, Origin, PairSummary, Run, SCHEMA, StatisticsLevel};
use port::{BpfError, PortError};
use serde::Serialize;
use serde_json::{Value, json};
use session::{ControlSocket, HostEvent, runtime_folder};
use sys::{cpu, signal};
use traffic::{
    AfterReading, EngineError, ReceiverPlan, RxLayer, RxOptions, RxSnapshot, RxSpec, RxTraffic,
    StatisticsPlan, TimeSource,
};
use trial::{ClockClaim, ClockSources, Diagnosis, Reception, ReceptionError, timed_reception};
use view::{Seen, Table};

use ask::CONTROL;
use policy::PolicyPlan;

use crate::{
    access::device_consent,
    args::{ClocksArg, Display, LevelArg, MeasureArgs, RecvArgs, StampArg},
    failure::{Failure, Status, in_words, os_error, unprofiled},
    live::Live,
    output::{self, Form, Output},
    pipeline::{Ending, Pipeline},
    privileges::Privileges,
    start::opening,
    work::work_ns,
};

/// How often the loop checks for events and signals.
const LOOK: Duration = Duration::from_millis(20);
/// Most intervals in the record; a receiver that runs for days keeps its first ones.
const MOST_INTERVALS: usize = 100_000;
/// Most trials in the record: senders can start any number.
const MOST_TRIALS: usize = 256;

/// Most trials that views show.
const MOST_ROWS: usize = 20;

/// The plan of a receiver.
#[derive(Debug, Clone, Serialize)]
struct RecvPlan {
    receiver: ReceiverPlan,
    clocks: ClockClaim,
    ptp4l: Option<PathBuf>,
    cpus: Vec<u32>,
    duration_s: Option<f64>,
    once: bool,
    /// Which senders it serves, and with which engines.
    #[serde(flatten)]
    policy: PolicyPlan,
    interval_s: f64,
    /// The form of statistics; `recv set` changes it.
    #[serde(skip)]
    display: Display,
    /// How packets are timed, at whatever level.
    #[serde(skip)]
    timing: StatisticsPlan,
    profile: bool,
    privileges: Privileges,
}

impl RecvPlan {
    /// Whether only columns are printed.
    fn is_for_scripts(&self) -> bool {
        self.receiver.traffic.statistics.is_some() && self.display == Display::Script
    }

    fn diagnosis(&self) -> Result<Option<Diagnosis>, Failure> {
        self.profile.then(Diagnosis::start).transpose().map_err(|error| unprofiled(&error))
    }
}

pub(crate) fn run(args: &RecvArgs) -> Result<bool, Failure> {
    if let Some(command) = &args.command {
        return ask::run(command);
    }
    let mut plan = plan(args)?;
    let Some(pipeline) = Pipeline::open(&args.output, "recv", &plan)? else { return Ok(true) };
    let plot = args.measure.plot.as_deref().map(|path| Output::prepare(path, "--plot")).transpose()?;
    let form = pipeline.form();
    plan.privileges.reduce();
    let diagnosis = plan.diagnosis()?;
    let policy = || plan.policy.policy(args);
    let (policy, again) = (policy(), policy());
    let mut reception = match Reception::start(&plan.receiver, &plan.cpus, diagnosis, policy) {
        Err(error) if args.listen.any && os_error(&error) == Some(libc::EAFNOSUPPORT) => {
            plan.receiver.traffic.local = args.listen.ipv4();
            Reception::start(&plan.receiver, &plan.cpus, plan.diagnosis()?, again)
        }
        other => other,
    }
    .map_err(|error| explain(&error, args))?;
    if let Some(address) = reception.address() {
        match &plan.receiver.traffic.interface {
            _ if plan.receiver.engine.facts().reads == RxLayer::Socket => {
                eprintln!("listening on UDP {address}, handshakes on TCP; Ctrl-C ends");
            }
            interface => eprintln!(
                "counting probe packets on {} by {}, handshakes on TCP {address}; Ctrl-C ends",
                interface.as_deref().unwrap_or_default(),
                args.measure.engine.name()
            ),
        }
    }
    let control = ControlSocket::open(&runtime_folder(), CONTROL)
        .inspect_err(|error| {
            eprintln!("recv status, reset and stop cannot reach this receiver: {}", in_words(error))
        })
        .ok();
    let mut start = opening("recv", Origin::Hosts, &plan);
    start.machine.interfaces = bench::receiving_interfaces(&plan.receiver);
    pipeline.begin(&start)?;
    let mut run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end: End::default() };
    let mut live = pipeline.live(&run.start)?;
    live.story.with(|snapshot| snapshot.worker_cpus.clone_from(&plan.cpus));
    let outcome = serve(&mut reception, &mut plan, Terminal { form, control, live }, &mut run);
    let returns = reception.returns();
    let comparisons = reception.comparisons();
    let stopped = reception.stop();
    let returned = returns.map(|returns| returns.returned());
    if let Some(result) = stopped {
        let readings = result.readings();
        if !readings.is_empty() {
            let sources = ClockSources { ptp4l: plan.ptp4l.as_deref(), comparisons: &comparisons };
            run.end.statistics = Some(timed_reception(&readings, plan.clocks, sources));
        }
        let tally = result.tally();
        run.end.notes.push(format!(
            "{} packets received in total, {} of them not from linerate or pktgen; {} dropped by the sockets.",
            tally.packets + tally.foreign,
            tally.foreign,
            tally.lost
        ));
        if let Some(error) = result.workers.iter().find_map(|worker| worker.error.as_ref()) {
            return Err(Failure::of(Status::Refused, error));
        }
    }
    if let Some(returned) = returned {
        run.end.notes.push(format!("{returned} packets sent back."));
    }
    outcome?;
    run.end.pairs = PairSummary::of(&run.end.trials);
    let text = |run: &Run, out: &mut dyn Write| write_end(run, plan.display, out);
    // A page that cannot be written must not cost the record.
    let plotted = plot.map_or(Ok(()), |plot| output::write_page(&run, plot));
    // A receiver requests no rate: a rate that was not held is its senders' to report.
    pipeline.conclude(&run, Ending { text: Some(&text), ..Ending::default() })?;
    plotted?;
    Ok(true)
}

/// Prints the end; every trial was printed when it ended.
fn write_end(run: &Run, display: Display, out: &mut dyn Write) -> io::Result<()> {
    if let Some(statistics) = &run.end.statistics {
        output::write_reception(statistics, display, out)?;
    }
    if display == Display::Human {
        run.end.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    }
    Ok(())
}

/// Input and output while a receiver runs.
struct Terminal {
    form: Form,
    control: Option<ControlSocket>,
    live: Live,
}

impl Terminal {
    /// Shows the counters as they are.
    fn show(&mut self, reception: &Reception, before: &mut (f64, RxSnapshot)) {
        if !self.live.views.is_due() {
            return;
        }
        let (now_s, tally) = (self.live.now_s(), reception.tally());
        let pps = tally.packets.saturating_sub(before.1.packets) as f64 / (now_s - before.0).max(1e-9);
        *before = (now_s, tally);
        let seen = Seen {
            delivered: Some(tally.packets),
            rx_dropped: Some(tally.lost),
            delivered_pps: pps,
            ..Seen::default()
        };
        self.live.story.looks(seen, now_s);
        self.live.show();
    }

    /// Adds a row for a sender's finished trial.
    fn add(&mut self, trial: &measure::Trial) {
        self.live.story.adds(trial);
        let count = report::words::count;
        let row = vec![
            trial.tx.label.clone(),
            count(trial.sent),
            count(trial.delivered),
            format!("{} %", report::words::percent(trial.loss_ratio)),
            report::words::rate(trial.delivered_pps),
        ];
        self.live.story.with(|snapshot| {
            if snapshot.tables.is_empty() {
                snapshot.tables.push(Table {
                    title: "trials of senders".into(),
                    columns: ["sender", "sent", "received", "lost", "rate"].map(str::to_owned).to_vec(),
                    rows: Vec::new(),
                });
            }
            let rows = &mut snapshot.tables[0].rows;
            rows.insert(0, row);
            rows.truncate(MOST_ROWS);
        });
    }

    /// Answers requests from other terminals; returns whether one of them wants the receiver to stop.
    fn answer(&self, reception: &Reception, plan: &mut RecvPlan, notes: &mut Vec<String>) -> bool {
        let mut shall_stop = false;
        for request in self.control.iter().flat_map(ControlSocket::requests) {
            let then = match request.body["ask"].as_str() {
                Some("reset") => AfterReading::Reset,
                Some("status") => AfterReading::Continue,
                Some("stop") => {
                    shall_stop = true;
                    AfterReading::Continue
                }
                Some("set") => {
                    let answer = match set(&request.body, reception, plan) {
                        Ok(words) => {
                            notes.push(format!("{words} after {:.1} s.", self.live.now_s()));
                            json!({ "set": words })
                        }
                        Err(why) => json!({ "error": why }),
                    };
                    request.answer(&answer);
                    continue;
                }
                _ => {
                    request
                        .answer(&json!({ "error": "unknown request: expected status, reset, set or stop" }));
                    continue;
                }
            };
            let comparisons = reception.comparisons();
            let sources = ClockSources { ptp4l: plan.ptp4l.as_deref(), comparisons: &comparisons };
            let statistics =
                reception.readings(then).map(|readings| timed_reception(&readings, plan.clocks, sources));
            let tally = reception.tally();
            request.answer(&json!({
                "packets": tally.packets,
                "payload_bytes": tally.payload_bytes,
                "foreign": tally.foreign,
                "dropped": tally.lost,
                "returned": reception.returns().map(|returns| returns.returned()),
                "statistics": statistics,
                "display": plan.display.name(),
            }));
        }
        shall_stop
    }
}

/// Changes level and form as requested from another terminal; returns what is in effect then.
fn set(request: &Value, reception: &Reception, plan: &mut RecvPlan) -> Result<String, String> {
    let form = match request["display"].as_str() {
        Some(form) => Display::named(form).ok_or_else(|| format!("unknown display '{form}'"))?,
        None => plan.display,
    };
    if let Some(level) = request["stats"].as_str() {
        let statistics = match level {
            "none" => None,
            _ => {
                let level = LevelArg::named(level).ok_or_else(|| format!("unknown level '{level}'"))?;
                Some(StatisticsPlan { level: level.into(), ..plan.timing })
            }
        };
        if statistics != plan.receiver.traffic.statistics {
            reception.measure(statistics)?;
            plan.receiver.traffic.statistics = statistics;
        }
    }
    plan.display = form;
    let level = plan
        .receiver
        .traffic
        .statistics
        .map_or("none".into(), |statistics| format!("{:?}", statistics.level).to_lowercase());
    Ok(format!("stats={level} display={}", form.name()))
}

/// Runs until the time is over, the first sender has finished, or a signal arrives.
fn serve(
    reception: &mut Reception,
    plan: &mut RecvPlan,
    mut terminal: Terminal,
    run: &mut Run,
) -> Result<(), Failure> {
    let form = terminal.form;
    let began = Instant::now();
    let interval = Duration::from_secs_f64(plan.interval_s);
    let mut due = began + interval;
    let mut idle = true;
    let mut left_out = 0;
    let mut shown = (0.0, RxSnapshot::default());
    loop {
        thread::sleep(LOOK.min(interval));
        reception.tick();
        let mut has_finished = false;
        for mut event in reception.events() {
            if let HostEvent::Finished { trial: Some(trial), .. } = &mut event {
                trial.profile = reception.take_profile();
            }
            let Some(trial) = tell(event, form)? else { continue };
            terminal.add(&trial);
            if run.end.trials.len() < MOST_TRIALS {
                run.end.trials.push(*trial);
            } else {
                left_out += 1;
            }
            has_finished = true;
            if plan.once {
                break;
            }
        }
        if Instant::now() >= due {
            due += interval;
            let interval = reception.interval();
            let is_quiet = interval.delivered == Some(0) && interval.rx_dropped == Some(0);
            // One line of silence is enough.
            if !(idle && is_quiet) {
                match form {
                    Form::Text if plan.is_for_scripts() || terminal.live.views.has_screen() => {}
                    Form::Text => output::print_interval(&interval)?,
                    Form::JsonStream => output::print_event(report::Event::Interval(&interval))?,
                    Form::Json | Form::Iperf3 => {}
                }
                if run.intervals.len() < MOST_INTERVALS {
                    run.intervals.push(interval);
                }
            }
            idle = is_quiet;
        }
        terminal.show(reception, &mut shown);
        let is_told_to_stop = terminal.answer(reception, plan, &mut run.end.notes);
        let is_over = plan.duration_s.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds);
        let is_served = plan.once && has_finished;
        if is_served || is_over || is_told_to_stop || signal::caught() > 0 || reception.is_broken() {
            break;
        }
    }
    terminal.live.end();
    run.end.duration_s = began.elapsed().as_secs_f64();
    if left_out > 0 {
        run.end.notes.push(format!(
            "The record holds the first {MOST_TRIALS} trials; {left_out} later ones are not in it."
        ));
    }
    Ok(())
}

/// Prints what happened on a control connection; returns a finished trial.
fn tell(event: HostEvent, form: Form) -> Result<Option<Box<measure::Trial>>, Failure> {
    match event {
        HostEvent::Joined { peer, offer } => {
            let rate = offer.rate_pps.map_or("the maximum rate".into(), |pps| format!("{pps:.0} pps"));
            let threads = if offer.streams == 1 { "thread" } else { "threads" };
            eprintln!("{peer} joins: {} {threads} at {rate}", offer.streams);
        }
        HostEvent::Sent { peer, trial } => {
            eprintln!("{peer} requested packets and received them");
            match form {
                Form::Text => output::print_trial(&trial)?,
                Form::JsonStream => output::print_event(report::Event::Trial(&trial))?,
                Form::Json | Form::Iperf3 => {}
            }
            return Ok(Some(trial));
        }
        HostEvent::Disputed { peer, error } => {
            eprintln!("{peer} finished; its summary is invalid: {error}");
        }
        HostEvent::Refused { peer, reason } => eprintln!("{peer} refused: {reason}"),
        HostEvent::Lost { peer, error } => eprintln!("{peer} lost: {}", in_words(&error)),
        HostEvent::Finished { peer, trial } => {
            eprintln!("{peer} finished");
            if let Some(trial) = trial {
                match form {
                    Form::Text => output::print_trial(&trial)?,
                    Form::JsonStream => output::print_event(report::Event::Trial(&trial))?,
                    Form::Json | Form::Iperf3 => {}
                }
                return Ok(Some(trial));
            }
        }
    }
    Ok(None)
}

fn plan(args: &RecvArgs) -> Result<RecvPlan, Failure> {
    let cpus = args.cpus.as_ref().map(|list| list.0.clone()).unwrap_or_default();
    if let Some(failure) =
        args.cpus.as_ref().and_then(|list| list.problem(&cpu::allowed().unwrap_or_default()))
    {
        return Err(failure);
    }
    let measure = &args.measure;
    let mut engine = measure.engine.clone();
    let mut problems = Vec::new();
    let takes_card = engine.facts().reads == RxLayer::Card;
    let how = "; senders' handshakes need another interface";
    problems.extend(device_consent(engine.name(), takes_card, measure.take_device, how));
    if engine.facts().reads == RxLayer::Stream {
        // Its other problems do not matter then.
        return Err(Failure::new(
            Status::Usage,
            "the engine tcp receives only in the lab: linerate send sends packets",
        )
        .hint("linerate bench --tx tcp --rx tcp measures streams"));
    }
    let facts = engine.facts();
    if facts.reads == RxLayer::Socket {
        for (switch, is_given) in [("reuseport", args.reuseport), ("gro", args.gro)] {
            if is_given {
                engine = engine.with_switch(switch).map_err(|error| Failure::new(Status::Usage, error))?;
            }
        }
        let receive_buffer_bytes = args.receive_buffer;
        engine = engine.configured(&RxOptions { receive_buffer_bytes, ..RxOptions::default() });
    } else {
        let name = measure.engine.name();
        if measure.device.is_none() {
            problems.push(
                Failure::new(Status::Usage, format!("the engine {name} needs --device"))
                    .hint("ip link lists the interfaces"),
            );
        }
        let for_sockets = [
            ("--reuseport", args.reuseport),
            ("--gro", args.gro),
            ("--receive-buffer", args.receive_buffer.is_some()),
        ];
        problems.extend(for_sockets.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| {
            Failure::new(Status::Usage, format!("{option} works only with the engine udp, not {name}"))
        }));
        if takes_card {
            let rings = measure.card.options(measure.take_device, Some(&measure.ring));
            engine = engine.configured(&RxOptions { rings, ..RxOptions::default() });
        }
        if args.listen.address.port() == 0 {
            problems.push(
                Failure::new(Status::Usage, format!("the engine {name} needs a port"))
                    .hint("name one, or omit it for 4321"),
            );
        }
    }
    if args.reflect && !engine.facts().reflects {
        let said = format!("the engine {} cannot return packets", measure.engine);
        // The same engine without its switches, or any other.
        let able = [engine.name()].into_iter().chain(traffic::engines().iter().map(|engine| engine.name));
        let mut able = able.filter(|name| name.parse().is_ok_and(|it: RxSpec| it.facts().reflects));
        let failure = Failure::new(Status::Usage, said);
        problems.push(match able.next() {
            Some(name) => failure.hint(format!("use --engine {name}")),
            None => failure,
        });
    }
    if measure.clock_bound.is_some() && !matches!(measure.clocks, ClocksArg::Synchronised) {
        problems.push(
            Failure::new(Status::Usage, "--clock-bound needs synchronised clocks")
                .hint("add --clocks synchronised"),
        );
    }
    if measure.ptp4l.is_some() && !matches!(measure.clocks, ClocksArg::Auto | ClocksArg::Synchronised) {
        problems.push(
            Failure::new(Status::Usage, "--ptp4l needs synchronised clocks")
                .hint("use --clocks auto or synchronised"),
        );
    }
    problems.extend(measure.stamp_problem());
    let policy = PolicyPlan::of(args, &mut problems);
    let work_ns = work_ns(args.work, [&engine]).unwrap_or_else(|refused| {
        problems.push(refused);
        0
    });
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let timing = |level| StatisticsPlan {
        level,
        probe_clock: measure.probe_clock.clock(),
        stamp: measure.stamp.map(TimeSource::from),
    };
    let statistics = measure.stats.map(|level| timing(level.into()));
    let interval = args.output.interval.unwrap_or(Duration::from_secs(1));
    Ok(RecvPlan {
        receiver: ReceiverPlan {
            engine,
            traffic: RxTraffic {
                statistics,
                reflect: args.reflect,
                work_ns,
                local: args.listen.address,
                interface: measure.device.clone(),
                workers: args.threads.into(),
                spin: args.spin,
                batch_size: args.batch_size as usize,
            },
        },
        clocks: measure.clock_claim(),
        ptp4l: measure.ptp4l(),
        cpus,
        duration_s: args.duration.map(|duration| duration.as_secs_f64()),
        once: args.once,
        policy,
        interval_s: interval.as_secs_f64().max(0.01),
        display: measure.display,
        timing: timing(StatisticsLevel::Counter),
        profile: args.profile,
        privileges: match args.measure.take_device {
            true => Privileges::all(),
            false => Privileges::of_receiver(args.output.save.is_some() || args.measure.plot.is_some()),
        },
    })
}

impl MeasureArgs {
    fn clock_claim(&self) -> ClockClaim {
        match self.clock_bound {
            Some(bound) => ClockClaim::Within { bound_ns: sys::clock::nanos(bound) },
            None => self.clocks.into(),
        }
    }

    /// The daemon's socket: the named one, else the default one if it exists.
    fn ptp4l(&self) -> Option<PathBuf> {
        let usual = || Some(PathBuf::from(sys::ptp::PTP4L_SOCKET)).filter(|socket| socket.exists());
        self.ptp4l.clone().or_else(usual)
    }

    /// Refuses a timestamp source that the engine does not have.
    fn stamp_problem(&self) -> Option<Failure> {
        let stamp = TimeSource::from(self.stamp?);
        let known = self.engine.facts().stamps;
        let names: Vec<String> = known.iter().map(|stamp| format!("{stamp:?}").to_lowercase()).collect();
        let engine = self.engine.name();
        (!known.contains(&stamp)).then(|| {
            Failure::new(Status::Usage, format!("the engine {engine} does not have this timestamp source"))
                .hint(format!("use --stamp {}", names.join(" or ")))
        })
    }
}

fn explain(error: &ReceptionError, args: &RecvArgs) -> Failure {
    let failure = Failure::of(Status::Refused, error);
    let is_unsupported = matches!(
        error,
        ReceptionError::Engine(EngineError::Port(PortError::Bpf(BpfError::Unsupported { .. })))
    );
    if is_unsupported && matches!(args.measure.stamp, Some(StampArg::Card)) {
        return failure.hint("use --stamp poll: the XDP program reads the kernel's clock");
    }
    if is_unsupported && args.measure.engine.facts().brings_ring {
        return failure.hint(
            "this driver does not support XDP; --engine xdp+generic works on every interface, at a higher cost per packet",
        );
    }
    match os_error(error) {
        Some(libc::EADDRINUSE) => failure.hint(format!(
            "another program uses that port; choose another one, for example linerate recv {}",
            u32::from(args.listen.address.port()) % 65_535 + 1
        )),
        Some(libc::EADDRNOTAVAIL) => failure.hint("listen on an address of this host, or on a port alone"),
        Some(libc::EACCES) => failure.hint("ports below 1024 need CAP_NET_BIND_SERVICE"),
        _ => failure,
    }
}
