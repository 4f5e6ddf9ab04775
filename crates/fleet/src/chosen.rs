//! The agents of a run: those that the plan selects among the ones that answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use async_nats::Client;

use crate::{
    asking::{discover, look_at_clocks},
    error::FleetError,
    message::Description,
    plan::{FleetPlan, Select, selects},
};

/// Where a plan names the number of agents, they are waited for so long.
const FOUND_AT_MOST: Duration = Duration::from_secs(5);

/// The agents of a run.
pub(crate) struct Chosen {
    pub(crate) senders: Vec<Description>,
    /// None where the plan sends to addresses without agents.
    pub(crate) receivers: Vec<Description>,
    /// Each sender's targets: numbers of receivers, or of addresses without agents.
    pub(crate) targets: Vec<Vec<usize>>,
}

/// The agents that the plan selects; where it requires a number of them, they are waited for.
pub(crate) async fn choose(
    client: &Client,
    plan: &FleetPlan,
    go_on: impl Fn() -> bool,
) -> Result<Chosen, FleetError> {
    let until = Instant::now() + FOUND_AT_MOST;
    loop {
        match choose_now(client, plan).await {
            Err(FleetError::Count { .. }) if go_on() && Instant::now() < until => {}
            chosen => return chosen,
        }
    }
}

async fn choose_now(client: &Client, plan: &FleetPlan) -> Result<Chosen, FleetError> {
    let mut all = discover(client, Duration::from_secs(1)).await?;
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
    look_at_clocks(client, &mut all).await;
    let with = |select: &Select| -> Vec<Description> {
        all.iter().filter(|agent| selects(select, &agent.facts.labels)).cloned().collect()
    };
    let senders = with(&plan.senders);
    let mut receivers = with(&plan.receivers);
    let all_send = !receivers.is_empty();
    receivers.retain(|agent| !senders.iter().any(|one| one.facts.agent == agent.facts.agent));
    let has_receivers = plan.without_agents.is_empty();
    if !has_receivers {
        receivers.clear();
    }
    let [needed, needed_receivers] = plan.counts;
    for (role, found, needed, select) in [
        ("senders", senders.len(), needed, &plan.senders),
        ("receivers", receivers.len(), needed_receivers, &plan.receivers),
    ] {
        if let Some(needed) = needed.filter(|needed| *needed as usize != found) {
            return Err(FleetError::Count { role, found, needed });
        }
        if found == 0 && (role == "senders" || has_receivers) {
            let labels: Vec<String> = select.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let labels = match role == "receivers" && all_send {
                true => "of their own (all with theirs send)".into(),
                false => labels.join(","),
            };
            return Err(FleetError::Nobody { role, labels });
        }
    }
    let count = if has_receivers { receivers.len() } else { plan.without_agents.len() };
    let targets = (0..senders.len())
        .map(|at| if plan.to_all { (0..count).collect() } else { vec![at % count] })
        .collect();
    Ok(Chosen { senders, receivers, targets })
}

impl Chosen {
    pub(crate) fn sender_names(&self) -> Vec<String> {
        self.senders.iter().map(|agent| agent.facts.agent.clone()).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.senders.iter().chain(&self.receivers).map(|agent| agent.facts.agent.clone()).collect()
    }

    pub(crate) fn roles(&self) -> impl Iterator<Item = &'static str> {
        let senders = self.senders.iter().map(|_| "sender");
        senders.chain(self.receivers.iter().map(|_| "receiver"))
    }

    pub(crate) fn incarnations(&self) -> BTreeMap<String, String> {
        let all = self.senders.iter().chain(&self.receivers);
        all.map(|agent| (agent.facts.agent.clone(), agent.facts.incarnation.clone())).collect()
    }

    pub(crate) fn orders(&self) -> BTreeMap<String, Vec<String>> {
        let named = |at: &usize| Some(self.receivers.get(*at)?.facts.agent.clone());
        let each = self.senders.iter().zip(&self.targets);
        each.map(|(agent, to)| (agent.facts.agent.clone(), to.iter().filter_map(named).collect())).collect()
    }
}
