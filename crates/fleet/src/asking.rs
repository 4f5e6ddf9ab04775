//! A coordinator's questions to agents: each one's answer, everybody who is there, and their clocks.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use async_nats::Client;
use futures_util::{StreamExt, stream};
use measure::{ClockExchange, ClockSight};
use sys::clock;
use tokio::time::timeout;

use crate::{
    clock::Sight,
    error::FleetError,
    message::{Answer, Ask, Description},
    names,
};

/// Requests under way at once.
pub(crate) const AT_ONCE: usize = 64;
/// A request is repeated after this time.
const AGAIN: Duration = Duration::from_secs(3);
/// Discovery goes on until no answer has come for so long.
const STILL_ANSWERING: Duration = Duration::from_millis(200);
/// But takes no longer than this in addition to its time.
const LONGEST_DISCOVERY: Duration = Duration::from_secs(10);
/// Exchanges for an agent's clock, before a trial and after it.
const EXCHANGES: u32 = 8;
/// An exchange that takes longer bounds the clock too loosely to be useful.
const EXCHANGE_AT_MOST: Duration = Duration::from_secs(1);
/// Messages can be lost; an agent that answers less is not there.
const MOST_LOST: u32 = 2;

pub(crate) async fn request(
    client: &Client,
    agent: &str,
    ask: &Ask,
    at_most: Duration,
) -> Result<Answer, String> {
    let text = serde_json::to_vec(ask).map_err(|error| error.to_string())?;
    let request = async_nats::Request::new().payload(text.into()).timeout(Some(at_most));
    let answer = timeout(at_most, client.send_request(names::ask(agent), request)).await;
    let answer = answer.map_err(|_| "it does not answer".to_owned())?.map_err(|error| error.to_string())?;
    serde_json::from_slice(&answer.payload).map_err(|error| error.to_string())
}

/// The same, asked again where no answer comes: one lost message must not cost an attempt. Agents answer it alike.
pub(crate) async fn request_again(
    client: &Client,
    agent: &str,
    ask: &Ask,
    at_most: Duration,
) -> Result<Answer, String> {
    let until = Instant::now() + at_most;
    loop {
        let asked = Instant::now();
        let left = until.saturating_duration_since(asked);
        match request(client, agent, ask, left.min(AGAIN)).await {
            // Without a subscriber the server answers with an error at once.
            Err(_) if left > AGAIN && asked.elapsed() >= AGAIN => {}
            answer => return answer,
        }
    }
}

/// Everybody who answers.
pub(crate) async fn discover(client: &Client, at_most: Duration) -> Result<Vec<Description>, FleetError> {
    let failed = FleetError::server("take a question");
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| failed(&error))?;
    let ask = serde_json::to_vec(&Ask::Describe)?;
    let mut agents: BTreeMap<(String, String), Description> = BTreeMap::new();
    // Asked twice: one lost message must not make a fleet smaller.
    for _ in 0..2 {
        let mut until = Instant::now() + at_most / 2;
        let longest = until + LONGEST_DISCOVERY / 2;
        let (inbox, ask) = (inbox.clone(), ask.clone());
        client.publish_with_reply(names::ASK_ALL, inbox, ask.into()).await.map_err(|error| failed(&error))?;
        client.flush().await.map_err(|error| failed(&error))?;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Ok(Some(message)) = timeout(left, answers.next()).await else { break };
            // Thousands of agents take longer to answer than a few: while they do, nobody is missing yet.
            until = until.max(Instant::now() + STILL_ANSWERING).min(longest);
            if let Ok(Answer::Description(agent)) = serde_json::from_slice(&message.payload) {
                agents.insert((agent.facts.agent.clone(), agent.facts.incarnation.clone()), *agent);
            }
        }
    }
    Ok(agents.into_values().collect())
}

/// The best of some exchanges with an agent's clock.
async fn look_at_clock(client: &Client, agent: &str) -> Option<Sight> {
    let mut best: Option<ClockSight> = None;
    let mut lost = 0;
    for _ in 0..EXCHANGES {
        let asked_ns = clock::monotonic_ns();
        let answer = request(client, agent, &Ask::Clock, EXCHANGE_AT_MOST).await;
        let returned_ns = clock::monotonic_ns();
        let Ok(Answer::Clock { heard_ns, answered_ns }) = answer else {
            lost += 1;
            if lost > MOST_LOST { break } else { continue }
        };
        let exchange = ClockExchange { asked_ns, heard_ns, answered_ns, returned_ns };
        let sight = exchange.sight();
        best = [best, sight].into_iter().flatten().min_by_key(|sight| sight.within_ns);
    }
    best.map(Sight::from)
}

pub(crate) async fn look_at_clocks(client: &Client, agents: &mut [Description]) {
    let names: Vec<String> = agents.iter().map(|agent| agent.facts.agent.clone()).collect();
    let clocks = clocks(client, names).await;
    for agent in agents {
        let sight = clocks.get(&agent.facts.agent);
        agent.clock_ahead_ns = sight.map(|sight| sight.ahead_ns);
        agent.clock_bound_ns = sight.map(|sight| sight.within_ns);
    }
}

/// A few at once: more would wait for each other, and look further away than they are.
pub(crate) async fn clocks(client: &Client, agents: Vec<String>) -> BTreeMap<String, Sight> {
    const AT_ONCE: usize = 4;
    let looks = stream::iter(agents.into_iter().map(|agent| async move {
        let sight = look_at_clock(client, &agent).await;
        sight.map(|sight| (agent, sight))
    }));
    looks.buffer_unordered(AT_ONCE).filter_map(async |seen| seen).collect().await
}
