//! `linerate bench`: the ladder, sweeps, and the other experiments.

mod apu4d4;
mod disk;
mod exact;
mod experiment;
mod hosts;
mod list;
mod ndr;
mod plan;
mod points;
mod rdr;
mod resume;
mod single_rx_queue;
mod stages;
mod steps;
mod trace;

pub(crate) use steps::run as run_steps;

use bench::{BenchPlan, run_ladder};
use lab::Access;
use measure::Run;
use trial::{Diagnosis, HostPlan};

use crate::{
    access::gain_access,
    args::{BenchArgs, BenchCommand},
    failure::{Failure, unprofiled},
    output,
    start::opening,
};
use experiment::Experiment;
pub(crate) use experiment::{explain, origin};
pub(crate) use plan::{cpu_order, interfaces_of};

/// The plan of one setting in the lab, or all its problems.
pub(crate) fn lab_plan(args: &BenchArgs, access: Access) -> Result<BenchPlan, Failure> {
    plan::plan(&args.asked(), access)
}

/// One plan per sending engine towards a receiver on another host, or all their problems.
pub(crate) fn host_plans(args: &BenchArgs) -> Result<Vec<HostPlan>, Failure> {
    hosts::plans(args)
}

pub(crate) fn run(args: &BenchArgs) -> Result<bool, Failure> {
    match &args.command {
        Some(BenchCommand::List(list)) => return list::run(list),
        Some(BenchCommand::Apu4d4(args)) => return apu4d4::run(args),
        Some(BenchCommand::Disk(args)) => return disk::run(args),
        Some(BenchCommand::SingleRxQueue(args)) => return single_rx_queue::run(args),
        Some(BenchCommand::Ndr(ndr)) => return ndr::run(ndr),
        Some(BenchCommand::Rdr(rdr)) => return rdr::run(rdr),
        None => {}
    }
    if let Some(file) = &args.resume {
        return resume::run(file, args);
    }
    if args.hosts.peer.is_some() {
        return hosts::run(args);
    }
    if args.exact.exact || args.exact.kernel_image.is_some() {
        return exact::run(args);
    }
    let access = gain_access()?;
    let plan = points::ladder(args, access)?;
    if args.output.dry_run {
        return if plan.is_sweep() { output::print_plan(&plan) } else { output::print_plan(&plan.points[0]) };
    }
    if args.profile && args.hosts.peer.is_none() {
        Diagnosis::start().map_err(|error| unprofiled(&error))?;
    }
    if args.is_brief() {
        eprintln!("note: {EMULATED}");
    }
    let lab = &experiment::first_lab(&plan.points);
    let start = if plan.is_sweep() {
        opening("bench", origin(lab), &plan)
    } else {
        opening("bench", origin(lab), &plan.points[0])
    };
    let trace = args.lab.rings.trace.as_deref();
    let experiment = Experiment { trace, ..Experiment::new(start, lab, access) };
    experiment.run(&args.output, args.load.max_loss, |start, earlier, progress| {
        let noted = |mut run: Run| {
            run.end.notes.extend(args.is_brief().then(|| EMULATED.to_owned()));
            run
        };
        run_ladder(&plan, start, earlier, progress)
            .map(noted)
            .map_err(|(run, error)| (Box::new(noted(*run)), error))
    })
}

/// The note of a ladder that is shortened here.
const EMULATED: &str = "This machine is emulated (QEMU without KVM) and a trial takes seconds: one trial per pair, without \
                        scaling and without the search for the rate without loss. --trials 3 runs everything.";
