//! `linerate bench`: the ladder, sweeps, and the experiments that are more than that.

mod apu4d4;
mod hosts;
mod list;
mod ndr;
mod plan;
mod points;
mod resume;
mod single_rx_queue;
mod steps;

pub(crate) use steps::{Steps, run as run_steps};

use bench::{Diagnosis, TrialError, read_lab_interfaces, run_ladder};
use lab::{Access, LabError, LabPlan, NotFree};
use measure::{Origin, Run, Start};

use crate::{
    args::{BenchArgs, BenchCommand, OutputArgs},
    failure::{Failure, Status, unprofiled},
    output::{self, Form, Save},
    progress::Progress,
    start::opening,
};

pub(crate) fn run(args: &BenchArgs) -> Result<bool, Failure> {
    match &args.command {
        Some(BenchCommand::List(list)) => return list::run(list),
        Some(BenchCommand::Apu4d4(args)) => return apu4d4::run(args),
        Some(BenchCommand::SingleRxQueue(args)) => return single_rx_queue::run(args),
        Some(BenchCommand::Ndr(ndr)) => return ndr::run(ndr),
        Some(BenchCommand::Rdr(rdr)) => return super::model::run_rdr(rdr),
        None => {}
    }
    if let Some(file) = &args.resume {
        return resume::run(file, args);
    }
    if args.hosts.peer.is_some() {
        return hosts::run(args);
    }
    let access = gain_access()?;
    let plan = points::ladder(args, access)?;
    if args.output.dry_run {
        return if plan.is_sweep() { output::print_plan(&plan) } else { output::print_plan(&plan.points[0]) };
    }
    if args.profile && args.hosts.peer.is_none() {
        Diagnosis::start().map_err(|error| unprofiled(&error))?;
    }
    let lab = &plan.points[0].lab;
    let start = if plan.is_sweep() {
        opening("bench", origin(lab), &plan)
    } else {
        opening("bench", origin(lab), &plan.points[0])
    };
    let experiment = Experiment { start, lab, access, earlier: None };
    experiment.run(&args.output, args.load.max_loss, |start, earlier, progress| {
        run_ladder(&plan, start, earlier, progress)
    })
}

/// Where packets go in a lab: cards that were lent to it are real.
fn origin(lab: &LabPlan) -> Origin {
    if lab.interfaces.is_some() { Origin::Hosts } else { Origin::Lab }
}

/// A run in the lab, whatever decides about its trials.
struct Experiment<'e> {
    start: Start,
    /// A lab like those it will use.
    lab: &'e LabPlan,
    access: Access,
    /// What was measured before with the same plan.
    earlier: Option<Run>,
}

impl Experiment<'_> {
    /// Opens the file to save to, runs, prints and saves; returns whether the run's goals were met.
    fn run(
        self,
        to: &OutputArgs,
        max_loss: Option<f64>,
        run: impl FnOnce(Start, Option<Run>, &mut Progress) -> Result<Run, (Box<Run>, TrialError)>,
    ) -> Result<bool, Failure> {
        let Self { mut start, lab, access, earlier } = self;
        let save = Save::prepare(to, "bench")?;
        let form = to.form();
        start.machine.interfaces = read_lab_interfaces(lab).map_err(|error| explain(&error.into()))?;
        if form == Form::JsonStream {
            output::print_event(report::Event::start(&start))?;
        }
        let journal = save.as_ref().map(|save| save.journal(&start, earlier.as_ref())).transpose()?;
        let mut progress = Progress::new(form, journal);
        let outcome = run(start, earlier, &mut progress);
        progress.finish()?;
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
        conclude(run, form, save, failure, max_loss)
    }
}

/// Prints and saves a run; returns whether its goals were met.
pub(crate) fn conclude(
    run: Run,
    form: Form,
    save: Option<Save>,
    failure: Option<Failure>,
    max_loss: Option<f64>,
) -> Result<bool, Failure> {
    output::print_run(&run, form)?;
    output::save_run(&run, save)?;
    let loss_held = max_loss.is_none_or(|most| run.end.trials.iter().all(|trial| trial.loss_ratio <= most));
    match failure {
        Some(failure) => Err(failure),
        None => Ok(run.end.goals_met() && loss_held),
    }
}

/// Labs need rights over namespaces, or the right to make some.
pub(crate) fn gain_access() -> Result<Access, Failure> {
    lab::gain_access().map_err(|error| {
        Failure::of(Status::Missing, &error)
            .hint("run as root, or allow user namespaces: sysctl user.max_user_namespaces=10000")
    })
}

fn explain(error: &TrialError) -> Failure {
    if let TrialError::Settings(error) = error {
        return super::nic::session_failure(error);
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
