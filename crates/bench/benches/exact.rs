//! `make exact`: what linerate itself executes per packet, counted, against the values of `benches/exact.toml`.
//!
//! Two kinds of values: hot functions, each in a loop in an emulated machine, and workers, as the user-space instructions
//! of the ladder's threads by engine and level of statistics. `-- --bless` rewrites the file; a growth of more than 1 % is a
//! failure, as is a value that the file does not have or that nothing measures. The build that tests use has
//! values of its own: `cargo test -p linerate-bench --bench exact`.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt::Write as _,
    fs,
    hint::black_box,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use filter::{Filter, FilterSet};
use lab::{Accel, VmPlan, VmStatus};
use measure::{Histogram, Run, SequenceTracker};
use sys::counting::{Mark, mark};
use trial::{CountNames, read_counts};
use wire::{Addresses, FlowKey, FrameSpec, HashFields, PROTOCOL_UDP, RssKey, Template, Toeplitz, UdpFrame};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Instructions per packet by name.
type Values = BTreeMap<String, f64>;

/// In the environment of this program in the machine.
const INSIDE: &str = "LINERATE_EXACT_LOOPS";

/// More is a failure.
const MOST_GROWTH: f64 = 0.01;
/// And so much is no growth: a block more or less of a whole trial.
const LEAST_GROWTH: f64 = 0.5;

/// The table of the file for how this program was built.
const PROFILE: &str = if cfg!(debug_assertions) { "tests" } else { "release" };

/// Each loop is counted at these numbers of rounds, and so often.
const ROUNDS: [usize; 2] = [1000, 2000];
const REPEATS: usize = 3;

fn main() -> Outcome<ExitCode> {
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
    lab::gain_access()?;
    let ladders = [Ladder::start(SENDERS)?, Ladder::start(RECEIVERS)?, Ladder::start(STATISTICS)?];
    let mut values = counted_loops()?;
    for ladder in ladders {
        ladder.values(&mut values)?;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/exact.toml");
    let mut committed: BTreeMap<String, Values> =
        toml::from_str(&fs::read_to_string(&file).unwrap_or_default())?;
    if env::args().any(|word| word == "--bless") {
        committed.insert(PROFILE.into(), values.clone());
        fs::write(&file, written(&committed))?;
        println!("{} values in {}", values.len(), file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let committed = committed.remove(PROFILE).unwrap_or_default();
    Ok(if judged(&committed, &values) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a row a value; whether none grew and all are known.
fn judged(committed: &Values, values: &Values) -> bool {
    let mut passed = true;
    let names: std::collections::BTreeSet<&String> = committed.keys().chain(values.keys()).collect();
    println!("{:<52} {:>10} {:>10} {:>8}", "instructions per packet", "committed", "counted", "change");
    for name in names {
        let (before, after) = (committed.get(name), values.get(name));
        let grew =
            |before: f64, after: f64| after > before * (1.0 + MOST_GROWTH) && after - before > LEAST_GROWTH;
        let verdict = match (before, after) {
            (Some(before), Some(after)) if grew(*before, *after) => "GREW",
            (Some(_), Some(_)) => "",
            (None, _) => "NOT COMMITTED",
            (_, None) => "NOT COUNTED",
        };
        passed &= verdict.is_empty();
        let shown = |value: Option<&f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
        let change =
            before.zip(after).map(|(before, after)| format!("{:+.2} %", (after / before - 1.0) * 100.0));
        let (before, after, change) = (shown(before), shown(after), change.unwrap_or_default());
        println!("{name:<52} {before:>10} {after:>10} {change:>8} {verdict}");
    }
    if !passed {
        println!("make bless-exact accepts the counted values; say why in the commit's message");
    }
    passed
}

fn written(all: &BTreeMap<String, Values>) -> String {
    let mut text = String::from(
        "# Instructions per packet that linerate itself executes; make exact compares, make bless-exact rewrites.\n\
         # Hot functions are counted in a loop; the others are threads in user space, in the ladder of an emulated machine.\n\
         # The table \"tests\" is of the build that tests use.\n",
    );
    for (profile, values) in all {
        writeln!(text, "\n[{profile}]").expect("a string takes everything");
        for (name, value) in values {
            writeln!(text, "\"{name}\" = {value:.1}").expect("a string takes everything");
        }
    }
    text
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
fn counted_loops() -> Outcome<Values> {
    let share = tempfile::tempdir()?;
    let plan = VmPlan {
        cpus: 1,
        accel: Accel::Counting,
        time_limit: Duration::from_secs(150),
        share: Some(share.path().into()),
        kernel_options: vec!["norandmaps".into()],
        ..VmPlan::default()
    };
    let this = env::current_exe()?;
    let script = format!(
        "grep -E 'asm_|irq_entries' /proc/kallsyms > /share/symbols\n{INSIDE}=1 '{}' && cat /proc/kallsyms > /share/kallsyms",
        this.display()
    );
    let ended = lab::Vm::prepare(&plan)?.outcome(&script)?;
    if ended.status != VmStatus::Exited(0) {
        return Err(format!("the machine of the loops: {ended:?}").into());
    }
    let counts = read_counts(&fs::read_to_string(share.path().join("counts"))?)?;
    let names = CountNames::of(&fs::read_to_string(share.path().join("kallsyms"))?, &this)?;
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

/// Words of `linerate bench --exact`, and which thread of its trials is of interest.
type Asked = (&'static str, &'static str);

const SENDERS: Asked = ("--tx udp,packet,xsk,xdp,uring --rx xdp", "sender");
const RECEIVERS: Asked = ("--tx packet --rx udp,packet,xsk,uring", "receiver");
const STATISTICS: Asked = ("--tx packet --rx udp --sweep stats=counter,basic,time", "receiver");

/// A ladder that runs in a process of its own.
struct Ladder {
    process: Child,
    thread: &'static str,
}

impl Ladder {
    fn start((words, thread): Asked) -> Outcome<Self> {
        // Beside the folder that this program is in.
        let this = env::current_exe()?;
        let built: PathBuf =
            this.parent().and_then(Path::parent).ok_or("no folder of builds")?.join("linerate");
        let process = Command::new(built)
            .args(["bench", "--exact", "--json", "--no-save"])
            .args(words.split(' '))
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self { process, thread })
    }

    fn values(self, values: &mut Values) -> Outcome<()> {
        let output = self.process.wait_with_output()?;
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(format!("linerate bench --exact: {}", output.status).into());
        }
        let run: Run = serde_json::from_slice(&output.stdout)?;
        if let Some(skipped) = run.end.skipped.first() {
            return Err(format!("{}: {}", skipped.engine, skipped.reason).into());
        }
        for trial in &run.end.trials {
            let counts = trial.instructions.as_ref().ok_or("a trial without counts")?;
            let (label, count) = match self.thread {
                "sender" => (&trial.tx.label, counts.sender_user_per_packet),
                _ => (&trial.rx.label, counts.receiver_user_per_packet),
            };
            let level = trial.parameters.get("stats").and_then(|level| level.as_str());
            let level = level.map(|level| format!(" with statistics: {level}")).unwrap_or_default();
            values.insert(format!("worker: {label} {}{level}", self.thread), count.ok_or("no packets")?);
        }
        Ok(())
    }
}
