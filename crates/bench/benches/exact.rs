//! `make exact`: what linerate itself executes per packet, counted, against the values of `benches/exact.toml`.
//!
//! Two kinds of values: hot functions, each in a loop in an emulated machine, and workers, as the user-space instructions
//! of the ladder's threads by engine and level of statistics. `-- --bless` rewrites the table of this build. Status 1: a
//! value grew by more than 1 %, is not in the file or was not counted; 3: the file's values are of another compiler or
//! kernel; 4: a machine was lost. The build that tests use has values of its own: `scripts/test-exact`.

use std::{
    env,
    error::Error,
    fs,
    hint::black_box,
    io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use bench::{
    ExactKernel, ExactPlan, ExactTable, ExactTables, ExactVerdict, judge_exact, run_exact, words_inside,
    write_exact_tables,
};
use filter::{Filter, FilterSet};
use lab::{Accel, Kernel, VmPlan, VmStatus};
use measure::{Histogram, Machine, Origin, SequenceTracker, Start};
use sys::counting::{Mark, mark};
use trial::{CountNames, read_counts};
use wire::{Addresses, FlowKey, FrameSpec, HashFields, PROTOCOL_UDP, RssKey, Template, Toeplitz, UdpFrame};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// In the environment of this program in the machine.
const INSIDE: &str = "LINERATE_EXACT_LOOPS";

/// Exit statuses beside 0 and 1.
const NOT_COMPARABLE: u8 = 3;
const NOT_COUNTED: u8 = 4;

/// The table of the file for how this program was built.
const BUILD: &str = if cfg!(debug_assertions) { "tests" } else { "release" };

/// Each loop is counted at these numbers of rounds, and so often.
const ROUNDS: [usize; 2] = [1000, 2000];
const REPEATS: usize = 3;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(NOT_COUNTED)
    })
}

fn run() -> Outcome<ExitCode> {
    if env::var_os(INSIDE).is_some() {
        loops(&mut |_, work| {
            for rounds in ROUNDS {
                for _ in 0..REPEATS {
                    counted(|| work(rounds));
                }
            }
        });
        return Ok(ExitCode::SUCCESS);
    }
    let began = Instant::now();
    lab::gain_access()?;
    let (loops, workers) = thread::scope(|scope| {
        let loops = scope.spawn(counted_loops);
        let workers = counted_workers();
        (loops.join().expect("no panic"), workers)
    });
    let mut counted = workers?;
    counted.values.extend(loops?);
    let number = counted.values.len() + counted.of_kernel.len();
    println!("{number} values counted in {} s", began.elapsed().as_secs());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/exact.toml");
    let mut committed: ExactTables = toml::from_str(&fs::read_to_string(&file).unwrap_or_default())?;
    let before = committed.get(BUILD).cloned().unwrap_or_default();
    let verdict = judge_exact(&before, &counted, &mut io::stdout())?;
    if env::args().any(|word| word == "--bless") {
        committed.insert(BUILD.into(), counted);
        let mut text = Vec::new();
        write_exact_tables(&committed, &mut text)?;
        fs::write(&file, text)?;
        println!("the counted values are in {}", file.display());
        return Ok(ExitCode::SUCCESS);
    }
    Ok(match verdict {
        ExactVerdict::Passed => ExitCode::SUCCESS,
        ExactVerdict::Failed => ExitCode::FAILURE,
        ExactVerdict::NotComparable => ExitCode::from(NOT_COMPARABLE),
    })
}

/// Which compiler built this: cargo's own choice, asked again.
fn compiler() -> Outcome<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn counted(work: impl FnOnce()) {
    mark(Mark::Sender);
    mark(Mark::Work);
    mark(Mark::Begin);
    work();
    mark(Mark::End);
}

/// What a hot function is called, and the function, to be called so many times.
type Loop<'l> = dyn FnMut(&str, &mut dyn FnMut(usize)) + 'l;

/// Every hot function, so often as asked.
fn loops(each: &mut Loop<'_>) {
    for (name, spec) in [
        ("stamp: fixed frame", FrameSpec::default()),
        (
            "stamp: port by turns",
            FrameSpec { dst_port: "inc:1024-2047".parse().expect("a field"), ..FrameSpec::default() },
        ),
        (
            "stamp: random address and port",
            FrameSpec {
                src_addr: "random:10.0.0.0/8".parse().expect("a field"),
                src_port: "random:1024-65535".parse().expect("a field"),
                ..FrameSpec::default()
            },
        ),
    ] {
        let template = Template::new(&spec).expect("a frame");
        let mut slot = [0; 64];
        template.prime_frame(&mut slot);
        each(name, &mut |rounds| {
            for sequence in 0..rounds {
                black_box(template.restamp_frame(black_box(&mut slot), sequence as u32, 1));
            }
        });
    }
    let template = Template::new(&FrameSpec::default()).expect("a frame");
    let mut slot = vec![0; template.max_frame_len()];
    template.stamp_frame(&mut slot, 1, 1);
    each("read: a probe", &mut |rounds| {
        for _ in 0..rounds {
            black_box(UdpFrame::parse(black_box(&slot)).ok().map(|frame| frame.probe().is_some()));
        }
    });
    for rules in [1, 10] {
        let expressions = (0..rules).map(|rule| format!("udp and dst port {}", 1000 + rule));
        let compiled: Vec<Filter> =
            expressions.map(|text| Filter::compile(&text).expect("a filter")).collect();
        let set = FilterSet::new(&compiled);
        let plural = if rules == 1 { "" } else { "s" };
        each(&format!("classify: {rules} rule{plural}"), &mut |rounds| {
            for _ in 0..rounds {
                black_box(set.first_match(black_box(&slot)));
            }
        });
    }
    let mut histogram = Histogram::new();
    each("statistics: histogram", &mut |rounds| {
        for _ in 0..rounds {
            histogram.record(black_box(12_345));
        }
    });
    let mut tracker = SequenceTracker::new();
    let mut number = 0u32;
    each("statistics: sequence number", &mut |rounds| {
        for _ in 0..rounds {
            number += 1;
            black_box(tracker.observe(number, number.into(), 1000 * u64::from(number)));
        }
    });
    let toeplitz = Toeplitz::new(&RssKey::microsoft());
    let addresses = Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    let flow = FlowKey { addresses, src_port: 1, dst_port: 2, protocol: PROTOCOL_UDP };
    each("steer: Toeplitz hash", &mut |rounds| {
        for _ in 0..rounds {
            black_box(toeplitz.hash(black_box(&flow), HashFields::AddressesAndPorts));
        }
    });
}

/// Runs the loops in a machine; what one round of each takes.
fn counted_loops() -> Outcome<Vec<(String, f64)>> {
    let share = tempfile::tempdir()?;
    let plan = VmPlan {
        cpus: 1,
        accel: Accel::Counting,
        time_limit: TIME_LIMIT,
        share: Some(share.path().into()),
        kernel_options: vec!["norandmaps".into()],
        ..VmPlan::default()
    };
    let this = env::current_exe()?;
    // The loops are in user space, so that the kernel's names matter to nobody.
    let script = format!(
        "grep -E 'asm_|irq_entries' /proc/kallsyms > /share/symbols\n{INSIDE}=1 '{}'",
        this.display()
    );
    let ended = lab::Vm::prepare(&plan)?.outcome(&script)?;
    if ended.status != VmStatus::Exited(0) {
        return Err(format!("the machine of the loops: {ended:?}").into());
    }
    let counts = read_counts(&fs::read_to_string(share.path().join("counts"))?)?;
    let names = CountNames::of(&fs::read_to_string(share.path().join("symbols"))?, &this)?;
    let user: Vec<f64> =
        counts.iter().map(|counts| counts.fold(&names, 1, 1).sender_user_per_packet.unwrap_or(0.0)).collect();
    let mut all = Vec::new();
    loops(&mut |name, _| all.push(name.to_owned()));
    if user.len() != all.len() * ROUNDS.len() * REPEATS {
        return Err(format!("{} counts of {} loops", user.len(), all.len()).into());
    }
    let of_loop = |counts: &[f64]| {
        let least = |repeats: &[f64]| repeats.iter().copied().fold(f64::INFINITY, f64::min);
        let (few, many) = counts.split_at(REPEATS);
        (least(many) - least(few)) / (ROUNDS[1] - ROUNDS[0]) as f64
    };
    Ok(all.into_iter().zip(user.chunks(ROUNDS.len() * REPEATS).map(of_loop)).collect())
}

/// How long a machine may take where the host has other work.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Ladders of one machine: senders where the receiver is in XDP, then receivers.
const LADDERS: &[&str] = if cfg!(debug_assertions) {
    // A slow build in CI: those receivers whose values repeat in short trials.
    &["--tx udp,packet,xsk,xdp,uring --rx xdp --duration 20ms", "--tx packet --rx packet,xsk --duration 20ms"]
} else {
    &[
        "--tx udp,packet,xsk,xdp,uring --rx xdp --duration 50ms",
        "--tx packet --rx udp,packet,xsk,uring --duration 100ms",
        "--tx packet --rx udp --sweep stats=counter,basic,time --duration 100ms",
    ]
};

/// Runs the ladders in a machine; what each worker's own code takes.
fn counted_workers() -> Outcome<ExactTable> {
    // Beside the folder that this program is in.
    let this = env::current_exe()?;
    let built: PathBuf = this.parent().and_then(Path::parent).ok_or("no folder of builds")?.join("linerate");
    let ladder = |words: &&str| words_inside(&words.split(' ').map(Into::into).collect::<Vec<_>>());
    let plan = ExactPlan {
        kernels: vec![ExactKernel::Debian(Kernel::Latest)],
        card: None,
        ladders: LADDERS.iter().map(ladder).collect(),
        program: Some(built),
        time_limit_s: TIME_LIMIT.as_secs(),
    };
    let start = Start {
        command: "exact".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_at: String::new(),
        origin: Origin::Exact,
        machine: Machine::default(),
        asked: Default::default(),
    };
    let run = run_exact(&plan, start, &|_| {}, &|| true)?;
    if let Some(skipped) = run.end.skipped.first() {
        return Err(format!("{}: {}", skipped.engine, skipped.reason).into());
    }
    let kernel = run.start.machine.kernel.clone();
    let mut table = ExactTable { compiler: compiler()?, kernel, ..ExactTable::default() };
    for trial in &run.end.trials {
        let counts = trial.instructions.as_ref().ok_or("a trial without counts")?;
        if trial.rx.label == "xdp" {
            let name = format!("worker: {} sender", trial.tx.label);
            table.of_kernel.insert(name, counts.sender_user_per_packet.ok_or("nothing was sent")?);
        } else {
            let level = trial.parameters.get("stats").and_then(|level| level.as_str());
            let level = level.map(|level| format!(" with statistics: {level}")).unwrap_or_default();
            let name = format!("worker: {} receiver{level}", trial.rx.label);
            table.of_kernel.insert(name, counts.receiver_user_per_packet.ok_or("nothing was delivered")?);
        }
    }
    Ok(table)
}
