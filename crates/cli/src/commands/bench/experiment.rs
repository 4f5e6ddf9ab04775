//! Runs in the lab: what is the same whatever decides about their trials.

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

/// Where packets go in a lab: cards that were lent to it are real.
pub(crate) fn origin(lab: &LabPlan) -> Origin {
    if lab.interfaces.is_some() { Origin::Hosts } else { Origin::Lab }
}

/// The lab of the first pair, which is like those of the others.
pub(super) fn first_lab(points: &[BenchPlan]) -> LabPlan {
    let first = &points[0];
    first.pairs.first().map_or_else(|| first.trial.lab.clone(), |pair| first.trial.lab_for(pair))
}

/// A run in the lab, whatever decides about its trials.
pub(super) struct Experiment<'e> {
    pub(super) start: Start,
    /// A lab like those it will use.
    pub(super) lab: &'e LabPlan,
    pub(super) access: Access,
    /// What was measured before with the same plan.
    pub(super) earlier: Option<Run>,
    /// Where traces of rings go.
    pub(super) trace: Option<&'e Path>,
    /// Text of its own instead of the run's.
    pub(super) text: Option<&'e WriteText<'e>>,
}

impl<'e> Experiment<'e> {
    /// A run from its beginning, which nothing is traced of.
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
                "Ran without root, in a user namespace: buffers are bound by net.core.rmem_max and wmem_max, \
                 and engines that need BPF are left out."
                    .into(),
            );
        }
        let untraced = trace.and_then(|path| trace::save(path, &run).err());
        let failure = broken_output.or(failure).or_else(|| nothing_ran(&run)).or(untraced);
        pipeline.conclude(&run, Ending { failure, max_loss, text })
    }
}

/// Every engine was left out: what was asked for is missing here, and the record says why.
fn nothing_ran(run: &Run) -> Option<Failure> {
    if !run.end.trials.is_empty() || run.end.interrupted || run.end.skipped.is_empty() {
        return None;
    }
    let reasons = run.end.skipped.iter().map(|skipped| format!("{}: {}", skipped.engine, skipped.reason));
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    Some(
        Failure::new(Status::Missing, format!("nothing was measured: {reasons}"))
            .hint("linerate probe shows which engines work here"),
    )
}

/// Why a trial in a lab failed, and what helps.
pub(crate) fn explain(error: &TrialError) -> Failure {
    if let TrialError::Settings(error) = error {
        return crate::commands::nic::session_failure(error);
    }
    let failure = Failure::of(Status::Refused, error);
    if let TrialError::Lab(LabError::NotFree { interface, reason, .. }) = error {
        return match reason {
            NotFree::Up => failure.hint(format!("when nothing needs it: ip link set {interface} down")),
            NotFree::Mtu { needed, .. } => failure.hint(format!("ip link set {interface} mtu {needed}")),
            _ => failure,
        };
    }
    match crate::failure::os_error(error) {
        Some(libc::EMFILE | libc::ENFILE) => failure.hint("raise the limit of open files: ulimit -n 4096"),
        Some(libc::ENOSPC) => failure.hint("raise /proc/sys/user/max_net_namespaces"),
        _ => failure,
    }
}
