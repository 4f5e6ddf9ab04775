//! The coordinator: finds agents, checks them, starts them together, waits without a word, and makes one trial of what the server
//! has stored.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use async_nats::{Client, Subscriber, jetstream};
use futures_util::{StreamExt, future::join_all, stream};
use measure::{FleetRun, Start, Trial};
use sys::clock;
use tokio::time::{sleep, timeout};
use trial::{Look, Tick};

use crate::{
    asking::{clocks, discover, look_at_clocks, request},
    clock::theirs_ns,
    collect::{FleetOutcome, conclude},
    connect::{COORDINATOR, ServerPlan, connect, runtime},
    error::FleetError,
    load::FleetLoad,
    merge::missing,
    message::{
        Answer, Ask, Attempt, Description, Head, Launch, PROTOCOL, Part, PathFinding, Prepare, Sample, Step,
    },
    names,
    plan::{FleetPlan, Select, selects},
    preflight::{Needs, Preflight, packet_bytes},
    store::{Stored, read_run, store_head, store_step, stream as stored_runs},
};

/// Requests under way at once.
const AT_ONCE: usize = 64;
/// Where a plan names the number of agents, they are waited for so long.
const FOUND_AT_MOST: Duration = Duration::from_secs(5);
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

/// The agents of a run.
struct Chosen {
    senders: Vec<Description>,
    receivers: Vec<Description>,
    /// Each sender's receivers, by their numbers.
    targets: Vec<Vec<usize>>,
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
        let mut chosen = self.choose().await?;
        let table = self.preflight(&chosen).await;
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

    /// The agents that the plan selects; where it requires a number of them, they are waited for.
    async fn choose(&self) -> Result<Chosen, FleetError> {
        let until = Instant::now() + FOUND_AT_MOST;
        loop {
            match self.choose_now().await {
                Err(FleetError::Count { .. }) if self.watcher.go_on() && Instant::now() < until => {}
                chosen => return chosen,
            }
        }
    }

    async fn choose_now(&self) -> Result<Chosen, FleetError> {
        let mut all = discover(&self.client, Duration::from_secs(1)).await?;
        // Which of two agents with one name is the right one, the user decides.
        let mut names = BTreeSet::new();
        for agent in &all {
            if !names.insert(agent.facts.agent.clone()) {
                return Err(FleetError::NameTaken {
                    name: agent.facts.agent.clone(),
                    incarnation: agent.facts.incarnation.clone(),
                });
            }
        }
        look_at_clocks(&self.client, &mut all).await;
        let with = |select: &Select| -> Vec<Description> {
            all.iter().filter(|agent| selects(select, &agent.facts.labels)).cloned().collect()
        };
        let senders = with(&self.plan.senders);
        let mut receivers = with(&self.plan.receivers);
        let all_send = !receivers.is_empty();
        receivers.retain(|agent| !senders.iter().any(|one| one.facts.agent == agent.facts.agent));
        let [needed, needed_receivers] = self.plan.counts;
        for (role, found, needed, select) in [
            ("senders", senders.len(), needed, &self.plan.senders),
            ("receivers", receivers.len(), needed_receivers, &self.plan.receivers),
        ] {
            if let Some(needed) = needed.filter(|needed| *needed as usize != found) {
                return Err(FleetError::Count { role, found, needed });
            }
            if found == 0 {
                let labels: Vec<String> =
                    select.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let labels = match role == "receivers" && all_send {
                    true => "of their own (all with theirs send)".into(),
                    false => labels.join(","),
                };
                return Err(FleetError::Nobody { role, labels });
            }
        }
        let count = receivers.len();
        let targets = (0..senders.len())
            .map(|at| if self.plan.to_all { (0..count).collect() } else { vec![at % count] })
            .collect();
        Ok(Chosen { senders, receivers, targets })
    }

    async fn preflight(&self, chosen: &Chosen) -> Preflight {
        let mut table = Preflight::default();
        let hardest = self.plan.hardest();
        let shares = self.plan.shares(hardest.rate_pps, &chosen.sender_names());
        let load = &self.plan.load;
        let example = load.plan(&[SocketAddr::from(([198, 18, 0, 1], 1))], hardest);
        let needs = Needs {
            version: env!("CARGO_PKG_VERSION").into(),
            engine: load.engine.to_string(),
            is_sender: true,
            rate_pps: None,
            frame_size_bytes: example.map_or(64, |plan| plan.frame_size_bytes),
            duration_s: hardest.duration_ns as f64 / 1e9,
            clock_bound_ns: self.plan.most_start_error_ns,
            from: Vec::new(),
        };
        for (agent, share) in chosen.senders.iter().zip(&shares) {
            table.check(agent, &Needs { rate_pps: *share, ..needs.clone() });
        }
        let bytes = needs.frame_size_bytes;
        for ((sender, to), paths) in
            chosen.senders.iter().zip(&chosen.targets).zip(self.paths(chosen, bytes).await)
        {
            for (number, at) in to.iter().enumerate() {
                let path = paths.as_ref().map(|paths| paths.get(number)).map_err(String::as_str);
                let path = path.and_then(|path| path.ok_or("it did not look for this path"));
                let receiver = &chosen.receivers[*at].facts.agent;
                table.check_path((&sender.facts.agent, receiver), path, bytes);
            }
        }
        for (at, agent) in chosen.receivers.iter().enumerate() {
            let to_it = || {
                chosen.targets.iter().zip(&shares).enumerate().filter(move |(_, (to, _))| to.contains(&at))
            };
            let each = to_it().map(|(_, (to, share))| share.map(|pps| pps / to.len() as f64));
            let from = to_it().filter_map(|(sender, _)| chosen.senders[sender].facts.address.parse().ok());
            table.check(
                agent,
                &Needs {
                    engine: self.plan.receiver.engine.to_string(),
                    is_sender: false,
                    rate_pps: each.sum(),
                    from: from.collect::<Vec<IpAddr>>(),
                    ..needs.clone()
                },
            );
        }
        table
    }

    /// Each sender's paths to its receivers, or why it does not know them.
    async fn paths(&self, chosen: &Chosen, frame_size_bytes: u32) -> Vec<Result<Vec<PathFinding>, String>> {
        let packet_bytes = packet_bytes(frame_size_bytes);
        let asked = chosen.senders.iter().zip(&chosen.targets).map(async |(sender, to)| {
            let address = |at: &usize| {
                let agent = &chosen.receivers[*at].facts;
                agent.address.parse().map_err(|_| format!("{} has no address", agent.agent))
            };
            let to = to.iter().map(address).collect::<Result<Vec<IpAddr>, String>>()?;
            let ask = Ask::Paths { to, packet_bytes };
            match request(&self.client, &sender.facts.agent, &ask, Duration::from_secs(5)).await? {
                Answer::Paths { paths } => Ok(paths),
                Answer::Refused { reason } => Err(reason),
                _ => Err("it does not answer what it was asked".into()),
            }
        });
        stream::iter(asked).buffered(AT_ONCE).collect().await
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
                let answer = request(&self.client, &agent, &ask, at_most).await;
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

impl Chosen {
    fn sender_names(&self) -> Vec<String> {
        self.senders.iter().map(|agent| agent.facts.agent.clone()).collect()
    }

    fn names(&self) -> Vec<String> {
        self.senders.iter().chain(&self.receivers).map(|agent| agent.facts.agent.clone()).collect()
    }

    fn roles(&self) -> impl Iterator<Item = &'static str> {
        let senders = self.senders.iter().map(|_| "sender");
        senders.chain(self.receivers.iter().map(|_| "receiver"))
    }

    fn incarnations(&self) -> BTreeMap<String, String> {
        let all = self.senders.iter().chain(&self.receivers);
        all.map(|agent| (agent.facts.agent.clone(), agent.facts.incarnation.clone())).collect()
    }

    fn orders(&self) -> BTreeMap<String, Vec<String>> {
        let named = |at: &usize| self.receivers[*at].facts.agent.clone();
        let each = self.senders.iter().zip(&self.targets);
        each.map(|(agent, to)| (agent.facts.agent.clone(), to.iter().map(named).collect())).collect()
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
