//! `linerate bench --peer`: the ladder of sending engines towards a receiver on another host.

use std::{collections::BTreeMap, time::Instant};

use bench::{HostPlan, TxSpec, run_host_trial, share_of_flows};
use engine::{Limit, SenderPlan, TxEngine, TxWorkerPlan};
use measure::{End, Origin, PairSummary, Run, SCHEMA};
use sys::{clock, signal};

use crate::{
    args::BenchArgs,
    commands::{
        bench::conclude,
        send::{any_like, explain},
    },
    failure::{Failure, Status},
    output::{self, Form, Save},
    packets::{Packets, frames_between},
    start::opening,
};

pub(crate) fn run(args: &BenchArgs) -> Result<bool, Failure> {
    let plans = plans(args)?;
    if args.output.dry_run {
        return output::print_plan(&plans);
    }
    let save = Save::prepare(&args.output, "bench")?;
    let form = args.output.form();
    let mut start = opening("bench", Origin::Hosts, &BTreeMap::from([("ladder", &plans)]));
    start.machine.interfaces = bench::sending_interfaces(plans.iter().map(|plan| &plan.sender));
    if form == Form::JsonStream {
        output::print_event(report::Event::start(&start))?;
    }
    let began = Instant::now();
    let mut run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end: End::default() };
    let turns = (1..=args.trials).flat_map(|number| plans.iter().map(move |plan| (number, plan)));
    let mut failure = None;
    for (index, (number, plan)) in (0u32..).zip(turns) {
        eprintln!("trial {}/{}  {}", index + 1, args.trials as usize * plans.len(), plan.endpoint.label);
        match run_host_trial(plan, number, || signal::caught() == 0, |_| ()) {
            Ok(mut finished) => {
                finished.intervals.iter_mut().for_each(|interval| interval.trial = index);
                if form == Form::JsonStream {
                    output::print_event(report::Event::Trial(&finished.trial))?;
                }
                run.intervals.append(&mut finished.intervals);
                run.end.interrupted |= finished.trial.interrupted;
                run.end.trials.push(finished.trial);
                failure = finished.error.as_ref().map(|error| explain(error).with_status(Status::GoalMissed));
            }
            Err(error) => failure = Some(explain(&error)),
        }
        if failure.is_some() || run.end.interrupted {
            break;
        }
    }
    run.end.pairs = PairSummary::of(&run.end.trials);
    run.end.duration_s = began.elapsed().as_secs_f64();
    if run.end.trials.is_empty() {
        return failure.map_or(Ok(true), Err);
    }
    conclude(run, form, save, failure, args.load.max_loss)
}

/// One plan a sending engine; the receiver's engine is what `linerate recv` was started with.
fn plans(args: &BenchArgs) -> Result<Vec<HostPlan>, Failure> {
    let Some(peer) = args.hosts.peer.map(|peer| peer.0) else {
        return Err(Failure::new(Status::Usage, "--interface needs --peer"));
    };
    let mut problems = Vec::new();
    if !args.paths.rx.is_empty() {
        problems.push(
            Failure::new(Status::Usage, "--rx cannot choose the engine of a receiver on another host")
                .hint("start linerate recv there with the switches you want"),
        );
    }
    problems.extend(args.paths.tx.iter().filter(|spec| spec.0.makes_frames()).map(|spec| {
        Failure::new(
            Status::Usage,
            format!("the sending engine {spec} needs the lab: it does not know the peer's MAC address"),
        )
        .hint("towards other hosts use udp or udp+gso")
    }));
    let local = any_like(peer.ip());
    let packets =
        args.packets.plan(args.load.rate, frames_between(local, peer.ip()), None).unwrap_or_else(|found| {
            problems.extend(found);
            Packets::none()
        });
    let threads = usize::from(args.paths.threads);
    let cpus = args.sockets.cpus(threads, threads, &mut problems).tx;
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let specs = if args.paths.tx.is_empty() { vec!["udp", "udp+gso"] } else { Vec::new() };
    let specs = specs.iter().filter_map(|name| name.parse::<TxSpec>().ok()).chain(args.paths.tx.clone());
    let flows = args.packets.flows.unwrap_or(threads).max(threads);
    Ok(specs
        .map(|spec| TxSpec(with_buffer(spec.0, args.sockets.send_buffer)))
        .map(|spec| HostPlan {
            handshake: true,
            endpoint: spec.endpoint(threads, &cpus, args.load.pattern.batch_size as usize, flows),
            sender: SenderPlan {
                engine: spec.0,
                workers: (0..threads)
                    .map(|worker| TxWorkerPlan {
                        target: peer,
                        local: (local, 0).into(),
                        flows: share_of_flows(flows, threads, worker),
                        stream: 0,
                    })
                    .collect(),
                interface: args.hosts.interface.clone(),
                frames: packets.frames.clone(),
                rate_pps: packets.rate_pps,
                departures: args.load.pattern.departures,
                limit: Limit { count: None, duration_ns: Some(clock::nanos(args.duration)) },
                batch_size: args.load.pattern.batch_size as usize,
                seed: args.packets.seed,
            },
            cpus: cpus.clone(),
            frame_size_bytes: packets.frame_size_bytes,
            payload_bytes: packets.payload_bytes,
            smallest_payload_bytes: packets.smallest_payload_bytes,
            interval_ns: args.output.interval.map_or(500_000_000, clock::nanos).max(1),
            profile: args.profile,
        })
        .collect())
}

fn with_buffer(engine: TxEngine, send_buffer_bytes: Option<usize>) -> TxEngine {
    match engine {
        TxEngine::Udp(udp) => TxEngine::Udp(engine::UdpTxPlan { send_buffer_bytes, ..udp }),
        other => other,
    }
}
