//! Simulated frames per second of real time, on one core: `cargo bench -p linerate-model`.

use std::time::Instant;

use model::{BufferPolicy, BusKind, Config, ModerationMode, Path, rdr_machine, simulate};

fn main() {
    println!("{:44} {:>12} {:>12} {:>12}", "configuration", "frames", "delivered", "Mframes/s");
    let mut smooth = rdr_machine(BufferPolicy::Recycle, 1);
    smooth.traffic.offered_pps = Some(0.6e6);
    measure("RDR machine, recycling, nothing lost", &smooth);
    measure("RDR machine, reallocating, line rate", &rdr_machine(BufferPolicy::Realloc, 1));
    measure("RDR machine, two ports, line rate", &rdr_machine(BufferPolicy::Realloc, 2));
    measure("bufferless: wire, driver, gone", &bufferless());
    measure("default: 10G, kernel, socket, line rate", &Config::default());
}

/// No bus, no moderation, no socket: a frame that arrives is taken at once.
fn bufferless() -> Config {
    let mut config = Config::default();
    config.bus.kind = BusKind::None;
    config.ring.writeback_batch = 1;
    config.moderation.mode = ModerationMode::Polled;
    config.stack.path = Path::XdpDrop;
    config.poll.driver_ns = 10.0;
    config.poll.poll_ns = 0.0;
    config.stack.xdp_ns = 10.0;
    config.buffers.policy = BufferPolicy::Recycle;
    config.buffers.reset_ns = 1.0;
    config
}

/// Three runs of about two million frames each; the fastest counts, as the others were disturbed.
fn measure(name: &str, config: &Config) {
    let mut config = config.clone();
    let pps = config.traffic.offered_pps.unwrap_or(config.traffic.link_bps as f64 / 672.0);
    config.run.duration_us = 2e12 / (pps * f64::from(config.traffic.ports));
    config.run.warmup_us = 0.0;
    let mut best = f64::INFINITY;
    let mut counted = (0, 0);
    for _ in 0..3 {
        let begin = Instant::now();
        let outcome = simulate(&config).expect("the benchmark's configurations are valid");
        best = best.min(begin.elapsed().as_secs_f64());
        counted = (outcome.total.sent, outcome.total.delivered);
    }
    let rate = counted.0 as f64 / best / 1e6;
    println!("{name:44} {:>12} {:>12} {rate:>12.1}", counted.0, counted.1);
}
