//! `linerate bench --exact`: the ladder in an emulated machine that counts instructions.

use bench::{BesideError, ExactError, ExactKernel, ExactPlan, run_exact, words_beside, words_inside};
use lab::{Kernel, VmError};
use measure::Origin;
use sys::{cpu, signal};

use crate::{
    access::gain_access,
    args::BenchArgs,
    failure::{Failure, Status},
    pipeline::{Ending, Pipeline},
    start::opening,
};

/// A ladder takes a minute or two on each kernel; a sweep of ladders takes longer.
const TIME_LIMIT_S: u64 = 3600;

pub(crate) fn run(args: &BenchArgs) -> Result<bool, Failure> {
    let plan = plan(args);
    let Some(pipeline) = Pipeline::open(&args.output, "bench-exact", &plan)? else { return Ok(true) };
    // The machine's files are opened with the rights of the calling user, before entering a user namespace.
    gain_access()?;
    let start = opening("bench", Origin::Exact, &plan);
    let tell = |step: &str| eprintln!("{step}");
    let run = run_exact(&plan, start, &tell, &|| signal::caught() == 0).map_err(|error| explain(&error))?;
    pipeline.begin(&run.start)?;
    run.end.trials.iter().try_for_each(|trial| pipeline.trial(trial))?;
    pipeline.conclude(&run, Ending { max_loss: args.load.max_loss, ..Ending::default() })
}

fn plan(args: &BenchArgs) -> ExactPlan {
    let asked = &args.exact;
    let own = asked.kernel_image.clone().zip(asked.modules.clone());
    let own = own.map(|(image, modules)| ExactKernel::Own { image, modules });
    let mut kernels: Vec<ExactKernel> = asked.kernel.iter().copied().map(ExactKernel::Debian).collect();
    kernels.extend(own);
    if kernels.is_empty() {
        kernels.push(ExactKernel::Debian(Kernel::Latest));
    }
    // The first two words are the command's name and `bench`.
    let words = args.sweep.raw.get(2..).unwrap_or_default();
    ExactPlan {
        kernels,
        card: asked.card,
        ladders: vec![words_inside(words)],
        beside: asked.beside_ns.then(|| words_beside(words, first_cpu())),
        program: None,
        time_limit_s: TIME_LIMIT_S,
    }
}

/// The first CPU that this process may use.
fn first_cpu() -> u32 {
    cpu::allowed().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0)
}

fn explain(error: &ExactError) -> Failure {
    match error {
        ExactError::Machine(VmError::NotThere { .. }) => Failure::of(Status::Missing, error)
            .hint("download it once with linerate lab vm --get --kernel 6.1 (or 6.12, latest)"),
        ExactError::Inside { status: 2, .. } => Failure::of(Status::Usage, error),
        ExactError::Inside { status: 3, .. } => Failure::of(Status::Missing, error),
        ExactError::Beside(BesideError::Failed { status: 3, .. }) => Failure::of(Status::Missing, error),
        ExactError::Interrupted => Failure::of(Status::GoalMissed, error),
        _ => Failure::of(Status::Refused, error),
    }
}
