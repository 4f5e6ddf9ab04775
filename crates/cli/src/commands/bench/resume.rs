//! `linerate bench --resume FILE`: the rest of an interrupted run.

use std::{fs, path::Path};

use bench::{BenchPlan, ExperimentPlan, StepsPlan, SweepPlan, read_machine, run_steps};
use measure::{Origin, Run};
use serde_json::Value;

use super::experiment::{Experiment, first_lab};
use crate::{
    access::gain_access,
    args::BenchArgs,
    failure::{Failure, Status, in_words},
    output,
};

/// The plan of the run.
enum Plan {
    One(ExperimentPlan),
    Steps(StepsPlan),
}

pub(super) fn run(file: &Path, args: &BenchArgs) -> Result<bool, Failure> {
    let name = file.display();
    let refused = |words: String| Failure::new(Status::Refused, words);
    let text = fs::read_to_string(file).map_err(|error| {
        refused(format!("cannot read {name}: {error}")).hint("a killed run leaves FILE.partial")
    })?;
    let run = report::read_json(&text).map_err(|error| refused(format!("{name}: {}", in_words(&error))))?;
    let mut plan = plan_of(&run)
        .ok_or_else(|| refused(format!("{name}: cannot resume: not a run of linerate bench in the lab")))?;
    if !run.end.interrupted {
        return Err(refused(format!("{name}: that run is complete"))
            .hint("linerate report shows it; omit --resume to measure again"));
    }
    if args.output.dry_run {
        return match &plan {
            Plan::One(plan) => output::print_plan(plan),
            Plan::Steps(plan) => output::print_plan(plan),
        };
    }
    let access = gain_access()?;
    let (now, then) = (read_machine(), &run.start.machine);
    if (&now.kernel, &now.cpu_model, now.cpus) != (&then.kernel, &then.cpu_model, then.cpus) {
        return Err(refused(format!("{name}: that run started on another machine or kernel"))
            .hint("a record covers one machine: measure again"));
    }
    plan.keep_journals_in(&output::state_folder());
    let lab = first_lab(plan.points());
    let done = run.end.trials.iter().filter(|trial| !trial.interrupted).count();
    eprintln!("resuming after {done} trials");
    let experiment = Experiment::new(run.start.clone(), &lab, access);
    let experiment = Experiment { earlier: Some(run), ..experiment };
    // Save to the journal's own run, unless another file is named.
    let mut to = args.output.clone();
    let own = file.extension().is_some_and(|extension| extension == "partial");
    to.save = to.save.or_else(|| (own && !to.no_save).then(|| file.with_extension("")));
    experiment.run(&to, args.load.max_loss, |start, earlier, progress| match &plan {
        Plan::One(plan) => plan.run(start, earlier, progress),
        Plan::Steps(plan) => run_steps(plan, start, earlier, progress),
    })
}

fn plan_of(run: &Run) -> Option<Plan> {
    if run.start.command != "bench" || run.start.origin == Origin::Model {
        return None;
    }
    let asked = Value::Object(run.start.asked.clone().into_iter().collect());
    let plan = if asked.get("steps").is_some() {
        Plan::Steps(serde_json::from_value(asked).ok()?)
    } else if asked.get("points").is_some() {
        Plan::One(serde_json::from_value(asked).ok()?)
    } else {
        let plan: BenchPlan = serde_json::from_value(asked).ok()?;
        let ladder = SweepPlan { trials: plan.trials, seed: plan.trial.seed, points: vec![plan] };
        Plan::One(ExperimentPlan::Ladder(ladder))
    };
    (!plan.points().is_empty()).then_some(plan)
}

impl Plan {
    /// The record does not hold this machine's folder for them.
    fn keep_journals_in(&mut self, state: &Path) {
        let all: Vec<&mut ExperimentPlan> = match self {
            Self::One(plan) => vec![plan],
            Self::Steps(plan) => plan.steps.iter_mut().map(|step| &mut step.plan).collect(),
        };
        let points = all.into_iter().flat_map(ExperimentPlan::points_mut);
        points.for_each(|point| point.state = state.to_path_buf());
    }

    /// The settings of the first point.
    fn points(&self) -> &[BenchPlan] {
        match self {
            Self::One(plan) => plan.points(),
            Self::Steps(plan) => plan.steps.first().map_or(&[], |step| step.plan.points()),
        }
    }
}
