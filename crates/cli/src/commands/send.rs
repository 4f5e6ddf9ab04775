//! `linerate send`: packets to receivers that consent, or frames to a file.

use std::{
    io::BufWriter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use measure::{End, Origin, PairSummary, Run, SCHEMA};
use session::may_send_without_handshake;
use sys::{clock, cpu, signal};
use traffic::{Limit, SenderPlan, TxOptions, TxSpec, TxTraffic};
use trial::{GivenMacs, HostPlan, Tick, Wanted, any_like, run_host_trial, tx_endpoint, workers_towards};
use view::{Ahead, Seen};
use wire::{FrameSpec, PcapWriter, Template, Values};

use crate::{
    access::device_consent,
    args::{FrameArgs, SendArgs, packet_senders, returning_senders, sends_packets},
    failure::{Failure, Status, read_key, unsent},
    output::Output,
    packets::{Packets, frames_between},
    pipeline::{Ending, Pipeline},
    progress::seen,
    start::opening,
};

/// Default time to send, without --duration and --count.
const DURATION_NS: u64 = 10_000_000_000;
/// Most flows whose packets can return: a thread receives for each.
const MOST_RETURNING_FLOWS: usize = 64;
/// Time between the frames of a preview at the maximum rate.
const PREVIEW_GAP_NS: f64 = 1000.0;

pub(crate) fn run(args: &SendArgs) -> Result<bool, Failure> {
    if let Some(path) = &args.write_pcap {
        return preview(args, path);
    }
    let plan = plan(args)?;
    let Some(pipeline) = Pipeline::open(&args.output, "send", &plan)? else { return Ok(true) };
    let mut start = opening("send", Origin::Hosts, &plan);
    start.machine.interfaces = bench::sending_interfaces(std::iter::once(&plan.sender));
    pipeline.begin(&start)?;
    let mut broken_output = None;
    let mut live = pipeline.live(&start)?;
    live.story.trial_begins(ahead(args, &plan), live.now_s());
    let trial = run_host_trial(
        &plan,
        1,
        || signal::caught() == 0,
        |tick, interval| {
            live.story.looks(sent_so_far(tick, args.count), live.now_s());
            live.show_when_due();
            // The record has them; lines would disturb the screen.
            if let Some(interval) = interval.filter(|_| !live.views.has_screen()) {
                broken_output = broken_output.take().or(pipeline.interval(interval).err());
            }
        },
    );
    if let Ok(finished) = &trial {
        live.story.trial_ends(&finished.trial, live.now_s());
    }
    live.end();
    let finished = trial.map_err(|error| unsent(&error))?;
    let broken_output = broken_output.or(pipeline.trial(&finished.trial).err());
    let failure = finished.error.as_ref().map(|error| unsent(error).with_status(Status::GoalMissed));
    let trials = vec![finished.trial];
    let run = Run {
        schema: SCHEMA.into(),
        start,
        intervals: finished.intervals,
        end: End {
            duration_s: trials[0].duration_s,
            interrupted: trials[0].interrupted,
            pairs: PairSummary::of(&trials),
            trials,
            ..End::default()
        },
    };
    pipeline.conclude(
        &run,
        Ending { failure: broken_output.or(failure), max_loss: args.load.max_loss, ..Ending::default() },
    )
}

/// The single trial as views show it.
fn ahead(args: &SendArgs, plan: &HostPlan) -> Ahead {
    let targets: Vec<String> = args.targets.iter().map(|target| target.0.to_string()).collect();
    Ahead {
        index: 0,
        of: Some(1),
        tx: plan.endpoint.label.clone(),
        rx: targets.join(", "),
        asked_pps: plan.sender.traffic.rate_pps,
        worker_cpus: plan.cpus.clone(),
        ..Ahead::default()
    }
}

/// With a count, progress is measured in packets.
fn sent_so_far(tick: Tick, count: Option<u64>) -> Seen {
    let seen = seen(tick);
    match count {
        Some(count) => Seen { done_ratio: (seen.sent as f64 / count.max(1) as f64).min(1.0), ..seen },
        None => seen,
    }
}

/// All problems of the arguments at once.
fn plan(args: &SendArgs) -> Result<HostPlan, Failure> {
    let mut problems = Vec::new();
    let targets: Vec<SocketAddr> = args.targets.iter().map(|target| target.0).collect();
    if args.no_handshake && !args.i_am_allowed_to_send_there {
        problems.extend(targets.iter().filter_map(|target| {
            let error = may_send_without_handshake(target.ip()).err()?;
            Some(Failure::new(Status::Refused, error).hint(
                "run linerate recv there and omit --no-handshake; if you are allowed to send there anyway, \
                 add --i-am-allowed-to-send-there",
            ))
        }));
    }
    if args.no_handshake && args.load.max_loss.is_some() {
        problems.push(
            Failure::new(
                Status::Usage,
                "--max-loss needs a receiver that counts, but --no-handshake sends without one",
            )
            .hint("omit --no-handshake or --max-loss"),
        );
    }
    let mut engine = args.engine.clone();
    problems.extend(args.frames.not_for(&engine));
    let takes_card = engine.facts().takes_device;
    let how = " with --interface and --dst-mac; the handshake needs another interface";
    let unagreed = device_consent(engine.name(), takes_card, args.take_device, how);
    if unagreed.is_some() || takes_card {
        problems.extend(unagreed);
    } else if !sends_packets(&engine) {
        problems.push(
            Failure::new(
                Status::Usage,
                format!("the engine {} sends only in the lab: linerate recv receives packets", engine.name()),
            )
            .hint(format!("use --engine {}", packet_senders().join(" or "))),
        );
    }
    if args.gso {
        match engine.with_switch("gso") {
            Ok(segmenting) => engine = segmenting,
            Err(error) => problems.push(Failure::new(Status::Usage, error)),
        }
    }
    if args.reflect && !engine.options().contains(&"reflect") {
        problems.push(
            Failure::new(
                Status::Usage,
                format!("the engine {} cannot receive returned packets", engine.name()),
            )
            .hint(format!("use --engine {}", returning_senders())),
        );
    }
    let local = args.bind.unwrap_or_else(|| any_like(targets[0].ip()));
    problems.extend(targets.iter().filter(|target| target.is_ipv4() != local.is_ipv4()).map(|target| {
        Failure::new(
            Status::Usage,
            format!("{target} and the local address {local} are of different IP versions"),
        )
        .hint("send to IPv4 and IPv6 receivers in two runs")
    }));
    let packets = args.packets(&mut problems);
    if engine.facts().hands_over_many && !packets.is_one_size {
        problems.push(
            Failure::new(Status::Usage, "--gso needs payloads of one size")
                .hint("use one --frame-size, or omit --gso"),
        );
    }
    let threads = usize::from(args.threads.unwrap_or(targets.len() as u16));
    if threads < targets.len() {
        problems.push(
            Failure::new(
                Status::Usage,
                format!("{} targets need at least as many threads, not {threads}", targets.len()),
            )
            .hint("raise --threads, or omit it"),
        );
    }
    if let Some(cpus) = &args.cpus {
        problems.extend(cpus.problem(&cpu::allowed().unwrap_or_default()));
    }
    let key = read_key(args.key.as_deref(), &mut problems);
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let flows = args.packets.flows.unwrap_or(threads).max(threads);
    let duration = args.duration.map(clock::nanos);
    if args.reflect && flows > MOST_RETURNING_FLOWS {
        return Err(Failure::new(
            Status::Usage,
            format!("--reflect supports at most {MOST_RETURNING_FLOWS} flows, not {flows}"),
        )
        .hint("lower --flows or --threads"));
    }
    let spec = engine.configured(&TxOptions {
        send_buffer_bytes: args.send_buffer,
        returns: args.reflect,
        rings: args.card.options(args.take_device, None),
        ..TxOptions::default()
    });
    let cpus = args.cpus.as_ref().map(|list| list.0.clone()).unwrap_or_default();
    Ok(HostPlan {
        handshake: !args.no_handshake,
        endpoint: tx_endpoint(&spec, threads, &cpus, args.load.pattern.batch_size as usize, flows),
        sender: SenderPlan {
            engine: spec,
            traffic: TxTraffic {
                workers: workers_towards(&targets, local, flows, threads),
                interface: args.interface.clone(),
                frames: packets.frames,
                rate_pps: packets.rate_pps,
                departures: args.load.pattern.departures,
                limit: Limit {
                    count: args.count,
                    duration_ns: duration.or_else(|| args.count.is_none().then_some(DURATION_NS)),
                },
                batch_size: args.load.pattern.batch_size as usize,
                seed: args.packets.seed,
            },
        },
        cpus,
        frame_size_bytes: packets.frame_size_bytes,
        payload_bytes: packets.payload_bytes,
        smallest_payload_bytes: packets.smallest_payload_bytes,
        interval_ns: args.output.interval.map_or(1_000_000_000, clock::nanos).max(1),
        profile: false,
        receiver: args
            .rx
            .as_ref()
            .map(|engine| Wanted { engine: engine.to_string(), threads: args.rx_threads }),
        witness: !args.no_witness,
        key,
        macs: GivenMacs { src: args.frames.src_mac, dst: args.frames.dst_mac },
    })
}

impl SendArgs {
    fn packets(&self, problems: &mut Vec<Failure>) -> Packets {
        let first = self.targets.first().map(|target| target.0);
        let frames = self.frames.spec(first, self.bind);
        self.packets.plan(self.load.rate, frames, None).unwrap_or_else(|found| {
            problems.extend(found);
            Packets::none()
        })
    }
}

impl FrameArgs {
    /// The frames that engines with whole frames would send.
    fn spec(&self, target: Option<SocketAddr>, bind: Option<IpAddr>) -> FrameSpec {
        let default = FrameSpec::default();
        let dst = target.map(|target| target.ip());
        let dst_addr = self.dst_addr.clone().or(dst.map(Values::Fixed)).unwrap_or(default.dst_addr.clone());
        let src = bind.unwrap_or_else(|| example_like(dst_addr.first()));
        let between = frames_between(src, dst_addr.first());
        FrameSpec {
            src_mac: self.src_mac.unwrap_or(default.src_mac),
            dst_mac: self.dst_mac.unwrap_or(default.dst_mac),
            vlan: self.vlan.clone(),
            src_addr: self.src_addr.clone().unwrap_or(between.src_addr),
            dst_addr,
            src_port: self.src_port.clone().unwrap_or(default.src_port),
            dst_port: self
                .dst_port
                .clone()
                .or(target.map(|target| Values::Fixed(target.port())))
                .unwrap_or(default.dst_port),
            ttl: self.ttl,
            ..default
        }
    }

    /// Options that an engine cannot apply: sockets build their headers themselves, and whole frames go to the consenting
    /// receiver, from an address of this host.
    fn not_for(&self, engine: &TxSpec) -> Option<Failure> {
        let makes_frames = engine.facts().makes_frames;
        let given = [
            ("--src-mac", self.src_mac.is_some() && !makes_frames),
            ("--dst-mac", self.dst_mac.is_some() && !makes_frames),
            ("--vlan", !self.vlan.is_empty() && !makes_frames),
            ("--src-addr", self.src_addr.is_some()),
            ("--dst-addr", self.dst_addr.is_some()),
            ("--src-port", self.src_port.is_some()),
            ("--dst-port", self.dst_port.is_some()),
        ];
        let names: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        if names.is_empty() {
            return None;
        }
        let why = if makes_frames {
            "packets go from this host to the receiver that consented"
        } else {
            "the kernel builds its headers"
        };
        let name = engine.name();
        Some(
            Failure::new(Status::Usage, format!("the engine {name} cannot set {}: {why}", names.join(", ")))
                .hint("use --flows for several source ports, --bind for the source address; --write-pcap previews whole frames"),
        )
    }
}

/// Writes the frames to a file instead of sending them.
fn preview(args: &SendArgs, path: &Path) -> Result<bool, Failure> {
    let mut problems = Vec::new();
    let packets = args.packets(&mut problems);
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let refused = |error: &(dyn std::error::Error + 'static)| {
        let words = crate::failure::in_words(error);
        Failure::new(Status::Refused, format!("cannot write {}: {words}", path.display()))
    };
    let template = Template::new(&packets.frames).map_err(|error| Failure::new(Status::Usage, error))?;
    let gap_ns = packets.rate_pps.map_or(PREVIEW_GAP_NS, |pps| 1e9 / pps);
    let start_ns = clock::realtime_ns();
    let mut frame = vec![0; template.max_frame_len()];
    template.prime_frame(&mut frame);
    let file = Output::prepare(path, "--write-pcap")?.begin()?;
    let mut pcap = PcapWriter::new(BufWriter::new(file)).map_err(|error| refused(&error))?;
    let mut written = 0;
    let count = args.count.unwrap_or(0);
    for number in 0..count {
        if signal::caught() > 0 {
            break;
        }
        let time_ns = start_ns + (number as f64 * gap_ns) as u64;
        let len = template.restamp_frame(&mut frame, number as u32, time_ns);
        pcap.write(time_ns, &frame[..len]).map_err(|error| refused(&error))?;
        written += 1;
    }
    let file = pcap.finish().map_err(|error| refused(&error))?;
    let file = file.into_inner().map_err(|error| refused(error.error()))?;
    file.finish().map_err(|error| refused(&error))?;
    eprintln!("wrote {written} frames to {}", path.display());
    Ok(true)
}

/// A benchmarking address of the same version, for previews.
fn example_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() {
        Ipv4Addr::new(198, 18, 0, 1).into()
    } else {
        Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into()
    }
}
