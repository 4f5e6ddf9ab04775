//! `make bench-peers`: linerate's senders compared with other generators on the same lab, turn by turn, towards the same
//! program that drops everything in XDP, and counted by the same counter of the receiving interface. At 64 and 1518 bytes,
//! with one thread and with all; medians, and the ratio of the means with its 95 % interval. Missing programs are left out.
//!
//! iperf3, netperf and sockperf need a receiver of their own: `linerate bench --peers` has them.

use std::{
    error::Error,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabPlan, Side};
use measure::{Effect, EffectScale, median};
use sys::{
    bpf_program::{attach, load_for_device},
    child::{Ties, tie},
};
use traffic::{Departures, Limit, Placement, Sender, SenderPlan, TxSpec, TxTraffic, TxWorkerPlan};
use wire::{FrameSpec, MacAddr, Sizes};

type Outcome<T> = Result<T, Box<dyn Error>>;

const DEFAULT_ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_secs(1);
/// DPDK's environment takes seconds to start.
const STARTS_WITHIN: Duration = Duration::from_secs(20);
const PORT: u16 = 4321;
/// Frame sizes with FCS.
const FRAMES: [u32; 2] = [64, 1518];
/// Headers and FCS around a payload.
const AROUND_PAYLOAD: u32 = 46;

/// A sender.
#[derive(Clone, Copy)]
enum Contender {
    Linerate(&'static str),
    TrafficGen,
    TestpmdXdp,
    TestpmdPacket,
    Trafgen,
    Loop,
}

/// Contenders on the same path; ours is the first.
const PATHS: [(&str, &[Contender]); 4] = [
    ("XDP live frames", &[Contender::Linerate("xdp"), Contender::TrafficGen]),
    ("AF_XDP, copied", &[Contender::Linerate("xsk"), Contender::TestpmdXdp]),
    ("packet sockets", &[Contender::Linerate("packet"), Contender::Trafgen, Contender::TestpmdPacket]),
    ("UDP sockets", &[Contender::Linerate("udp"), Contender::Loop]),
];

/// The settings of one measurement.
#[derive(Clone, Copy)]
struct Setting {
    frame_bytes: u32,
    threads: usize,
}

fn main() -> Outcome<()> {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(DEFAULT_ROUNDS);
    lab::gain_access()?;
    let cpus = sys::cpu::allowed()?.len();
    let reference = compile_loop()?;
    println!(
        "{rounds} rounds of {} s each, towards XDP_DROP; Mpps, and linerate's rate relative to each",
        WINDOW.as_secs()
    );
    for (_, contenders) in PATHS {
        for contender in contenders.iter().filter(|contender| contender.is_missing()) {
            println!("left out: {} is not installed (Debian: {})", contender.name(), contender.package());
        }
    }
    for (path, contenders) in PATHS {
        for frame_bytes in FRAMES {
            for threads in [1, cpus] {
                let setting = Setting { frame_bytes, threads };
                let mut here: Vec<Contender> = contenders.to_vec();
                here.retain(|contender| !contender.is_missing() && contender.can(setting));
                compare(path, &here, setting, rounds, &reference)?;
            }
        }
    }
    Ok(())
}

fn compare(
    path: &str,
    contenders: &[Contender],
    setting: Setting,
    rounds: usize,
    reference: &Reference,
) -> Outcome<()> {
    let Setting { frame_bytes, threads } = setting;
    let noun = if threads == 1 { "thread" } else { "threads" };
    println!("{path}, {frame_bytes}-byte frames, {threads} {noun}");
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    let mut failed = vec![false; contenders.len()];
    for _ in 0..rounds {
        for ((contender, rates), failed) in contenders.iter().zip(&mut rates).zip(&mut failed) {
            if *failed {
                continue;
            }
            match rate(*contender, setting, reference) {
                Ok(pps) => rates.push(pps),
                Err(error) => {
                    println!("  {} left out: {error}", contender.name());
                    *failed = true;
                }
            }
        }
    }
    for (contender, rates_of_it) in contenders.iter().zip(&rates).filter(|(_, rates)| !rates.is_empty()) {
        let mpps = median(rates_of_it).unwrap_or(0.0) / 1e6;
        let ratio =
            Effect::of(rates_of_it, &rates[0], EffectScale::Ratio, 0.95).filter(|_| !contender.is_ours());
        let ratio = ratio.map_or_else(String::new, |effect| {
            let [ratio, low, high] = [effect.estimate, effect.low, effect.high].map(|change| 1.0 + change);
            format!("  linerate is {ratio:.2} times as fast ({low:.2} to {high:.2})")
        });
        println!("  {:<20} {mpps:>7.3}{ratio}", contender.name());
    }
    Ok(())
}

/// Packets per second that arrive, in a lab of its own.
fn rate(contender: Contender, setting: Setting, reference: &Reference) -> Outcome<f64> {
    let queues = setting.threads.max(2) as u32;
    let lab = Lab::create(&LabPlan { queues, ..LabPlan::default() })?;
    let index = lab.rx().link()?.index;
    // mov r0, XDP_DROP; exit
    let program = [[0xb7, 0, 0, 0, 1, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let _link = lab.rx().run(|| {
        let program = load_for_device("drop", &program, index)?;
        attach(std::os::fd::AsFd::as_fd(&program), index, false)
    })??;
    let _load = contender.start(&lab, setting, reference)?;
    let began = Instant::now();
    while dropped(&lab)? < 1000 {
        if began.elapsed() > STARTS_WITHIN {
            return Err("nothing arrived; does it run on this kernel?".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(WARM_UP);
    let (before, from) = (dropped(&lab)?, Instant::now());
    thread::sleep(WINDOW);
    let (after, seconds) = (dropped(&lab)?, from.elapsed().as_secs_f64());
    Ok((after - before) as f64 / seconds)
}

fn dropped(lab: &Lab) -> Outcome<u64> {
    let counters = lab.rx().driver_statistics()?;
    Ok(counters.iter().filter(|(name, _)| name.ends_with("_xdp_drops")).map(|(_, value)| value).sum())
}

/// Sends until this value is dropped.
enum Load {
    Ours(Option<Sender>),
    Processes(Vec<Child>),
}

impl Drop for Load {
    fn drop(&mut self) {
        match self {
            Self::Ours(sender) => {
                if let Some(sender) = sender.take() {
                    sender.stop();
                    sender.join();
                }
            }
            Self::Processes(children) => {
                for child in children {
                    // The whole group: trafgen sends from processes of its own.
                    let group = format!("-{}", child.id());
                    Command::new("kill")
                        .args(["-s", "KILL", "--", &group])
                        .stderr(Stdio::null())
                        .status()
                        .ok();
                    child.wait().ok();
                }
            }
        }
    }
}

impl Contender {
    fn is_ours(self) -> bool {
        matches!(self, Self::Linerate(_))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Linerate(engine) => match engine {
                "xdp" => "linerate xdp",
                "xsk" => "linerate xsk",
                "packet" => "linerate packet",
                _ => "linerate udp",
            },
            Self::TrafficGen => "xdp-trafficgen",
            Self::TestpmdXdp => "testpmd net_af_xdp",
            Self::TestpmdPacket => "testpmd net_af_packet",
            Self::Trafgen => "trafgen",
            Self::Loop => "sendmmsg loop in C",
        }
    }

    /// The program, and its package.
    fn program(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Linerate(_) | Self::Loop => None,
            Self::TrafficGen => Some(("xdp-trafficgen", "xdp-tools")),
            Self::TestpmdXdp => {
                Some(("dpdk-testpmd", "dpdk-dev, librte-net-af-xdp23 and librte-mempool-ring23"))
            }
            Self::TestpmdPacket => {
                Some(("dpdk-testpmd", "dpdk-dev, librte-net-af-packet23 and librte-mempool-ring23"))
            }
            Self::Trafgen => Some(("trafgen", "netsniff-ng")),
        }
    }

    fn is_missing(self) -> bool {
        self.program().is_some_and(|(program, _)| find(program).is_none())
    }

    fn package(self) -> &'static str {
        self.program().map_or("", |(_, package)| package)
    }

    /// xdp-trafficgen's frames have one size.
    fn can(self, setting: Setting) -> bool {
        !matches!(self, Self::TrafficGen) || setting.frame_bytes == FRAMES[0]
    }

    fn start(self, lab: &Lab, setting: Setting, reference: &Reference) -> Outcome<Load> {
        let Setting { frame_bytes, threads } = setting;
        let payload = frame_bytes - AROUND_PAYLOAD;
        let (tx, rx) = (lab.tx(), lab.rx());
        let (interface, from, to) = (tx.interface(), tx.ipv4()[0], rx.ipv4()[0]);
        let (src, dst) = (MacAddr(tx.mac()), MacAddr(rx.mac()));
        // A single sender has the first CPU; several place themselves.
        let pinned = |line: String| match threads {
            1 => format!("taskset -c 0 {line}"),
            _ => line,
        };
        let testpmd = |device: &str| {
            let workers: Vec<String> = (0..threads).map(|at| format!("{}@{at}", at + 1)).collect();
            format!(
                "dpdk-testpmd --no-huge -m 1024 --no-pci --no-telemetry --no-shconf --lcores 0@{},{} --vdev={device} -- \
                 --total-num-mbufs=16384 --forward-mode=txonly --txpkts={} --nb-cores={threads} --txq={threads} \
                 --rxq={threads} --eth-peer=0,{dst} --port-topology=loop --auto-start",
                threads.min(1),
                workers.join(","),
                frame_bytes - 4
            )
        };
        let line = match self {
            Self::Linerate(engine) => return Ok(Load::Ours(Some(sender(lab, engine, setting)?))),
            Self::Loop => {
                let each = |cpu| {
                    let program = reference.program.display();
                    spawn(tx, words(&format!("{program} {to} {PORT} {payload} 60 {cpu}")))
                };
                return Ok(Load::Processes((0..threads).map(each).collect::<Outcome<_>>()?));
            }
            Self::TrafficGen => {
                pinned(format!("xdp-trafficgen udp -t {threads} -m {dst} -M {src} -p {PORT} {interface}"))
            }
            Self::TestpmdXdp => testpmd(&format!("net_af_xdp0,iface={interface},queue_count={threads}")),
            Self::TestpmdPacket => testpmd(&format!("net_af_packet0,iface={interface},qpairs={threads}")),
            Self::Trafgen => {
                let mut line = words(&pinned(format!("trafgen --no-sock-mem -o {interface} -P {threads}")));
                line.push(format!(
                    "{{ eth(da={dst}, sa={src}), ipv4(saddr={from}, daddr={to}), udp(sp=9, dp={PORT}), \
                     fill(0x00, {payload}) }}"
                ));
                return Ok(Load::Processes(vec![spawn(tx, line)?]));
            }
        };
        Ok(Load::Processes(vec![spawn(tx, words(&line))?]))
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_ascii_whitespace().map(Into::into).collect()
}

/// Starts a program on a side of the lab; the kernel ends it with this process.
fn spawn(side: &Side, line: Vec<String>) -> Outcome<Child> {
    let mut command = Command::new(&line[0]);
    // Held open: testpmd ends when its standard input closes.
    command.args(&line[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0);
    tie(&mut command, Ties { namespace: Some(side.namespace().try_clone()?), descriptors: Vec::new() });
    Ok(command.spawn()?)
}

fn sender(lab: &Lab, engine: &str, setting: Setting) -> Outcome<Sender> {
    let engine: TxSpec = engine.parse()?;
    let (tx, rx) = (lab.tx(), lab.rx());
    let worker = |at: usize| TxWorkerPlan {
        target: (rx.ipv4()[at % rx.ipv4().len()], PORT).into(),
        local: (tx.ipv4()[at % tx.ipv4().len()], 0).into(),
        flows: 1,
        stream: at as u16 + 1,
    };
    let plan = SenderPlan {
        engine: engine.clone(),
        traffic: TxTraffic {
            interface: engine.facts().makes_frames.then(|| tx.interface().into()),
            workers: (0..setting.threads).map(worker).collect(),
            frames: FrameSpec {
                src_mac: MacAddr(tx.mac()),
                dst_mac: MacAddr(rx.mac()),
                sizes: Sizes::Payload((setting.frame_bytes - AROUND_PAYLOAD).to_string().parse()?),
                ..FrameSpec::default()
            },
            rate_pps: None,
            departures: Departures::Constant,
            limit: Limit { count: None, duration_ns: Some(60_000_000_000) },
            batch_size: 1024,
            seed: 1,
        },
    };
    let namespace = Arc::new(tx.namespace().try_clone()?);
    let cpus = (0..setting.threads as u32).collect();
    let sender = plan.prepare(&Placement { enter: Some(Arc::new(move || namespace.enter())), cpus })?;
    sender.begin();
    Ok(sender)
}

/// The C loop, compiled as a user would; its folder is removed with it.
struct Reference {
    folder: PathBuf,
    program: PathBuf,
}

fn compile_loop() -> Outcome<Reference> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/baseline/sendmmsg.c");
    let folder = std::env::temp_dir().join(format!("linerate-peers-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let program = folder.join("sendmmsg");
    let reference = Reference { folder, program };
    let status = Command::new("cc").args(["-O2", "-o"]).arg(&reference.program).arg(&source).status()?;
    if status.success() { Ok(reference) } else { Err(format!("cannot compile {}", source.display()).into()) }
}

impl Drop for Reference {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// A program in `PATH` or the folders of administrators' programs.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}
