//! `linerate recv`: counts packets, serves senders, prints a line a second.

use std::{
    thread,
    time::{Duration, Instant},
};

use bench::{Reception, ReceptionError};
use engine::{ReceiverPlan, RxEngine, UdpRxPlan};
use measure::{End, Origin, PairSummary, Run, SCHEMA};
use serde::Serialize;
use session::HostEvent;
use sys::{cpu, signal};

use crate::{
    args::RecvArgs,
    failure::{Failure, Status, in_words, os_error},
    output::{self, Form, Save},
    start::opening,
};

/// How often events and signals are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Intervals kept in the record; a receiver that runs for days keeps its first ones.
const MOST_INTERVALS: usize = 100_000;

/// What a receiver was asked.
#[derive(Debug, Clone, Serialize)]
struct RecvPlan {
    receiver: ReceiverPlan,
    cpus: Vec<u32>,
    duration_s: Option<f64>,
    once: bool,
    interval_s: f64,
}

pub(crate) fn run(args: &RecvArgs) -> Result<bool, Failure> {
    let mut plan = plan(args)?;
    if args.output.dry_run {
        return output::print_plan(&plan);
    }
    let save = Save::prepare(&args.output, "recv")?;
    let form = args.output.form();
    let mut reception = match Reception::start(&plan.receiver, &plan.cpus) {
        Err(error) if args.listen.any && os_error(&error) == Some(libc::EAFNOSUPPORT) => {
            plan.receiver.local = args.listen.ipv4();
            Reception::start(&plan.receiver, &plan.cpus)
        }
        other => other,
    }
    .map_err(|error| explain(&error, args))?;
    if let Some(address) = reception.address() {
        eprintln!("listening on UDP {address}, handshakes on TCP; Ctrl-C ends");
    }
    let start = opening("recv", Origin::Hosts, &plan);
    if form == Form::JsonStream {
        output::print_event(report::Event::start(&start))?;
    }
    let mut run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end: End::default() };
    let outcome = serve(&mut reception, &plan, form, &mut run);
    if let Some(result) = reception.stop() {
        let tally = result.tally();
        run.end.notes.push(format!(
            "{} packets received in all, {} of them not linerate's or pktgen's; {} dropped by the sockets.",
            tally.packets + tally.foreign,
            tally.foreign,
            tally.lost
        ));
        if let Some(error) = result.workers.iter().find_map(|worker| worker.error.as_ref()) {
            return Err(Failure::of(Status::Refused, error));
        }
    }
    outcome?;
    run.end.pairs = PairSummary::of(&run.end.trials);
    match form {
        // Every trial was printed when it ended.
        Form::Text => run.end.notes.iter().try_for_each(|note| output::print_line(note))?,
        _ => output::print_run(&run, form)?,
    }
    output::save_run(&run, save)?;
    Ok(true)
}

/// Until the time is over, the first sender has finished, or a signal comes.
fn serve(reception: &mut Reception, plan: &RecvPlan, form: Form, run: &mut Run) -> Result<(), Failure> {
    let began = Instant::now();
    let interval = Duration::from_secs_f64(plan.interval_s);
    let mut due = began + interval;
    let mut idle = true;
    loop {
        thread::sleep(LOOK.min(interval));
        for event in reception.events() {
            if let Some(trial) = tell(event, form)? {
                run.end.trials.push(*trial);
                if plan.once {
                    run.end.duration_s = began.elapsed().as_secs_f64();
                    return Ok(());
                }
            }
        }
        if Instant::now() >= due {
            due += interval;
            let interval = reception.interval();
            let is_quiet = interval.delivered == Some(0) && interval.rx_dropped == Some(0);
            // One line of silence is enough.
            if !(idle && is_quiet) {
                match form {
                    Form::Text => output::print_interval(&interval)?,
                    Form::JsonStream => output::print_event(report::Event::Interval(&interval))?,
                    Form::Json => {}
                }
                if run.intervals.len() < MOST_INTERVALS {
                    run.intervals.push(interval);
                }
            }
            idle = is_quiet;
        }
        let is_over = plan.duration_s.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds);
        if is_over || signal::caught() > 0 || reception.is_broken() {
            run.end.duration_s = began.elapsed().as_secs_f64();
            return Ok(());
        }
    }
}

/// Tells the user what happened on a control connection; returns a finished trial.
fn tell(event: HostEvent, form: Form) -> Result<Option<Box<measure::Trial>>, Failure> {
    match event {
        HostEvent::Joined { peer, offer } => {
            let rate = offer.rate_pps.map_or("the maximum rate".into(), |pps| format!("{pps:.0} pps"));
            eprintln!("{peer} joins: {} threads at {rate}", offer.streams);
        }
        HostEvent::Refused { peer, reason } => eprintln!("{peer} refused: {reason}"),
        HostEvent::Lost { peer, error } => eprintln!("{peer} lost: {}", in_words(&error)),
        HostEvent::Finished { peer, trial } => {
            eprintln!("{peer} finished");
            if let Some(trial) = trial {
                match form {
                    Form::Text => output::print_trial(&trial)?,
                    Form::JsonStream => output::print_event(report::Event::Trial(&trial))?,
                    Form::Json => {}
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
    let udp = UdpRxPlan {
        reuse_port: args.reuseport,
        gro: args.gro,
        drop_counts: false,
        receive_buffer_bytes: args.receive_buffer,
    };
    let interval = args.output.interval.unwrap_or(Duration::from_secs(1));
    Ok(RecvPlan {
        receiver: ReceiverPlan {
            statistics: None,
            engine: RxEngine::Udp(udp),
            local: args.listen.address,
            interface: None,
            workers: args.threads.into(),
            spin: args.spin,
            batch_size: args.batch_size as usize,
        },
        cpus,
        duration_s: args.duration.map(|duration| duration.as_secs_f64()),
        once: args.once,
        interval_s: interval.as_secs_f64().max(0.01),
    })
}

fn explain(error: &ReceptionError, args: &RecvArgs) -> Failure {
    let failure = Failure::of(Status::Refused, error);
    match os_error(error) {
        Some(libc::EADDRINUSE) => failure.hint(format!(
            "another program uses that port: give another one, for example linerate recv {}",
            u32::from(args.listen.address.port()) % 65_535 + 1
        )),
        Some(libc::EADDRNOTAVAIL) => failure.hint("listen on an address of this host, or on a port alone"),
        Some(libc::EACCES) => failure.hint("ports below 1024 need CAP_NET_BIND_SERVICE"),
        _ => failure,
    }
}
