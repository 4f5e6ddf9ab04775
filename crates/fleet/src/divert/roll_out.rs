//! The coordinator's part: writes rules to agents in waves, waits for what they report, and takes back what went wrong.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::{self, kv::Store};
use futures_util::StreamExt;
use thiserror::Error;
use tokio::time::sleep;

use super::{
    Desired, DivertOutcome, DivertState, FleetRules,
    store::{self, read, swap},
};
use crate::{
    asking::discover,
    connect::{COORDINATOR, ServerPlan, connect, runtime},
    error::FleetError,
    plan::{Select, selects},
};

/// Agents answer a call within this time.
const DISCOVERY: Duration = Duration::from_secs(1);
/// An agent applies rules within this time, or says why not.
const PATIENCE: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(200);

/// Which agents get rules, and in which order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RollOut {
    /// Labels, all of which an agent must have; none selects every agent.
    pub to: Vec<(String, String)>,
    /// Agents of the first wave: the others follow when these are well.
    pub canaries: usize,
    /// The user who changes the rules.
    pub by: String,
}

/// An agent, the rules that it should have, and what it reports.
#[derive(Debug, Clone, PartialEq)]
pub struct DivertAgent {
    /// Its name.
    pub agent: String,
    /// The revision of its key; 0 before any.
    pub revision: u64,
    /// What it should divert.
    pub rules: Option<FleetRules>,
    /// The user who wrote that.
    pub by: String,
    /// What it reports.
    pub state: Option<DivertState>,
    /// Whether it answers.
    pub is_here: bool,
    /// The interface on which its owner lets it divert.
    pub interface: Option<String>,
    returned_to: Option<u64>,
}

/// A revision of an agent's rules.
#[derive(Debug, Clone, PartialEq)]
pub struct DivertRevision {
    /// The agent.
    pub agent: String,
    /// The revision.
    pub revision: u64,
    /// When it was written, in seconds since 1970 by the server's clock.
    pub written_s: u64,
    /// The user who wrote it.
    pub by: String,
    /// What the agent was to divert.
    pub rules: Option<FleetRules>,
}

/// Why rules are not on all agents.
#[derive(Debug, Error)]
pub enum RollOutError {
    /// The server or the selection.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// Somebody else wrote to an agent's key since it was read.
    #[error("the rules of agent {agent} changed meanwhile: {reason}")]
    Changed {
        /// Which.
        agent: String,
        /// The server's words.
        reason: String,
    },
    /// An agent refused or undid the rules; all agents of this roll-out have their former rules again.
    #[error("agent {agent} {word} the rules: {reason}; {} again", former(.restored))]
    NotTaken {
        /// Which.
        agent: String,
        /// `refused` or `undone`.
        word: &'static str,
        /// Its reason.
        reason: String,
        /// Agents that have their former rules again.
        restored: Vec<String>,
    },
    /// Agents that answer did not confirm the undo in time.
    #[error("the former rules are written, but {} did not confirm them in time", agents.join(", "))]
    Unconfirmed {
        /// Which.
        agents: Vec<String>,
    },
}

fn former(restored: &[String]) -> String {
    match restored {
        [one] => format!("{one} has its former rules"),
        many => format!("{} have their former rules", many.join(", ")),
    }
}

/// Every agent that was ever given rules, and every one that answers and has the labels.
///
/// # Errors
/// [`FleetError`].
pub fn divert_status(server: &ServerPlan, to: &[(String, String)]) -> Result<Vec<DivertAgent>, FleetError> {
    runtime()?.block_on(async {
        let desk = Desk::open(server).await?;
        desk.agents(to).await
    })
}

/// Gives agents rules: the canaries first, then the others. `say` gets what a person wants to know.
///
/// # Errors
/// [`RollOutError`]; the agents then have their former rules.
pub fn apply_rules(
    server: &ServerPlan,
    rules: &FleetRules,
    plan: &RollOut,
    say: impl Fn(String),
) -> Result<Vec<DivertAgent>, RollOutError> {
    runtime().map_err(RollOutError::Fleet)?.block_on(async {
        let desk = Desk::open(server).await?;
        let agents = desk.chosen(&plan.to).await?;
        let canaries = plan.canaries.min(agents.len());
        let mut given: Vec<(DivertAgent, u64)> = Vec::new();
        for (wave, name) in [(&agents[..canaries], "canary"), (&agents[canaries..], "agent")] {
            let first = given.len();
            for agent in wave {
                let desired = Desired { rules: Some(rules.clone()), by: plan.by.clone(), returned_to: None };
                match swap(&desk.desired, &agent.agent, &desired, agent.revision).await {
                    Ok(revision) => given.push((agent.clone(), revision)),
                    Err(reason) => {
                        desk.take_back(&given, &plan.by).await;
                        return Err(RollOutError::Changed { agent: agent.agent.clone(), reason });
                    }
                }
            }
            let until = Instant::now() + PATIENCE + rules.settle();
            for (agent, revision) in &given[first..] {
                let state = desk.settled(&agent.agent, *revision, until).await?;
                if let Err((word, reason)) = verdict(state.as_ref()) {
                    let restored = desk.take_back(&given, &plan.by).await;
                    return Err(RollOutError::NotTaken {
                        agent: agent.agent.clone(),
                        word,
                        reason,
                        restored,
                    });
                }
                let reason = state.map(|state| state.reason).unwrap_or_default();
                let but = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                say(format!("{name} {} is well with revision {revision}{but}", agent.agent));
            }
        }
        Ok(desk.agents(&plan.to).await?)
    })
}

/// The revisions of agents' rules that the server keeps, the oldest first.
///
/// # Errors
/// [`FleetError`].
pub fn divert_history(
    server: &ServerPlan,
    to: &[(String, String)],
) -> Result<Vec<DivertRevision>, FleetError> {
    runtime()?.block_on(async {
        let desk = Desk::open(server).await?;
        let mut revisions = Vec::new();
        for agent in desk.agents(to).await?.iter().filter(|agent| agent.revision > 0) {
            revisions.extend(desk.history(&agent.agent).await?.into_iter().map(
                |(written_s, revision, it)| {
                    let agent = agent.agent.clone();
                    DivertRevision { agent, revision, written_s, by: it.by, rules: it.rules }
                },
            ));
        }
        Ok(revisions)
    })
}

/// Gives agents the rules before their last ones, or none: all at once, and also those that do not answer now.
///
/// # Errors
/// [`RollOutError`].
pub fn undo_rules(
    server: &ServerPlan,
    plan: &RollOut,
    say: impl Fn(String),
) -> Result<Vec<DivertAgent>, RollOutError> {
    runtime().map_err(RollOutError::Fleet)?.block_on(async {
        let desk = Desk::open(server).await?;
        let agents = desk.agents(&plan.to).await?;
        if !agents.iter().any(|agent| agent.rules.is_some()) {
            desk.chosen(&plan.to).await?;
            say("no rules to undo".into());
        }
        let mut undone = Vec::new();
        let mut changed = None;
        for agent in agents.iter().filter(|agent| agent.rules.is_some()) {
            let (returned_to, rules) = desk.before(agent).await?;
            let what = if rules.is_some() { "the rules before" } else { "no rules" };
            let desired = Desired { rules, by: format!("{}, undo", plan.by), returned_to: Some(returned_to) };
            match swap(&desk.desired, &agent.agent, &desired, agent.revision).await {
                Ok(revision) => undone.push((agent, revision, what)),
                // The other agents must not keep their rules because of this one.
                Err(reason) => {
                    changed.get_or_insert(RollOutError::Changed { agent: agent.agent.clone(), reason });
                }
            }
        }
        let until = Instant::now() + PATIENCE;
        let mut unconfirmed = Vec::new();
        for (DivertAgent { agent, is_here, .. }, revision, what) in undone {
            if !is_here {
                say(format!("{agent}: {what}, once it answers again"));
                continue;
            }
            match desk.settled(agent, revision, until).await? {
                Some(state) => say(format!("{agent}: {what}, {}", state.outcome.word())),
                None => unconfirmed.push(agent.clone()),
            }
        }
        match changed {
            Some(changed) => Err(changed),
            None if !unconfirmed.is_empty() => Err(RollOutError::Unconfirmed { agents: unconfirmed }),
            None => Ok(desk.agents(&plan.to).await?),
        }
    })
}

/// Whether an agent is well with rules.
fn verdict(state: Option<&DivertState>) -> Result<(), (&'static str, String)> {
    let Some(state) = state else {
        return Err(("did not report on", "no answer in time".into()));
    };
    match state.outcome {
        DivertOutcome::Well | DivertOutcome::Off => Ok(()),
        DivertOutcome::Applied => Err(("did not report on", "it is still comparing answers".into())),
        DivertOutcome::Refused => Err(("refused", state.reason.clone())),
        DivertOutcome::Undone => Err(("undid", state.reason.clone())),
    }
}

struct Desk {
    client: async_nats::Client,
    desired: Store,
    states: Store,
}

impl Desk {
    async fn open(server: &ServerPlan) -> Result<Self, FleetError> {
        let client = connect(server, COORDINATOR, false, |_| ()).await?;
        let (desired, states) = store::make(&jetstream::new(client.clone())).await?;
        Ok(Self { client, desired, states })
    }

    /// Agents that answer and have the labels; with no labels also those that do not answer but have rules.
    async fn agents(&self, to: &[(String, String)]) -> Result<Vec<DivertAgent>, FleetError> {
        let select: Select = to.iter().cloned().collect();
        let here = discover(&self.client, DISCOVERY).await?;
        let mut names: Vec<(String, bool, Option<String>)> = here
            .iter()
            .filter(|agent| selects(&select, &agent.facts.labels))
            .map(|agent| (agent.facts.agent.clone(), true, agent.limits.divert.clone()))
            .collect();
        if to.is_empty() {
            let failed = FleetError::server("list rules");
            let mut keys = self.desired.keys().await.map_err(|error| failed(&error))?;
            while let Some(key) = keys.next().await {
                let key = key.map_err(|error| failed(&error))?;
                if !names.iter().any(|(name, ..)| *name == key) {
                    names.push((key, false, None));
                }
            }
        }
        names.sort();
        let mut agents = Vec::new();
        for (agent, is_here, interface) in names {
            let (revision, desired) = match self.entry::<Desired>(&self.desired, &agent).await? {
                Some((revision, desired)) => (revision, Some(desired)),
                None => (0, None),
            };
            let returned_to = desired.as_ref().and_then(|desired| desired.returned_to);
            let (rules, by) = desired.map(|desired| (desired.rules, desired.by)).unwrap_or_default();
            let state = self.entry(&self.states, &agent).await?.map(|(_, state)| state);
            agents.push(DivertAgent { agent, revision, rules, by, state, is_here, interface, returned_to });
        }
        Ok(agents)
    }

    /// Those that rules can be given to.
    async fn chosen(&self, to: &[(String, String)]) -> Result<Vec<DivertAgent>, FleetError> {
        let mut agents = self.agents(to).await?;
        agents.retain(|agent| agent.interface.is_some());
        if agents.is_empty() {
            let labels: Vec<String> = to.iter().map(|(name, value)| format!("{name}={value}")).collect();
            return Err(FleetError::NobodyDiverts { labels: labels.join(" ") });
        }
        Ok(agents)
    }

    async fn entry<T: serde::de::DeserializeOwned>(
        &self,
        store: &Store,
        key: &str,
    ) -> Result<Option<(u64, T)>, FleetError> {
        let entry = store.entry(key).await.map_err(|error| FleetError::server("show rules")(&error))?;
        Ok(read(entry))
    }

    /// What an agent reports on a revision once it no longer compares answers; the last that it said when time is over.
    async fn settled(
        &self,
        agent: &str,
        revision: u64,
        until: Instant,
    ) -> Result<Option<DivertState>, FleetError> {
        loop {
            let state: Option<DivertState> = self.entry(&self.states, agent).await?.map(|(_, state)| state);
            let state = state.filter(|state| state.revision >= revision);
            let is_settled = state.as_ref().is_some_and(|state| state.outcome != DivertOutcome::Applied);
            if is_settled || Instant::now() > until {
                return Ok(state);
            }
            sleep(LOOK).await;
        }
    }

    /// When each kept revision of an agent's rules was written, its number and what it says.
    async fn history(&self, agent: &str) -> Result<Vec<(u64, u64, Desired)>, FleetError> {
        let failed = FleetError::server("show former rules");
        let mut entries = self.desired.history(agent).await.map_err(|error| failed(&error))?;
        let mut revisions = Vec::new();
        while let Some(entry) = entries.next().await {
            let entry = entry.map_err(|error| failed(&error))?;
            let written = SystemTime::from(entry.created).duration_since(UNIX_EPOCH).unwrap_or_default();
            if let Some((revision, desired)) = read::<Desired>(Some(entry)) {
                revisions.push((written.as_secs(), revision, desired));
            }
        }
        Ok(revisions)
    }

    /// The rules before the agent's last ones, and their revision; none, and 0, before the first.
    async fn before(&self, agent: &DivertAgent) -> Result<(u64, Option<FleetRules>), FleetError> {
        let last = agent.returned_to.unwrap_or(agent.revision);
        let mut before = (0, None);
        for (_, revision, desired) in self.history(&agent.agent).await? {
            // A renewal has the same rules.
            if revision < last && desired.returned_to.is_none() && desired.rules != agent.rules {
                before = (revision, desired.rules);
            }
        }
        Ok(before)
    }

    /// Gives agents what they had before this roll-out; returns those that have it.
    async fn take_back(&self, given: &[(DivertAgent, u64)], by: &str) -> Vec<String> {
        let mut restored = Vec::new();
        for (agent, revision) in given {
            let desired = Desired {
                rules: agent.rules.clone(),
                by: format!("{by}, taken back"),
                returned_to: agent.returned_to,
            };
            if let Ok(revision) = swap(&self.desired, &agent.agent, &desired, *revision).await {
                self.settled(&agent.agent, revision, Instant::now() + PATIENCE).await.ok();
                restored.push(agent.agent.clone());
            }
        }
        restored
    }
}
