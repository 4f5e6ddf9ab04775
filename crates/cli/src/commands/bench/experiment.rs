//! Runs in the lab: what all of them share, whichever part chooses their trials.

use std::path::Path;

use bench::{BenchPlan, read_lab_interfaces};
use lab::{Access, LabError, LabPlan, NotFree};
use measure::{Origin, Run, Start};
use trial::TrialError;

use super::trace;
use crate::{
    args::OutputArgs,
    failure::{Failure, Status},
    pipeline::{Ending, Pipeline, WriteText},
    progress::Progress,
};

/// The origin of a lab's packets: cards lent to it are real.
pub(crate) fn origin(lab: &LabPlan) -> Origin {
    if lab.interfaces.is_some() { Origin::Hosts } else { Origin::Lab }
}

/// The lab of the first pair, which represents those of the others.
pub(super) fn first_lab(points: &[BenchPlan]) -> LabPlan {
    // A point without pairs may be one that this kernel cannot measure.
    let first = points.iter().find(|point| !point.pairs.is_empty()).unwrap_or(&points[0]);
    let lab = first.pairs.first().map_or_else(|| first.trial.lab.clone(), |pair| first.trial.lab_for(pair));
    if first.pairs.is_empty() { LabPlan { qdisc: None, ..lab } } else { lab }
}

/// A run in the lab, whichever part chooses its trials.
pub(super) struct Experiment<'e> {
    pub(super) start: Start,
    /// A lab like those that it will use.
    pub(super) lab: &'e LabPlan,
    pub(super) access: Access,
    /// Trials that an earlier run with the same plan measured.
    pub(super) earlier: Option<Run>,
    /// The file for traces of rings.
    pub(super) trace: Option<&'e Path>,
    /// Text to print instead of the run's.
    pub(super) text: Option<&'e WriteText<'e>>,
}

impl<'e> Experiment<'e> {
    /// A new run without traces.
    pub(super) fn new(start: Start, lab: &'e LabPlan, access: Access) -> Self {
        Self { start, lab, access, earlier: None, trace: None, text: None }
    }

    /// Opens the file to save to, runs, prints and saves; returns whether the run's goals were met.
    pub(super) fn run(
        self,
        to: &OutputArgs,
        max_loss: Option<f64>,
        run: impl FnOnce(Start, Option<Run>, &mut Progress) -> Result<Run, (Box<Run>, TrialError)>,
    ) -> Result<bool, Failure> {
        let Self { mut start, lab, access, earlier, trace, text } = self;
        trace.map_or(Ok(()), trace::check)?;
        let pipeline = Pipeline::of(to, "bench")?;
        start.machine.interfaces = read_lab_interfaces(lab).map_err(|error| explain(&error.into()))?;
        pipeline.begin(&start)?;
        let mut progress = pipeline.progress(&start, earlier.as_ref())?;
        let outcome = run(start, earlier, &mut progress);
        let broken_output = progress.finish().err();
        let (mut run, failure) = match outcome {
            Ok(run) => (run, None),
            Err((run, error)) => (*run, Some(explain(&error))),
        };
        if access == Access::UserNamespace {
            run.end.notes.push(
                "Ran without root, in a user namespace: buffers are limited by net.core.rmem_max and wmem_max, \
                 and engines that need BPF are skipped."
                    .into(),
            );
        }
        let untraced = trace.and_then(|path| trace::save(path, &run).err());
        let failure = broken_output.or(failure).or_else(|| nothing_ran(&run)).or(untraced);
        pipeline.conclude(&run, Ending { failure, max_loss, text })
    }
}

/// Refuses a run in which every requested engine was skipped, with the reasons in the record.
fn nothing_ran(run: &Run) -> Option<Failure> {
    if !run.end.trials.is_empty() || run.end.interrupted || run.end.skipped.is_empty() {
        return None;
    }
    let reasons = run.end.skipped.iter().map(|skipped| format!("{}: {}", skipped.engine, skipped.reason));
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    Some(
        Failure::new(Status::Missing, format!("nothing was measured: {reasons}"))
            .hint("linerate probe shows which engines are available"),
    )
}

/// Why a trial in a lab failed, and what to do.
pub(crate) fn explain(error: &TrialError) -> Failure {
    if let TrialError::Settings(error) = error {
        return crate::commands::nic::session_failure(error);
    }
    let failure = Failure::of(Status::Refused, error);
    if let TrialError::Lab(LabError::NotFree { interface, reason, .. }) = error {
        return match reason {
            NotFree::Up => failure.hint(format!("if nothing needs it: ip link set {interface} down")),
            NotFree::Mtu { needed, .. } => failure.hint(format!("ip link set {interface} mtu {needed}")),
            _ => failure,
        };
    }
    match crate::failure::os_error(error) {
        Some(libc::EMFILE | libc::ENFILE) => {
            failure.hint("raise the limit on open files (ulimit -n), or use fewer --flows: each is a socket")
        }
        Some(libc::EADDRINUSE) => failure.hint(
            "each of --flows takes a source port of its address: fewer, or widen sysctl net.ipv4.ip_local_port_range",
        ),
        Some(libc::ENOSPC) => failure.hint("raise /proc/sys/user/max_net_namespaces"),
        _ => failure,
    }
}
