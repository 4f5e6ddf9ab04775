//! Random commands with random faults, for `LINERATE_SOAK_SECONDS` (20; an hour in `make soak`): none hangs or panics, what
//! they saved is whole, no ledger of the lab has a residue, and nothing is left after the last one.
//! `LINERATE_SOAK_SEED` repeats a run, `LINERATE_SOAK_PROGRAM` names another build.
//!
//! The commands run in two namespaces with their own `/run`. Steps of the wall clock are not among the faults: time
//! namespaces hold only the other clocks, and a step would reach everything else on the machine.

mod commands;
mod faults;
mod leftovers;

use std::{
    env,
    time::{Duration, Instant},
};

use commands::{Place, random_job};
use faults::random_fault;

/// Longer than a command takes after its fault, on a busy machine too.
const LONGEST: Duration = Duration::from_secs(90);

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn random_commands_with_faults_leave_nothing_behind() {
    let seconds = number("LINERATE_SOAK_SECONDS").unwrap_or(20);
    let seed = number("LINERATE_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("LINERATE_SOAK_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let Some(mut place) = Place::new() else { return };
    let since = Instant::now();
    let mut faults = Vec::new();
    let mut runs = 0;
    while since.elapsed().as_secs() < seconds {
        let jobs = if random.u8(0..4) == 0 { 2 } else { 1 };
        let jobs: Vec<_> = (0..jobs).map(|_| random_job(&mut random)).collect();
        let fault = random_fault(&mut random);
        println!(
            "run {runs}: {} with {fault:?}",
            jobs.iter().map(|job| job.words()).collect::<Vec<_>>().join(" beside ")
        );
        let mut running: Vec<_> = jobs.iter().map(|job| job.start(&place, runs, fault.save())).collect();
        fault.inflict(&mut place, &mut running, &mut random);
        for (job, running) in jobs.iter().zip(running) {
            faults.extend(
                running
                    .faults(LONGEST, fault)
                    .into_iter()
                    .map(|it| format!("run {runs}: {}: {it}", job.words())),
            );
        }
        place.mend();
        runs += 1;
        if faults.len() > 10 {
            break;
        }
    }
    faults.extend(place.leftovers());
    println!("{runs} runs");
    assert!(runs > 0);
    assert!(faults.is_empty(), "LINERATE_SOAK_SEED={seed}, {} faults:\n{}", faults.len(), faults.join("\n"));
}
