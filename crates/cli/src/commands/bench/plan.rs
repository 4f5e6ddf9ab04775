//! From options to the plan of one setting. Reports all problems at once.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use bench::BenchPlan;
use lab::{Access, Interfaces, LabPlan, Taken};
use measure::Skipped;
use sys::{capability::Capability, cpu, netdev::NetdevSocket, topology};
use traffic::{
    Conditions, FileChoice, RingOptions, RxLayer, RxOptions, RxSpec, StatisticsPlan, TimeSource, TxOptions,
    TxSpec, engines as all_engines,
};
use trial::{Cards, CpuPlan, Peer, PeerPair, TrialPlan, in_order, place_beside};
use wire::Rate;

use crate::{
    args::{
        LevelArg, NapiArg, OffloadArg, PacketArgs, PathArgs, PatternArgs, RingArgs, SettingArgs, SocketArgs,
        StampArg,
    },
    failure::{Failure, Status},
    output::state_folder,
    packets::frames_between,
    work::work_ns,
};

/// The options that every experiment in the lab has.
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
    /// Whether this is one point of several.
    pub(super) is_swept: bool,
}

/// The plan, or all its problems.
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
        problems.push(Failure::new(Status::Usage, "--duration must be above zero").hint("try --duration 1s"));
    }
    let tx_threads = usize::from(args.paths.threads);
    let rx_threads = usize::from(args.paths.rx_threads.unwrap_or(args.paths.threads));
    let cpus = args.sockets.cpus((tx_threads, rx_threads), &interfaces_of(args.lab), &mut problems);
    // A user namespace's capability does not cover kernel threads, which are outside it. Since Linux 6.8 the kernel reports
    // which thread serves which NAPI instance; before, the scheduler places them.
    let may_place_threads =
        access == Access::Privileged && Capability::SysNice.held() && NetdevSocket::kernel_lists_napis();
    let napi_cpus = if may_place_threads { cpus.napi.clone() } else { Vec::new() };
    let threaded_napi = args.lab.threaded_napi == NapiArg::On;
    let largest_ip_packet = packets.largest_frame_bytes.saturating_sub(18);
    let lab = LabPlan {
        queues: args.lab.queues.into(),
        mtu: args.lab.mtu.unwrap_or_else(|| largest_ip_packet.max(1500)),
        tx_checksum: matches!(args.lab.offload, OffloadArg::Checksum | OffloadArg::Tso | OffloadArg::All),
        gso: matches!(args.lab.offload, OffloadArg::Tso | OffloadArg::All),
        gro: matches!(args.lab.offload, OffloadArg::Gro | OffloadArg::All),
        scatter_gather: args.lab.offload != OffloadArg::NoSg,
        qdisc: args.lab.qdisc,
        threaded_napi,
        napi_cpus: if threaded_napi { napi_cpus.clone() } else { Vec::new() },
        interfaces: args.lab.tx_interface.as_ref().zip(args.lab.rx_interface.as_ref()).map(|(tx, rx)| {
            Interfaces { tx: tx.clone(), rx: rx.clone(), ipv6: args.paths.ipv6, taken: Taken::default() }
        }),
        ..LabPlan::default()
    };
    problems.extend(lab.problems().iter().map(|problem| Failure::new(Status::Usage, problem)));
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let conditions = Conditions {
        real_interfaces: lab.interfaces.is_some(),
        take_device: args.lab.rings.take_device,
        ..conditions(packets.is_one_size, largest_ip_packet <= lab.mtu, access)
    };
    let (tx, rx, mut skipped) = engines(args, (tx_threads, rx_threads), &conditions);
    let work_ns = work_ns(args.sockets.work, &rx)?;
    let mut pairs = BenchPlan::pair_up(&tx, &rx);
    pairs.retain(|pair| {
        let can_count = !(lab.gso && pair.takes_messages_for_packets());
        if !can_count {
            skipped.push(Skipped { engine: pair.to_string(), reason: WHOLE_MESSAGES.into() });
        }
        can_count
    });
    // Where it is swept, a kind that this kernel lacks is left out, as an engine is.
    if let Some(qdisc) = args.lab.qdisc
        && let Err(error) = qdisc.probe()
    {
        let failure = Failure::of(Status::Missing, &error).with_status(Status::Missing);
        if !args.is_swept {
            return Err(failure.hint(NO_QDISC));
        }
        pairs.clear();
        skipped = vec![Skipped { engine: format!("qdisc {}", qdisc.kind()), reason: failure.words() }];
    }
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
        rate: args.rate,
        tx_settings: args.lab.tx_settings(),
        rx_settings: args.lab.rx_settings(),
        state: state_folder(),
        lossless: None,
        scale: None,
        trial: TrialPlan {
            duration_ns: sys::clock::nanos(args.duration),
            count: None,
            omit_ns: sys::clock::nanos(args.omit),
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
            separate_softirq: (args.lab.threaded_napi == NapiArg::Auto && lab.interfaces.is_none())
                .then_some(napi_cpus),
            lab,
            frames: packets.frames,
            interval_ns: args.interval.map_or(500_000_000, sys::clock::nanos).max(1),
            seed: args.packets.seed,
            profile: args.profile,
        },
    })
}

/// The requested engines, or the whole ladder; engines that are unavailable are skipped with the reason.
fn engines(
    args: &Asked<'_>,
    (tx_threads, rx_threads): (usize, usize),
    conditions: &Conditions,
) -> (Vec<TxSpec>, Vec<RxSpec>, Vec<Skipped>) {
    let mut tx = args.paths.tx.clone();
    if tx.is_empty() {
        let sides = all_engines().iter().filter_map(|engine| engine.tx.as_ref());
        let labels = sides.flat_map(|side| side.ladder_for(tx_threads));
        tx = labels.map(|label| label.parse().expect("the registry's own labels are right")).collect();
    }
    let mut rx = args.paths.rx.clone();
    if rx.is_empty() {
        let sides = all_engines().iter().filter_map(|engine| engine.rx.as_ref());
        let labels = sides.flat_map(|side| side.ladder_for(rx_threads));
        rx = labels.map(|label| label.parse().expect("the registry's own labels are right")).collect();
        // Those that can receive from one of the senders.
        let is_stream = |spec: &TxSpec| spec.facts().message_bytes.is_some();
        rx.retain(|rx: &RxSpec| tx.iter().any(|tx| is_stream(tx) == (rx.facts().reads == RxLayer::Stream)));
    }
    let mut skipped = Vec::new();
    tx.retain(|spec| keep(spec.why_not(conditions), "tx", spec, &mut skipped));
    rx.retain(|spec| keep(spec.why_not(conditions), "rx", spec, &mut skipped));
    let sending = TxOptions {
        send_buffer_bytes: args.sockets.send_buffer,
        message_bytes: Some(args.paths.send_size),
        source: Some(FileChoice { path: args.paths.file.clone(), cache: args.paths.file_cache.into() }),
        returns: false,
        rings: args.lab.rings.options(),
        burst: args.paths.burst,
        clones: args.paths.clones,
    };
    let receiving = RxOptions {
        receive_buffer_bytes: args.sockets.receive_buffer,
        busy_poll_micros: args.sockets.busy_poll,
        message_bytes: Some(args.paths.send_size),
        rings: args.lab.rings.options(),
    };
    let tx = tx.iter().map(|spec| spec.configured(&sending)).collect();
    let rx = rx.iter().map(|spec| spec.configured(&receiving)).collect();
    (tx, rx, skipped)
}

fn keep(reason: Option<String>, side: &str, spec: &impl ToString, skipped: &mut Vec<Skipped>) -> bool {
    let is_kept = reason.is_none();
    skipped.extend(reason.map(|reason| Skipped { engine: format!("{} ({side})", spec.to_string()), reason }));
    is_kept
}

const NO_QDISC: &str =
    "modprobe loads its module as root; linerate lab vm runs a kernel that has all of them";
const WHOLE_MESSAGES: &str =
    "with segmentation offload a frame holds many packets, and packet sockets count frames";

/// What the packets require of engines, and what this process may do.
fn conditions(is_one_size: bool, fits_mtu: bool, access: Access) -> Conditions {
    Conditions {
        is_one_size,
        fits_mtu,
        raw_sockets: may_use_raw_sockets(access),
        bpf: may_use_bpf(access),
        root: access == Access::Privileged,
        real_interfaces: false,
        take_device: false,
    }
}

/// In a user namespace the process has the rights only over its own network namespaces.
fn may_use_raw_sockets(access: Access) -> bool {
    access == Access::UserNamespace || Capability::NetRaw.held()
}

fn may_use_bpf(access: Access) -> bool {
    access == Access::Privileged && Capability::Bpf.held() && Capability::NetAdmin.held()
}

impl RingArgs {
    fn options(&self) -> RingOptions {
        RingOptions { trace: self.trace.is_some(), ..self.card.options(self.take_device, Some(&self.rx)) }
    }
}

impl SettingArgs {
    /// Settings of the sending card, in the form of `linerate nic apply`.
    fn tx_settings(&self) -> Vec<String> {
        let moderation = self.tx_usecs.map(|micros| format!("coalesce.rx-usecs={micros}"));
        let ring = self.tx_ring.map(|slots| format!("ring.tx={slots}"));
        moderation.into_iter().chain(ring).collect()
    }

    /// Settings of the receiving card, in the form of `linerate nic apply`.
    fn rx_settings(&self) -> Vec<String> {
        let moderation = self.rx_usecs.map(|micros| format!("coalesce.rx-usecs={micros}"));
        let ring = self.rx_ring.map(|slots| format!("ring.rx={slots}"));
        let copybreak = self.copybreak.map(|bytes| format!("driver.copybreak={bytes}"));
        moderation.into_iter().chain(ring).chain(copybreak).collect()
    }
}

impl SocketArgs {
    /// The requested CPUs, or a share of the allowed ones for each side, near the first of these interfaces' cards first.
    pub(crate) fn cpus(
        &self,
        threads: (usize, usize),
        interfaces: &[&str],
        problems: &mut Vec<Failure>,
    ) -> CpuPlan {
        if self.no_pin {
            return CpuPlan::default();
        }
        let allowed = cpu::allowed().unwrap_or_default();
        for list in [&self.tx_cpus, &self.rx_cpus].into_iter().flatten() {
            problems.extend(list.problem(&allowed));
        }
        let tx = self.tx_cpus.as_ref().map(|list| &list.0[..]);
        let rx = self.rx_cpus.as_ref().map(|list| &list.0[..]);
        place_beside(&cpu_order(interfaces), threads, (tx, rx))
    }
}

/// The real interfaces of a run, the receiving one first.
pub(crate) fn interfaces_of(lab: &SettingArgs) -> Vec<&str> {
    [&lab.rx_interface, &lab.tx_interface].into_iter().filter_map(Option::as_deref).collect()
}

/// The CPUs that this process may use, in the order in which workers take them: those near the first of these interfaces'
/// cards first, those that serve interrupts of any of them last. A card that is down has no interrupts yet.
pub(crate) fn cpu_order(interfaces: &[&str]) -> Vec<u32> {
    let places = topology::places(&cpu::allowed().unwrap_or_default());
    let node = interfaces.first().and_then(|name| topology::node_of_interface(name));
    let interrupts = interfaces.iter().filter_map(|name| nic::Card::open(name).ok());
    let interrupts = interrupts.flat_map(|card| nic::card_interrupts(&card).unwrap_or_default());
    let affinities = interrupts.filter_map(|interrupt| nic::affinity(interrupt.number));
    let cpus =
        affinities.flat_map(|cpus| if cpus.effective.is_empty() { cpus.asked } else { cpus.effective });
    in_order(&places, &Cards { node, interrupt_cpus: cpus.collect() })
}
