//! `linerate bench --peer`: every sending engine here towards every receiving engine of another host.

use std::{collections::BTreeMap, net::SocketAddr, thread, time::Instant};

use measure::{End, Origin, PairSummary, Run, SCHEMA, Skipped, Trial};
use serde::Serialize;
use session::{Key, SessionError};
use sys::{capability::Capability, clock, rtnetlink::RouteSocket, signal};
use traffic::{Conditions, Limit, RxLayer, RxSpec, SenderPlan, TxOptions, TxSpec, TxTraffic, engines};
use trial::{
    BackPlan, GivenMacs, HostPlan, HostTrialError, TrialRun, Wanted, any_like, run_back_trial,
    run_host_trial, tx_endpoint, workers_towards,
};
use view::Ahead;

use crate::{
    args::BenchArgs,
    failure::{Failure, Status, in_words, read_key, unsent},
    packets::{Packets, frames_between},
    pipeline::{Ending, Pipeline},
    start::opening,
};

/// Every pair, and the engines that are unavailable.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PeerLadder {
    pub(super) ladder: Vec<HostPlan>,
    skipped: Vec<Skipped>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<bool, Failure> {
    let PeerLadder { ladder, skipped } = ladder(args, receivers(args))?;
    let Some(pipeline) = Pipeline::open(&args.output, "bench", &ladder)? else { return Ok(true) };
    let mut start = opening("bench", Origin::Hosts, &BTreeMap::from([("ladder", &ladder)]));
    start.machine.interfaces = bench::sending_interfaces(ladder.iter().map(|plan| &plan.sender));
    pipeline.begin(&start)?;
    let began = Instant::now();
    let mut run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end: End::default() };
    run.end.skipped = skipped;
    let turns = (1..=args.trials()).flat_map(|number| ladder.iter().map(move |plan| (number, plan)));
    let mut failure = None;
    let mut first_refusal = None;
    let mut missing = Missing::default();
    let mut index = 0;
    let mut progress = pipeline.progress(&run.start, None)?;
    for (turn, (number, plan)) in turns.enumerate() {
        if missing.has(plan) {
            continue;
        }
        progress.begins(ahead(plan, turn as u32, args.trials() * ladder.len() as u32));
        let trial = run_host_trial(plan, number, || signal::caught() == 0, |tick, _| progress.looks(tick));
        // An engine that sends no packet at all is left out, as one that cannot be opened.
        let trial = match trial {
            Ok(TrialRun { trial, error: Some(error @ HostTrialError::Engine(_)), .. }) if trial.sent == 0 => {
                Err(error)
            }
            other => other,
        };
        match trial {
            Ok(mut finished) => {
                progress.ends(&finished.trial);
                name_direction(args, &mut finished.trial, OUT);
                finished.intervals.iter_mut().for_each(|interval| interval.trial = index);
                index += 1;
                let broken_output = pipeline.trial(&finished.trial).err();
                run.intervals.append(&mut finished.intervals);
                run.end.interrupted |= finished.trial.interrupted;
                run.end.trials.push(finished.trial);
                let ended = finished.error.as_ref();
                let ended = ended.map(|error| unsent(error).with_status(Status::GoalMissed));
                failure = broken_output.or(ended);
                if args.hosts.both_ways && failure.is_none() && !run.end.interrupted {
                    let others = [back(plan, number), at_once(plan, number)];
                    for trial in others.into_iter().flatten().flatten() {
                        let trial = match trial {
                            Ok(trial) => trial,
                            Err(failed) => {
                                let reason = failed.to_string();
                                eprintln!("  skipped: {reason}");
                                run.end
                                    .skipped
                                    .push(Skipped { engine: format!("{} (back)", label(plan)), reason });
                                continue;
                            }
                        };
                        index += 1;
                        failure = failure.or(pipeline.trial(&trial).err());
                        run.end.interrupted |= trial.interrupted;
                        run.end.trials.push(trial);
                    }
                }
            }
            // The host that cannot use this engine gives the reason; the ladder continues without it.
            Err(error) => match missing.note(plan, &error) {
                Some(skipped) => {
                    eprintln!("  skipped {}: {}", skipped.engine, skipped.reason);
                    run.end.skipped.push(skipped);
                    first_refusal.get_or_insert_with(|| unsent(&error));
                }
                None => failure = Some(unsent(&error)),
            },
        }
        if failure.is_some() || run.end.interrupted {
            break;
        }
    }
    progress.finish()?;
    run.end.pairs = PairSummary::of(&run.end.trials);
    run.end.duration_s = began.elapsed().as_secs_f64();
    if run.end.trials.is_empty() {
        return failure.or(first_refusal).map_or(Ok(true), Err);
    }
    pipeline.conclude(&run, Ending { failure, max_loss: args.load.max_loss, ..Ending::default() })
}

/// Directions as the record names them, among a trial's parameters.
const OUT: &str = "to the peer";
const BACK: &str = "from the peer";
const OUT_AT_ONCE: &str = "to the peer, both at once";
const BACK_AT_ONCE: &str = "from the peer, both at once";

fn name_direction(args: &BenchArgs, trial: &mut Trial, direction: &str) {
    if args.hosts.both_ways {
        trial.parameters.insert("direction".into(), direction.into());
    }
}

type Outcomes = Vec<Result<Trial, Failure>>;

/// The same pair in the other direction.
fn back(plan: &HostPlan, number: u32) -> Option<Outcomes> {
    let trial = receive_back(plan, number, BACK);
    (signal::caught() == 0).then(|| vec![trial])
}

/// Both directions at once.
fn at_once(plan: &HostPlan, number: u32) -> Option<Outcomes> {
    let (out, back) = thread::scope(|scope| {
        let back = scope.spawn(|| receive_back(plan, number, BACK_AT_ONCE));
        let out = run_host_trial(plan, number, || signal::caught() == 0, |_, _| ());
        (out, back.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let out = out.map_err(|error| unsent(&error)).and_then(|run| match run.error {
        Some(error) => Err(unsent(&error)),
        None => Ok(directed(run.trial, number, OUT_AT_ONCE)),
    });
    Some(vec![out, back])
}

fn directed(mut trial: Trial, number: u32, direction: &str) -> Trial {
    trial.trial = number;
    trial.parameters.insert("direction".into(), direction.into());
    trial
}

fn receive_back(plan: &HostPlan, number: u32, direction: &str) -> Result<Trial, Failure> {
    let traffic = &plan.sender.traffic;
    let asked = BackPlan {
        engine: plan.sender.engine.clone(),
        threads: traffic.workers.len(),
        flows: traffic.workers.iter().map(|worker| worker.flows).sum(),
        frames: traffic.frames.clone(),
        rate_pps: traffic.rate_pps,
        departures: traffic.departures,
        duration_ns: traffic.limit.duration_ns.unwrap_or(0),
        batch_size: traffic.batch_size,
        seed: traffic.seed,
        frame_size_bytes: plan.frame_size_bytes,
        payload_bytes: plan.payload_bytes,
        smallest_payload_bytes: plan.smallest_payload_bytes,
        receiver: plan.receiver.clone(),
        witness: plan.witness,
    };
    let peer = traffic.workers[0].target;
    let trial = run_back_trial(peer, &asked, plan.key.as_ref(), || signal::caught() == 0);
    trial
        .map(|trial| directed(trial, number, direction))
        .map_err(|error| Failure::new(Status::Refused, in_words(&error)))
}

/// A trial as views show it.
fn ahead(plan: &HostPlan, index: u32, of: u32) -> Ahead {
    let receiver = plan.receiver.as_ref().map_or("the receiver", |wanted| wanted.engine.as_str());
    Ahead {
        index,
        of: Some(of),
        tx: plan.endpoint.label.clone(),
        rx: receiver.to_owned(),
        asked_pps: plan.sender.traffic.rate_pps,
        worker_cpus: plan.cpus.clone(),
        ..Ahead::default()
    }
}

fn label(plan: &HostPlan) -> String {
    let receiver = plan.receiver.as_ref().map_or("the receiver", |wanted| wanted.engine.as_str());
    format!("{} → {receiver}", plan.endpoint.label)
}

/// Engines that proved unavailable at one of the ends.
#[derive(Debug, Default)]
struct Missing {
    tx: Vec<TxSpec>,
    rx: Vec<Wanted>,
}

impl Missing {
    fn has(&self, plan: &HostPlan) -> bool {
        self.tx.contains(&plan.sender.engine) || plan.receiver.as_ref().is_some_and(|rx| self.rx.contains(rx))
    }

    /// The engine that this error is about; `None` if it is about no engine.
    fn note(&mut self, plan: &HostPlan, error: &HostTrialError) -> Option<Skipped> {
        match (error, &plan.receiver) {
            (HostTrialError::Session(SessionError::Refused { reason, .. }), Some(wanted)) => {
                self.rx.push(wanted.clone());
                Some(Skipped { engine: format!("{} (rx)", wanted.engine), reason: reason.clone() })
            }
            (HostTrialError::Path(_) | HostTrialError::Engine(_), _) => {
                let engine = &plan.sender.engine;
                self.tx.push(engine.clone());
                Some(Skipped { engine: format!("{engine} (tx)"), reason: in_words(error) })
            }
            _ => None,
        }
    }
}

/// One plan per sending engine, towards the named engines or the one that the receiver was started with.
pub(super) fn plans(args: &BenchArgs) -> Result<Vec<HostPlan>, Failure> {
    let receivers = if args.paths.rx.is_empty() { vec![None] } else { receivers(args) };
    Ok(ladder(args, receivers)?.ladder)
}

/// One plan per pair; the receiver opens the requested engine, or reports why it cannot.
fn ladder(args: &BenchArgs, receivers: Vec<Option<RxSpec>>) -> Result<PeerLadder, Failure> {
    let Some(peer) = args.hosts.peer.map(|peer| peer.0) else {
        return Err(Failure::new(Status::Usage, "--interface needs --peer"));
    };
    let mut problems = Vec::new();
    let local = any_like(peer.ip());
    let packets =
        args.packets.plan(args.load.rate, frames_between(local, peer.ip()), None).unwrap_or_else(|found| {
            problems.extend(found);
            Packets::none()
        });
    let threads = usize::from(args.paths.threads);
    let rx_threads = args.paths.rx_threads.unwrap_or(args.paths.threads);
    let cards: Vec<&str> = args.hosts.interface.as_deref().into_iter().collect();
    let cpus = args.sockets.cpus((threads, 0), &cards, &mut problems).tx;
    let is_stream = |spec: &TxSpec| spec.facts().message_bytes.is_some();
    problems.extend(args.paths.tx.iter().filter(|spec| is_stream(spec)).map(|spec| {
        Failure::new(Status::Usage, format!("the engine {} sends only in the lab", spec.name()))
            .hint("linerate bench --tx tcp --rx tcp measures streams")
    }));
    let key = read_key(args.hosts.key.as_deref(), &mut problems);
    let link = |name| RouteSocket::open().and_then(|mut route| route.link_by_name(name));
    problems.extend(
        args.hosts.interface.as_deref().and_then(|name| link(name).err()).map(|error| {
            Failure::of(Status::Refused, &error).hint("ip link lists the interfaces of this host")
        }),
    );
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let conditions = Conditions {
        is_one_size: packets.is_one_size,
        // The path's MTU is known once there is a path.
        fits_mtu: true,
        raw_sockets: Capability::NetRaw.held(),
        bpf: Capability::Bpf.held() && Capability::NetAdmin.held(),
        root: Capability::SysAdmin.held(),
        // Cards are taken only in the lab.
        real_interfaces: false,
        take_device: false,
    };
    let mut skipped = Vec::new();
    let mut senders = senders(args, threads);
    senders.retain(|spec| {
        let reason = spec.why_not(&conditions);
        let is_kept = reason.is_none();
        skipped.extend(reason.map(|reason| Skipped { engine: format!("{spec} (tx)"), reason }));
        is_kept
    });
    let flows = args.packets.flows.unwrap_or(threads).max(threads);
    let options = TxOptions {
        send_buffer_bytes: args.sockets.send_buffer,
        burst: args.paths.burst,
        clones: args.paths.clones,
        ..TxOptions::default()
    };
    let ask = Ask { args, packets: &packets, peer, threads, flows, cpus: &cpus, key };
    let pairs = senders.iter().flat_map(|tx| receivers.iter().map(move |rx| (tx, rx)));
    let ladder = pairs.map(|(tx, rx)| ask.plan(tx.configured(&options), rx.as_ref(), rx_threads)).collect();
    Ok(PeerLadder { ladder, skipped })
}

fn senders(args: &BenchArgs, threads: usize) -> Vec<TxSpec> {
    if !args.paths.tx.is_empty() {
        return args.paths.tx.clone();
    }
    let sides = engines().iter().filter_map(|engine| engine.tx.as_ref());
    let labels = sides.flat_map(|side| side.ladder_for(threads));
    let specs = labels.filter_map(|label| label.parse::<TxSpec>().ok());
    specs.filter(|spec| spec.facts().message_bytes.is_none()).collect()
}

/// Engines to request from the receiver; with --profile, which samples the CPUs of one engine, only the receiver's own.
fn receivers(args: &BenchArgs) -> Vec<Option<RxSpec>> {
    let threads = usize::from(args.paths.rx_threads.unwrap_or(args.paths.threads));
    if !args.paths.rx.is_empty() {
        return args.paths.rx.iter().cloned().map(Some).collect();
    }
    if args.profile {
        return vec![None];
    }
    let sides = engines().iter().filter_map(|engine| engine.rx.as_ref());
    let labels = sides.flat_map(|side| side.ladder_for(threads));
    let specs = labels.filter_map(|label| label.parse::<RxSpec>().ok());
    specs.filter(|spec| spec.facts().reads != RxLayer::Stream).map(Some).collect()
}

/// What all plans of a ladder share.
struct Ask<'a> {
    args: &'a BenchArgs,
    packets: &'a Packets,
    peer: SocketAddr,
    threads: usize,
    flows: usize,
    cpus: &'a [u32],
    key: Option<Key>,
}

impl Ask<'_> {
    fn plan(&self, spec: TxSpec, receiver: Option<&RxSpec>, rx_threads: u16) -> HostPlan {
        let Self { args, packets, peer, threads, flows, cpus, ref key } = *self;
        HostPlan {
            handshake: true,
            endpoint: tx_endpoint(&spec, threads, cpus, args.load.pattern.batch_size as usize, flows),
            sender: SenderPlan {
                engine: spec,
                traffic: TxTraffic {
                    workers: workers_towards(&[peer], any_like(peer.ip()), flows, threads),
                    interface: args.hosts.interface.clone(),
                    frames: packets.frames.clone(),
                    rate_pps: packets.rate_pps,
                    departures: args.load.pattern.departures,
                    limit: Limit { count: None, duration_ns: Some(clock::nanos(args.duration)) },
                    batch_size: args.load.pattern.batch_size as usize,
                    seed: args.packets.seed,
                },
            },
            cpus: cpus.to_vec(),
            frame_size_bytes: packets.frame_size_bytes,
            payload_bytes: packets.payload_bytes,
            smallest_payload_bytes: packets.smallest_payload_bytes,
            interval_ns: args.output.interval.map_or(500_000_000, clock::nanos).max(1),
            profile: args.profile,
            macs: GivenMacs::default(),
            receiver: receiver.map(|rx| Wanted { engine: rx.to_string(), threads: rx_threads }),
            witness: !args.hosts.no_witness,
            key: key.clone(),
        }
    }
}
