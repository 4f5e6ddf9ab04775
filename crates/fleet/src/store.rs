//! Runs and results on the server: a stream that keeps them for a week, written with acknowledgements and message ids, so that
//! what is said twice is stored once.

use std::{collections::BTreeSet, time::Duration};

use async_nats::jetstream::{
    Context,
    consumer::{self, DeliverPolicy, pull},
    context::PublishErrorKind,
    message::PublishMessage,
    stream::{Config, Stream},
};
use futures_util::StreamExt;
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    connect::ANSWER_AT_MOST,
    error::FleetError,
    message::{Head, Outcome, Step},
    names,
};

const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// The stream, made where it is not there yet.
pub(crate) async fn stream(context: &Context) -> Result<Stream, FleetError> {
    let config = Config {
        name: names::STREAM.into(),
        subjects: names::STORED.map(String::from).to_vec(),
        max_age: KEPT_FOR,
        duplicate_window: Duration::from_secs(120),
        num_replicas: 1,
        ..Config::default()
    };
    let failed = FleetError::server("keep results");
    context.get_or_create_stream(config).await.map_err(|error| failed(&error))
}

async fn store(context: &Context, subject: String, id: &str, what: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_vec(what).map_err(|error| error.to_string())?;
    let message = PublishMessage::build().message_id(id).payload(text.into());
    let stored = async {
        let acknowledged = context.send_publish(subject, message).await.map_err(|error| error.to_string())?;
        acknowledged.await.map(|_| ()).map_err(|error| error.to_string())
    };
    timeout(ANSWER_AT_MOST, stored).await.map_err(|_| "no acknowledgement".to_owned())?
}

pub(crate) async fn store_outcome(context: &Context, outcome: &Outcome) -> Result<(), String> {
    store(context, names::result(&outcome.agent, &outcome.of.run), &outcome.id(), outcome).await
}

/// Begins a run. Its name must be new: results of two runs under one name would be merged.
pub(crate) async fn store_head(context: &Context, run: &str, head: &Head) -> Result<(), FleetError> {
    let failed = FleetError::server("keep the run");
    // Not by message id, which would hide a second run of this name for two minutes.
    let message =
        PublishMessage::build().expected_last_subject_sequence(0).payload(serde_json::to_vec(head)?.into());
    let stored = async { context.send_publish(names::head(run), message).await?.await };
    match timeout(ANSWER_AT_MOST, stored).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if error.kind() == PublishErrorKind::WrongLastSequence => {
            Err(FleetError::RunExists { run: run.into() })
        }
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(failed(&"no acknowledgement")),
    }
}

/// `number` is that of the step in its run.
pub(crate) async fn store_step(
    context: &Context,
    run: &str,
    number: u64,
    step: &Step,
) -> Result<(), FleetError> {
    // Losing the server for a moment must not end a run.
    const TRIES: u32 = 10;
    let mut reason = String::new();
    for _ in 0..TRIES {
        match store(context, names::steps(run), &format!("{run}/step/{number}"), step).await {
            Ok(()) => return Ok(()),
            Err(error) => reason = error,
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err(FleetError::server("keep the run")(&reason))
}

/// All of a run that is stored.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// The stream's number of the last message that was read.
    last: u64,
    pub(crate) head: Option<Head>,
    pub(crate) steps: Vec<Step>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Reads everything that is stored of a run now, behind what was read before.
pub(crate) async fn read_run(context: &Context, run: &str, stored: &mut Stored) -> Result<(), FleetError> {
    let failed = FleetError::server("show results");
    let stream = stream(context).await?;
    let config = pull::OrderedConfig {
        filter_subject: names::all_of(run),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: stored.last + 1 },
        ..pull::OrderedConfig::default()
    };
    let mut consumer: consumer::Consumer<pull::OrderedConfig> =
        stream.create_consumer(config).await.map_err(|error| failed(&error))?;
    let mut pending = consumer.info().await.map_err(|error| failed(&error))?.num_pending;
    if pending == 0 {
        return Ok(());
    }
    let mut seen: BTreeSet<String> = stored.outcomes.iter().map(Outcome::id).collect();
    let mut messages = consumer.messages().await.map_err(|error| failed(&error))?;
    while pending > 0 {
        let next = timeout(ANSWER_AT_MOST, messages.next()).await;
        let Ok(Some(message)) = next else {
            return Err(failed(&"it sends no messages although there are some"));
        };
        let message = message.map_err(|error| failed(&error))?;
        let info = message.info().map_err(|error| failed(&error))?;
        (pending, stored.last) = (info.pending, info.stream_sequence);
        let subject = message.subject.as_str();
        if subject == names::head(run) {
            stored.head = Some(serde_json::from_slice(&message.payload)?);
        } else if subject == names::steps(run) {
            stored.steps.push(serde_json::from_slice(&message.payload)?);
        } else {
            let outcome: Outcome = serde_json::from_slice(&message.payload)?;
            // An agent may speak for itself only: the server lets it write no other subject.
            if subject == names::result(&outcome.agent, run) && seen.insert(outcome.id()) {
                stored.outcomes.push(outcome);
            }
        }
    }
    Ok(())
}
