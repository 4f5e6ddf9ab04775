//! Scenarios of several steps: each step is a ladder, sweep or search, all in one record, beside the published figures.

use bench::{ExperimentPlan, StepPlan, StepsPlan, run_steps};
use lab::Access;

use super::{
    experiment::{Experiment, first_lab, origin},
    ndr, points,
};
use crate::{
    access::gain_access,
    args::{BenchCommand, Cli, Command, OutputArgs},
    failure::{Failure, Status},
    output,
    scenario::Steps,
    start::opening,
};

pub(crate) fn run(steps: &Steps) -> Result<bool, Failure> {
    let access = gain_access()?;
    let plans = steps.scenario.steps.iter().zip(&steps.commands).map(|(step, cli)| {
        let name = step.name.as_deref().unwrap_or_default();
        Ok(StepPlan::new(name, plan(name, cli, access)?))
    });
    let plan = StepsPlan {
        scenario: steps.name.clone(),
        steps: plans.collect::<Result<_, Failure>>()?,
        published: steps.scenario.published.clone(),
    };
    let (Some(output), Some(first)) = (steps.commands.first().and_then(output_of), plan.steps.first()) else {
        return Err(Failure::new(Status::Internal, "a scenario without steps"));
    };
    if output.dry_run {
        return output::print_plan(&plan);
    }
    let lab = &first_lab(first.plan.points());
    let start = opening("bench", origin(lab), &plan);
    let experiment = Experiment::new(start, lab, access);
    experiment.run(output, None, |start, earlier, progress| run_steps(&plan, start, earlier, progress))
}

fn plan(name: &str, cli: &Cli, access: Access) -> Result<ExperimentPlan, Failure> {
    match &cli.command {
        Command::Bench(bench) => match &bench.command {
            None => points::ladder(bench, access).map(ExperimentPlan::Ladder),
            Some(BenchCommand::Ndr(args)) => ndr::plan(args, access).map(ExperimentPlan::Throughput),
            Some(_) => Err(alone(name)),
        },
        _ => Err(alone(name)),
    }
}

fn alone(name: &str) -> Failure {
    Failure::new(
        Status::Usage,
        format!("step '{name}': a scenario of several steps can only run bench and ndr"),
    )
}

fn output_of(cli: &Cli) -> Option<&OutputArgs> {
    match &cli.command {
        Command::Bench(bench) => match &bench.command {
            Some(BenchCommand::Ndr(ndr)) => Some(&ndr.output),
            _ => Some(&bench.output),
        },
        _ => None,
    }
}
