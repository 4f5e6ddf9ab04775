//! `make bench-compare`: linerate's `udp` engine compared with plain C loops (`benches/baseline`), on the same lab, in
//! the same run, turn by turn; medians and their ratio.
//!
//! Sender against sender towards the same reader, receiver against receiver under the same flood, pacing against
//! its schedule, and the memory of the whole comparison.

use std::{
    error::Error,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use lab::{Lab, LabPlan, Side};
use measure::{Histogram, median};
use traffic::{
    Departures, Limit, Placement, ReceiverPlan, RxTraffic, SenderPlan, SenderResult, TxSpec, TxTraffic,
    TxWorkerPlan,
};
use wire::{FrameSpec, MacAddr, Sizes};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 9;
const SECONDS: u64 = 1;
const PAYLOAD_BYTES: u32 = 18;
const PORT: u16 = 4321;
const TX_CPU: u32 = 0;
const RX_CPU: u32 = 1;

fn main() -> Outcome<()> {
    lab::gain_access()?;
    let baseline = Baseline::build()?;
    println!(
        "64-byte frames, {ROUNDS} rounds of {SECONDS} s each, medians; sender on CPU {TX_CPU}, receiver on CPU {RX_CPU}"
    );
    compare_senders(&baseline)?;
    compare_receivers(&baseline)?;
    check_pacing()?;
    println!("peak memory of this process: {:.1} MiB", sys::cpu::peak_memory_bytes() as f64 / 1048576.0);
    Ok(())
}

/// The C loops, compiled as a user would.
struct Baseline {
    folder: PathBuf,
}

impl Baseline {
    fn build() -> Outcome<Self> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/baseline");
        let folder = std::env::temp_dir().join(format!("linerate-baseline-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        for name in ["sendmmsg", "recvmmsg"] {
            let source = sources.join(format!("{name}.c"));
            let status =
                Command::new("cc").args(["-O2", "-o"]).arg(folder.join(name)).arg(&source).status()?;
            if !status.success() {
                return Err(format!("cannot compile {}", source.display()).into());
            }
        }
        Ok(Self { folder })
    }

    fn spawn(&self, side: &Side, name: &str, args: &[String]) -> Outcome<Child> {
        let mut command = Command::new(self.folder.join(name));
        command.args(args).stdout(Stdio::piped());
        Ok(side.run(|| command.spawn())??)
    }

    fn sender(&self, lab: &Lab) -> Outcome<Child> {
        let to = lab.rx().ipv4()[0].to_string();
        let args = [to, PORT.to_string(), PAYLOAD_BYTES.to_string(), SECONDS.to_string(), TX_CPU.to_string()];
        self.spawn(lab.tx(), "sendmmsg", &args)
    }

    fn receiver(&self, lab: &Lab) -> Outcome<Child> {
        let seconds = SECONDS + 1;
        let args = ["0.0.0.0".into(), PORT.to_string(), RX_CPU.to_string(), seconds.to_string()];
        let child = self.spawn(lab.rx(), "recvmmsg", &args)?;
        wait_for_socket(lab.rx())?;
        Ok(child)
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Waits until the port is bound.
fn wait_for_socket(side: &Side) -> Outcome<()> {
    let since = std::time::Instant::now();
    let wanted = format!(":{PORT:04X} ");
    while !side.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"))??.contains(&wanted) {
        if since.elapsed() > Duration::from_secs(5) {
            return Err("the baseline receiver did not bind its port within 5 s".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// The first number in the output line of a baseline: packets.
fn packets(child: Child) -> Outcome<f64> {
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    let word = text.split_whitespace().nth(1).ok_or_else(|| format!("no number in '{text}'"))?;
    Ok(word.parse()?)
}

fn compare_senders(baseline: &Baseline) -> Outcome<()> {
    let mut sent = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (contender, rates) in sent.iter_mut().enumerate() {
            let lab = Lab::create(&LabPlan::default())?;
            let reader = baseline.receiver(&lab)?;
            rates.push(match contender {
                0 => packets(baseline.sender(&lab)?)? / SECONDS as f64,
                _ => handed(&send(&lab, udp(contender == 2), None)?),
            });
            packets(reader)?;
        }
    }
    println!("sender, packets per second towards a recvmmsg reader:");
    print_ratio("sendmmsg(1024) loop in C", &sent[0], &sent[0]);
    print_ratio("linerate udp", &sent[1], &sent[0]);
    print_ratio("linerate udp+gso", &sent[2], &sent[0]);
    Ok(())
}

fn compare_receivers(baseline: &Baseline) -> Outcome<()> {
    let mut delivered = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (contender, rates) in delivered.iter_mut().enumerate() {
            // XDP sends faster than a socket can be read; its frames need a receiving end with NAPI.
            let lab = Lab::create(&LabPlan { gro: true, ..LabPlan::default() })?;
            rates.push(if contender == 0 {
                let reader = baseline.receiver(&lab)?;
                send(&lab, "xdp", None)?;
                packets(reader)?
            } else {
                receive(&lab)?
            });
        }
    }
    println!("receiver, packets delivered in {SECONDS} s of the same XDP flood:");
    print_ratio("recvmmsg(512) loop in C", &delivered[0], &delivered[0]);
    print_ratio("linerate udp", &delivered[1], &delivered[0]);
    Ok(())
}

fn receive(lab: &Lab) -> Outcome<f64> {
    let plan = ReceiverPlan {
        engine: "udp".parse()?,
        traffic: RxTraffic {
            statistics: None,
            reflect: false,
            work_ns: 0,
            local: SocketAddr::from(([0, 0, 0, 0], PORT)),
            interface: None,
            workers: 1,
            spin: false,
            batch_size: 512,
        },
    };
    let receiver = plan.start(&placement(lab.rx(), RX_CPU)?)?;
    send(lab, "xdp", None)?;
    Ok(receiver.stop().tally().packets as f64)
}

fn check_pacing() -> Outcome<()> {
    println!("pacing over 3 s:");
    for pps in [10_000.0, 100_000.0] {
        let lab = Lab::create(&LabPlan::default())?;
        let results = send(&lab, udp(false), Some(pps))?;
        let mut lateness = Histogram::new();
        results.iter().for_each(|result| lateness.merge(&result.lateness));
        let late = |percent| lateness.percentile(percent).unwrap_or(0) as f64 / 1000.0;
        println!(
            "  {pps:>9.0} pps requested: mean {:.1} pps ({:+.4} %), lateness p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs",
            handed(&results),
            (handed(&results) / pps - 1.0) * 100.0,
            late(50.0),
            late(99.0),
            late(100.0)
        );
    }
    Ok(())
}

fn udp(gso: bool) -> &'static str {
    if gso { "udp+gso" } else { "udp" }
}

fn send(lab: &Lab, engine: &str, rate_pps: Option<f64>) -> Outcome<Vec<SenderResult>> {
    let engine: TxSpec = engine.parse()?;
    let seconds = if rate_pps.is_some() { 3 } else { SECONDS };
    let plan = SenderPlan {
        engine: engine.clone(),
        traffic: TxTraffic {
            interface: engine.facts().makes_frames.then(|| lab.tx().interface().into()),
            workers: vec![TxWorkerPlan {
                target: (lab.rx().ipv4()[0], PORT).into(),
                local: (lab.tx().ipv4()[0], 0).into(),
                flows: 1,
                stream: 1,
            }],
            frames: FrameSpec {
                src_mac: MacAddr(lab.tx().mac()),
                dst_mac: MacAddr(lab.rx().mac()),
                sizes: Sizes::Payload("18".parse()?),
                ..FrameSpec::default()
            },
            rate_pps,
            departures: Departures::Constant,
            limit: Limit { count: None, duration_ns: Some(seconds * 1_000_000_000) },
            batch_size: 1024,
            seed: 1,
        },
    };
    assert_eq!(PAYLOAD_BYTES, 18, "both sides send the same payload");
    let sender = plan.prepare(&placement(lab.tx(), TX_CPU)?)?;
    sender.begin();
    Ok(sender.join())
}

fn placement(side: &Side, cpu: u32) -> Outcome<Placement> {
    let namespace = Arc::new(side.namespace().try_clone()?);
    Ok(Placement { enter: Some(Arc::new(move || namespace.enter())), cpus: vec![cpu] })
}

fn handed(results: &[SenderResult]) -> f64 {
    results.iter().map(|r| r.tally.packets as f64 * 1e9 / (r.end_ns - r.start_ns) as f64).sum()
}

fn print_ratio(name: &str, values: &[f64], baseline: &[f64]) {
    let (Some(own), Some(base)) = (median(values), median(baseline)) else { return };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    println!("  {name:<26} {own:>9.0}  ({least:.0} to {most:.0})  ratio {:.3}", own / base);
}
