//! `make exact-peers`: instructions per packet of linerate's senders, of other generators and of plain C loops, in the same
//! emulated machine, towards the same XDP program that drops their packets.
//!
//! Each sends twice, a few packets and many; the additional instructions divided by the additional packets are the cost of
//! a packet. It excludes start and end, and includes everything else (the sender's threads, the kernel's part, the softirqs,
//! the drop). testpmd sends without end: it is started before, and two lengths of time are counted.
//! Three such pairs show the repeatability. 64-byte frames, one thread, to one address and port.

use std::{
    env,
    error::Error,
    fs,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use lab::{Kernel, Lab, LabPlan, VmPlan, VmStatus, VmStore};
use measure::median;
use sys::{
    bpf_program::{attach, load_for_device},
    child::{Ties, tie},
    counting::{Mark, mark},
};
use traffic::{Departures, Limit, Placement, SenderPlan, TxSpec, TxTraffic, TxWorkerPlan};
use trial::read_counts;
use wire::{FrameSpec, MacAddr, Sizes};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// In the environment of this program in the machine: the folder of the C loops.
const INSIDE: &str = "LINERATE_EXACT_PEERS";
const PORT: u16 = 4321;
const PAYLOAD: u32 = 18;
/// Packets of the short and of the long run; C loops send for a time instead.
const PACKETS: [u64; 2] = [4096, 12_288];
/// This many times more for the engine xdp: its cost at each start and end varies by thousands of packets' worth.
const XDP_MORE: u64 = 24;
const SECONDS: [f64; 2] = [0.02, 0.06];
const REPEATS: usize = 3;
/// The longest time for a machine on a busy host.
const TIME_LIMIT: Duration = Duration::from_secs(900);

#[derive(Clone, Copy)]
enum Contender {
    Linerate(&'static str),
    SendmmsgLoop,
    RingLoop,
    Trafgen,
    Iperf3,
    /// testpmd over this device of DPDK.
    Testpmd(&'static str),
}

/// In the order of the table: by the kernel's interface.
const CONTENDERS: [Contender; 13] = [
    Contender::Linerate("udp"),
    Contender::SendmmsgLoop,
    Contender::Iperf3,
    Contender::Linerate("udp+gso"),
    Contender::Linerate("uring"),
    Contender::Linerate("packet"),
    Contender::RingLoop,
    Contender::Trafgen,
    Contender::Testpmd("net_af_packet"),
    Contender::Linerate("packet+qdisc"),
    Contender::Linerate("xsk"),
    Contender::Testpmd("net_af_xdp"),
    Contender::Linerate("xdp"),
];

fn main() -> Outcome<ExitCode> {
    if let Some(folder) = env::var_os(INSIDE) {
        inside(Path::new(&folder))?;
        return Ok(ExitCode::SUCCESS);
    }
    lab::gain_access()?;
    let share = tempfile::tempdir()?;
    for source in ["sendmmsg", "txring"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/baseline").join(source);
        let compiled = Command::new("cc")
            .args(["-O2", "-o"])
            .arg(share.path().join(source))
            .arg(file.with_extension("c"))
            .status()?;
        if !compiled.success() {
            return Err(format!("cannot compile {source}.c").into());
        }
    }
    let packages = missing_packages();
    if !packages.is_empty() {
        VmStore::of_user()?.get_packages(&packages, |step| eprintln!("{step}"))?;
    }
    let plan =
        VmPlan { kernel: Kernel::Latest, time_limit: TIME_LIMIT, packages, ..VmPlan::counting(share.path()) };
    let script = format!(
        "grep -F -e asm_ -e irq_entries /proc/kallsyms > /share/symbols
        cp /share/sendmmsg /share/txring /run
        {INSIDE}=/run '{}' > /share/sent",
        env::current_exe()?.display()
    );
    let vm = lab::Vm::prepare(&plan)?;
    let ended = vm.outcome(&script)?;
    if ended.status != VmStatus::Exited(0) {
        return Err(format!("the machine: {ended:?}").into());
    }
    println!("Linux {}, 64-byte frames, one thread, towards XDP_DROP", vm.kernel_version());
    let counts = read_counts(&fs::read_to_string(share.path().join("counts"))?)?;
    table(&fs::read_to_string(share.path().join("sent"))?, counts.iter().map(|counts| counts.total()))
}

/// Packages of the programs that this machine lacks.
fn missing_packages() -> Vec<String> {
    let programs = CONTENDERS.iter().filter_map(|contender| contender.program());
    let mut packages: Vec<String> = programs
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| package.to_owned())
        .collect();
    packages.sort();
    packages.dedup();
    packages
}

/// Prints one row per contender, from the machine's lines `NAME<tab>PACKETS` or `NAME<tab>REASON` and the counts.
fn table(sent: &str, mut totals: impl Iterator<Item = [u64; 2]>) -> Outcome<ExitCode> {
    println!("{:<28} {:>10} {:>10} {:>9}", "instructions per packet", "all", "its own", "spread");
    let lines: Vec<(&str, &str)> = sent.lines().filter_map(|line| line.split_once('\t')).collect();
    let mut all_ran = true;
    for contender in CONTENDERS {
        let name = contender.name();
        let of_it: Vec<&str> = lines.iter().filter(|(of, _)| *of == name).map(|(_, said)| *said).collect();
        let packets: Option<Vec<u64>> = of_it.iter().map(|said| said.parse().ok()).collect();
        let Some(packets) = packets.filter(|packets| packets.len() == 2 * REPEATS) else {
            println!("{name:<28} left out: {}", of_it.last().unwrap_or(&"nothing was counted"));
            all_ran &= !matches!(contender, Contender::Linerate(_));
            continue;
        };
        let counted: Vec<[u64; 2]> = totals.by_ref().take(packets.len()).collect();
        let each = |which: usize| -> Vec<f64> {
            let costs = packets.chunks(2).zip(counted.chunks(2)).map(|(packets, counted)| {
                (counted[1][which] as f64 - counted[0][which] as f64) / (packets[1] - packets[0]) as f64
            });
            costs.collect()
        };
        let (all, own) = (each(0), each(1));
        let (least, most) = all.iter().fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), cost| {
            (least.min(*cost), most.max(*cost))
        });
        let [all, own] = [all, own].map(|costs| median(&costs).unwrap_or(0.0));
        println!("{name:<28} {all:>10.1} {own:>10.1} {:>7.2} %", (most - least) / all * 100.0);
    }
    if totals.next().is_some() {
        return Err("there are more counts than the machine reported".into());
    }
    Ok(if all_ran { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// In the machine: runs every contender once per count.
fn inside(loops: &Path) -> Outcome<()> {
    for contender in CONTENDERS {
        let name = contender.name();
        if let Some((program, _)) = contender.program().filter(|(program, _)| find(program).is_none()) {
            println!("{name}\t{program} is not installed");
            continue;
        }
        let lab = Lab::create(&LabPlan::default())?;
        let index = lab.rx().link()?.index;
        let _link = lab.rx().run(|| {
            let program = load_for_device("drop", &DROP, index)?;
            attach(program.as_fd(), index, false)
        })??;
        // The extra work of a first run, such as resolving the address, is not counted.
        let run = |long: usize, is_counted: bool| -> Outcome<u64> {
            let _other = contender.start_before(&lab)?;
            let before = dropped(&lab)?;
            if is_counted {
                mark(Mark::Begin);
            }
            contender.send(&lab, long, loops)?;
            if is_counted {
                mark(Mark::End);
            }
            Ok(dropped(&lab)? - before)
        };
        if let Err(error) = run(0, false) {
            println!("{name}\t{error}");
            continue;
        }
        for _ in 0..REPEATS {
            for long in [0, 1] {
                println!("{name}\t{}", run(long, true)?);
            }
        }
    }
    Ok(())
}

/// Drops UDP over IPv4 of these packets' length, and passes everything else: iperf3 shakes hands with its own receiver.
const DROP: [[u8; 8]; 16] = [
    [0x61, 0x12, 0, 0, 0, 0, 0, 0],       // r2 = data
    [0x61, 0x13, 4, 0, 0, 0, 0, 0],       // r3 = data_end
    [0xbf, 0x24, 0, 0, 0, 0, 0, 0],       // r4 = r2
    [0x07, 0x04, 0, 0, 34, 0, 0, 0],      // r4 += Ethernet and IPv4 headers
    [0x2d, 0x34, 9, 0, 0, 0, 0, 0],       // if r4 > r3 goto pass
    [0x69, 0x25, 12, 0, 0, 0, 0, 0],      // r5 = the type
    [0x15, 0x05, 7, 0, 0x08, 0x06, 0, 0], // if ARP goto pass
    [0x55, 0x05, 4, 0, 0x08, 0x00, 0, 0], // if not IPv4 goto drop
    [0x71, 0x25, 23, 0, 0, 0, 0, 0],      // r5 = the protocol
    [0x55, 0x05, 4, 0, 17, 0, 0, 0],      // if not UDP goto pass
    [0x69, 0x25, 16, 0, 0, 0, 0, 0],      // r5 = the total length
    [0x55, 0x05, 2, 0, 0x00, 46, 0, 0],   // if not 46 goto pass
    [0xb7, 0x00, 0, 0, 1, 0, 0, 0],       // drop: r0 = XDP_DROP
    [0x95, 0, 0, 0, 0, 0, 0, 0],
    [0xb7, 0x00, 0, 0, 2, 0, 0, 0], // pass: r0 = XDP_PASS
    [0x95, 0, 0, 0, 0, 0, 0, 0],
];

fn dropped(lab: &Lab) -> Outcome<u64> {
    let counters = lab.rx().driver_statistics()?;
    Ok(counters.iter().filter(|(name, _)| name.ends_with("_xdp_drops")).map(|(_, value)| value).sum())
}

impl Contender {
    fn name(self) -> String {
        match self {
            Self::Linerate(engine) => format!("linerate {engine}"),
            Self::SendmmsgLoop => "sendmmsg loop in C".into(),
            Self::RingLoop => "TX_RING loop in C".into(),
            Self::Trafgen => "trafgen".into(),
            Self::Iperf3 => "iperf3".into(),
            Self::Testpmd(device) => format!("testpmd {device}"),
        }
    }

    /// Its program, and Debian's package of that.
    fn program(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Trafgen => Some(("trafgen", "netsniff-ng")),
            Self::Iperf3 => Some(("iperf3", "iperf3")),
            Self::Testpmd(_) => Some(("dpdk-testpmd", "dpdk-dev")),
            _ => None,
        }
    }

    /// What runs before the count begins: iperf3's own receiver, which takes part only in the handshake, or testpmd.
    fn start_before(self, lab: &Lab) -> Outcome<Option<Started>> {
        match self {
            Self::Iperf3 => {
                let receiver = start(lab.rx(), words("iperf3 -s -1"))?;
                // 5201, listening.
                let listens = || -> Outcome<bool> {
                    let sockets = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
                    let text =
                        lab.rx().run(|| sockets.map(|file| fs::read_to_string(file).unwrap_or_default()))?;
                    Ok(text.concat().lines().any(|line| line.contains(":1451 ") && line.contains(" 0A ")))
                };
                wait("iperf3 does not listen", listens)?;
                Ok(Some(receiver))
            }
            Self::Testpmd(device) => {
                let sender = start(lab.tx(), testpmd(device, lab))?;
                let before = dropped(lab)?;
                wait("testpmd sends nothing", || Ok(dropped(lab)? > before + PACKETS[0]))?;
                Ok(Some(sender))
            }
            _ => Ok(None),
        }
    }

    /// Sends, then exits.
    fn send(self, lab: &Lab, long: usize, loops: &Path) -> Outcome<()> {
        let (tx, rx) = (lab.tx(), lab.rx());
        let (interface, from, to) = (tx.interface(), tx.ipv4()[0], rx.ipv4()[0]);
        let (packets, seconds) = (PACKETS[long], SECONDS[long]);
        let line = match self {
            Self::Linerate("xdp") => return linerate(lab, "xdp", XDP_MORE * packets),
            Self::Linerate(engine) => return linerate(lab, engine, packets),
            Self::Testpmd(_) => {
                thread::sleep(Duration::from_secs_f64(seconds));
                return Ok(());
            }
            Self::SendmmsgLoop => {
                words(&format!("{}/sendmmsg {to} {PORT} {PAYLOAD} {seconds} -1", loops.display()))
            }
            Self::RingLoop => words(&format!("{}/txring {interface} {seconds} 0 60", loops.display())),
            Self::Iperf3 => words(&format!("iperf3 -c {to} -u -b 0 -l {PAYLOAD} -k {packets}")),
            Self::Trafgen => {
                let mut line = words(&format!("trafgen --no-sock-mem -o {interface} -P 1 -n {packets}"));
                let (src, dst) = (MacAddr(tx.mac()), MacAddr(rx.mac()));
                line.push(format!(
                    "{{ eth(da={dst}, sa={src}), ipv4(saddr={from}, daddr={to}), udp(sp=9, dp={PORT}), \
                     fill(0x00, {PAYLOAD}) }}"
                ));
                line
            }
        };
        let program = line[0].clone();
        let mut child = start(tx, line)?;
        let status = child.0.wait()?;
        if status.success() { Ok(()) } else { Err(format!("{program} ended with {status}").into()) }
    }
}

/// A process that does not outlive its use.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn wait(otherwise: &str, is_there: impl Fn() -> Outcome<bool>) -> Outcome<()> {
    let began = Instant::now();
    while !is_there()? {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(otherwise.into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// testpmd's command line: both of its threads on the only CPU, of which the first one sleeps.
fn testpmd(device: &str, lab: &Lab) -> Vec<String> {
    words(&format!(
        "dpdk-testpmd --no-huge -m 128 --no-pci --no-telemetry --no-shconf --lcores 0@0,1@0 --vdev={device}0,iface={} -- \
         --total-num-mbufs=16384 --forward-mode=txonly --txpkts=60 --nb-cores=1 --eth-peer=0,{} --port-topology=loop \
         --auto-start",
        lab.tx().interface(),
        MacAddr(lab.rx().mac())
    ))
}

/// Starts a program on a side of the lab; the kernel ends it with this process.
fn start(side: &lab::Side, line: Vec<String>) -> Outcome<Started> {
    let mut command = Command::new(find(&line[0]).ok_or_else(|| format!("{} is not installed", line[0]))?);
    // Held open: testpmd ends when its standard input closes.
    command.args(&line[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    tie(&mut command, Ties { namespace: Some(side.namespace().try_clone()?), descriptors: Vec::new() });
    Ok(Started(command.spawn()?))
}

fn words(line: &str) -> Vec<String> {
    line.split_ascii_whitespace().map(Into::into).collect()
}

/// Sends by an engine's worker.
fn linerate(lab: &Lab, engine: &str, packets: u64) -> Outcome<()> {
    let engine: TxSpec = engine.parse()?;
    let (tx, rx) = (lab.tx(), lab.rx());
    let worker = TxWorkerPlan {
        target: (rx.ipv4()[0], PORT).into(),
        local: (tx.ipv4()[0], 0).into(),
        flows: 1,
        stream: 1,
    };
    let plan = SenderPlan {
        engine: engine.clone(),
        traffic: TxTraffic {
            interface: engine.facts().makes_frames.then(|| tx.interface().into()),
            workers: vec![worker],
            frames: FrameSpec {
                src_mac: MacAddr(tx.mac()),
                dst_mac: MacAddr(rx.mac()),
                sizes: Sizes::Payload(PAYLOAD.to_string().parse()?),
                ..FrameSpec::default()
            },
            rate_pps: None,
            departures: Departures::Constant,
            limit: Limit { count: Some(packets), duration_ns: None },
            batch_size: 1024,
            seed: 1,
        },
    };
    let namespace = Arc::new(tx.namespace().try_clone()?);
    let sender =
        plan.prepare(&Placement { enter: Some(Arc::new(move || namespace.enter())), cpus: vec![0] })?;
    sender.begin();
    sender.join();
    Ok(())
}

/// A path, or a program in `PATH` or the folders of administrators' programs.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}
