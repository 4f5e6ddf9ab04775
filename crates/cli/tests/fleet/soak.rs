//! Runs with faults at random: none hangs, and none is silently wrong. One in CI; `make soak-fleet` does 200. One sender's
//! clock is 10 s ahead and gains 50 µs a second throughout. A run mostly waits, so that several fleets share the machine.

use std::{
    collections::BTreeMap,
    env, fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    proxy::{Faults, Proxy},
    support::{Nats, Process, agent, linerate, plan, run, server_program, whole},
};

/// Longer than any run takes with all its attempts, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(240);
const TRIAL: Duration = Duration::from_secs(1);
const RATE_PPS: u64 = 2000;
/// Fleets side by side, each with a server of its own.
const LANES: u32 = 4;

#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// Stops an agent for this many milliseconds.
    Freeze(u64),
    /// Kills an agent, and starts it again.
    Restart,
    /// Kills the server, and starts it again after this many milliseconds.
    Server(u64),
    /// Kills the coordinator.
    Coordinator,
    /// Loses this share of the messages, and repeats and delays others, until the run is over.
    Messages(f64),
}

impl Fault {
    fn draw(random: &mut fastrand::Rng) -> Self {
        match random.u32(0..6) {
            0 => Self::None,
            1 => Self::Freeze(random.u64(100..5000)),
            2 => Self::Restart,
            3 => Self::Server(random.u64(0..3000)),
            4 => Self::Coordinator,
            _ => Self::Messages(random.f64() * 0.1),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Freeze(_) => "agent frozen",
            Self::Restart => "agent killed",
            Self::Server(_) => "server killed",
            Self::Coordinator => "coordinator killed",
            Self::Messages(_) => "messages lost, repeated and late",
        }
    }
}

const NAMES: [(&str, &str, &[&str]); 3] =
    [("s1", "sender", &[]), ("s2", "sender", &["--clock-skew", "10s,50"]), ("r", "receiver", &[])];

/// How runs of a kind of fault ended: at once, after a void attempt, without a record.
type Ends = BTreeMap<&'static str, [u32; 3]>;

#[test]
fn random_faults_leave_no_run_hanging_and_none_silently_wrong() {
    let of = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let runs = of("LINERATE_SOAK_RUNS").unwrap_or(1) as u32;
    let seed = of("LINERATE_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("LINERATE_SOAK_SEED={seed}");
    if server_program().is_none() {
        return;
    }
    let began = Instant::now();
    let ends = thread::scope(|scope| {
        let lanes = runs.min(LANES);
        let each =
            |lane: u32| scope.spawn(move || runs_of_a_lane(lane, (lane..runs).step_by(lanes as usize), seed));
        let running: Vec<_> = (0..lanes).map(each).collect();
        let mut all = Ends::new();
        for lane in running {
            for (kind, counts) in lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                let sums = all.entry(kind).or_default();
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        all
    });
    let counted: u32 = ends.values().flatten().sum();
    assert_eq!(counted, runs, "each run has one end");
    println!("{runs} runs in {:.0} s", began.elapsed().as_secs_f64());
    for (kind, [at_once, repeated, failed]) in ends {
        println!("{kind}: {at_once} at once, {repeated} after a void attempt, {failed} without a record");
    }
}

/// Runs of one fleet, one after another.
fn runs_of_a_lane(lane: u32, numbers: impl Iterator<Item = u32>, seed: u64) -> Ends {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_add(lane.into()));
    let mut nats = Nats::start("").expect("the program is there");
    let proxy = Proxy::start(nats.port, seed);
    let url = proxy.url();
    let start = |at: usize| agent(&url, NAMES[at].0, NAMES[at].1, NAMES[at].2);
    let mut ends = Ends::new();
    let mut agents: Vec<Process> = (0..NAMES.len()).map(start).collect();
    let file = plan(&format!("rate = \"{RATE_PPS}pps\"\nduration = \"{}s\"\n", TRIAL.as_secs()));
    for number in numbers {
        let name = format!("soak{number}");
        let saved = testing::own_folder().join(format!("{name}.json"));
        fs::remove_file(&saved).ok();
        let args =
            ["fleet", "run", &file, "--name", &name, "--nats", &url, "--save", saved.to_str().unwrap()];
        let mut coordinator = Process::start(linerate(&args));
        coordinator.wait_for("trial 1/1");
        let at = random.usize(0..NAMES.len());
        let fault = Fault::draw(&mut random);
        if !matches!(fault, Fault::Messages(_)) {
            // From the first clock to the last result.
            thread::sleep(Duration::from_millis(random.u64(0..1600)));
        }
        println!("run {number}: {fault:?} {}", NAMES[at].0);
        match fault {
            Fault::None => {}
            Fault::Freeze(ms) => {
                agents[at].signal("STOP");
                thread::sleep(Duration::from_millis(ms));
                agents[at].signal("CONT");
            }
            Fault::Restart => {
                agents[at].child.kill().unwrap();
                agents[at].child.wait().unwrap();
                agents[at] = start(at);
            }
            Fault::Server(ms) => {
                nats.kill();
                thread::sleep(Duration::from_millis(ms));
                nats.again();
            }
            Fault::Coordinator => coordinator.signal("KILL"),
            Fault::Messages(lost) => {
                proxy.set(Faults { lost, repeated: 0.05, delayed: 0.1, most_delay_ms: 50 });
            }
        }
        let began = Instant::now();
        while coordinator.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < LONGEST, "run {number} hangs after {fault:?}");
            thread::sleep(Duration::from_millis(50));
        }
        proxy.set(Faults::default());
        let (status, words) = coordinator.finish();
        let record: Option<Value> =
            fs::read_to_string(&saved).ok().map(|text| serde_json::from_str(&text).unwrap());
        let end = match (&record, fault) {
            (Some(record), _) => {
                check(record, &words);
                usize::from(record["end"]["fleet"]["voided"].is_array())
            }
            // The server holds the trials that finished before it died, or none.
            (None, Fault::Coordinator) => {
                wait_until_idle(&url);
                let (_, out, err) = run(&["fleet", "collect", &name, "--nats", &url, "--json", "--no-save"]);
                match serde_json::from_str::<Value>(&out) {
                    Ok(record) => check(&record, &err),
                    Err(_) => assert!(err.contains("has no run"), "{err}"),
                }
                2
            }
            (None, _) => {
                assert!(matches!(status, 1 | 4) && words.contains("error:"), "{status}: {words}");
                println!("run {number} has no record: {}", words.lines().last().unwrap_or_default());
                2
            }
        };
        ends.entry(fault.kind()).or_default()[end] += 1;
        wait_until_idle(&url);
    }
    ends
}

/// Every valid trial is complete: everything due was sent, and every packet sent is accounted for.
fn check(record: &Value, words: &str) {
    for trial in record["end"]["trials"].as_array().unwrap() {
        whole(trial, RATE_PPS * TRIAL.as_secs(), words);
    }
}

/// Waits until no agent is busy with a run that has no coordinator.
fn wait_until_idle(url: &str) {
    let began = Instant::now();
    loop {
        let (_, out, _) = run(&["fleet", "status", "--nats", url, "--json", "--wait", "400ms"]);
        let agents: Value = serde_json::from_str(&out).unwrap_or_default();
        let all = agents.as_array().cloned().unwrap_or_default();
        if all.len() == NAMES.len() && all.iter().all(|agent| agent["busy_with"].is_null()) {
            return;
        }
        assert!(began.elapsed() < LONGEST, "{agents:#}");
    }
}
