//! `linerate send`: packets to receivers that agreed, or frames to a file.

use std::{
    fs::File,
    io::{BufWriter, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use bench::{HostPlan, HostTrialError, TxSpec, run_host_trial, share_of_flows};
use engine::{Limit, SenderPlan, TxEngine, TxWorkerPlan, UdpTxPlan};
use measure::{End, Origin, PairSummary, Run, SCHEMA};
use session::{SessionError, may_send_without_handshake};
use sys::{clock, cpu, signal};
use wire::{FrameSpec, PcapWriter, Template, Values};

use crate::{
    args::{FrameArgs, SendArgs},
    commands::bench::conclude,
    failure::{Failure, Status, os_error},
    output::{self, Form, Save},
    packets::{Packets, frames_between},
    start::opening,
};

/// Seconds to send when neither time nor count is given.
const DURATION_NS: u64 = 10_000_000_000;
/// Flows whose packets can come back: a thread listens to each.
const MOST_RETURNING_FLOWS: usize = 64;
/// Time between the frames of a preview at the maximum rate.
const PREVIEW_GAP_NS: f64 = 1000.0;

pub(crate) fn run(args: &SendArgs) -> Result<bool, Failure> {
    if let Some(path) = &args.write_pcap {
        return preview(args, path);
    }
    let plan = plan(args)?;
    if args.output.dry_run {
        return output::print_plan(&plan);
    }
    let save = Save::prepare(&args.output, "send")?;
    let form = args.output.form();
    let mut start = opening("send", Origin::Hosts, &plan);
    start.machine.interfaces = bench::sending_interfaces(std::iter::once(&plan.sender));
    if form == Form::JsonStream {
        output::print_event(report::Event::start(&start))?;
    }
    let mut broken_output = None;
    let trial = run_host_trial(
        &plan,
        1,
        || signal::caught() == 0,
        |interval| {
            let printed = match form {
                Form::Text => output::print_interval(interval),
                Form::JsonStream => output::print_event(report::Event::Interval(interval)),
                Form::Json | Form::Iperf3 => Ok(()),
            };
            broken_output = printed.err();
        },
    );
    let finished = trial.map_err(|error| explain(&error))?;
    if let Some(failure) = broken_output {
        return Err(failure);
    }
    if form == Form::JsonStream {
        output::print_event(report::Event::Trial(&finished.trial))?;
    }
    let failure = finished.error.as_ref().map(|error| explain(error).with_status(Status::GoalMissed));
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
    conclude(run, form, save, failure, args.load.max_loss)
}

/// Everything that can be wrong with the arguments, at once.
fn plan(args: &SendArgs) -> Result<HostPlan, Failure> {
    let mut problems = Vec::new();
    let targets: Vec<SocketAddr> = args.targets.iter().map(|target| target.0).collect();
    if args.no_handshake && !args.i_am_allowed_to_send_there {
        problems.extend(targets.iter().filter_map(|target| {
            let error = may_send_without_handshake(target.ip()).err()?;
            Some(Failure::new(Status::Refused, error).hint(
                "run linerate recv there and leave out --no-handshake; where you may send all the same, \
                 add --i-am-allowed-to-send-there",
            ))
        }));
    }
    problems.extend(args.frames.not_for_sockets());
    let local = args.bind.unwrap_or_else(|| any_like(targets[0].ip()));
    problems.extend(targets.iter().filter(|target| target.is_ipv4() != local.is_ipv4()).map(|target| {
        Failure::new(
            Status::Usage,
            format!("{target} and the local address {local} are of different IP versions"),
        )
        .hint("send to IPv4 and IPv6 receivers in two runs")
    }));
    let packets = args.packets(&mut problems);
    if args.gso && !packets.is_one_size {
        problems.push(
            Failure::new(Status::Usage, "--gso needs payloads of one size")
                .hint("give one --frame-size, or leave out --gso"),
        );
    }
    let threads = usize::from(args.threads.unwrap_or(targets.len() as u16));
    if threads < targets.len() {
        problems.push(
            Failure::new(
                Status::Usage,
                format!("{} targets need as many threads, not {threads}", targets.len()),
            )
            .hint("raise --threads, or leave it out"),
        );
    }
    if let Some(cpus) = &args.cpus {
        problems.extend(cpus.problem(&cpu::allowed().unwrap_or_default()));
    }
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let flows = args.packets.flows.unwrap_or(threads).max(threads);
    let duration = args.duration.map(clock::nanos);
    if args.reflect && flows > MOST_RETURNING_FLOWS {
        return Err(Failure::new(
            Status::Usage,
            format!("--reflect listens to at most {MOST_RETURNING_FLOWS} flows, not {flows}"),
        )
        .hint("fewer --flows, or fewer --threads"));
    }
    let spec = TxSpec(TxEngine::Udp(UdpTxPlan {
        gso: args.gso,
        send_buffer_bytes: args.send_buffer,
        returns: args.reflect,
    }));
    let cpus = args.cpus.as_ref().map(|list| list.0.clone()).unwrap_or_default();
    Ok(HostPlan {
        handshake: !args.no_handshake,
        endpoint: spec.endpoint(threads, &cpus, args.load.pattern.batch_size as usize, flows),
        sender: SenderPlan {
            engine: spec.0,
            workers: (0..threads)
                .map(|worker| TxWorkerPlan {
                    target: targets[worker % targets.len()],
                    local: (local, 0).into(),
                    flows: share_of_flows(flows, threads, worker),
                    stream: 0,
                })
                .collect(),
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
        cpus,
        frame_size_bytes: packets.frame_size_bytes,
        payload_bytes: packets.payload_bytes,
        smallest_payload_bytes: packets.smallest_payload_bytes,
        interval_ns: args.output.interval.map_or(1_000_000_000, clock::nanos).max(1),
        profile: false,
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

    /// Options that a UDP socket cannot follow.
    fn not_for_sockets(&self) -> Option<Failure> {
        let given = [
            ("--src-mac", self.src_mac.is_some()),
            ("--dst-mac", self.dst_mac.is_some()),
            ("--vlan", !self.vlan.is_empty()),
            ("--src-addr", self.src_addr.is_some()),
            ("--dst-addr", self.dst_addr.is_some()),
            ("--src-port", self.src_port.is_some()),
            ("--dst-port", self.dst_port.is_some()),
        ];
        let names: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        if names.is_empty() {
            return None;
        }
        Some(
            Failure::new(Status::Usage, format!("the engine udp cannot set {}: the kernel makes its headers", names.join(", ")))
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
    let file = File::create(path).map_err(|error| refused(&error))?;
    let mut pcap = PcapWriter::new(BufWriter::new(file)).map_err(|error| refused(&error))?;
    let count = args.count.unwrap_or(0);
    for number in 0..count {
        if signal::caught() > 0 {
            break;
        }
        let time_ns = start_ns + (number as f64 * gap_ns) as u64;
        let len = template.restamp_frame(&mut frame, number as u32, time_ns);
        pcap.write(time_ns, &frame[..len]).map_err(|error| refused(&error))?;
    }
    let mut file = pcap.finish().map_err(|error| refused(&error))?;
    file.flush().map_err(|error| refused(&error))?;
    eprintln!("wrote {count} frames to {}", path.display());
    Ok(true)
}

/// What a failed trial means and what helps.
pub(crate) fn explain(error: &HostTrialError) -> Failure {
    let failure = Failure::of(Status::Refused, error);
    match error {
        HostTrialError::Session(SessionError::Unreachable { .. }) => failure
            .hint("start linerate recv there; --no-handshake sends without asking where that is allowed"),
        HostTrialError::Session(SessionError::NotAReceiver { .. }) => {
            failure.hint("give the port that linerate recv listens on: ADDRESS:PORT")
        }
        HostTrialError::Session(SessionError::Refused { .. } | SessionError::NoReflector { .. })
            if error.to_string().contains("sends no packets back") =>
        {
            failure.hint("linerate recv --reflect does; without --reflect here, nothing has to come back")
        }
        HostTrialError::OtherWayBack { .. } => {
            failure.hint("leave out --bind, or bind to the address that routes to the receiver use")
        }
        HostTrialError::Session(SessionError::Gone { .. }) => {
            failure.hint("what was measured until then is shown above")
        }
        _ => match os_error(error) {
            Some(libc::ENODEV) => failure.hint("ip link lists the interfaces of this host"),
            Some(libc::EADDRNOTAVAIL) => failure.hint("--bind takes an address of this host"),
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => failure.hint("there is no route to that address"),
            Some(libc::EMSGSIZE) => {
                failure.hint("the frame is larger than the path's MTU: try a smaller --frame-size")
            }
            Some(libc::EIO | libc::EINVAL) => {
                failure.hint("without --gso every kernel and interface can send")
            }
            _ => failure,
        },
    }
}

/// Any address of the same version.
pub(crate) fn any_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// A benchmarking address of the same version, for previews.
fn example_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() {
        Ipv4Addr::new(198, 18, 0, 1).into()
    } else {
        Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into()
    }
}
