//! CPU time on this machine next to counted instructions.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use measure::{Cost, Run, Trial, median};
use serde_json::Value;
use sys::child::{Ties, tie};
use thiserror::Error;

/// Why there are no times of this machine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BesideError {
    /// The program could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The ladder failed.
    #[error("linerate bench on this machine ended with status {status}: {words}")]
    Failed {
        /// Its exit status; -1 after a signal.
        status: i32,
        /// What it wrote to standard error.
        words: String,
    },
    /// It did not write a run.
    #[error("linerate bench on this machine did not write a run")]
    NoRun(#[source] serde_json::Error),
}

/// Runs a ladder on this machine, in a process of its own as in the emulated one.
pub(super) fn measure(program: &Path, words: &[String]) -> Result<Run, BesideError> {
    let mut command = Command::new(program);
    command.arg("bench").args(words).stdin(Stdio::null());
    tie(&mut command, Ties::default());
    let output = command.output().map_err(|source| BesideError::Start { program: program.into(), source })?;
    // 1: a goal was missed, which the whole run reports.
    if !matches!(output.status.code(), Some(0 | 1)) {
        let words = String::from_utf8_lossy(&output.stderr).trim().into();
        return Err(BesideError::Failed { status: output.status.code().unwrap_or(-1), words });
    }
    serde_json::from_slice(&output.stdout).map_err(BesideError::NoRun)
}

/// Adds the median CPU time per packet of each pair of `measured`, a ladder on this machine, to the instructions of the
/// same pair in `counted`, with the ratio of both; also adds notes for the reader.
pub(super) fn put_beside(counted: &mut Run, measured: &Run) {
    let mut missing = Vec::new();
    for trial in &mut counted.end.trials {
        let same: Vec<&Trial> = measured.end.trials.iter().filter(|other| is_same(trial, other)).collect();
        if same.is_empty() {
            missing.push(format!("{} → {}", trial.tx.label, trial.rx.label));
            continue;
        }
        put(&mut trial.tx_cost, same.iter().filter_map(|trial| trial.tx_cost.ns_per_packet).collect());
        put(&mut trial.rx_cost, same.iter().filter_map(|trial| trial.rx_cost.ns_per_packet).collect());
    }
    let (here, there) = (&measured.start.machine.kernel, &counted.start.machine.kernel);
    let notes = &mut counted.end.notes;
    notes.push(format!(
        "ns beside: CPU time of the threads on this machine (Linux {here}, all on one CPU). ins/ns hints at stalls and the \
         CPU's clock; it is not a property of the code."
    ));
    if !there.split(", ").any(|kernel| kernel == here) {
        notes.push(format!(
            "The instructions are from Linux {there}, the ns from Linux {here}: some differences between pairs are differences \
             between kernels."
        ));
    }
    missing.dedup();
    if !missing.is_empty() {
        notes.push(format!("No ns beside (not measured on this machine): {}.", missing.join(", ")));
    }
}

/// The same pair with the same settings; the kernel is the machine's.
fn is_same(counted: &Trial, measured: &Trial) -> bool {
    let settings = |trial: &Trial| -> Vec<(String, Value)> {
        let all = trial.parameters.iter().filter(|(name, _)| *name != "kernel");
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let ends = |trial: &Trial| {
        let ends = [&trial.tx, &trial.rx].map(|end| (end.label.clone(), end.threads));
        (ends, trial.frame_size_bytes)
    };
    ends(counted) == ends(measured) && settings(counted) == settings(measured)
}

fn put(cost: &mut Cost, ns: Vec<f64>) {
    cost.beside_ns_per_packet = median(&ns).filter(|ns| *ns > 0.0);
    cost.instructions_per_ns = cost
        .instructions_per_packet
        .zip(cost.beside_ns_per_packet)
        .map(|(instructions, ns)| instructions / ns);
}

#[cfg(test)]
mod tests {
    use measure::{End, SCHEMA, Start};
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_the_ladder_that_failed() {
        let failed = BesideError::Failed { status: 3, words: "error: no".into() };
        assert_eq!(failed.to_string(), "linerate bench on this machine ended with status 3: error: no");
        let source = serde_json::from_str::<Run>("").unwrap_err();
        assert_eq!(
            BesideError::NoRun(source).to_string(),
            "linerate bench on this machine did not write a run"
        );
        let source = io::Error::from(io::ErrorKind::NotFound);
        let unstarted = BesideError::Start { program: "/a".into(), source };
        assert_eq!(unstarted.to_string(), "cannot start /a");
    }

    fn run(kernel: &str, trials: Vec<Trial>) -> Run {
        let mut start: Start = serde_json::from_value(json!({
            "command": "bench", "version": "1", "started_at": "", "origin": "exact", "asked": {},
            "machine": measure::Machine::default()
        }))
        .unwrap();
        start.machine.kernel = kernel.into();
        Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end: End { trials, ..End::default() } }
    }

    fn trial(pair: [&str; 2], cost: Cost) -> Trial {
        let mut trial = Trial { tx_cost: cost, ..Trial::default() };
        (trial.tx.label, trial.rx.label) = (pair[0].into(), pair[1].into());
        trial
    }

    #[test]
    fn each_pair_gets_the_median_of_its_own_ns() {
        let instructions = |each| Cost { instructions_per_packet: Some(each), ..Cost::default() };
        let ns = |each| Cost { ns_per_packet: Some(each), ..Cost::default() };
        let (first, second) = (["udp", "udp"], ["udp", "xdp"]);
        let mut of_kernel = trial(first, instructions(9000.0));
        of_kernel.parameters.insert("kernel".into(), json!("6.1"));
        let mut counted = run("7.3", vec![of_kernel, trial(second, instructions(1.0))]);
        let mut larger = trial(first, ns(1.0));
        larger.parameters.insert("frame-size".into(), json!(1518));
        let here = [3000.0, 2000.0, 9000.0].map(|each| trial(first, ns(each)));
        put_beside(&mut counted, &run("6.18", [&here[..], &[larger]].concat()));
        let cost = &counted.end.trials[0].tx_cost;
        assert_eq!((cost.beside_ns_per_packet, cost.instructions_per_ns), (Some(3000.0), Some(3.0)));
        assert_eq!(counted.end.trials[1].tx_cost.beside_ns_per_packet, None);
        let notes = counted.end.notes.join("\n");
        assert!(notes.contains("from Linux 7.3, the ns from Linux 6.18"), "{notes}");
        assert!(notes.contains("(not measured on this machine): udp → xdp."), "{notes}");
    }
}
