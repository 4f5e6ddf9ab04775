//! Runs as written by the commands, with invented figures of realistic size.

use std::collections::BTreeMap;

use measure::{
    BoundBy, BurstResult, Capacity, CapacitySide, Cost, CpuControl, CpuShare, Distribution, Effect,
    EffectScale, End, Endpoint, Figure, FleetHost, FleetRun, FleetTrial, FoldedStack, FunctionShare,
    GoalResult, Histogram, InterruptAccounting, InterruptRate, Interval, Lane, LatencyAt, Layer, Ledger,
    LedgerLine, Level, LossAt, LossKinds, Machine, Mark, NapiPolls, NetRx, NicFacts, Origin, PairSummary,
    Place, Point, Profile, QueueGrowth, QueueUse, RateInterval, Receipt, Run, SCHEMA, Skipped, Stage,
    StageShare, Start, Stream, Throughput, ThroughputLimit, Timeline, Trial, TuneArtefacts, TuneAttempt,
    TuneKnob, TuneRejected, TuneSearch, TuneStep, TunedRate, Unit, View,
};
use serde_json::{Value, json};

/// The differences between trials.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) tx: &'static str,
    pub(crate) rx: &'static str,
    pub(crate) asked_pps: Option<f64>,
    pub(crate) sent: u64,
    /// Lost in the receive buffer and in the backlog; the rest arrives.
    pub(crate) lost: (u64, u64),
    /// Lost without a counter.
    pub(crate) unexplained: u64,
    pub(crate) frame_size_bytes: u32,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            tx: "udp",
            rx: "udp",
            asked_pps: None,
            sent: 596_000,
            lost: (16_000, 0),
            unexplained: 0,
            frame_size_bytes: 64,
        }
    }
}

pub(crate) const SECONDS: f64 = 2.0;

pub(crate) fn trial(number: u32, case: Case) -> Trial {
    let sent = case.sent + u64::from(number) * 1_111;
    let delivered = sent - case.lost.0 - case.lost.1 - case.unexplained;
    let lines = vec![
        LedgerLine {
            unit: Unit::Frames,
            ..LedgerLine::new("per-CPU backlog", case.lost.1, "/proc/net/softnet_stat column 2")
                .with_remedy("sysctl net.core.netdev_max_backlog=4096")
        },
        LedgerLine::new("receive buffer", case.lost.0, "socket SO_RXQ_OVFL")
            .with_remedy("--receive-buffer 8MiB"),
    ];
    let ledger = Ledger::close(sent, delivered, lines);
    let mut late = Histogram::new();
    (0..1000).for_each(|at| late.record(400 + at * at / 20 + if at > 990 { 90_000 } else { 0 }));
    let scheduled = case.asked_pps.map_or(sent, |pps| (pps * SECONDS) as u64);
    let mut receipt = Receipt::judge(case.asked_pps, scheduled, sent.min(scheduled), SECONDS, &late);
    receipt.on_wire = Some(receipt.handed);
    receipt.delivered = delivered;
    receipt.largest_gap_ns = 187_000;
    let loss_ratio = ledger.loss_ratio();
    let (sent, delivered) = (ledger.sent, ledger.delivered);
    Trial {
        trial: number,
        tx: endpoint(case.tx, 1, 0),
        rx: endpoint(case.rx, 1, 1),
        frame_size_bytes: case.frame_size_bytes,
        payload_bytes: case.frame_size_bytes - 46,
        asked_pps: case.asked_pps,
        duration_s: SECONDS,
        sent,
        sent_pps: sent as f64 / SECONDS,
        delivered,
        delivered_pps: delivered as f64 / SECONDS,
        loss_ratio,
        tx_cost: cost(1.93, sent),
        rx_cost: cost(1.21, delivered),
        cpus: vec![share(0, 0.04, 0.78, 0.16), share(1, 0.09, 0.38, 0.14)],
        ledger,
        receipt,
        queues: case.rx.starts_with("packet").then(|| queues(sent)),
        ..Trial::default()
    }
}

/// Two queues, of which the first gets three packets of four.
fn queues(sent: u64) -> QueueUse {
    let queue = |queue, packets, drops| QueueGrowth { queue, packets, drops };
    QueueUse { tx: vec![queue(0, sent, 0)], rx: vec![queue(0, sent - sent / 4, 12), queue(1, sent / 4, 0)] }
}

fn endpoint(label: &str, threads: u32, cpu: u32) -> Endpoint {
    let engine = label.split('+').next().unwrap_or(label).to_string();
    let options = BTreeMap::from([
        ("batch_size".to_string(), json!(512)),
        ("gso".into(), json!(label.contains("gso"))),
    ]);
    Endpoint { engine, label: label.into(), threads, cpus: vec![cpu], options }
}

fn cost(cpu_s: f64, packets: u64) -> Cost {
    Cost {
        user_s: cpu_s * 0.05,
        system_s: cpu_s * 0.95,
        ns_per_packet: Some(cpu_s * 1e9 / packets.max(1) as f64),
        ..Cost::default()
    }
}

fn share(cpu: u32, user: f64, system: f64, softirq: f64) -> CpuShare {
    CpuShare {
        cpu,
        user_ratio: user,
        system_ratio: system,
        irq_ratio: 0.0,
        softirq_ratio: softirq,
        steal_ratio: 0.0,
        idle_ratio: 1.0 - user - system - softirq,
        ..CpuShare::default()
    }
}

pub(crate) fn machine() -> Machine {
    let nic = |name: &str, role: &str| NicFacts {
        name: name.into(),
        driver: "veth".into(),
        role: role.into(),
        mtu_bytes: 1500,
        rx_queues: 2,
        tx_queues: 2,
        speed_bps: Some(10_000_000_000),
        settings: BTreeMap::from([
            ("gro".to_string(), "on".to_string()),
            ("threaded_napi".into(), "on".into()),
        ]),
    };
    let cpu_control = CpuControl {
        governors: vec!["powersave".into()],
        frequency_driver: Some("intel_pstate".into()),
        least_khz: Some(800_000),
        most_khz: Some(2_400_000),
        turbo: Some(true),
        idle_driver: Some("intel_idle".into()),
        idle_states_us: BTreeMap::from([("C1".to_string(), 2), ("C6".into(), 133)]),
        wake_up_limit_us: Some(0),
        smt: Some(false),
        is_virtual: false,
        interrupt_cpus: BTreeMap::from([("57 eth1-rx-0".to_string(), "0".to_string())]),
    };
    Machine {
        cpu_control: Some(cpu_control),
        quiet: None,
        kernel: "6.18.0".into(),
        architecture: "x86_64".into(),
        cpu_model: "Example CPU 2.4 GHz".into(),
        cpus: 2,
        memory_bytes: 4 << 30,
        clocksource: "tsc".into(),
        mitigations: BTreeMap::from([("spectre_v2".to_string(), "Mitigation: IBRS".to_string())]),
        interfaces: vec![nic("lr-tx", "tx"), nic("lr-rx", "rx")],
        interrupt_accounting: InterruptAccounting::Ticks,
        no_hardware_counters: Some("this machine has no hardware counters, as most virtual machines".into()),
    }
}

/// A run of a command over trials, with a tick every quarter of a second.
pub(crate) fn run(command: &str, origin: Origin, trials: Vec<Trial>) -> Run {
    let asked: BTreeMap<String, Value> = BTreeMap::from([
        ("duration".to_string(), json!("2s")),
        ("frame_size".into(), json!(64)),
        (
            "rate".into(),
            trials.first().and_then(|t| t.asked_pps).map_or(json!("max"), |pps| json!(format!("{pps}pps"))),
        ),
        ("trials".into(), json!(3)),
    ]);
    let end =
        End { duration_s: trials.len() as f64 * 2.25, pairs: PairSummary::of(&trials), ..End::default() };
    let start = Start {
        command: command.into(),
        version: "0.1.0".into(),
        started_at: "2026-05-04T03:02:01Z".into(),
        origin,
        machine: machine(),
        asked,
    };
    let intervals = trials.iter().enumerate().flat_map(|(at, trial)| ticks(at as u32, trial)).collect();
    Run { schema: SCHEMA.into(), start, intervals, end: End { trials, ..end } }
}

fn ticks(at: u32, trial: &Trial) -> Vec<Interval> {
    const TICKS: u64 = 8;
    let part = |whole: u64, tick: u64| whole * (tick + 1) / TICKS - whole * tick / TICKS;
    let dropped = trial
        .ledger
        .lines
        .iter()
        .filter(|line| line.place == "receive buffer")
        .map(|line| line.packets)
        .sum();
    (0..TICKS)
        .map(|tick| Interval {
            trial: at,
            end_s: (tick + 1) as f64 * trial.duration_s / TICKS as f64,
            length_s: trial.duration_s / TICKS as f64,
            sent: Some(part(trial.sent, tick)),
            delivered: Some(part(trial.delivered, tick)),
            payload_bytes: part(trial.delivered, tick) * u64::from(trial.payload_bytes),
            rx_dropped: Some(part(dropped, tick)),
        })
        .collect()
}

/// Three repeats of each case.
pub(crate) fn repeats(cases: &[Case]) -> Vec<Trial> {
    cases.iter().flat_map(|case| (1..=3).map(|number| trial(number, *case))).collect()
}

/// The ladder at the maximum rate.
pub(crate) fn ladder() -> Run {
    let udp = Case::default();
    let mut trials = repeats(&[
        udp,
        Case { rx: "udp+gro", sent: 602_000, lost: (0, 0), ..udp },
        Case { tx: "udp+gso", sent: 2_104_000, lost: (903_000, 12_000), ..udp },
        Case { tx: "udp+gso", rx: "udp+gro", sent: 2_144_000, lost: (0, 0), ..udp },
        Case { tx: "packet", rx: "packet", sent: 1_196_000, lost: (0, 120_500), ..udp },
    ]);
    // one pair whose trials disagree
    let odd = trial(3, Case { rx: "udp+gro", sent: 480_000, lost: (0, 0), ..udp });
    trials[5] = odd;
    let mut run = run("bench", Origin::Lab, trials);
    run.end.skipped = vec![
        Skipped { engine: "xsk".into(), reason: "needs CAP_NET_RAW and CAP_BPF".into() },
        Skipped { engine: "pktgen".into(), reason: "this kernel has no pktgen module".into() },
    ];
    run.end.notes =
        vec!["Sender and receiver share 2 CPUs: neither figure is that of a machine of its own.".into()];
    run
}

/// The whole ladder with its further stages: six senders, six receivers, capacities and scaling.
pub(crate) fn whole() -> Run {
    const ENGINES: [&str; 6] = ["udp", "udp+gso", "uring", "packet", "xsk", "xdp"];
    const RECEIVERS: [&str; 6] = ["udp", "udp+gro", "uring", "packet", "xsk", "xdp"];
    let case = |(at, tx): (usize, &'static str), (to, rx): (usize, &'static str)| {
        let sent = 900_000 + 700_000 * (at * at) as u64;
        let lost = if to < at { sent / 3 + 10_000 * to as u64 } else { 0 };
        Case { tx, rx, sent, lost: (lost, lost / 20), ..Case::default() }
    };
    let pairs = |tx| RECEIVERS.into_iter().enumerate().map(move |rx| case(tx, rx));
    let cases: Vec<Case> = ENGINES.into_iter().enumerate().flat_map(pairs).collect();
    let mut run = run("bench", Origin::Lab, repeats(&cases));
    for trial in &mut run.end.trials {
        trial.rx.options.insert("threaded_napi".into(), json!(true));
        trial.rx.options.insert("napi_cpus".into(), json!([1]));
    }
    let layer = |label: &str| match label {
        "udp" | "udp+gro" | "uring" => Layer::Sockets,
        "xdp" => Layer::Kernel,
        _ => Layer::PastSockets,
    };
    let capacity = |side, label: &str, pps: f64| Capacity {
        side,
        label: label.into(),
        with: "xdp".into(),
        layer: if side == CapacitySide::Sending { Layer::Kernel } else { layer(label) },
        threads: 1,
        frame_size_bytes: 64,
        pps,
        busy_cpus: 1.0,
        pps_per_cpu: pps,
        cpus_used: 2,
        loss_ratio: if side == CapacitySide::Receiving && label != "xdp" { 0.62 } else { 0.0 },
        flooded_pps: (side == CapacitySide::Receiving).then_some(0.5 * pps),
        flood_pps: (side == CapacitySide::Receiving).then_some(10.4e6),
        lossless_pps: None,
        is_lossless_bound: false,
        limited_by: Some(if label == "xdp" { "the sender" } else { "receive buffer full" }.into()),
        scales: None,
        efficiency_ratio: None,
    };
    let pps = |at: usize| 400_000.0 * (1 + at * at) as f64;
    for (at, label) in ENGINES.into_iter().enumerate() {
        run.end.capacities.push(capacity(CapacitySide::Sending, label, pps(at)));
    }
    for (at, label) in RECEIVERS.into_iter().enumerate() {
        let mut found = capacity(CapacitySide::Receiving, label, 0.8 * pps(at));
        found.lossless_pps = (label != "xsk").then_some(0.7 * pps(at));
        found.is_lossless_bound = label == "xdp";
        run.end.capacities.push(found);
    }
    for (at, label) in RECEIVERS.into_iter().enumerate() {
        for threads in [1u32, 2] {
            let mut found =
                capacity(CapacitySide::Receiving, label, 0.8 * pps(at) * f64::from(threads).sqrt());
            found.threads = threads;
            found.scales = Some(label.into());
            if layer(label) == Layer::Sockets {
                found.label = format!("{label}+reuseport");
            }
            found.efficiency_ratio = Some(f64::from(threads).sqrt());
            let of = ["tx", "rx"].map(str::to_owned).into_iter().zip([json!("xdp"), json!(found.label)]);
            let results = [
                ("threads".to_owned(), json!(threads)),
                ("delivered_pps".into(), json!(found.pps)),
                ("efficiency_ratio".into(), json!(found.efficiency_ratio)),
            ];
            run.end.points.push(Point { values: of.chain(results).collect() });
            run.end.capacities.push(found);
        }
    }
    run.end.skipped =
        vec![Skipped { engine: "pktgen (tx)".into(), reason: "this kernel has no pktgen module".into() }];
    run
}

/// Three loads of one pair; the generator cannot reach the last one.
pub(crate) fn paced() -> Run {
    let at = |pps: f64, sent: u64, lost: u64| Case {
        asked_pps: Some(pps),
        sent,
        lost: (lost, 0),
        ..Case::default()
    };
    run(
        "bench",
        Origin::Lab,
        [at(10_000.0, 20_000, 0), at(100_000.0, 200_000, 0), at(1_000_000.0, 610_000, 44_000)]
            .into_iter()
            .flat_map(|case| {
                (1..=3).map(move |number| {
                    // an offered load that is held ends on the scheduled packet
                    let extra = u64::from(number) * 1_111;
                    let held = case.asked_pps.is_some_and(|pps| (pps * SECONDS) as u64 <= case.sent);
                    trial(number, if held { Case { sent: case.sent - extra, ..case } } else { case })
                })
            })
            .collect(),
    )
}

/// One paced trial of `send` across two hosts.
pub(crate) fn send() -> Run {
    let case = Case { asked_pps: Some(100_000.0), sent: 200_000 - 1_111, lost: (0, 0), ..Case::default() };
    run("send", Origin::Hosts, vec![trial(1, case)])
}

/// Two senders and a receiver, which lost some.
pub(crate) fn fleet() -> Run {
    let case = Case { sent: 200_000, lost: (0, 5_000), ..Case::default() };
    let mut run = run("fleet", Origin::Hosts, vec![trial(1, case)]);
    let host = |agent: &str, role: &str, sent: u64, delivered: u64| FleetHost {
        agent: agent.into(),
        role: role.into(),
        ledger: Ledger::close(
            sent,
            delivered,
            vec![LedgerLine::at(Place::ReceiveBuffer, sent - delivered, "socket SK_MEMINFO_DROPS")],
        ),
        start_error_ns: (role == "sender").then_some(120_000),
        clock_bound_ns: Some(40_000),
        ..FleetHost::default()
    };
    let hosts = vec![
        host("a1", "sender", 100_000, 100_000),
        host("a2", "sender", 100_000, 100_000),
        host("a3", "receiver", 200_000, 195_000),
    ];
    let trials = vec![FleetTrial { trial: 1, weakest: Some("a2".into()), hosts, ..FleetTrial::default() }];
    run.end.fleet = Some(FleetRun { run: "first".into(), trials, ..FleetRun::default() });
    run
}

/// A ledger with a remainder.
pub(crate) fn unexplained() -> Run {
    run("bench", Origin::Lab, repeats(&[Case { unexplained: 1_234, ..Case::default() }]))
}

/// Trials whose CPUs were sampled.
pub(crate) fn profiled() -> Run {
    let mut run = run("bench", Origin::Lab, repeats(&[Case::default()]));
    for trial in &mut run.end.trials {
        for cpu in &mut trial.cpus {
            let polls = NapiPolls { polls: 4000, packets: 120_000, full: 900, empty: 40, net_rx_ratio: 0.31 };
            cpu.net_rx = Some(NetRx { rounds: 3900, packets: 120_000, time_squeezes: 3, polls: Some(polls) });
            cpu.interrupts_margin_ratio = Some(0.02);
            cpu.ksoftirqd_ratio = Some(0.01);
            cpu.interrupts = vec![InterruptRate { name: "eth0-rx-0".into(), rate_per_s: 16_000.0 }];
        }
        let stage = |stage, samples| StageShare {
            stage,
            samples,
            share_ratio: 0.0,
            margin_ratio: 0.0,
            ns_per_packet: None,
        };
        let stack = |frames: &str, samples| FoldedStack { frames: frames.into(), samples };
        let mut profile = Profile {
            period_ns: 249_989,
            cpus: vec![0, 1],
            receiving_samples: 4000,
            sending_samples: 3000,
            idle_samples: 1000,
            stages: vec![stage(Stage::Driver, 1000), stage(Stage::Udp, 2500), stage(Stage::User, 500)],
            functions: vec![FunctionShare {
                function: "udp_queue_rcv_skb".into(),
                stage: Stage::Udp,
                samples: 700,
                share_ratio: 0.0,
            }],
            stacks: vec![
                stack("receiving;recv 0;__sys_recvmmsg;udp_recvmsg", 1500),
                stack("receiving;send 0;net_rx_action;process_backlog;udp_queue_rcv_skb", 2500),
                stack("sending;send 0;__sys_sendmmsg", 3000),
            ],
            ..Profile::default()
        };
        profile.rate(trial.delivered);
        trial.profile = Some(profile);
    }
    run
}

/// Trials on a machine with hardware counters.
pub(crate) fn counted() -> Run {
    let mut run = ladder();
    run.start.machine.no_hardware_counters = None;
    for trial in &mut run.end.trials {
        for cost in [&mut trial.tx_cost, &mut trial.rx_cost] {
            cost.cycles_per_packet = cost.ns_per_packet.map(|ns| ns * 2.4);
            cost.instructions_per_packet = cost.ns_per_packet.map(|ns| ns * 3.6);
            cost.cache_misses_per_packet = cost.ns_per_packet.map(|ns| ns / 512.0);
        }
    }
    run
}

/// Ended by a signal during the second trial.
pub(crate) fn interrupted() -> Run {
    let mut run = run("bench", Origin::Lab, repeats(&[Case::default()])[..2].to_vec());
    run.end.interrupted = true;
    run.end.trials[1].interrupted = true;
    run
}

/// Refused before any traffic.
pub(crate) fn empty() -> Run {
    let mut run = run("bench", Origin::Lab, Vec::new());
    run.start.machine = Machine::default();
    run.start.asked.clear();
    run
}

/// Throughput against payload by policy, as written by the model of the receive path.
pub(crate) fn model() -> Run {
    let mut run = run("model", Origin::Model, Vec::new());
    run.intervals.clear();
    for (policy, most_mpps) in [("reallocate", 0.5), ("recycle", 0.7)] {
        for payload_bytes in (50..=1500).step_by(50) {
            let theory_mpps = 1000.0 / (f64::from(payload_bytes + 38) * 8.0);
            let mpps = theory_mpps.min(most_mpps);
            run.end.points.push(Point {
                values: BTreeMap::from([
                    ("policy".to_string(), json!(policy)),
                    ("payload_bytes".into(), json!(payload_bytes)),
                    ("throughput_gbps".into(), json!(mpps * f64::from(payload_bytes + 18) * 8.0 / 1000.0)),
                    ("delivered_mpps".into(), json!(mpps)),
                ]),
            });
        }
    }
    run.end.timelines = vec![timeline()];
    run
}

/// Filters under a flood, beside a published rate.
pub(crate) fn filtered() -> Run {
    let mut run = run("bench", Origin::Lab, Vec::new());
    run.intervals.clear();
    let filters = [
        ("none, the service reads all", 0.02, 0.44),
        ("nft at ingress", 0.1, 0.9),
        ("divert --where user", 0.4, 1.0),
    ];
    for flood in ["full", "ten-times"] {
        for (filter, dropped, valid) in filters {
            run.end.points.push(Point {
                values: BTreeMap::from([
                    ("filter".to_string(), json!(filter)),
                    ("flood".into(), json!(flood)),
                    ("flood_pps".into(), json!(5e6)),
                    ("filtered_pps".into(), json!(5e6 * dropped)),
                    ("filtered_of_flood_ratio".into(), json!(dropped)),
                    ("valid_delivered_ratio".into(), json!(valid)),
                    ("busy_ratio_by_cpu".into(), json!([2.0 / 3.0, 1.0])),
                ]),
            });
        }
    }
    run.end.figures = [5.84, 6.0]
        .map(|mpps| Figure {
            figure: "through the filter".into(),
            unit: "Mpps".into(),
            published: Some(mpps),
            measured: Some(2.0),
            conditions: "another program, one core; the text does not name its type; limited by the flood"
                .into(),
            ..Figure::default()
        })
        .into();
    run
}

/// Frames of a bus that pauses, with the write-back of every fourth.
fn timeline() -> Timeline {
    let starts = |count: usize| (0..count).map(|n| n as f64 * 54.0 + if n < 40 { 0.0 } else { 4000.0 });
    let lane = |name: &str, events| Lane { name: name.into(), events };
    let view = |title: &str, from, to| View { title: title.into(), from, to };
    Timeline {
        title: "The bus".into(),
        unit: "CLK".into(),
        lanes: vec![
            lane("frames", starts(56).map(|at| (at, 9.0)).collect()),
            lane("write-backs", starts(56).step_by(4).map(|at| (at + 34.0, 9.0)).collect()),
            lane("tail writes", vec![(4100.0, 0.0)]),
        ],
        levels: vec![Level {
            name: "packet buffer".into(),
            unit: "bytes".into(),
            most: 49_152.0,
            points: vec![(0.0, 0.0), (60.0, 24_576.0), (90.0, 64.0)],
        }],
        marks: vec![
            Mark { name: "end of the smooth regime, published".into(), at: 2100.0 },
            Mark { name: "end of the smooth regime, here".into(), at: 2115.0 },
        ],
        views: vec![view("the whole trace", 0.0, 8000.0), view("in detail", 1900.0, 2300.0)],
    }
}

/// Names that would act in a terminal, a page or a table.
pub(crate) fn hostile() -> Run {
    let mut run = ladder();
    let name = "</script><img src=x onerror=alert(1)>|\x1b[2J\u{202e}=1+1\"'";
    run.start.command = name.into();
    run.start.machine.cpu_model = name.into();
    run.start.machine.interfaces[0].name = name.into();
    run.start.asked.insert(name.into(), json!(name));
    for trial in &mut run.end.trials {
        trial.tx.label = name.into();
        trial.ledger.lines.iter_mut().for_each(|line| line.place = name.into());
    }
    run.end.pairs = PairSummary::of(&run.end.trials);
    run.end.skipped[0].reason = name.into();
    run.end.notes = vec![name.into()];
    run.end.points = model().end.points;
    run.end.points[0].values.insert(name.into(), json!(name));
    let mut traced = timeline();
    traced.title = name.into();
    traced.lanes[0].name = name.into();
    traced.marks[0].name = name.into();
    traced.views[0].title = name.into();
    run.end.timelines = vec![traced];
    run
}

/// A throughput search with all further tests.
pub(crate) fn searched() -> Run {
    let at = |pps: f64, lost: u64| {
        let sent = (pps * SECONDS) as u64 - 1_111;
        trial(1, Case { asked_pps: Some(pps), sent, lost: (lost, 0), ..Case::default() })
    };
    let mut run =
        run("bench", Origin::Lab, vec![at(300_000.0, 9_000), at(260_000.0, 0), at(262_600.0, 4_000)]);
    let goal = |goal: &str, loss_ratio, lower_pps, limit| GoalResult {
        goal: goal.into(),
        loss_ratio,
        exceed_ratio: 0.5,
        final_duration_s: 1.0,
        duration_sum_s: 3.0,
        width_ratio: 0.01,
        lower_pps,
        upper_pps: Some(262_600.0),
        conditional_throughput_pps: lower_pps,
        limit,
        bound_by: Some(BoundBy {
            place: "receive buffer full".into(),
            source: "socket SK_MEMINFO_DROPS".into(),
            lost_share_ratio: 1.0,
            remedy: Some("more threads".into()),
        }),
        at_upper: Some(LossKinds {
            shortfall_ratio: 0.0,
            receive_loss_ratio: 0.001,
            socket_loss_ratio: 0.007,
        }),
        trials: vec![1, 2],
    };
    let loss = |load_pps: f64, loss_ratio| LossAt { load_pps, offered_pps: load_pps, loss_ratio, trial: 0 };
    let mut latencies = Distribution::new();
    (0..1000u64).for_each(|at| latencies.record(9_000 + at * at / 10));
    run.end.throughput = vec![Throughput {
        tx: "udp".into(),
        rx: "udp".into(),
        frame_size_bytes: 64,
        generator_max_pps: 300_000.0,
        goals: vec![
            goal("PDR", 0.005, Some(260_000.0), ThroughputLimit::Loss),
            goal("NDR", 0.0, None, ThroughputLimit::MinLoad),
        ],
        latency: vec![LatencyAt {
            share_ratio: 0.5,
            load_pps: 130_000.0,
            latency: latencies.summary(),
            trial: 1,
        }],
        frame_loss: vec![
            loss(300_000.0, 0.015),
            loss(270_000.0, 0.002),
            loss(240_000.0, 0.0),
            loss(210_000.0, 0.0),
        ],
        back_to_back: Some(BurstResult {
            packets: vec![1_200, 1_180],
            mean_packets: 1_190.0,
            at_limit: false,
            burst_pps: 300_000.0,
            buffer_time_s: Some(0.0005),
        }),
        ..Throughput::default()
    }];
    run.end.figures = vec![Figure {
        figure: "one receiver".into(),
        unit: "pps".into(),
        published: Some(105_000.0),
        measured: Some(260_000.0),
        place: "table 1".into(),
        measured_at: "udp".into(),
        ..Figure::default()
    }];
    run
}

/// A sweep: points with confidence intervals, and sides that have CPUs of their own.
pub(crate) fn swept() -> Run {
    let mut run = run("bench", Origin::Lab, repeats(&[Case::default()]));
    let point = |threads: u32, tx: &str, pps: f64| {
        let mut values = BTreeMap::from([
            ("threads".to_owned(), json!(threads)),
            ("tx".into(), json!(tx)),
            ("rx".into(), json!("udp")),
            ("trials".into(), json!(3)),
            ("loss_ratio".into(), json!(0.01)),
        ]);
        for (name, factor) in
            [("delivered_pps", 1.0), ("delivered_pps_low", 0.93), ("delivered_pps_high", 1.06)]
        {
            values.insert(name.into(), json!(pps * factor));
        }
        Point { values }
    };
    let points = [(1, 290e3), (2, 440e3), (4, 430e3)];
    run.end.points = points
        .into_iter()
        .flat_map(|(threads, pps)| [point(threads, "udp", pps), point(threads, "udp+gso", 1.8 * pps)])
        .collect();
    run
}

/// Streams over TCP; their packets are messages.
pub(crate) fn stream() -> Run {
    let case = Case { tx: "tcp", rx: "tcp", sent: 20_000, lost: (0, 0), ..Case::default() };
    let mut trials = repeats(&[case, Case { tx: "tcp+sendfile", sent: 26_000, ..case }]);
    for trial in &mut trials {
        (trial.frame_size_bytes, trial.payload_bytes) = (1518, 65_536);
        let bytes = trial.sent * 65_536;
        trial.stream = Some(Stream {
            message_bytes: 65_536,
            sent_bytes: bytes,
            delivered_bytes: bytes,
            delivered_bps: bytes as f64 * 8.0 / SECONDS,
            tx_packets: bytes / 1448,
            rx_packets: bytes / 1448,
            acknowledging_packets: bytes / 2896,
            retransmitted_segments: 3,
        });
    }
    run("bench", Origin::Lab, trials)
}

/// A search for the best settings: one step, one rejected value, one that did not run.
pub(crate) fn tuned() -> Run {
    let set = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    let mut trials = repeats(&[Case::default(), Case { tx: "udp+gso", ..Case::default() }]);
    for trial in trials.iter_mut().filter(|trial| trial.tx.label == "udp+gso") {
        trial.parameters = BTreeMap::from([("tx+gso".to_owned(), json!("on"))]);
    }
    let mut run = run("tune", Origin::Lab, trials);
    let rate = |gso: &str, pps: f64| TunedRate {
        settings: set(&[("spin", "off"), ("tx+gso", gso)]),
        trials: 4,
        delivered_pps: pps,
        interval: Some(RateInterval { low_pps: pps * 0.98, high_pps: pps * 1.02, confidence: 0.95 }),
        sent_pps: pps * 1.1,
        value: pps,
    };
    let effect = |estimate: f64| Effect {
        scale: EffectScale::Ratio,
        estimate,
        low: estimate - 0.02,
        high: estimate + 0.02,
        confidence: 0.95,
    };
    run.end.baseline = Some(rate("off", 250e3));
    run.end.best = Some(rate("on", 500e3));
    run.end.steps = vec![TuneStep {
        settings: set(&[("tx+gso", "on")]),
        from: 250e3,
        to: 500e3,
        effect: effect(1.0),
        pairs: 4,
        evidence: vec![
            "loss vanished: receive buffer full (UdpRcvbufErrors), 7.8 % of the packets before".into(),
        ],
        risk: "none: it affects only this program's own sockets".into(),
        undone: "it ends with the run".into(),
    }];
    let rejected = |setting: &str, effect: Option<Effect>, reason: &str| TuneRejected {
        setting: setting.into(),
        value: "on".into(),
        effect,
        reason: reason.into(),
    };
    run.end.rejected = vec![
        rejected("spin", Some(effect(-0.2)), "it makes things worse"),
        rejected("rps", None, "the interface does not support it"),
    ];
    let attempt = |value: Option<f64>, phase: &str| TuneAttempt {
        trial: value.map(|_| 0),
        phase: phase.into(),
        settings: if value > Some(3e5) { set(&[("tx+gso", "on")]) } else { BTreeMap::new() },
        failure: value.is_none().then(|| "the interface does not support it".to_owned()),
        value,
    };
    run.end.tuning = Some(TuneSearch {
        goal: "rx".into(),
        unit: "pps".into(),
        budget_s: 60.0,
        noise_ratio: 0.03,
        end: "settled".into(),
        combinations: 8.0,
        space: vec![TuneKnob {
            name: "tx+gso".into(),
            about: "hand over up to 64 datagrams as one message (UDP GSO)".into(),
            values: vec!["off".into(), "on".into()],
            risk: "none".into(),
            undone: "it ends with the run".into(),
        }],
        left_out: set(&[("ring.rx", "the interface does not support it")]),
        history: vec![attempt(Some(250e3), "screen"), attempt(None, "focus"), attempt(Some(500e3), "prove")],
        limits: vec![
            "the receiver: 6.4 % of the packets are lost at receive buffer full (UdpRcvbufErrors)".into(),
        ],
        artefacts: TuneArtefacts {
            nic_plan: String::new(),
            scenario: "scenario = 1\n\n[bench]\ntx = \"udp+gso\"\nrx = \"udp\"\n".into(),
            application: vec!["sender: hand over up to 64 datagrams as one message (UDP GSO)".into()],
        },
        kept: false,
    });
    run
}

/// Every sample by name.
pub(crate) fn all() -> Vec<(&'static str, Run)> {
    vec![
        ("ladder", ladder()),
        ("whole", whole()),
        ("paced", paced()),
        ("send", send()),
        ("unexplained", unexplained()),
        ("profiled", profiled()),
        ("counted", counted()),
        ("interrupted", interrupted()),
        ("empty", empty()),
        ("searched", searched()),
        ("swept", swept()),
        ("tuned", tuned()),
        ("stream", stream()),
        ("model", model()),
        ("filtered", filtered()),
        ("fleet", fleet()),
        ("hostile", hostile()),
    ]
}
