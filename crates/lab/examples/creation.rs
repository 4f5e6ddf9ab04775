//! How long it takes to create labs: `cargo run --release -p linerate-lab --example creation`.

use std::time::{Duration, Instant};

use lab::{Lab, LabPlan};

const LABS: usize = 101;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:?}", lab::gain_access()?);
    let smallest = LabPlan { queues: 1, addresses: 1, ..LabPlan::default() };
    let threaded = LabPlan { threaded_napi: true, ..LabPlan::default() };
    for (name, plan) in [("smallest", smallest), ("default", LabPlan::default()), ("threaded NAPI", threaded)]
    {
        let mut times = Vec::with_capacity(LABS);
        // Kept until the end: the kernel tears labs down in the background, which would slow the next one.
        let mut labs = Vec::with_capacity(LABS);
        for _ in 0..LABS {
            let start = Instant::now();
            labs.push(Lab::create(&plan)?);
            times.push(start.elapsed());
        }
        times.sort();
        let [least, median, most] = [0, LABS / 2, LABS - 1].map(|rank| milliseconds(times[rank]));
        println!("{name}: {median:.2} ms median of {LABS} labs ({least:.2} to {most:.2} ms)");
    }
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
