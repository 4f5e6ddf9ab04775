//! The coordinator: finds agents, checks them, starts them together, waits without a word, and makes one trial of what the server
//! has stored.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use async_nats::{Client, Subscriber, jetstream};
use futures_util::{StreamExt, future::join_all, stream};
use measure::{FleetRun, Start, Trial};
use sys::clock;
use tokio::time::{sleep, timeout};
use trial::{Look, Tick};

use crate::{
    asking::{AT_ONCE, clocks, discover, look_at_clocks, request, request_again},
    checks::check_fleet,
    chosen::{Chosen, choose},
    clock::theirs_ns,
    collect::{FleetOutcome, conclude},
    connect::{COORDINATOR, ServerPlan, connect, runtime},
    error::FleetError,
    load::FleetLoad,
    merge::missing,
    message::{Answer, Ask, Attempt, Description, Head, Launch, PROTOCOL, Part, Prepare, Sample, Step},
    names,
    plan::FleetPlan,
    preflight::Preflight,
    store::{Stored, read_run, store_head, store_step, stream as stored_runs},
};

/// Ports are opened, programs loaded and receivers asked in this time.
const PREPARE_AT_MOST: Duration = Duration::from_secs(25);
/// After a trial's time, results are waited for so long before agents are asked whether they are still there.
const RESULT_AT_MOST: Duration = Duration::from_secs(3);
/// And so long from agents that are.
const LONGEST_RESULT: Duration = Duration::from_secs(20);
/// Time between two looks for results.
const LOOK: Duration = Duration::from_millis(100);
/// A lease for a whole trial ends so long after it.
const GRACE: Duration = Duration::from_secs(30);

/// Chooses a run's loads, receives what it reports, and can end it.
pub trait Watcher {
    /// Whether to go on.
    fn go_on(&self) -> bool;
    /// What a person wants to know.
    fn say(&self, words: &str);
    /// The table before a run.
    fn preflight(&self, table: &Preflight);
    /// The load of the next trial, after these; `None` ends the run.
    fn next(&self, trials: &[Trial]) -> Option<FleetLoad>;
    /// A trial of that load begins; `number` counts from 1.
    fn begins(&self, number: u32, load: FleetLoad);
    /// Whether somebody watches the trials while they run.
    fn is_watched(&self) -> bool;
    /// What a running trial's senders have sent until now, all together.
    fn looks(&self, tick: Tick);
    /// A finished trial.
    fn trial(&self, trial: &Trial);
}

/// The agents that answer within `at_most`.
///
/// # Errors
/// A server that cannot be reached.
pub fn status(server: &ServerPlan, at_most: Duration) -> Result<Vec<Description>, FleetError> {
    runtime()?.block_on(async {
        let client = connect(server, COORDINATOR, false, |_| ()).await?;
        let mut agents = discover(&client, at_most).await?;
        look_at_clocks(&client, &mut agents).await;
        Ok(agents)
    })
}

/// Runs a plan; `start` opens its record and is stored with it, under `run`.
///
/// # Errors
/// What kept it from starting, or from going on; what was measured until then is in `outcome`.
pub fn run_fleet(
    server: &ServerPlan,
    plan: &FleetPlan,
    (run, start, tolerate): (&str, &Start, u32),
    watcher: &impl Watcher,
    outcome: &mut FleetOutcome,
) -> Result<(), FleetError> {
    runtime()?.block_on(async {
        let client = connect(server, COORDINATOR, false, |_| ()).await?;
        let context = jetstream::new(client.clone());
        stored_runs(&context).await?;
        let samples = match watcher.is_watched() {
            true => client.subscribe(names::live_of(run)).await.ok(),
            false => None,
        };
        let samples = RefCell::new(samples);
        let coordinator = Coordinator { client, context, plan, run, watcher, step: Cell::default(), samples };
        coordinator.run(start, tolerate, outcome).await
    })
}

struct Coordinator<'r, W> {
    client: Client,
    context: jetstream::Context,
    plan: &'r FleetPlan,
    run: &'r str,
    watcher: &'r W,
    step: Cell<u64>,
    /// Counters of running senders, where somebody watches them.
    samples: RefCell<Option<Subscriber>>,
}

/// Why an attempt did not become a trial.
enum Ended {
    /// It counts for nothing, and may be repeated.
    Void(String),
    /// It cannot be repeated.
    Failed(FleetError),
    Interrupted,
}

impl From<FleetError> for Ended {
    fn from(error: FleetError) -> Self {
        Self::Failed(error)
    }
}

impl<W: Watcher> Coordinator<'_, W> {
    async fn run(self, start: &Start, tolerate: u32, outcome: &mut FleetOutcome) -> Result<(), FleetError> {
        let mut chosen = choose(&self.client, self.plan, || self.watcher.go_on()).await?;
        let table = check_fleet(&self.client, self.plan, &chosen).await;
        self.watcher.preflight(&table);
        if table.red() > 0 {
            return Err(FleetError::Preflight { red: table.red() });
        }
        let mut agents: Vec<_> =
            chosen.senders.iter().chain(&chosen.receivers).map(|a| a.facts.clone()).collect();
        for (agent, role) in agents.iter_mut().zip(chosen.roles()) {
            agent.role = role.into();
        }
        let head = Head {
            start: start.clone(),
            agents: agents.clone(),
            tolerate,
            most_start_error_ns: self.plan.most_start_error_ns,
        };
        store_head(&self.context, self.run, &head).await?;
        outcome.fleet = FleetRun { run: self.run.into(), agents, ..FleetRun::default() };
        let mut stored = Stored::default();
        let mut number = 0;
        while let Some(load) = self.watcher.next(&outcome.trials) {
            number += 1;
            self.watcher.begins(number, load);
            if let Err(ended) = self.trial((number, load), &mut chosen, &mut stored, outcome).await {
                self.finish(&mut stored, outcome).await;
                return match ended {
                    Ended::Failed(error) => Err(error),
                    Ended::Void(_) => unreachable!("a trial ends by being repeated or failing"),
                    Ended::Interrupted => {
                        outcome.interrupted = true;
                        Ok(())
                    }
                };
            }
        }
        self.store(Step::Ended).await?;
        self.finish(&mut stored, outcome).await;
        Ok(())
    }

    /// What is stored makes the record: here as in `collect`.
    async fn finish(&self, stored: &mut Stored, outcome: &mut FleetOutcome) {
        // Without the server, what was read before makes it: every trial that is over was.
        self.read(stored).await.ok();
        let concluded = conclude(self.run, stored);
        outcome.trials = concluded.trials;
        outcome.intervals = concluded.intervals;
        outcome.fleet = concluded.fleet;
    }

    async fn store(&self, step: Step) -> Result<(), FleetError> {
        self.step.set(self.step.get() + 1);
        store_step(&self.context, self.run, self.step.get(), &step).await
    }

    /// Reads what is new; a lost message or a restarted server costs another try.
    async fn read(&self, stored: &mut Stored) -> Result<(), FleetError> {
        const TRIES: u32 = 5;
        let mut tried = 1;
        loop {
            match read_run(&self.context, self.run, stored).await {
                Err(_) if tried < TRIES => tried += 1,
                read => return read,
            }
            sleep(LOOK).await;
        }
    }

    async fn trial(
        &self,
        (number, load): (u32, FleetLoad),
        chosen: &mut Chosen,
        stored: &mut Stored,
        outcome: &mut FleetOutcome,
    ) -> Result<(), Ended> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let of = Attempt { run: self.run.into(), trial: number, attempt };
            if attempt > 1 {
                self.watcher.say(&format!("trial {number}, attempt {attempt}"));
            }
            let voided = match self.leased_attempt(&of, load, chosen, stored).await {
                Ok(()) => {
                    let concluded = conclude(self.run, stored);
                    match concluded.voided_because(&of) {
                        None => {
                            if let Some(trial) = concluded.trials.last() {
                                self.watcher.trial(trial);
                            }
                            outcome.trials = concluded.trials;
                            return Ok(());
                        }
                        Some(reason) => reason,
                    }
                }
                Err(Ended::Void(reason)) => reason,
                Err(ended) => {
                    let reason = match &ended {
                        Ended::Interrupted => "the coordinator was interrupted".to_owned(),
                        Ended::Failed(error) => error.to_string(),
                        Ended::Void(_) => unreachable!("matched above"),
                    };
                    self.stop(&of, chosen, &reason).await;
                    self.store(Step::Voided { of, reason }).await.ok();
                    return Err(ended);
                }
            };
            self.watcher.say(&format!("  void: {voided}"));
            self.stop(&of, chosen, &voided).await;
            self.store(Step::Voided { of, reason: voided.clone() }).await?;
            if attempt >= self.plan.attempts {
                return Err(FleetError::Voided { trial: number, attempts: attempt, reason: voided }.into());
            }
            self.find_again(chosen).await?;
        }
    }

    /// Agents of the same names, which may have been started again meanwhile: waited for a while.
    async fn find_again(&self, chosen: &mut Chosen) -> Result<(), Ended> {
        const AT_MOST: Duration = Duration::from_secs(15);
        let until = Instant::now() + AT_MOST;
        loop {
            let found = match discover(&self.client, Duration::from_secs(1)).await {
                Ok(found) => found,
                Err(error) if Instant::now() > until => return Err(error.into()),
                Err(_) => Vec::new(),
            };
            let mut absent = Vec::new();
            for agent in chosen.senders.iter_mut().chain(&mut chosen.receivers) {
                match found.iter().find(|one| one.facts.agent == agent.facts.agent && one.busy_with.is_none())
                {
                    Some(now) => *agent = now.clone(),
                    None => absent.push(agent.facts.agent.clone()),
                }
            }
            if absent.is_empty() {
                return Ok(());
            }
            if !self.watcher.go_on() {
                return Err(Ended::Interrupted);
            }
            if Instant::now() > until {
                // What is tolerated is decided by what is measured.
                self.watcher.say(&format!("  without {}", absent.join(", ")));
                return Ok(());
            }
        }
    }

    /// From open ports to stored results. `conclude` judges them.
    async fn attempt(
        &self,
        of: &Attempt,
        load: FleetLoad,
        chosen: &Chosen,
        stored: &mut Stored,
    ) -> Result<(), Ended> {
        let names = chosen.names();
        let before = clocks(&self.client, names.clone()).await;
        if let Some(name) = names.iter().find(|name| !before.contains_key(*name)) {
            return Err(Ended::Void(format!("{name} did not answer when its clock was read")));
        }
        let duration = Duration::from_nanos(load.duration_ns);
        let lease_ms = self.lease_ms(load);
        let live = self.samples.borrow().is_some();
        let secret = secret();
        let part = |part| {
            let of = of.clone();
            let secret = secret.clone();
            Ask::Prepare(Box::new(Prepare { protocol: PROTOCOL, of, part, secret, lease_ms, live }))
        };
        let addresses = self.prepare_receivers(chosen, &part).await?;
        self.prepare_senders(chosen, load, &addresses, &part).await?;
        if !self.watcher.go_on() {
            return Err(Ended::Interrupted);
        }
        // The order reaches every agent well before the start, however many there are.
        let lead_ns = self.plan.lead_ns + 2_000_000 * names.len() as u64;
        let launch = Launch {
            of: of.clone(),
            start_at_ns: clock::monotonic_ns() + lead_ns + 200_000_000,
            clocks: before.clone(),
            incarnations: chosen.incarnations(),
            senders: chosen.orders(),
            receivers: chosen.receivers.iter().map(|agent| agent.facts.agent.clone()).collect(),
            duration_ns: load.duration_ns,
        };
        self.store(Step::Starts(Box::new(launch.clone()))).await?;
        if clock::monotonic_ns() + lead_ns / 2 > launch.start_at_ns {
            return Err(Ended::Void("the server took too long to store the start".into()));
        }
        let starts = chosen.senders.iter().filter_map(|agent| {
            let name = agent.facts.agent.clone();
            let at_ns = theirs_ns(launch.start_at_ns, *before.get(&name)?);
            Some((name, Ask::Start { of: of.clone(), at_ns }))
        });
        self.all(starts.collect(), Duration::from_nanos(lead_ns), |answer| match answer {
            Answer::Starting { .. } => Ok(()),
            Answer::Refused { reason } => Err(reason),
            _ => Err("it does not answer what it was asked".into()),
        })
        .await
        .map_err(Ended::Void)?;
        let ends = Instant::now()
            + Duration::from_nanos(launch.start_at_ns.saturating_sub(clock::monotonic_ns()))
            + duration;
        self.results(&launch, ends, stored).await?;
        let after = clocks(&self.client, chosen.sender_names()).await;
        self.store(Step::Clocks { of: of.clone(), after }).await?;
        self.read(stored).await?;
        Ok(())
    }

    /// How long agents go on without another word.
    fn lease_ms(&self, load: FleetLoad) -> u64 {
        match self.plan.lease_ns {
            Some(ns) => (ns / 1_000_000).max(1),
            None => (Duration::from_nanos(load.duration_ns) + PREPARE_AT_MOST + GRACE).as_millis() as u64,
        }
    }

    /// An attempt with a lease that is renewed where the plan wants that; else in silence.
    async fn leased_attempt(
        &self,
        of: &Attempt,
        load: FleetLoad,
        chosen: &Chosen,
        stored: &mut Stored,
    ) -> Result<(), Ended> {
        let attempt = self.attempt(of, load, chosen, stored);
        if self.plan.lease_ns.is_none() {
            return attempt.await;
        }
        tokio::select! {
            ended = attempt => ended,
            () = self.renew(self.lease_ms(load)) => unreachable!("it renews until it is dropped"),
        }
    }

    /// Renews the coordinator's lease until it is dropped.
    async fn renew(&self, lease_ms: u64) {
        loop {
            sleep(Duration::from_millis((lease_ms / 3).clamp(1, 1000))).await;
            self.client.publish(names::lease(self.run), lease_ms.to_string().into()).await.ok();
        }
    }

    /// Asks all at once; the first reason why one of them does not.
    async fn all<T>(
        &self,
        asks: Vec<(String, Ask)>,
        at_most: Duration,
        read: impl Fn(Answer) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let asked = stream::iter(asks.into_iter().map(|(agent, ask)| {
            let read = &read;
            async move {
                let answer = request_again(&self.client, &agent, &ask, at_most).await;
                answer.and_then(read).map_err(|reason| format!("{agent}: {reason}"))
            }
        }));
        asked.buffered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect()
    }

    async fn prepare_receivers(
        &self,
        chosen: &Chosen,
        part: &impl Fn(Part) -> Ask,
    ) -> Result<Vec<SocketAddr>, Ended> {
        if !self.plan.without_agents.is_empty() {
            return Ok(self.plan.without_agents.clone());
        }
        let asks = chosen.receivers.iter().enumerate().map(|(at, agent)| {
            let senders = chosen.targets.iter().filter(|to| to.contains(&at)).count() as u32;
            let plan = Box::new(self.plan.receiver.clone());
            (agent.facts.agent.clone(), part(Part::Receive { plan, senders, most_pps: None }))
        });
        let addresses = self.all(asks.collect(), PREPARE_AT_MOST, |answer| match answer {
            Answer::Ready { address: Some(address) } => Ok(address),
            Answer::Refused { reason } => Err(reason),
            _ => Err("it does not say where it listens".into()),
        });
        addresses.await.map_err(Ended::Void)
    }

    async fn prepare_senders(
        &self,
        chosen: &Chosen,
        load: FleetLoad,
        addresses: &[SocketAddr],
        part: &impl Fn(Part) -> Ask,
    ) -> Result<(), Ended> {
        let shares = self.plan.shares(load.rate_pps, &chosen.sender_names());
        let mut asks = Vec::new();
        for ((agent, share), to) in chosen.senders.iter().zip(shares).zip(&chosen.targets) {
            let targets: Vec<SocketAddr> = to.iter().map(|at| addresses[*at]).collect();
            let plan = self.plan.load.plan(&targets, FleetLoad { rate_pps: share, ..load });
            let plan =
                plan.map_err(|reason| FleetError::Refused { agent: agent.facts.agent.clone(), reason })?;
            asks.push((agent.facts.agent.clone(), part(Part::Send { plan: Box::new(plan) })));
        }
        let ready = self.all(asks, PREPARE_AT_MOST, |answer| match answer {
            Answer::Ready { .. } => Ok(()),
            Answer::Refused { reason } => Err(reason),
            _ => Err("it does not answer what it was asked".into()),
        });
        ready.await.map(|_| ()).map_err(Ended::Void)
    }

    /// Waits until all results are stored, or no more will come.
    async fn results(&self, launch: &Launch, ends: Instant, stored: &mut Stored) -> Result<(), Ended> {
        let mut watched = Watched::default();
        while Instant::now() < ends {
            if !self.watcher.go_on() {
                return Err(Ended::Interrupted);
            }
            let until = Instant::now() + LOOK.min(ends.saturating_duration_since(Instant::now()));
            if self.hear_samples(launch, &mut watched, until).await {
                let left_s = ends.saturating_duration_since(Instant::now()).as_secs_f64();
                let done_ratio = 1.0 - left_s / (launch.duration_ns as f64 / 1e9);
                self.watcher.looks(watched.tick(launch, done_ratio.clamp(0.0, 1.0)));
            }
        }
        let mut ask_again = RESULT_AT_MOST;
        loop {
            // While the server is away, agents keep their results.
            let read = read_run(&self.context, self.run, stored).await;
            let missing = missing(launch, &stored.outcomes);
            if missing.is_empty() {
                return Ok(());
            }
            if !self.watcher.go_on() {
                return Err(Ended::Interrupted);
            }
            let over = ends.elapsed();
            if read.is_ok() && over > ask_again {
                ask_again = over + RESULT_AT_MOST;
                let alive = join_all(missing.iter().map(|agent| async move {
                    let answer = request(&self.client, agent, &Ask::Describe, Duration::from_secs(2)).await;
                    let incarnation = launch.incarnations.get(agent);
                    matches!(answer, Ok(Answer::Description(now))
                        if Some(&now.facts.incarnation) == incarnation && now.busy_with.is_some())
                }));
                if alive.await.iter().all(|is_alive| !is_alive) {
                    return Ok(());
                }
            }
            if over > LONGEST_RESULT {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    /// Takes running senders' counters until a time; whether somebody watches.
    async fn hear_samples(&self, launch: &Launch, watched: &mut Watched, until: Instant) -> bool {
        // Taken for the time of waiting: nothing else hears them.
        let Some(mut samples) = self.samples.take() else {
            sleep(until.saturating_duration_since(Instant::now())).await;
            return false;
        };
        while let Ok(Some(message)) =
            timeout(until.saturating_duration_since(Instant::now()), samples.next()).await
        {
            if let Ok(sample) = serde_json::from_slice::<Sample>(&message.payload)
                && sample.of == launch.of
            {
                watched.0.insert(sample.agent.clone(), sample);
            }
        }
        self.samples.replace(Some(samples));
        // Where the server has ended the subscription, the rest of the time.
        sleep(until.saturating_duration_since(Instant::now())).await;
        true
    }

    /// Ends an attempt on every agent; one that does not hear it ends with its lease.
    async fn stop(&self, of: &Attempt, chosen: &Chosen, reason: &str) {
        let stops = chosen.names().into_iter().map(|agent| {
            let ask = Ask::Stop { of: of.clone(), reason: reason.into() };
            async move { request(&self.client, &agent, &ask, Duration::from_secs(1)).await.ok() }
        });
        join_all(stops).await;
    }
}

/// The last counters of each sender.
#[derive(Default)]
struct Watched(BTreeMap<String, Sample>);

impl Watched {
    /// All senders together; a sender that has shown nothing yet has sent nothing.
    fn tick(&self, launch: &Launch, done_ratio: f64) -> Tick {
        let all = || self.0.values();
        let is_whole = self.0.len() == launch.senders.len();
        Tick {
            done_ratio,
            sent_pps: all().map(|sample| sample.sent_pps).sum(),
            delivered_pps: all().map(|sample| sample.delivered_pps).sum(),
            look: Look {
                sent: all().map(|sample| sample.sent).sum(),
                delivered: all().map(|sample| sample.delivered).sum::<Option<u64>>().filter(|_| is_whole),
                ..Look::default()
            },
        }
    }
}

/// What nobody guesses, from the kernel's random numbers.
fn secret() -> String {
    use std::hash::{BuildHasher, RandomState};
    let draw = |salt: u64| RandomState::new().hash_one(salt);
    let mut bytes = [0u8; 32];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut random| std::io::Read::read_exact(&mut random, &mut bytes));
    match read {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(_) => (0..4).map(|salt| format!("{:016x}", draw(salt))).collect(),
    }
}
