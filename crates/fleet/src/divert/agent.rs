//! An agent's part: watches its key and reports its state.

use std::{
    path::PathBuf,
    sync::mpsc::Sender,
    thread,
    time::{Duration, SystemTime},
};

use async_nats::{Client, jetstream};
use futures_util::StreamExt;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    Desired, DivertPlan, DivertState,
    keeper::{self, Order},
    store::{DESIRED, STATES, read},
};
use crate::connect::ANSWER_AT_MOST;

/// A change is announced at once; what was missed is found by looking.
const LOOK: Duration = Duration::from_secs(2);

/// What runs for an agent that may divert.
pub(crate) struct Diverting {
    orders: Sender<Order>,
    thread: thread::JoinHandle<()>,
    tasks: [JoinHandle<()>; 2],
}

impl Diverting {
    /// Starts both.
    pub(crate) fn start(
        client: &Client,
        agent: &str,
        plan: DivertPlan,
        namespace: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let (states, reported) = unbounded_channel();
        let (orders, thread) = keeper::start(plan, namespace, states)?;
        let watching = tokio::spawn(watch(client.clone(), agent.to_owned(), orders.clone()));
        let reporting = tokio::spawn(report(client.clone(), agent.to_owned(), reported));
        Ok(Self { orders, thread, tasks: [watching, reporting] })
    }

    /// Undoes the rules, and reports that.
    pub(crate) async fn end(self, at_most: Duration) {
        let [watching, reporting] = self.tasks;
        watching.abort();
        self.orders.send(Order::End).ok();
        // The last state is stored when the thread has dropped its end.
        timeout(at_most, reporting).await.ok();
        self.thread.join().ok();
    }
}

/// Passes each new revision of the agent's key on.
async fn watch(client: Client, agent: String, orders: Sender<Order>) {
    let context = jetstream::new(client.clone());
    // A write to a bucket is a message that others may hear, too: this agent's key needs no consumer.
    let mut changes = client.subscribe(format!("$KV.{DESIRED}.{agent}")).await.ok();
    let mut seen = 0;
    loop {
        if let Ok(store) = context.get_key_value(DESIRED).await
            && let Ok(entry) = store.entry(&agent).await
        {
            let age = entry.as_ref().map(|entry| SystemTime::from(entry.created));
            let age = age.and_then(|created| created.elapsed().ok()).unwrap_or_default();
            if let Some((revision, desired)) = read::<Desired>(entry)
                && revision > seen
            {
                seen = revision;
                let lease = desired.rules.as_ref().map_or(Duration::ZERO, |rules| rules.lease());
                orders.send(Order::Take(revision, desired.rules, lease.saturating_sub(age))).ok();
            }
        }
        match &mut changes {
            Some(changes) => {
                timeout(LOOK, changes.next()).await.ok();
            }
            None => sleep(LOOK).await,
        }
    }
}

/// Stores each state, and tries until the server has it or a newer one comes.
async fn report(client: Client, agent: String, mut states: UnboundedReceiver<DivertState>) {
    let context = jetstream::new(client);
    while let Some(mut state) = states.recv().await {
        loop {
            while let Ok(newer) = states.try_recv() {
                state = newer;
            }
            let text = serde_json::to_vec(&state).expect("a state is JSON");
            let stored = async {
                let subject = format!("$KV.{STATES}.{agent}");
                context.publish(subject, text.into()).await.ok()?.await.ok()
            };
            if let Ok(Some(_)) = timeout(ANSWER_AT_MOST, stored).await {
                break;
            }
            if states.is_closed() {
                return;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}
