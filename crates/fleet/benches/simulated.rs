//! What coordinating a fleet costs: simulated agents on one server, on this machine. `cargo bench -p linerate-fleet --bench
//! simulated -- 10 100 1000` prints a row for each number of agents, a tenth of which receive.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    env, fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use fleet::{
    AgentCounts, AgentPlan, AgentWatcher, Description, FleetLoad, FleetOutcome, FleetPlan, Limits, Preflight,
    ServerPlan, Skew, Watcher, describe_host, find_server, run_agents, run_fleet,
};
use measure::{Machine, Origin, Start, Trial};
use serde_json::Value;
use trial::Tick;

const TRIAL: Duration = Duration::from_secs(3);
/// Of a trial's beginning and end, in which agents still start or already store results.
const MARGIN: Duration = Duration::from_millis(500);
/// Time between two looks at the server's counters.
const LOOK: Duration = Duration::from_millis(100);

/// Counts the agents that are ready, and notes when the last of them starts to send.
#[derive(Clone, Default)]
struct Ready {
    agents: Arc<AtomicU32>,
    starts: Arc<Mutex<Option<Instant>>>,
}

impl AgentWatcher for Ready {
    fn say(&self, words: String) {
        self.agents.fetch_add(u32::from(words.contains("is ready")), Relaxed);
        let ms = words.split_once("starts in ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        if let Some(ms) = ms {
            let at = Instant::now() + Duration::from_millis(ms);
            let mut starts = self.starts.lock().expect("no holder panics");
            *starts = (*starts).max(Some(at));
        }
    }

    fn counts(&self, _: &AgentCounts) {}

    fn is_watched(&self) -> bool {
        false
    }
}

/// When each part of a run was over.
struct Times<'p> {
    plan: &'p FleetPlan,
    began: Instant,
    preflight_s: Cell<f64>,
    merged_s: Cell<f64>,
    said: RefCell<Vec<String>>,
}

impl Watcher for Times<'_> {
    fn go_on(&self) -> bool {
        true
    }

    fn say(&self, words: &str) {
        self.said.borrow_mut().push(words.into());
    }

    fn preflight(&self, table: &Preflight) {
        self.preflight_s.set(self.began.elapsed().as_secs_f64());
        let red = table.rows.iter().filter(|row| row.is_red);
        self.said.borrow_mut().extend(red.take(3).map(|row| format!("{row:?}")));
    }

    fn next(&self, trials: &[Trial]) -> Option<FleetLoad> {
        self.plan.loads().get(trials.len()).copied()
    }

    fn begins(&self, _: u32, _: FleetLoad) {}

    fn is_watched(&self) -> bool {
        false
    }

    fn looks(&self, _: Tick) {}

    fn trial(&self, _: &Trial) {
        self.merged_s.set(self.began.elapsed().as_secs_f64());
    }
}

/// A page of the server's monitoring port.
fn monitored(port: u16, page: &str) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server monitors itself");
    write!(stream, "GET /{page} HTTP/1.0\r\n\r\n").expect("it takes a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (_, body) = text.split_once("\r\n\r\n").expect("an answer has a body");
    serde_json::from_str(body).expect("the body is JSON")
}

/// What the server had taken in at a time.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    messages: f64,
    bytes: f64,
}

impl Look {
    fn now(monitor: u16) -> Self {
        let page = monitored(monitor, "varz");
        let number = |name: &str| page[name].as_f64().unwrap_or(0.0);
        Self { at: Instant::now(), messages: number("in_msgs"), bytes: number("in_bytes") }
    }
}

/// Messages and bytes of payload per second while all senders send.
fn while_sending(looks: &[Look], start: Option<Instant>) -> Option<(f64, f64)> {
    let (from, to) = (start? + MARGIN, start? + TRIAL - MARGIN);
    let mut within = looks.iter().filter(|look| (from..to).contains(&look.at));
    let (first, last) = (within.next()?, within.next_back()?);
    let seconds = (last.at - first.at).as_secs_f64();
    Some(((last.messages - first.messages) / seconds, (last.bytes - first.bytes) / seconds))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

fn measure(count: u32) {
    let folder = tempfile::tempdir().expect("a folder for the server");
    let program = find_server(Path::new("/nonexistent")).expect("nats-server: scripts/setup test");
    let (port, monitor) = (free_port(), free_port());
    let config = format!(
        "listen: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\njetstream {{ store_dir: \"{}\" }}\n",
        folder.path().display()
    );
    let file = folder.path().join("nats.conf");
    fs::write(&file, config).expect("a file for the server");
    let mut server = std::process::Command::new(program)
        .arg("-c")
        .arg(&file)
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the server starts");
    while TcpStream::connect(("127.0.0.1", monitor)).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    let url = format!("nats://127.0.0.1:{port}");
    let plan = ServerPlan { url, ..ServerPlan::default() };
    let mut description = Description::default();
    description.facts.version = env!("CARGO_PKG_VERSION").into();
    describe_host(&mut description, Some([127, 0, 0, 1].into()), None).expect("this host has a loopback");
    let agent = |number: u32| {
        let mut description = description.clone();
        description.facts.agent = format!("a{number}");
        let role = if number.is_multiple_of(10) { "receiver" } else { "sender" };
        description.facts.labels.insert("role".into(), role.into());
        AgentPlan {
            server: plan.clone(),
            description,
            limits: Limits::default(),
            divert: None,
            namespace: None,
            skew: Skew::default(),
            is_simulated: true,
        }
    };
    let agents: Vec<AgentPlan> = (0..count).map(agent).collect();
    let (ready, is_over) = (Ready::default(), Arc::new(AtomicBool::new(false)));
    let (told, over) = (ready.clone(), is_over.clone());
    let connecting = Instant::now();
    let running = thread::spawn(move || run_agents(agents, || !over.load(Relaxed), told));
    while ready.agents.load(Relaxed) < count {
        if running.is_finished() {
            panic!("the agents end: {:?}", running.join());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let connected_s = connecting.elapsed().as_secs_f64();
    let file = folder.path().join("plan.toml");
    let text = format!(
        "rate = \"{}pps\"\nduration = \"{}s\"\nmost-start-error = \"5s\"\n",
        100 * count,
        TRIAL.as_secs()
    );
    fs::write(&file, text).expect("a file for the plan");
    let fleet_plan = FleetPlan::read(&file).expect("the plan is right");
    let before = monitored(monitor, "varz");
    let times = Times {
        plan: &fleet_plan,
        began: Instant::now(),
        preflight_s: Cell::default(),
        merged_s: Cell::default(),
        said: RefCell::default(),
    };
    let start = Start {
        command: "fleet".into(),
        version: String::new(),
        started_at: String::new(),
        origin: Origin::Hosts,
        machine: Machine::default(),
        asked: BTreeMap::new(),
    };
    let mut outcome = FleetOutcome::default();
    let is_looking = Arc::new(AtomicBool::new(true));
    let looking = is_looking.clone();
    let looks = thread::spawn(move || {
        let mut looks = Vec::new();
        while looking.load(Relaxed) {
            looks.push(Look::now(monitor));
            thread::sleep(LOOK);
        }
        looks
    });
    let ran = run_fleet(&plan, &fleet_plan, ("simulated", &start, 0), &times, &mut outcome);
    let whole_s = times.began.elapsed().as_secs_f64();
    is_looking.store(false, Relaxed);
    let looks = looks.join().expect("the server answers");
    let after = monitored(monitor, "varz");
    let stored = monitored(monitor, "jsz")["bytes"].as_f64().unwrap_or(0.0);
    is_over.store(true, Relaxed);
    running.join().expect("no agent panics").ok();
    server.kill().ok();
    server.wait().ok();
    if let Err(error) = ran {
        println!("{count:>7}  {error}: {:?}", times.said.borrow());
        return;
    }
    let gone = |name: &str| {
        let number = |page: &Value| page[name].as_f64().unwrap_or(0.0);
        (number(&after) - number(&before)) / f64::from(count)
    };
    let part = &outcome.fleet.trials[0];
    let starts = *ready.starts.lock().expect("no holder panics");
    let (messages, bytes) = while_sending(&looks, starts).unwrap_or((f64::NAN, f64::NAN));
    let senders = f64::from(count - count.div_ceil(10));
    let barrier_s = times.merged_s.get() - times.preflight_s.get() - TRIAL.as_secs_f64();
    println!(
        "{count:>7}  {connected_s:>9.1}  {:>9.1}  {barrier_s:>9.1}  {whole_s:>7.1}  {:>9.1}  {:>9.1}  {:>9.1}  {:>8.1}  {:>9.1}  {:>8.1}  {:>9.1}  {:>5}",
        times.preflight_s.get(),
        part.start_spread_ns as f64 / 1e6,
        gone("in_msgs"),
        gone("in_bytes") / 1e3,
        stored / 1e3 / f64::from(count),
        messages / senders,
        bytes / senders,
        after["mem"].as_f64().unwrap_or(0.0) / 1e6,
        outcome.fleet.voided.len(),
    );
}

fn main() {
    let counts: Vec<u32> = env::args().filter_map(|word| word.parse().ok()).collect();
    println!(
        "{:>7}  {:>9}  {:>9}  {:>9}  {:>7}  {:>9}  {:>9}  {:>9}  {:>8}  {:>9}  {:>8}  {:>9}  {:>5}",
        "agents",
        "connect",
        "preflight",
        "barrier",
        "run",
        "spread",
        "messages",
        "kB",
        "stored",
        "sending",
        "sending",
        "server",
        "void"
    );
    println!(
        "{:>7}  {:>9}  {:>9}  {:>9}  {:>7}  {:>9}  {:>9}  {:>9}  {:>8}  {:>9}  {:>8}  {:>9}  {:>5}",
        "", "s", "s", "s", "s", "ms", "per agent", "per agent", "kB/agent", "msg/s", "B/s", "MB", ""
    );
    for count in if counts.is_empty() { vec![10, 100, 1000] } else { counts } {
        measure(count);
    }
}
