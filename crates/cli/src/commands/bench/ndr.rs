//! `linerate bench ndr`: throughput searches.

use bench::{Goal, Tests, ThroughputPlan, run_throughput};

use super::{
    experiment::{Experiment, first_lab, origin},
    points,
};
use crate::{
    access::gain_access,
    args::{NdrArgs, TestArg},
    failure::{Failure, Status},
    output,
    start::opening,
};

/// Shares of the throughput at which latency is measured.
const LATENCY_SHARES: [f64; 3] = [0.1, 0.5, 0.9];
/// RFC 2544, 26.3: at most 10 %.
const FRAME_LOSS_STEP: f64 = 0.1;

pub(super) fn run(args: &NdrArgs) -> Result<bool, Failure> {
    let access = gain_access()?;
    let plan = plan(args, access)?;
    if args.output.dry_run {
        return output::print_plan(&plan);
    }
    let lab = &first_lab(&plan.points);
    let start = opening("bench", origin(lab), &plan);
    let experiment = Experiment::new(start, lab, access);
    experiment
        .run(&args.output, None, |start, earlier, progress| run_throughput(&plan, start, earlier, progress))
}

pub(super) fn plan(args: &NdrArgs, access: lab::Access) -> Result<ThroughputPlan, Failure> {
    let points = points::search(args, access)?;
    let asked = &args.goals;
    let goals: Vec<Goal> = asked
        .loss_ratio
        .iter()
        .map(|loss_ratio| Goal {
            name: Goal::name_of(*loss_ratio),
            loss_ratio: *loss_ratio,
            exceed_ratio: asked.exceed_ratio,
            final_duration_s: asked.final_duration.as_secs_f64(),
            duration_sum_s: asked.duration_sum.as_secs_f64(),
            initial_duration_s: asked.initial_duration.min(asked.final_duration).as_secs_f64(),
            width_ratio: asked.width,
        })
        .collect();
    let mut problems: Vec<Failure> =
        goals.iter().flat_map(Goal::problems).map(|problem| Failure::new(Status::Usage, problem)).collect();
    let frame = wire::FrameSize::new(points[0].trial.frame_size_bytes).map(|size| f64::from(size.bytes()));
    let mut rate = |rate: Option<wire::Rate>, option: &str| match rate? {
        wire::Rate::Pps(pps) => Some(pps),
        wire::Rate::Max => None,
        _ => {
            let words =
                format!("{option} must be in packets per second, because sizes may differ between points");
            problems.push(Failure::new(Status::Usage, words).hint(format!("try {option} 500kpps")));
            frame.as_ref().ok().copied()
        }
    };
    let (min_pps, max_pps) = (rate(asked.min_load, "--min-load"), rate(asked.max_load, "--max-load"));
    if min_pps.zip(max_pps).is_some_and(|(min, max)| min > max) {
        problems.push(Failure::new(Status::Usage, "--min-load is above --max-load"));
    }
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let has = |test| args.tests.contains(&test);
    Ok(ThroughputPlan {
        points,
        goals,
        min_pps,
        max_pps,
        tests: Tests {
            latency_shares: if has(TestArg::Latency) { LATENCY_SHARES.to_vec() } else { Vec::new() },
            frame_loss_step: has(TestArg::FrameLoss).then_some(FRAME_LOSS_STEP),
            back_to_back: has(TestArg::BackToBack).then_some(args.repetitions),
            longest_burst_s: args.longest_burst.as_secs_f64(),
        },
        seed: args.packets.seed,
    })
}
