//! `make exact`: counts what linerate itself executes per packet, and compares it with the values of `benches/exact.toml`.
//!
//! Four kinds of values: hot functions, each in a loop in an emulated machine (`loops.rs`); what a live view does with a
//! snapshot, likewise (`views.rs`); programs in the kernel and bare
//! loops around ports, likewise (`kernel.rs`); and workers, as the user-space instructions of the ladder's threads by engine
//! and level of statistics. `-- --bless` rewrites the table of this build. Status 1: a
//! value grew by more than 1 %, is not in the file or was not counted; 3: the file's values belong to another compiler or
//! kernel; 4: a machine was lost. The build that tests use has its own values: `scripts/test-exact`.

mod counted;
mod kernel;
mod loops;
mod views;

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use bench::{
    ExactKernel, ExactPlan, ExactTable, ExactTables, ExactVerdict, judge_exact, run_exact, words_inside,
    write_exact_tables,
};
use counted::{Counted, Outcome, Part};
use lab::{Kernel, VmPlan, VmStatus};
use measure::{Instructions, Machine, Origin, Start};
use sys::counting::{Mark, mark};
use trial::{CountNames, read_counts};

/// In the environment of this program in the machine.
const INSIDE: &str = "LINERATE_EXACT_LOOPS";

/// Exit statuses other than 0 and 1.
const NOT_COMPARABLE: u8 = 3;
const NOT_COUNTED: u8 = 4;

/// The table of the file for the build of this program.
const BUILD: &str = if cfg!(debug_assertions) { "tests" } else { "release" };

/// Each loop is counted at its number of rounds and at twice that, this many times each.
const REPEATS: usize = 3;

/// In the folder that the machine shares: the loops in the order of the counts.
const LIST: &str = "loops";

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(NOT_COUNTED)
    })
}

fn run() -> Outcome<ExitCode> {
    if let Some(share) = env::var_os(INSIDE) {
        let mut list = Vec::new();
        let mut count = |name: &str, part: Part, rounds: u32, work: &mut dyn FnMut(u32)| {
            list.push(Counted { name: name.into(), part, rounds });
            for rounds in [rounds, 2 * rounds] {
                for _ in 0..REPEATS {
                    executed(|| work(rounds));
                }
            }
        };
        loops::count_all(&mut count)?;
        views::count_all(&mut count);
        kernel::count_all(&mut count)?;
        fs::write(Path::new(&share).join(LIST), serde_json::to_vec(&list)?)?;
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
    let [values, of_kernel] = loops?;
    counted.values.extend(values);
    counted.of_kernel.extend(of_kernel);
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

/// The compiler of this build: cargo's own choice, queried again.
fn compiler() -> Outcome<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn executed(work: impl FnOnce()) {
    mark(Mark::Sender);
    mark(Mark::Work);
    mark(Mark::Begin);
    work();
    mark(Mark::End);
}

/// Runs the loops in a machine; returns the cost of one round of each: values that are the same on every kernel, and others.
fn counted_loops() -> Outcome<[BTreeMap<String, f64>; 2]> {
    let share = tempfile::tempdir()?;
    let plan = VmPlan { kernel: Kernel::Latest, time_limit: TIME_LIMIT, ..VmPlan::counting(share.path()) };
    let this = env::current_exe()?;
    let script = format!(
        "grep -F -e asm_ -e irq_entries -e bpf_trace_run /proc/kallsyms > /share/symbols
        {INSIDE}=/share '{}'",
        this.display()
    );
    let ended = lab::Vm::prepare(&plan)?.outcome(&script)?;
    if ended.status != VmStatus::Exited(0) {
        return Err(format!("the machine of the loops: {ended:?}").into());
    }
    let read = |name: &str| fs::read_to_string(share.path().join(name));
    let counts = read_counts(&read("counts")?)?;
    let names = CountNames::of(&read("symbols")?, &this)?;
    let list: Vec<Counted> = serde_json::from_str(&read(LIST)?)?;
    if counts.len() != list.len() * 2 * REPEATS {
        return Err(format!("{} counts of {} loops", counts.len(), list.len()).into());
    }
    let mut tables = [BTreeMap::new(), BTreeMap::new()];
    for (Counted { name, part, rounds }, counts) in list.into_iter().zip(counts.chunks(2 * REPEATS)) {
        // Exceptions and ticks add instructions: the least of the repeats is the work.
        let least = |counts: &[trial::TrialCounts]| {
            let found = counts.iter().map(|counts| of_part(part, &counts.fold(&names, 1, 1)));
            found.fold(f64::INFINITY, f64::min)
        };
        let (few, many) = counts.split_at(REPEATS);
        let each = (least(many) - least(few)) / f64::from(rounds);
        tables[usize::from(part != Part::Own)].insert(name, each);
    }
    Ok(tables)
}

fn of_part(part: Part, counts: &Instructions) -> f64 {
    let own = counts.sender_user_per_packet.unwrap_or(0.0);
    match part {
        Part::Own | Part::OwnOfKernel => own,
        Part::Thread => {
            own + counts.sender_kernel_per_packet.unwrap_or(0.0) + counts.softirq_per_packet.unwrap_or(0.0)
        }
        Part::Traced => {
            let traced = counts.stacks.iter().filter(|stack| stack.frames.contains(";bpf_trace_run"));
            traced.map(|stack| stack.instructions as f64).sum()
        }
    }
}

/// The longest time for a machine on a busy host.
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

/// Runs the ladders in a machine; returns the cost of each worker's own code.
fn counted_workers() -> Outcome<ExactTable> {
    // Next to the folder of this program.
    let this = env::current_exe()?;
    let built: PathBuf = this.parent().and_then(Path::parent).ok_or("no folder of builds")?.join("linerate");
    let ladder = |words: &&str| words_inside(&words.split(' ').map(Into::into).collect::<Vec<_>>());
    let plan = ExactPlan {
        kernels: vec![ExactKernel::Debian(Kernel::Latest)],
        card: None,
        ladders: LADDERS.iter().map(ladder).collect(),
        beside: None,
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
