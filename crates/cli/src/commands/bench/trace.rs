//! `--trace FILE`: rings poll by poll, as CSV.

use std::{fmt::Write, path::Path};

use measure::Run;
use sys::output::Destination;

use crate::failure::{Failure, Status};

/// Refuses a file that cannot be written, before anything runs.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    Destination::check(path).map(drop).map_err(|error| refused(path, &error))
}

/// Writes the traces of all trials.
pub(super) fn save(path: &Path, run: &Run) -> Result<(), Failure> {
    sys::output::write_whole(path, text(run).as_bytes()).map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Status::Refused, format!("cannot write the trace to {}: {error}", path.display()))
}

fn text(run: &Run) -> String {
    let mut text = String::from("trial_index,receiver,time_ns,head,tail,missed\n");
    for (index, trial) in run.end.trials.iter().enumerate() {
        let moments =
            trial.ring.iter().filter_map(|ring| ring.trace.as_ref()).flat_map(|trace| &trace.moments);
        for (time_ns, head, tail, missed) in moments {
            let receiver = &trial.rx.label;
            writeln!(text, "{index},{receiver},{time_ns},{head},{tail},{missed}")
                .expect("writing to a string cannot fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use measure::{End, Endpoint, Origin, RingTrace, RingUse, SCHEMA, Start, Trial};

    use super::*;

    #[test]
    fn every_moment_is_a_line() {
        let trace = RingTrace { slots: 16, is_cut: false, moments: vec![(0, 1, 15, 0), (900, 3, 2, 7)] };
        let traced = Trial {
            rx: Endpoint { label: "pci".into(), ..Endpoint::default() },
            ring: Some(RingUse { trace: Some(trace), ..RingUse::default() }),
            ..Trial::default()
        };
        let start = Start {
            command: "bench".into(),
            version: String::new(),
            started_at: String::new(),
            origin: Origin::Hosts,
            machine: measure::Machine::default(),
            asked: std::collections::BTreeMap::new(),
        };
        let end = End { trials: vec![Trial::default(), traced], ..End::default() };
        let run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end };
        assert_eq!(
            text(&run),
            "trial_index,receiver,time_ns,head,tail,missed\n1,pci,0,1,15,0\n1,pci,900,3,2,7\n"
        );
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_before_the_run() {
        let failure = check(Path::new("/proc/no/trace.csv")).unwrap_err().to_string();
        assert!(failure.contains("cannot write the trace to /proc/no/trace.csv: "), "{failure}");
    }
}
