//! Why a fleet does not do what it is asked.

use thiserror::Error;

/// Why a fleet does not do what it is asked.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The server.
    #[error("cannot reach the NATS server at {server}")]
    Unreachable {
        /// Its address.
        server: String,
        /// Why.
        source: async_nats::ConnectError,
    },
    /// What is needed to be let in.
    #[error("cannot use the credentials {path}")]
    Credentials {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The server does not do what it is asked.
    #[error("the NATS server does not {what}: {reason}")]
    Server {
        /// What.
        what: &'static str,
        /// Its words.
        reason: String,
    },
    /// The runtime.
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    /// Another agent has this name.
    #[error("another agent is named {name} (incarnation {incarnation})")]
    NameTaken {
        /// The name.
        name: String,
        /// The other one.
        incarnation: String,
    },
    /// No agent has the labels.
    #[error("no agent has the labels {labels} that the plan's {role} need")]
    Nobody {
        /// `senders` or `receivers`.
        role: &'static str,
        /// The labels.
        labels: String,
    },
    /// Not as many agents as the plan requires.
    #[error("{found} agents have the labels of the plan's {role}, and the plan requires {needed}")]
    Count {
        /// `senders` or `receivers`.
        role: &'static str,
        /// How many there are.
        found: usize,
        /// How many there must be.
        needed: u32,
    },
    /// No agent may divert.
    #[error("no agent {}may divert", if .labels.is_empty() { String::new() } else { format!("with {labels} ") })]
    NobodyDiverts {
        /// The labels.
        labels: String,
    },
    /// The table before a run has red rows.
    #[error("the preflight table has {red} red rows: nothing was started")]
    Preflight {
        /// How many.
        red: usize,
    },
    /// An agent refuses.
    #[error("agent {agent} refused: {reason}")]
    Refused {
        /// Which.
        agent: String,
        /// Its reason.
        reason: String,
    },
    /// No attempt at a trial was complete.
    #[error("trial {trial} was voided {attempts} times, the last time because {reason}")]
    Voided {
        /// The trial.
        trial: u32,
        /// Attempts.
        attempts: u32,
        /// Why the last one was.
        reason: String,
    },
    /// A run of this name is stored.
    #[error("the server already has a run {run}")]
    RunExists {
        /// The run.
        run: String,
    },
    /// No such run is stored.
    #[error("the server has no run {run}")]
    UnknownRun {
        /// The run.
        run: String,
    },
    /// What is stored cannot be read.
    #[error("a stored message cannot be read")]
    Unreadable(#[from] serde_json::Error),
}

impl FleetError {
    /// The server did not do something.
    pub(crate) fn server(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Self {
        move |reason| Self::Server { what, reason: reason.to_string() }
    }
}
