//! The way to the server: address, what lets a client in, and a connection that is never given up.

use std::{path::PathBuf, time::Duration};

use async_nats::{Client, ConnectOptions, Event};
use tokio::runtime::{Builder, Runtime};

use crate::{error::FleetError, names};

/// An answer that takes longer does not come.
pub(crate) const ANSWER_AT_MOST: Duration = Duration::from_secs(2);

/// The coordinator's name among the server's clients.
pub(crate) const COORDINATOR: &str = "coordinator";

/// Which server, and what lets a client in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerPlan {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`; several with commas.
    pub url: String,
    /// What lets a client in.
    pub access: Access,
}

/// How a client authenticates, and which authority it trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// A file with a JWT and a seed, as `nsc generate creds` makes.
    pub credentials: Option<PathBuf>,
    /// A file with an nkey's seed.
    pub nkey: Option<PathBuf>,
    /// A file with the certificates of authorities that sign the server's.
    pub authority: Option<PathBuf>,
    /// A certificate and its key, where the server wants to see one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether TLS begins before the server says anything.
    pub tls_first: bool,
}

/// The runtime of one blocking call: a single thread.
pub(crate) fn runtime() -> Result<Runtime, FleetError> {
    Builder::new_current_thread().enable_all().build().map_err(FleetError::Runtime)
}

/// Connects as `client`, whose answers come to an inbox of its own. With patience the first connection is tried until there is
/// one, as every later one is.
pub(crate) async fn connect(
    server: &ServerPlan,
    client: &str,
    is_patient: bool,
    say: impl Fn(String) + Send + Sync + Clone + 'static,
) -> Result<Client, FleetError> {
    let options = options(&server.access)?
        .name(format!("linerate {client}"))
        .custom_inbox_prefix(names::inbox(client))
        .ping_interval(Duration::from_secs(5))
        .connection_timeout(Duration::from_secs(3))
        .request_timeout(Some(ANSWER_AT_MOST))
        .max_reconnects(None)
        .reconnect_delay_callback(|tries| Duration::from_millis((50 * tries as u64).min(1000)))
        .event_callback(move |event| {
            let say = say.clone();
            async move {
                if let Some(words) = words(&event) {
                    say(words);
                }
            }
        });
    let options = if is_patient { options.retry_on_initial_connect() } else { options };
    let urls: Vec<&str> = server.url.split(',').map(str::trim).collect();
    let unreachable = |source| FleetError::Unreachable { server: server.url.clone(), source };
    options.connect(urls).await.map_err(unreachable)
}

fn options(access: &Access) -> Result<ConnectOptions, FleetError> {
    let read = |path: &PathBuf| {
        let failed = |source| FleetError::Credentials { path: path.display().to_string(), source };
        std::fs::read_to_string(path).map_err(failed)
    };
    let mut options = match (&access.credentials, &access.nkey) {
        (Some(path), _) => {
            let failed = |source| FleetError::Credentials { path: path.display().to_string(), source };
            ConnectOptions::with_credentials(&read(path)?).map_err(failed)?
        }
        (None, Some(path)) => ConnectOptions::with_nkey(read(path)?.trim().to_owned()),
        (None, None) => ConnectOptions::new(),
    };
    if let Some(authority) = &access.authority {
        options = options.add_root_certificates(authority.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &access.certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    if access.tls_first {
        options = options.tls_first();
    }
    Ok(options)
}

/// What a person wants to know of a connection.
fn words(event: &Event) -> Option<String> {
    match event {
        Event::Connected => Some("connected to the server".into()),
        Event::Disconnected => Some("lost the server".into()),
        Event::SlowConsumer(_) => Some("too slow: the server's messages were dropped".into()),
        Event::ServerError(error) => Some(format!("the server says: {error}")),
        Event::ClientError(error) => Some(format!("connection: {error}")),
        _ => None,
    }
}
