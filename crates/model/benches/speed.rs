//! Simulated frames per second of CPU time: `cargo bench -p linerate-model --bench speed`,
//! with `-- NAME` only the configurations whose name contains it.

use std::{fs, time::Instant};

use model::{BufferPolicy, BusKind, Config, Fleet, ModerationMode, Path, rdr_machine, simulate};

fn main() {
    println!("{:44} {:>12} {:>12} {:>12}", "configuration", "frames", "delivered", "Mframes/s");
    let mut smooth = rdr_machine(BufferPolicy::Recycle, 1);
    smooth.traffic.offered_pps = Some(0.6e6);
    measure("RDR machine, recycling, nothing lost", &smooth);
    measure("RDR machine, reallocating, line rate", &rdr_machine(BufferPolicy::Realloc, 1));
    measure("RDR machine, two ports, line rate", &rdr_machine(BufferPolicy::Realloc, 2));
    measure("bufferless: wire, driver, gone", &bufferless());
    measure("default: 10G, kernel, socket, line rate", &Config::default());
    plan("plan: 1 Gpps", Fleet { flood_pps: 1e9, ..Fleet::default() });
    let small_cores = Fleet { flood_pps: 1e9, queue_pps: 20_000.0, queues: 8, cores: 8, ..Fleet::default() };
    plan("plan: 1 Gpps, a million flows, small cores", Fleet { flows: 1_000_000, ..small_cores });
}

/// A fleet's plan: its result and how many seconds it takes.
fn plan(name: &str, fleet: Fleet) {
    if !wanted(name) {
        return;
    }
    let begin = Stopwatch::start();
    let plan = fleet.plan().expect("the benchmark's fleets are valid");
    println!("{name:44} {:>12} machines {:>18.2} s", plan.machines.unwrap_or(0), begin.seconds());
}

/// No bus, no moderation, no socket: the driver takes a frame as soon as it arrives.
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

/// Three runs of about two million frames each; the fastest counts, because the others were disturbed.
fn measure(name: &str, config: &Config) {
    if !wanted(name) {
        return;
    }
    let mut config = config.clone();
    let pps = config.traffic.offered_pps.unwrap_or(config.traffic.link_bps as f64 / 672.0);
    config.run.duration_us = 2e12 / (pps * f64::from(config.traffic.ports));
    config.run.warmup_us = 0.0;
    let mut best = f64::INFINITY;
    let mut counted = (0, 0);
    for _ in 0..3 {
        let begin = Stopwatch::start();
        let outcome = simulate(&config).expect("the benchmark's configurations are valid");
        best = best.min(begin.seconds());
        counted = (outcome.total.sent, outcome.total.delivered);
    }
    let rate = counted.0 as f64 / best / 1e6;
    println!("{name:44} {:>12} {:>12} {rate:>12.1}", counted.0, counted.1);
}

/// Whether the command line names this configuration, or none.
fn wanted(name: &str) -> bool {
    let parts: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    parts.is_empty() || parts.iter().any(|part| name.contains(part))
}

/// CPU time of this thread on Linux, so that other programs do not count; real time
/// elsewhere.
struct Stopwatch {
    cpu_ns: Option<u64>,
    began: Instant,
}

impl Stopwatch {
    fn start() -> Self {
        Self { cpu_ns: cpu_ns(), began: Instant::now() }
    }

    fn seconds(&self) -> f64 {
        match (self.cpu_ns, cpu_ns()) {
            (Some(before), Some(now)) => (now - before) as f64 / 1e9,
            _ => self.began.elapsed().as_secs_f64(),
        }
    }
}

fn cpu_ns() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}
