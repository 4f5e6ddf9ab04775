//! Exact cost: a ladder in an emulated machine that counts instructions, once per kernel.
//!
//! The machine's clock advances by 1 ns per instruction and skips idle time, so that a trial of 100 ms is one of
//! 100 million instructions, whatever else the host does. The machine's own `linerate` (this program, from the host's
//! files) runs the ladder; the emulator's plugin counts between its marks; this module joins both into one run.

mod beside;
mod gate;
mod words;

use std::{
    fs, io,
    ops::RangeInclusive,
    path::PathBuf,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use lab::{Kernel, KernelImage, NicModel, NicPair, Vm, VmError, VmPlan, VmStatus, VmStreams};
use measure::{End, Origin, PairSummary, Run, SCHEMA, Start, Trial};
use serde::Serialize;
use serde_json::json;
use tempfile::TempDir;
use thiserror::Error;
use traffic::{RxLayer, RxSpec};
use trial::{CountError, CountNames, TrialCounts, read_counts};

pub use beside::BesideError;
pub use gate::{ExactTable, ExactTables, ExactVerdict, judge_exact, write_exact_tables};
pub use words::{words_beside, words_inside};

/// A ladder whose instructions are counted.
#[derive(Debug, Clone, Serialize)]
pub struct ExactPlan {
    /// The kernels, in order.
    pub kernels: Vec<ExactKernel>,
    /// Cards to send and receive with, instead of a veth pair.
    #[serde(serialize_with = "card_name", skip_serializing_if = "Option::is_none")]
    pub card: Option<NicModel>,
    /// The arguments of `linerate bench` in the machine, one entry per ladder, in order.
    pub ladders: Vec<Vec<String>>,
    /// The arguments of `linerate bench` on this machine, if the report shows its CPU time next to the instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Vec<String>>,
    /// The `linerate` in the machine, if it is not this program.
    #[serde(skip)]
    pub program: Option<PathBuf>,
    /// Time limit of each machine, in seconds of the host.
    pub time_limit_s: u64,
}

/// A kernel to count on.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExactKernel {
    /// A kernel to download.
    #[serde(serialize_with = "kernel_name")]
    Debian(Kernel),
    /// The user's own kernel: an image, and the folder of its modules.
    Own {
        /// A bzImage or an ELF file.
        image: PathBuf,
        /// Searched with its subfolders.
        modules: PathBuf,
    },
}

fn kernel_name<S: serde::Serializer>(kernel: &Kernel, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kernel.name())
}

fn card_name<S: serde::Serializer>(card: &Option<NicModel>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(card.map_or("", NicModel::name))
}

/// Why a count failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExactError {
    /// The machine could not be made or run.
    #[error(transparent)]
    Machine(#[from] VmError),
    /// A file passed between host and guest.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The ladder in the machine failed.
    #[error("linerate in the machine with Linux {kernel} ended with status {status}: {words}")]
    Inside {
        /// The kernel.
        kernel: String,
        /// Its exit status.
        status: u8,
        /// What it wrote to standard error.
        words: String,
    },
    /// The ladder on this machine.
    #[error(transparent)]
    Beside(#[from] BesideError),
    /// The machine did not finish.
    #[error("the machine with Linux {kernel} {how}: {words}")]
    Lost {
        /// The kernel.
        kernel: String,
        /// The outcome.
        how: &'static str,
        /// The last words of emulator and console.
        words: String,
    },
    /// A signal.
    #[error("interrupted before any trial was complete")]
    Interrupted,
    /// The machine's output is not a run.
    #[error("the machine with Linux {kernel} did not write a run")]
    NoRun {
        /// The kernel.
        kernel: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// The counter's file.
    #[error("cannot read the counts of Linux {kernel}")]
    Counts {
        /// The kernel.
        kernel: String,
        /// The cause.
        source: CountError,
    },
    /// Each trial begins and ends one count.
    #[error("{counts} counts for {trials} trials on Linux {kernel}")]
    Unmatched {
        /// The kernel.
        kernel: String,
        /// Complete counts.
        counts: usize,
        /// Trials of the run.
        trials: usize,
    },
}

impl ExactKernel {
    fn apply(&self, plan: &mut VmPlan) {
        match self {
            Self::Debian(kernel) => plan.kernel = *kernel,
            Self::Own { image, modules } => {
                plan.image = Some(KernelImage { image: image.clone(), modules: modules.clone() });
            }
        }
    }
}

/// Runs the ladder on each kernel, as many at a time as this machine has CPUs; `tell` gets a line of text at each step,
/// `go_on` is called ten times a second.
///
/// # Errors
/// The first failure in the order of the kernels.
pub fn run_exact(
    plan: &ExactPlan,
    start: Start,
    tell: &(impl Fn(&str) + Sync),
    go_on: &(impl Fn() -> bool + Sync),
) -> Result<Run, ExactError> {
    let began = Instant::now();
    let at_once = thread::available_parallelism().map_or(1, usize::from).min(plan.kernels.len()).max(1);
    let next = Mutex::new(0..plan.kernels.len());
    let results: Vec<Mutex<Option<Result<Run, ExactError>>>> =
        plan.kernels.iter().map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let taken = next.lock().expect("no holder panics").next();
                    let Some(at) = taken else { return };
                    let counted = count_on(plan, &plan.kernels[at], tell, go_on);
                    *results[at].lock().expect("no holder panics") = Some(counted);
                }
            });
        }
    });
    let mut runs = Vec::new();
    for result in results {
        let counted = result.into_inner().expect("no holder panics").expect("every kernel ran");
        runs.push(counted?);
    }
    let mut run = joined(runs, start, began.elapsed());
    if let Some(words) = &plan.beside {
        tell("measuring on this machine");
        beside::put_beside(&mut run, &beside::measure(&plan.program()?, words)?);
    }
    Ok(run)
}

impl ExactPlan {
    fn program(&self) -> Result<PathBuf, ExactError> {
        let this = || std::env::current_exe().map_err(|source| file("/proc/self/exe", source));
        self.program.clone().map_or_else(this, Ok)
    }
}

/// The guest's shell script around the ladder. The guest's own files are in memory: waiting for the host executes no
/// instruction, but the loop that waits does. The table of functions that the ladder reads for the places of
/// drops keeps only function names: half of it is padding symbols of the kernel.
fn script(plan: &ExactPlan, program: &str) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let mut ladders = String::new();
    for (index, words) in plan.ladders.iter().enumerate() {
        let mut words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        if plan.card.is_some() {
            words.extend(["--tx-interface", "pair1a", "--rx-interface", "pair1b"].map(String::from));
        }
        // 1: a goal was missed, which the whole run reports.
        let words = words.join(" ");
        ladders += &format!(
            "/run/linerate bench {words} > /run/run.json 2>> /share/words
        status=$?
        cat /run/run.json > /share/run-{index}.json
        [ $status -le 1 ] || exit $status
        "
        );
    }
    format!(
        "export HOME=/run XDG_STATE_HOME=/run TMPDIR=/run
        cat /proc/kallsyms > /run/symbols
        grep -F -e asm_ -e irq_entries /run/symbols > /share/symbols
        grep -F {code} /run/symbols | grep -F -v -e ' __p' -e ' __c' > /run/functions
        mount --bind /run/functions /proc/kallsyms
        echo 1 > /proc/sys/net/core/bpf_jit_kallsyms
        cp {} /run/linerate
        {ladders}umount /proc/kallsyms
        grep -F {code} /proc/kallsyms > /share/kallsyms\n",
        quoted(program),
        code = "-e ' t ' -e ' T ' -e ' w ' -e ' W '",
    )
}

/// One kernel's ladders.
fn count_on(
    plan: &ExactPlan,
    kernel: &ExactKernel,
    tell: &impl Fn(&str),
    go_on: &impl Fn() -> bool,
) -> Result<Run, ExactError> {
    let share =
        TempDir::with_prefix("linerate-exact-").map_err(|source| file("a temporary folder", source))?;
    let mut machine = VmPlan {
        pairs: plan.card.into_iter().map(NicPair::of).collect(),
        time_limit: Duration::from_secs(plan.time_limit_s),
        ..VmPlan::counting(share.path())
    };
    kernel.apply(&mut machine);
    let vm = Vm::prepare(&machine)?;
    let name = vm.kernel_version().to_owned();
    let program = plan.program()?;
    tell(&format!("counting on Linux {name}"));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = VmStreams { stdout: &mut stdout, stderr: &mut stderr };
    let ended = vm.run(&script(plan, &program.to_string_lossy()), streams, go_on)?;
    let lost = |how, words| ExactError::Lost { kernel: name.clone(), how, words };
    let status = match ended {
        VmStatus::Exited(status) => status,
        VmStatus::Stopped => return Err(ExactError::Interrupted),
        VmStatus::TimedOut(words) => return Err(lost("did not finish in time", words)),
        VmStatus::Lost(words) => return Err(lost("was lost", words)),
    };
    let read = |name: &str| {
        let path = share.path().join(name);
        fs::read(&path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(|source| file(path, source))
    };
    if status != 0 {
        let words =
            [read("words").unwrap_or_default(), String::from_utf8_lossy(&stderr).into_owned()].concat();
        return Err(ExactError::Inside { kernel: name, status, words: words.trim().into() });
    }
    let mut runs = Vec::new();
    for index in 0..plan.ladders.len() {
        let text = read(&format!("run-{index}.json"))?;
        let run: Run = serde_json::from_str(&text)
            .map_err(|source| ExactError::NoRun { kernel: name.clone(), source })?;
        runs.push(run);
    }
    let mut runs = runs.into_iter();
    let mut run = runs.next().expect("a plan has a ladder");
    for next in runs {
        run.end.interrupted |= next.end.interrupted;
        run.end.trials.extend(next.end.trials);
        run.end.skipped.extend(next.end.skipped);
        run.end.notes.extend(next.end.notes);
    }
    let unread = |source| ExactError::Counts { kernel: name.clone(), source };
    let counts = read_counts(&read("counts")?).map_err(unread)?;
    let names = CountNames::of(&read("kallsyms")?, &program).map_err(unread)?;
    if counts.len() != run.end.trials.len() {
        let (counts, trials) = (counts.len(), run.end.trials.len());
        return Err(ExactError::Unmatched { kernel: name, counts, trials });
    }
    let version = run.start.machine.kernel.clone();
    let End { trials, notes, .. } = &mut run.end;
    for (trial, counts) in trials.iter_mut().zip(&counts) {
        trial.kernel = Some(version.clone());
        notes.extend(disagreement(trial, counts));
        count(trial, counts, &names);
    }
    Ok(run)
}

/// The kernel accounts the sending threads' time by the emulated clock: within 1 % of the count, and more if
/// threads wake others, since the woken thread is charged from the wake-up on. A larger difference means that one of the
/// two is incomplete.
const APART: RangeInclusive<f64> = 0.97..=1.25;

fn disagreement(trial: &Trial, counts: &TrialCounts) -> Option<String> {
    let clock = (trial.tx_cost.user_s + trial.tx_cost.system_s) * 1e9;
    let counted = counts.ns_of_senders() as f64;
    let are_apart = counted > 0.0 && !APART.contains(&(counted / clock));
    let Trial { tx, rx, .. } = trial;
    are_apart.then(|| {
        format!(
            "{} → {}: {counted:.0} instructions of the sending threads were counted, but their clock advanced by \
             {clock:.0} ns; do not quote this pair.",
            tx.label, rx.label
        )
    })
}

/// Fills a trial's costs from the counts. Times in the machine are instructions, none of them is real time.
fn count(trial: &mut Trial, counts: &TrialCounts, names: &CountNames) {
    let each = |instructions: u64, packets: u64| (packets > 0).then(|| instructions as f64 / packets as f64);
    let with_roles = counts.of_senders() > 0;
    trial.tx_cost.instructions_per_packet = each(counts.of_senders(), trial.sent).filter(|_| with_roles);
    let in_program =
        trial.rx.label.parse().is_ok_and(|engine: RxSpec| engine.facts().reads == RxLayer::XdpProgram);
    // Its thread reads counters by the clock, and touches no packet.
    trial.rx_cost.instructions_per_packet =
        each(counts.of_receivers(), trial.delivered).filter(|_| with_roles && !in_program);
    for cost in [&mut trial.tx_cost, &mut trial.rx_cost] {
        cost.ns_per_packet = None;
    }
    trial.instructions = Some(counts.fold(names, trial.sent, trial.delivered));
}

/// The notes of every exact run.
const NOTES: [&str; 2] = [
    "Counted in an emulated machine with one CPU: instructions, without caches, memory stalls, parallel CPUs and device \
     time. They rank code, not machines.",
    "The emulated clock advances by 1 ns per instruction: rates and times of this run refer to that clock.",
];

/// The runs of all kernels as one.
fn joined(runs: Vec<Run>, start: Start, took: Duration) -> Run {
    let several = runs.len() > 1;
    let mut end = End { duration_s: took.as_secs_f64(), ..End::default() };
    let mut start = Start { origin: Origin::Exact, ..start };
    let mut kernels = Vec::new();
    for (index, run) in runs.into_iter().enumerate() {
        let version = run.start.machine.kernel.clone();
        kernels.push(version.clone());
        if index == 0 {
            start.machine = run.start.machine;
        }
        end.interrupted |= run.end.interrupted;
        end.trials.extend(run.end.trials.into_iter().map(|mut trial| {
            if several {
                trial.parameters.insert("kernel".into(), json!(version));
            }
            trial
        }));
        for mut skipped in run.end.skipped {
            if several {
                skipped.engine = format!("{} on Linux {version}", skipped.engine);
            }
            end.skipped.push(skipped);
        }
        for note in run.end.notes {
            if !end.notes.contains(&note) {
                end.notes.push(note);
            }
        }
    }
    start.machine.kernel = kernels.join(", ");
    end.pairs = PairSummary::of(&end.trials);
    end.notes.extend(NOTES.map(String::from));
    Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end }
}

fn file(path: impl Into<PathBuf>, source: io::Error) -> ExactError {
    ExactError::File { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_shell_of_the_machine_unchanged() {
        let plan = ExactPlan {
            kernels: vec![ExactKernel::Debian(Kernel::Latest)],
            card: Some(NicModel::Igb),
            ladders: vec![vec!["--dst-port".into(), "it's 1".into()]],
            beside: None,
            program: None,
            time_limit_s: 60,
        };
        let script = script(&plan, "/a b");
        assert!(script.contains("cp '/a b' /run/linerate"), "{script}");
        let bench = r"bench '--dst-port' 'it'\''s 1' --tx-interface pair1a --rx-interface pair1b >";
        assert!(script.contains(bench), "{script}");
        assert_eq!(serde_json::to_value(&plan).unwrap()["kernels"][0]["debian"], "latest");
    }

    #[test]
    fn a_count_that_contradicts_the_clock_is_reported() {
        let text = "count\nblock 1 1 995000000 0 0\nblock 1 2 1 4000000 0\nend\n";
        let counts = read_counts(text).unwrap().remove(0);
        let mut trial = Trial::default();
        (trial.tx.label, trial.rx.label) = ("udp".into(), "xdp".into());
        trial.tx_cost.system_s = 1.0;
        assert_eq!(disagreement(&trial, &counts), None);
        trial.tx_cost.user_s = 0.5;
        let words = "udp → xdp: 999000001 instructions of the sending threads were counted, but their clock advanced by \
                     1500000000 ns; do not quote this pair.";
        assert_eq!(disagreement(&trial, &counts).as_deref(), Some(words));
    }

    #[test]
    fn errors_name_the_kernel() {
        let kernel = || "6.1.0-50-amd64".to_owned();
        let errors = [
            (
                ExactError::Unmatched { kernel: kernel(), counts: 1, trials: 2 },
                "1 counts for 2 trials on Linux 6.1.0-50-amd64",
            ),
            (
                ExactError::Inside { kernel: kernel(), status: 3, words: "error: no".into() },
                "linerate in the machine with Linux 6.1.0-50-amd64 ended with status 3: error: no",
            ),
            (
                ExactError::Lost { kernel: kernel(), how: "was lost", words: "panic".into() },
                "the machine with Linux 6.1.0-50-amd64 was lost: panic",
            ),
            (ExactError::Interrupted, "interrupted before any trial was complete"),
            (
                ExactError::Counts { kernel: kernel(), source: CountError::Hidden },
                "cannot read the counts of Linux 6.1.0-50-amd64",
            ),
            (file("/x", io::ErrorKind::NotFound.into()), "cannot use /x"),
        ];
        for (error, words) in errors {
            assert_eq!(error.to_string(), words);
        }
        let source = serde_json::from_str::<Run>("").unwrap_err();
        let error = ExactError::NoRun { kernel: kernel(), source };
        assert_eq!(error.to_string(), "the machine with Linux 6.1.0-50-amd64 did not write a run");
    }
}
