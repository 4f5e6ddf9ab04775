//! `cargo bench -p linerate-port --bench packet`: [`PacketTx`] with and without the queueing
//! discipline, against a plain TX_RING sender in C (`benches/baseline/txring.c`), on the same kind of lab, in
//! rotation, towards an interface without a receiver.
//!
//! Frames per second of CPU time: the sender's work and the receiving softirq that runs within its calls, without
//! other work of the machine. Frames per second of wall time are shown beside it.

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::Command,
};

use lab::{Lab, LabPlan};
use measure::median;
use port::{PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, RxPort, TxPort, Wait};
use sys::{clock, cpu};
use wire::{FrameSpec, MacAddr, Sizes, Template};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 7;
const NANOS: u64 = 200_000_000;
const CPU: u32 = 0;

/// What a sender did.
#[derive(Clone, Copy)]
struct Done {
    frames: u64,
    cpu_ns: u64,
    clock_ns: u64,
}

fn main() -> Outcome<()> {
    lab::gain_access()?;
    let baseline = Baseline::build()?;
    println!("{ROUNDS} rounds of {} ms each, medians, CPU {CPU}", NANOS / 1_000_000);
    [64, 1518].into_iter().try_for_each(|frame_size| compare(&baseline, frame_size))?;
    receive()
}

/// A name, and a sender on a lab.
type Contender<'a> = (&'a str, Box<dyn Fn(&Lab) -> Outcome<Done> + 'a>);

fn compare(baseline: &Baseline, frame_size: u32) -> Outcome<()> {
    let own = |qdisc_bypass, batch_size| {
        move |lab: &Lab| {
            let options = PacketTxOptions {
                qdisc_bypass,
                batch_size,
                ..PacketTxOptions::on(lab.tx().index(), frame_size as usize - 4)
            };
            lab.tx().run(move || send(&options))?
        }
    };
    let contenders: [Contender<'_>; 5] = [
        ("plain TX_RING in C, bypass", Box::new(|lab| baseline.send(lab, frame_size))),
        ("ring, bypass", Box::new(own(true, 128))),
        ("ring, qdisc", Box::new(own(false, 128))),
        ("ring, bypass, batches of 32", Box::new(own(true, 32))),
        ("ring, bypass, batches of 512", Box::new(own(true, 512))),
    ];
    // The plain ring is fastest with scatter-gather, which checksum offload enables.
    let plan = LabPlan { tx_checksum: true, ..LabPlan::default() };
    let mut done = contenders.each_ref().map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, contender), done) in contenders.iter().zip(&mut done) {
            let lab = Lab::create(&plan)?;
            let it = contender(&lab)?;
            let counted = lab.tx().link()?.stats.tx_packets;
            if counted != it.frames {
                return Err(format!("{} frames sent, and the interface counted {counted}", it.frames).into());
            }
            done.push(it);
        }
    }
    println!(
        "{:<30} {:>14} {:>6}  {:>14}",
        format!("{frame_size}-byte frames"),
        "per CPU s",
        "ratio",
        "per s"
    );
    let per_cpu = |done: &[Done]| rate(done, |done| done.cpu_ns);
    for ((name, _), each) in contenders.iter().zip(&done) {
        println!(
            "{name:<30} {:>14.0} {:>6.3}  {:>14.0}",
            per_cpu(each),
            per_cpu(each) / per_cpu(&done[0]),
            rate(each, |done| done.clock_ns)
        );
    }
    Ok(())
}

fn rate(done: &[Done], ns: impl Fn(&Done) -> u64) -> f64 {
    let rates: Vec<f64> = done.iter().map(|done| done.frames as f64 * 1e9 / ns(done) as f64).collect();
    median(&rates).unwrap_or(f64::NAN)
}

/// The loop of an unpaced sender: one stamp per frame, one call per batch.
fn send(options: &PacketTxOptions) -> Outcome<Done> {
    cpu::pin_to(CPU)?;
    // The baseline's frame: for a station that does not exist, so that receiving costs little and sends no answer.
    let frame_size = options.frame_bytes + 4;
    let spec = FrameSpec {
        dst_mac: MacAddr([2, 0, 0, 0, 0, 3]),
        sizes: Sizes::Frame(frame_size.to_string().parse()?),
        ..FrameSpec::default()
    };
    let template = Template::new(&spec)?;
    let mut tx = PacketTx::open(options)?;
    tx.prime(|slot| template.prime_frame(slot));
    let (start_ns, start_cpu) = (clock::monotonic_ns(), cpu::thread_time());
    let (mut frames, mut sequence, mut now) = (0, 0u32, start_ns);
    while now < start_ns + NANOS {
        let sent = tx.send(options.batch_size, |slot| {
            sequence = sequence.wrapping_add(1);
            template.restamp_frame(slot, sequence, now)
        })?;
        frames += sent.taken as u64;
        now = clock::monotonic_ns();
    }
    Ok(Done { frames, cpu_ns: cpu::thread_time().since(start_cpu).total_ns(), clock_ns: now - start_ns })
}

/// The cost of reading: a flood into the ring, then the time to read each frame.
fn receive() -> Outcome<()> {
    let lab = Lab::create(&LabPlan::default())?;
    let mut rx = lab.rx().run(|| PacketRx::open(&PacketRxOptions::on(lab.rx().index())))??;
    let (mut frames, mut ns) = (0, 0);
    for _ in 0..ROUNDS {
        let options = PacketTxOptions::on(lab.tx().index(), 60);
        lab.tx().run(|| send(&options))??;
        let start = cpu::thread_time();
        while let packets @ 1.. = rx.recv(Wait::Block, |packet| {
            std::hint::black_box(packet.bytes[50]);
        })? {
            frames += packets;
        }
        ns += cpu::thread_time().since(start).total_ns();
    }
    println!("PacketRx: {:.1} ns of CPU time per frame, from a full ring", ns as f64 / frames as f64);
    Ok(())
}

/// The C loop, compiled as a user would.
struct Baseline {
    folder: PathBuf,
}

impl Baseline {
    fn build() -> Outcome<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/baseline/txring.c");
        let folder = std::env::temp_dir().join(format!("linerate-txring-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let built = Self { folder };
        let status = Command::new("cc").args(["-O2", "-o"]).arg(built.program()).arg(&source).status()?;
        if status.success() { Ok(built) } else { Err(format!("cannot compile {}", source.display()).into()) }
    }

    fn program(&self) -> PathBuf {
        self.folder.join("txring")
    }

    fn send(&self, lab: &Lab, frame_size: u32) -> Outcome<Done> {
        let mut command = Command::new(self.program());
        let (seconds, frame_bytes) = (NANOS as f64 / 1e9, frame_size - 4);
        command.arg(lab.tx().interface()).args([
            seconds.to_string(),
            CPU.to_string(),
            frame_bytes.to_string(),
        ]);
        let output = lab.tx().run(|| command.output())??;
        let text = String::from_utf8(output.stdout)?;
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        match (numbers.next(), numbers.next()) {
            (Some(frames), Some(cpu_ns)) => Ok(Done { frames, cpu_ns, clock_ns: NANOS }),
            _ => Err(format!("txring failed: {}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}
