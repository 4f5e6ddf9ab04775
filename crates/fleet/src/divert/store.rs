//! The two buckets: an agent's desired rules, and its state.

use std::time::Duration;

use async_nats::jetstream::{
    Context,
    kv::{Entry, Operation, Store},
    stream::{self, DiscardPolicy},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::error::FleetError;

/// What agents are to divert: a key an agent, which the coordinator writes.
pub(crate) const DESIRED: &str = "linerate-divert";
/// What they divert: a key an agent, which the agent writes.
pub(crate) const STATES: &str = "linerate-diverted";
/// Revisions kept of an agent's rules: `fleet divert undo` goes back by one.
const HISTORY: i64 = 16;
/// A state that no agent renews is forgotten.
const STATE_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Both buckets, made when they are missing.
pub(crate) async fn make(context: &Context) -> Result<(Store, Store), FleetError> {
    Ok((
        bucket(context, DESIRED, HISTORY, Duration::ZERO).await?,
        bucket(context, STATES, 1, STATE_AGE).await?,
    ))
}

/// A bucket is a stream (ADR-8 of NATS). Not by `create_key_value`: older servers answer it with a text that async-nats cannot
/// read.
async fn bucket(context: &Context, name: &str, history: i64, max_age: Duration) -> Result<Store, FleetError> {
    let failed = FleetError::server("keep rules");
    let config = stream::Config {
        name: format!("KV_{name}"),
        subjects: vec![format!("$KV.{name}.>")],
        max_messages_per_subject: history,
        max_age,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        num_replicas: 1,
        ..stream::Config::default()
    };
    context.get_or_create_stream(config).await.map_err(|error| failed(&error))?;
    context.get_key_value(name).await.map_err(|error| failed(&error))
}

/// A value and its revision; `None` where the key was never written or is deleted.
pub(crate) fn read<T: DeserializeOwned>(entry: Option<Entry>) -> Option<(u64, T)> {
    let entry = entry.filter(|entry| entry.operation == Operation::Put)?;
    Some((entry.revision, serde_json::from_slice(&entry.value).ok()?))
}

/// Writes a key if it still has `revision` (0: never written); returns the new revision.
pub(crate) async fn swap(
    store: &Store,
    key: &str,
    what: &impl Serialize,
    revision: u64,
) -> Result<u64, String> {
    let text = serde_json::to_vec(what).map_err(|error| error.to_string())?;
    store.update(key, text.into(), revision).await.map_err(|error| error.to_string())
}
