//! From options to the plan of one setting: every problem at once.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use bench::{BenchPlan, CpuPlan, Peer, PeerPair, RxSpec, TxSpec};
use engine::{RxEngine, StatisticsPlan, TimeSource, TxEngine};
use lab::{Access, Interfaces, LabPlan};
use measure::Skipped;
use port::{PktgenTx, PortError};
use sys::{capability::Capability, cpu};
use wire::Rate;

use crate::{
    args::{LevelArg, OffloadArg, PacketArgs, PathArgs, PatternArgs, SettingArgs, SocketArgs, StampArg},
    failure::{Failure, Status},
    output::state_folder,
    packets::frames_between,
    work::work_ns,
};

/// What every experiment in the lab is asked.
pub(super) struct Asked<'a> {
    pub(super) paths: &'a PathArgs,
    pub(super) peers: &'a [Peer],
    pub(super) packets: &'a PacketArgs,
    pub(super) pattern: &'a PatternArgs,
    pub(super) sockets: &'a SocketArgs,
    pub(super) lab: &'a SettingArgs,
    pub(super) rate: Rate,
    pub(super) duration: Duration,
    pub(super) omit: Duration,
    pub(super) trials: u32,
    pub(super) stats: Option<LevelArg>,
    pub(super) stamp: Option<StampArg>,
    pub(super) profile: bool,
    pub(super) interval: Option<Duration>,
}

/// The plan, or everything that is wrong with it.
pub(super) fn plan(args: &Asked<'_>, access: Access) -> Result<BenchPlan, Failure> {
    let mut problems = Vec::new();
    let (src, dst): (IpAddr, IpAddr) = if args.paths.ipv6 {
        (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1).into())
    } else {
        (Ipv4Addr::new(198, 18, 0, 1).into(), Ipv4Addr::new(198, 19, 0, 1).into())
    };
    let packets = args.packets.plan(args.rate, frames_between(src, dst), None).unwrap_or_else(|found| {
        problems.extend(found);
        crate::packets::Packets::none()
    });
    if args.duration.is_zero() {
        problems.push(
            Failure::new(Status::Usage, "a trial of no time measures nothing").hint("try --duration 1s"),
        );
    }
    let tx_threads = usize::from(args.paths.threads);
    let rx_threads = usize::from(args.paths.rx_threads.unwrap_or(args.paths.threads));
    let cpus = args.sockets.cpus(tx_threads, rx_threads, &mut problems);
    let largest_ip_packet = packets.largest_frame_bytes.saturating_sub(18);
    let lab = LabPlan {
        queues: args.lab.queues.into(),
        mtu: args.lab.mtu.unwrap_or_else(|| largest_ip_packet.max(1500)),
        tx_checksum: matches!(args.lab.offload, OffloadArg::Checksum | OffloadArg::Tso | OffloadArg::All),
        gso: matches!(args.lab.offload, OffloadArg::Tso | OffloadArg::All),
        gro: matches!(args.lab.offload, OffloadArg::Gro | OffloadArg::All),
        scatter_gather: args.lab.offload != OffloadArg::NoSg,
        threaded_napi: args.lab.threaded_napi,
        napi_cpus: if args.lab.threaded_napi && Capability::SysNice.held() {
            cpus.rx.clone()
        } else {
            Vec::new()
        },
        interfaces: args
            .lab
            .tx_interface
            .as_ref()
            .zip(args.lab.rx_interface.as_ref())
            .map(|(tx, rx)| Interfaces { tx: tx.clone(), rx: rx.clone(), ipv6: args.paths.ipv6 }),
        ..LabPlan::default()
    };
    problems.extend(lab.problems().iter().map(|problem| Failure::new(Status::Usage, problem)));
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let shape = Shape { is_one_size: packets.is_one_size, fits_mtu: largest_ip_packet <= lab.mtu };
    let (tx, rx, mut skipped) = engines(args, rx_threads, shape, access);
    let work_ns = work_ns(args.sockets.work, rx.iter().map(|spec| &spec.0))?;
    let mut pairs = BenchPlan::pair_up(&tx, &rx);
    pairs.retain(|pair| {
        let can_count = !(lab.gso && pair.takes_messages_for_packets());
        if !can_count {
            skipped.push(Skipped { engine: pair.to_string(), reason: WHOLE_MESSAGES.into() });
        }
        can_count
    });
    if pairs.is_empty() && skipped.is_empty() {
        return Err(Failure::new(Status::Usage, "none of these senders sends to any of these receivers")
            .hint("tcp sends to tcp and the others to each other: for example --tx tcp --rx tcp"));
    }
    let mut peers = args.peers.to_vec();
    peers.retain(|peer| {
        let reason = peer.why_not(packets.is_one_size, args.paths.ipv6);
        let here = reason.is_none();
        skipped.extend(reason);
        here
    });
    Ok(BenchPlan {
        pairs,
        peers: peers.into_iter().flat_map(PeerPair::of).collect(),
        skipped,
        parameters: BTreeMap::new(),
        trials: args.trials,
        duration_ns: sys::clock::nanos(args.duration),
        count: None,
        omit_ns: sys::clock::nanos(args.omit),
        rate: args.rate,
        rate_pps: packets.rate_pps,
        departures: args.pattern.departures,
        frame_size_bytes: packets.frame_size_bytes,
        payload_bytes: packets.payload_bytes,
        tagged: packets.smallest_payload_bytes >= wire::PROBE_TAGGED_LEN as u32,
        ipv6: args.paths.ipv6,
        tx_threads,
        rx_threads,
        flows: args.packets.flows.unwrap_or(tx_threads).max(tx_threads),
        tx_batch_size: args.pattern.batch_size as usize,
        rx_batch_size: 512,
        spin: args.sockets.spin,
        work_ns,
        statistics: args.stats.map(|level| StatisticsPlan {
            level: level.into(),
            probe_clock: Some(args.packets.probe_clock.into()),
            stamp: args.stamp.map(TimeSource::from),
        }),
        cpus,
        lab,
        rx_settings: args.lab.rx_settings(),
        state: state_folder(),
        frames: packets.frames,
        interval_ns: args.interval.map_or(500_000_000, sys::clock::nanos).max(1),
        seed: args.packets.seed,
        profile: args.profile,
    })
}

/// The whole ladder.
const SENDERS: [&str; 6] = ["udp", "udp+gso", "packet", "xsk", "xdp", "pktgen"];
const RECEIVERS: [&str; 5] = ["udp", "udp+gro", "packet", "xsk", "xdp"];

/// The engines asked for, or the whole ladder; what cannot run here is told with its reason.
fn engines(
    args: &Asked<'_>,
    rx_threads: usize,
    shape: Shape,
    access: Access,
) -> (Vec<TxSpec>, Vec<RxSpec>, Vec<Skipped>) {
    let mut tx = args.paths.tx.clone();
    if tx.is_empty() {
        tx = SENDERS.iter().map(|name| name.parse().expect("the ladder's own names are right")).collect();
    }
    let mut rx = args.paths.rx.clone();
    if rx.is_empty() {
        let own = ["udp", "udp+reuseport", "udp+gro+reuseport", "packet", "xsk", "xdp"];
        let names = if rx_threads > 1 { own.as_slice() } else { RECEIVERS.as_slice() };
        let is_stream = |spec: &TxSpec| matches!(spec.0, TxEngine::Tcp(_));
        let names = names.iter().copied().filter(|_| !tx.iter().all(is_stream));
        let names = names.chain(tx.iter().any(is_stream).then_some("tcp"));
        rx = names.map(|name| name.parse().expect("the ladder's own names are right")).collect();
    }
    let mut skipped = Vec::new();
    tx.retain(|spec| keep(why_not_tx(spec, shape, access), "tx", spec, &mut skipped));
    rx.retain(|spec| keep(why_not_rx(spec, shape, access), "rx", spec, &mut skipped));
    for spec in &mut tx {
        match &mut spec.0 {
            TxEngine::Udp(udp) => udp.send_buffer_bytes = args.sockets.send_buffer,
            TxEngine::Tcp(tcp) => {
                tcp.message_bytes = args.paths.send_size;
                tcp.send_buffer_bytes = args.sockets.send_buffer;
            }
            _ => {}
        }
    }
    for spec in &mut rx {
        match &mut spec.0 {
            RxEngine::Udp(udp) => {
                udp.receive_buffer_bytes = args.sockets.receive_buffer;
                udp.busy_poll_micros = args.sockets.busy_poll;
            }
            RxEngine::Tcp(tcp) => {
                tcp.message_bytes = args.paths.send_size;
                tcp.receive_buffer_bytes = args.sockets.receive_buffer;
            }
            _ => {}
        }
    }
    (tx, rx, skipped)
}

fn keep(reason: Option<&str>, side: &str, spec: &impl ToString, skipped: &mut Vec<Skipped>) -> bool {
    if let Some(reason) = reason {
        skipped.push(Skipped { engine: format!("{} ({side})", spec.to_string()), reason: reason.into() });
    }
    reason.is_none()
}

/// What packets are like, as far as engines mind.
#[derive(Debug, Clone, Copy)]
struct Shape {
    is_one_size: bool,
    /// Whether none is cut into fragments.
    fits_mtu: bool,
}

const NEEDS_MTU: &str =
    "packets are larger than the MTU, and only sockets cut them into fragments and join them";
const WHOLE_MESSAGES: &str =
    "with segmentation left to the interface a frame holds many packets, and packet sockets count frames";
const NEEDS_BPF: &str = "needs CAP_BPF and CAP_NET_ADMIN over the machine: run as root";
const NEEDS_ROOT: &str = "needs root of the machine, whose files in /proc control it";
const NEEDS_PKTGEN: &str = "needs the kernel module pktgen: modprobe pktgen";
const NEEDS_RAW: &str = "needs CAP_NET_RAW: run as root, or allow user namespaces";

fn why_not_tx(spec: &TxSpec, shape: Shape, access: Access) -> Option<&'static str> {
    match &spec.0 {
        TxEngine::Udp(udp) if udp.gso && !shape.fits_mtu => Some(NEEDS_MTU),
        _ if spec.0.makes_frames() && !shape.fits_mtu => Some(NEEDS_MTU),
        TxEngine::Udp(udp) if udp.gso && !shape.is_one_size => {
            Some("GSO cuts a message into datagrams of one size, and sizes vary here")
        }
        TxEngine::Packet(_) | TxEngine::Xsk(_) if !may_use_raw_sockets(access) => Some(NEEDS_RAW),
        TxEngine::Xdp(_) => (!may_use_bpf(access)).then_some(NEEDS_BPF),
        TxEngine::Pktgen(_) if access != Access::Privileged => Some(NEEDS_ROOT),
        TxEngine::Pktgen(_) if !shape.is_one_size => Some("it makes frames of one size, and sizes vary here"),
        TxEngine::Pktgen(_) => {
            matches!(PktgenTx::probe(), Err(PortError::NoPktgen { .. })).then_some(NEEDS_PKTGEN)
        }
        _ => None,
    }
}

fn why_not_rx(spec: &RxSpec, shape: Shape, access: Access) -> Option<&'static str> {
    match &spec.0 {
        RxEngine::Packet(_) | RxEngine::Xsk(_) | RxEngine::Xdp(_) if !shape.fits_mtu => Some(NEEDS_MTU),
        RxEngine::Packet(_) if !may_use_raw_sockets(access) => Some(NEEDS_RAW),
        RxEngine::Xsk(_) | RxEngine::Xdp(_) => (!may_use_bpf(access)).then_some(NEEDS_BPF),
        _ => None,
    }
}

/// In a user namespace the process has the rights over its own network namespaces.
fn may_use_raw_sockets(access: Access) -> bool {
    access == Access::UserNamespace || Capability::NetRaw.held()
}

fn may_use_bpf(access: Access) -> bool {
    access == Access::Privileged && Capability::Bpf.held() && Capability::NetAdmin.held()
}

impl SettingArgs {
    /// What is to be set of the receiving card, as `linerate nic apply` takes it.
    fn rx_settings(&self) -> Vec<String> {
        let moderation = self.rx_usecs.map(|micros| format!("coalesce.rx-usecs={micros}"));
        let ring = self.rx_ring.map(|slots| format!("ring.rx={slots}"));
        moderation.into_iter().chain(ring).collect()
    }
}

impl SocketArgs {
    /// CPUs as asked for, or the allowed ones split between the sides.
    pub(crate) fn cpus(&self, tx: usize, rx: usize, problems: &mut Vec<Failure>) -> CpuPlan {
        if self.no_pin {
            return CpuPlan::default();
        }
        let allowed = cpu::allowed().unwrap_or_default();
        let split = CpuPlan::split(&allowed, tx, rx);
        for list in [&self.tx_cpus, &self.rx_cpus].into_iter().flatten() {
            problems.extend(list.problem(&allowed));
        }
        CpuPlan {
            tx: self.tx_cpus.as_ref().map_or(split.tx, |list| list.0.clone()),
            rx: self.rx_cpus.as_ref().map_or(split.rx, |list| list.0.clone()),
        }
    }
}
