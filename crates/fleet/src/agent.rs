//! An agent: connects out to the server, answers a coordinator, runs its parts of trials, and stores what they measured. It
//! stops sending when it does not hear itself through the server.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::{Client, Message, Subject, connection::State, jetstream};
use futures_util::{StreamExt, future::try_join_all};
use sys::{clock, netns::NetNs};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    clock::Skew,
    connect::{ANSWER_AT_MOST, ServerPlan, connect, runtime},
    counts::{AgentCounts, AgentWatcher},
    divert::{DivertPlan, agent::Diverting},
    error::FleetError,
    host::find_paths,
    job::{Job, JobEvent, Order},
    limits::Limits,
    message::{Answer, Ask, Attempt, Description, Measured, Outcome, PROTOCOL, Part, Prepare, Sample},
    names, simulated,
    store::store_outcome,
};

/// A sender that has not heard itself through the server for so long stops; with the time between two looks it stops within
/// two seconds.
const SILENCE_AT_MOST: Duration = Duration::from_millis(1500);
/// What an agent prints between its name and its incarnation when it is ready.
pub(crate) const READY: &str = " is ready, incarnation ";
/// Time between two words to itself, and between two looks.
const TICK: Duration = Duration::from_millis(200);
/// At the end, results are given so long to be stored.
const FAREWELL: Duration = Duration::from_secs(5);

/// An agent.
#[derive(Debug, Clone)]
pub struct AgentPlan {
    /// The server.
    pub server: ServerPlan,
    /// What it says of itself; its incarnation is made here.
    pub description: Description,
    /// What its owner allows.
    pub limits: Limits,
    /// Where and how it diverts for a coordinator; `None`: not at all.
    pub divert: Option<DivertPlan>,
    /// The network namespace that its packets leave from and come to; the process's own when `None`.
    pub namespace: Option<PathBuf>,
    /// A clock that is wrong on purpose, for tests.
    pub skew: Skew,
    /// Whether it only pretends to send and receive, to measure what coordination costs.
    pub is_simulated: bool,
}

/// Runs an agent until `go_on` says no more.
///
/// # Errors
/// A server that does not let it in, or another agent of its name.
pub fn run_agent(
    plan: AgentPlan,
    go_on: impl Fn() -> bool,
    watcher: impl AgentWatcher,
) -> Result<(), FleetError> {
    runtime()?.block_on(serve(plan, go_on, Arc::new(watcher)))
}

/// Runs many agents on one thread, each with a connection of its own.
///
/// # Errors
/// The first one's.
#[doc(hidden)]
pub fn run_agents(
    plans: Vec<AgentPlan>,
    go_on: impl Fn() -> bool,
    watcher: impl AgentWatcher,
) -> Result<(), FleetError> {
    let watcher: Arc<dyn AgentWatcher> = Arc::new(watcher);
    let all = plans.into_iter().map(|plan| serve(plan, &go_on, watcher.clone()));
    runtime()?.block_on(try_join_all(all)).map(|_| ())
}

async fn serve(
    mut plan: AgentPlan,
    go_on: impl Fn() -> bool,
    watcher: Arc<dyn AgentWatcher>,
) -> Result<(), FleetError> {
    let name = plan.description.facts.agent.clone();
    plan.description.protocol = PROTOCOL;
    plan.description.facts.incarnation = format!("{:x}-{:x}", std::process::id(), clock::realtime_ns());
    plan.description.limits = plan.limits.stated();
    let words = watcher.clone();
    let server = plan.server.clone();
    let connecting = connect(&server, &name, true, move |said| words.say(said));
    tokio::pin!(connecting);
    let client = loop {
        match timeout(TICK, &mut connecting).await {
            Ok(client) => break client?,
            Err(_) if go_on() => {}
            Err(_) => return Ok(()),
        }
    };
    refuse_a_namesake(&client, &name).await?;
    let subscribe = async |subject: String| {
        let failed = FleetError::server("take a subscription");
        client.subscribe(subject).await.map_err(|error| failed(&error))
    };
    let mut asks = subscribe(names::ask(&name)).await?;
    let mut all = subscribe(names::ASK_ALL.into()).await?;
    let mut echoes = subscribe(names::echo(&name)).await?;
    let mut leases = subscribe(names::LEASES.into()).await?;
    client.flush().await.map_err(|error| FleetError::server("take a subscription")(&error))?;
    let divert = plan.divert.clone();
    let diverting = divert.map(|divert| Diverting::start(&client, &name, divert, plan.namespace.clone()));
    let diverting = diverting.transpose().map_err(FleetError::Runtime)?;
    let (events, mut happened) = unbounded_channel();
    let incarnation = plan.description.facts.incarnation.clone();
    let counts =
        AgentCounts { agent: name.clone(), incarnation: incarnation.clone(), ..AgentCounts::default() };
    let mut agent = Agent {
        client: client.clone(),
        plan,
        watcher: watcher.clone(),
        counts,
        events,
        job: None,
        waiting: None,
        ready: None,
        heard: Instant::now(),
        sequence: 0,
        stores: Vec::new(),
        shows_samples: false,
        last: None,
    };
    watcher.say(format!("agent {name}{READY}{incarnation}"));
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while go_on() {
        tokio::select! {
            Some(message) = asks.next() => agent.hear(&message, clock::monotonic_ns()).await,
            Some(message) = all.next() => agent.hear(&message, clock::monotonic_ns()).await,
            Some(_) = echoes.next() => agent.heard = Instant::now(),
            Some(message) = leases.next() => agent.renew(&message),
            Some(event) = happened.recv() => agent.happened(event).await,
            _ = tick.tick() => agent.look().await,
        }
    }
    agent.end(&mut happened).await;
    if let Some(diverting) = diverting {
        diverting.end(FAREWELL).await;
    }
    Ok(())
}

/// Two agents of one name would both answer for it.
async fn refuse_a_namesake(client: &Client, name: &str) -> Result<(), FleetError> {
    let ask = serde_json::to_vec(&Ask::Describe)?;
    // Nobody there is what is hoped for.
    let Ok(Ok(answer)) = timeout(ANSWER_AT_MOST, client.request(names::ask(name), ask.into())).await else {
        return Ok(());
    };
    match serde_json::from_slice(&answer.payload) {
        Ok(Answer::Description(other)) => {
            Err(FleetError::NameTaken { name: name.into(), incarnation: other.facts.incarnation })
        }
        _ => Ok(()),
    }
}

/// The time until a start; one that has passed is refused, for this sender would start after the others.
fn margin(at_ns: u64, now_ns: u64) -> Result<u64, String> {
    match at_ns.checked_sub(now_ns) {
        Some(margin_ns) if margin_ns > 0 => Ok(margin_ns),
        _ => Err(format!("the start was {} ms ago", (now_ns - at_ns) / 1_000_000)),
    }
}

/// As it is printed: what belongs to a run has its name and the agent's incarnation.
fn line(of: &Attempt, incarnation: &str, words: &str) -> String {
    let Attempt { run, trial, attempt } = of;
    format!("run {run} trial {trial} attempt {attempt} incarnation {incarnation}: {words}")
}

struct Agent {
    client: Client,
    plan: AgentPlan,
    watcher: Arc<dyn AgentWatcher>,
    counts: AgentCounts,
    events: UnboundedSender<JobEvent>,
    job: Option<Job>,
    /// Where the answer goes once the job is prepared.
    waiting: Option<Subject>,
    /// That answer, for the same question again.
    ready: Option<Answer>,
    heard: Instant,
    sequence: u64,
    stores: Vec<JoinHandle<()>>,
    /// Whether the coordinator wants to see the counters of a running sender.
    shows_samples: bool,
    /// The last attempt that was prepared: older ones come too late.
    last: Option<Attempt>,
}

impl Agent {
    async fn hear(&mut self, message: &Message, heard_ns: u64) {
        let Some(reply) = message.reply.clone() else { return };
        let answer = match serde_json::from_slice(&message.payload) {
            Ok(Ask::Prepare(prepare)) => match self.prepare(*prepare, &reply) {
                Some(answer) => answer,
                None => return,
            },
            Ok(Ask::Describe) => Answer::Description(Box::new(self.described())),
            Ok(Ask::Clock) => {
                let shown = |ns| self.plan.skew.shown_ns(ns);
                Answer::Clock { heard_ns: shown(heard_ns), answered_ns: shown(clock::monotonic_ns()) }
            }
            Ok(Ask::Paths { to, packet_bytes, has_agent }) => self.paths(to, packet_bytes, has_agent).await,
            Ok(Ask::Start { of, at_ns }) => self.start(&of, at_ns),
            Ok(Ask::Stop { of, reason }) => self.stop(&of, reason),
            Err(error) => Answer::Refused {
                reason: format!("it does not understand that (protocol {PROTOCOL}): {error}"),
            },
        };
        self.counts.refused += u64::from(matches!(answer, Answer::Refused { .. }));
        self.answer(reply, &answer).await;
    }

    async fn answer(&self, reply: Subject, answer: &Answer) {
        let text = serde_json::to_vec(answer).expect("an answer is JSON");
        if let Err(error) = self.client.publish(reply, text.into()).await {
            self.watcher.say(format!("cannot answer: {error}"));
        }
    }

    fn described(&self) -> Description {
        let busy_with = self.job.as_ref().map(|job| job.of.run.clone());
        Description { busy_with, ..self.plan.description.clone() }
    }

    async fn paths(&self, to: Vec<IpAddr>, packet_bytes: u32, has_agent: bool) -> Answer {
        let limits = &self.plan.limits;
        let permitted = to.iter().try_for_each(|to| limits.permit_target(*to, has_agent));
        let permitted = permitted.and_then(|()| match limits.may_send {
            true => Ok(()),
            false => Err("its owner does not let it send".into()),
        });
        if let Err(reason) = permitted {
            return Answer::Refused { reason };
        }
        let namespace = self.plan.namespace.clone();
        let find = move || -> std::io::Result<_> {
            let namespace = namespace.as_deref().map(NetNs::open).transpose()?;
            find_paths(&to, packet_bytes, namespace.as_ref())
        };
        match spawn_blocking(find).await.map_err(std::io::Error::other).flatten() {
            Ok(paths) => Answer::Paths { paths },
            Err(error) => Answer::Refused { reason: format!("it cannot look for paths: {error}") },
        }
    }

    /// The answer, or none before the ports are open.
    fn prepare(&mut self, mut prepare: Prepare, reply: &Subject) -> Option<Answer> {
        let refused = |reason: String| Some(Answer::Refused { reason });
        if prepare.protocol != PROTOCOL {
            return refused(format!(
                "it speaks protocol {PROTOCOL}, the coordinator {}: use the same linerate everywhere",
                prepare.protocol
            ));
        }
        if let Some(job) = &self.job {
            if job.of == prepare.of {
                // The same question again: the last one is answered, also if the first answer was lost.
                self.waiting = Some(reply.clone());
                return self.ready.clone();
            }
            if job.of.run != prepare.of.run {
                return refused(format!("it takes part in run {}", job.of.run));
            }
            job.order(Order::Stop { reason: "another attempt begins".into() });
            return refused("its part of the attempt before is not over yet".into());
        }
        if self.last.as_ref().is_some_and(|last| last.run == prepare.of.run && *last >= prepare.of) {
            return refused("this attempt is over".into());
        }
        let permitted = match &mut prepare.part {
            Part::Send { plan } => self.plan.limits.permit(plan),
            Part::Receive { .. } if !self.plan.limits.may_receive => {
                Err("its owner does not let it receive".into())
            }
            Part::Receive { plan, .. } => {
                // It listens where its packets come to, and nowhere else.
                match self.plan.description.facts.address.parse() {
                    Ok(address) => {
                        plan.traffic.local.set_ip(address);
                        Ok(())
                    }
                    Err(_) => Err("it has no address to receive at: start it with --address".into()),
                }
            }
        };
        if let Err(reason) = permitted {
            self.log(&prepare.of, &format!("refused: {reason}"));
            return refused(reason);
        }
        self.log(&prepare.of, "prepares");
        self.counts.prepared += 1;
        self.shows_samples = prepare.live;
        prepare.live |= self.watcher.is_watched();
        self.last = Some(prepare.of.clone());
        self.waiting = Some(reply.clone());
        self.ready = None;
        self.heard = Instant::now();
        let (limits, namespace) = (self.plan.limits.clone(), self.plan.namespace.clone());
        let events = self.events.clone();
        self.job = Some(match self.plan.is_simulated {
            true => Job::simulate(prepare, events, simulated::take_part),
            false => Job::start(prepare, limits, namespace, events),
        });
        None
    }

    fn start(&mut self, of: &Attempt, at_ns: u64) -> Answer {
        let Some(job) = self.job.as_ref().filter(|job| job.of == *of) else {
            return Answer::Refused { reason: "it is not prepared for this attempt".into() };
        };
        let at_ns = self.plan.skew.machine_ns(at_ns);
        let margin_ns = match margin(at_ns, clock::monotonic_ns()) {
            Ok(margin_ns) => margin_ns,
            Err(reason) => return Answer::Refused { reason },
        };
        job.order(Order::Start { at_ns });
        self.log(of, &format!("starts in {} ms", margin_ns / 1_000_000));
        Answer::Starting { margin_ns }
    }

    fn stop(&mut self, of: &Attempt, reason: String) -> Answer {
        if let Some(job) = self.job.as_ref().filter(|job| job.of == *of) {
            job.order(Order::Stop { reason });
        }
        Answer::Stopped
    }

    /// The coordinator of a run goes on.
    fn renew(&self, message: &Message) {
        let length = str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
        if let (Some(job), Some(length)) = (&self.job, length)
            && message.subject.as_str() == names::lease(&job.of.run)
        {
            job.order(Order::Renew(Duration::from_millis(length)));
        }
    }

    async fn happened(&mut self, event: JobEvent) {
        match event {
            JobEvent::Prepared(of, outcome) => {
                let answer = match outcome {
                    Ok(address) => {
                        let answer = Answer::Ready { address };
                        self.ready = Some(answer.clone());
                        answer
                    }
                    Err(reason) => {
                        self.log(&of, &reason);
                        self.counts.cut_short += 1;
                        self.job = None;
                        Answer::Refused { reason }
                    }
                };
                if let Some(reply) = self.waiting.take() {
                    self.answer(reply, &answer).await;
                }
            }
            JobEvent::Sampled(of, tick) => {
                let sample = Sample {
                    agent: self.plan.description.facts.agent.clone(),
                    sent: tick.look.sent,
                    delivered: tick.look.delivered,
                    sent_pps: tick.sent_pps,
                    delivered_pps: tick.delivered_pps,
                    of,
                };
                self.counts.sent_pps = tick.sent_pps;
                if !self.shows_samples {
                    return;
                }
                let subject = names::live(&sample.of.run, &sample.agent);
                let text = serde_json::to_vec(&sample).expect("a sample is JSON");
                // While the server is away nothing may pile up and be sent later.
                timeout(TICK, self.client.publish(subject, text.into())).await.ok();
            }
            JobEvent::Finished(of, what) => {
                let said = match &what {
                    Measured::Sent { trial, cut_short: None, .. } => format!("sent {} packets", trial.sent),
                    Measured::Received { report, cut_short: None } => {
                        format!("received {} packets", report.delivered)
                    }
                    Measured::Sent { cut_short: Some(reason), .. }
                    | Measured::Received { cut_short: Some(reason), .. }
                    | Measured::Failed { reason } => format!("ended early: {reason}"),
                };
                self.log(&of, &said);
                self.count(&what);
                self.job = None;
                self.waiting = None;
                self.keep(of, what);
            }
        }
    }

    /// Stores a result, and tries until the server has it.
    fn keep(&mut self, of: Attempt, mut what: Measured) {
        self.sequence += 1;
        if let Measured::Sent { began_ns, .. } = &mut what {
            // By the clock that the coordinator knows.
            *began_ns = self.plan.skew.shown_ns(*began_ns);
        }
        let facts = &self.plan.description.facts;
        let outcome = Outcome {
            agent: facts.agent.clone(),
            incarnation: facts.incarnation.clone(),
            of,
            sequence: self.sequence,
            what,
        };
        let context = jetstream::new(self.client.clone());
        let watcher = self.watcher.clone();
        self.stores.retain(|store| !store.is_finished());
        self.stores.push(tokio::spawn(async move {
            let mut tries = 0;
            while let Err(error) = store_outcome(&context, &outcome).await {
                tries += 1;
                if tries == 1 {
                    let Outcome { of, incarnation, .. } = &outcome;
                    watcher.say(line(of, incarnation, &format!("the result is kept here: {error}")));
                }
                sleep(Duration::from_millis(500)).await;
            }
        }));
    }

    /// A line with run and incarnation.
    fn log(&self, of: &Attempt, words: &str) {
        self.watcher.say(line(of, &self.counts.incarnation, words));
    }

    fn count(&mut self, what: &Measured) {
        let counts = &mut self.counts;
        counts.sent_pps = 0.0;
        match what {
            Measured::Sent { trial, .. } => counts.sent += trial.sent,
            Measured::Received { report, .. } => counts.received += report.delivered,
            Measured::Failed { .. } => {}
        }
        match what {
            Measured::Sent { cut_short: None, .. } | Measured::Received { cut_short: None, .. } => {
                counts.complete += 1;
            }
            _ => counts.cut_short += 1,
        }
    }

    fn show_counts(&mut self) {
        self.counts.run = self.job.as_ref().map(|job| job.of.run.clone());
        self.counts.results_waiting = self.stores.iter().filter(|store| !store.is_finished()).count() as u64;
        self.counts.is_connected = self.client.connection_state() == State::Connected;
        self.watcher.counts(&self.counts);
    }

    /// Says something to itself through the server, and stops sending where it has not heard itself.
    async fn look(&mut self) {
        self.show_counts();
        let Some(job) = self.job.as_ref().filter(|job| job.is_sender) else {
            self.heard = Instant::now();
            return;
        };
        let silence = self.heard.elapsed();
        if silence > SILENCE_AT_MOST {
            job.order(Order::Stop { reason: format!("heard nothing from the server for {silence:.1?}") });
            return;
        }
        let echo = names::echo(&self.plan.description.facts.agent);
        // While the server is away nothing may pile up and be sent later.
        timeout(TICK, self.client.publish(echo, "".into())).await.ok();
    }

    async fn end(&mut self, happened: &mut UnboundedReceiver<JobEvent>) {
        if let Some(job) = &self.job {
            job.order(Order::Stop { reason: "the agent ends".into() });
            while self.job.is_some() {
                match timeout(FAREWELL, happened.recv()).await {
                    Ok(Some(event)) => self.happened(event).await,
                    _ => break,
                }
            }
        }
        for store in self.stores.drain(..) {
            timeout(FAREWELL, store).await.ok();
        }
        timeout(FAREWELL, self.client.flush()).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_has_passed_is_refused() {
        assert_eq!(margin(1_000, 900), Ok(100));
        assert_eq!(margin(900, 900), Err("the start was 0 ms ago".into()));
        assert_eq!(margin(0, 7_000_000), Err("the start was 7 ms ago".into()));
    }
}
