//! The server that a command connects to, and hints for failures.

use std::{error::Error, path::PathBuf};

use fleet::{Access, FleetError, ServerPlan};

use crate::{
    args::ServerArgs,
    failure::{Failure, Status},
    output::state_folder,
};

/// Where linerate installs nats-server.
pub(super) fn server_folder() -> PathBuf {
    state_folder().join("bin")
}

pub(super) fn server_plan(args: &ServerArgs) -> ServerPlan {
    ServerPlan {
        url: args
            .nats
            .clone()
            .or_else(|| std::env::var("LINERATE_NATS").ok())
            .unwrap_or_else(|| "nats://127.0.0.1:4222".into()),
        access: Access {
            credentials: args.creds.clone(),
            nkey: args.nkey.clone(),
            authority: args.ca.clone(),
            certificate: args.cert.clone().zip(args.cert_key.clone()),
            tls_first: args.tls_first,
        },
    }
}

/// Why a fleet request failed, and what to do.
pub(super) fn refused(error: &FleetError) -> Failure {
    let status = match error {
        FleetError::Voided { .. } => Status::GoalMissed,
        FleetError::Runtime(_) | FleetError::Unreadable(_) => Status::Internal,
        _ => Status::Refused,
    };
    let failure = Failure::of(status, error as &(dyn Error + 'static));
    match error {
        FleetError::Unreachable { .. } => failure
            .hint("is it running, and does --nats name it? linerate fleet up --here 4 starts a trial one"),
        FleetError::Nobody { .. } => failure.hint("linerate fleet status shows the agents and their labels"),
        FleetError::NobodyDiverts { .. } => failure.hint(
            "its owner allows it: linerate agent --divert IF, or divert = \"IF\" in the file of --limits",
        ),
        FleetError::NameTaken { .. } => failure.hint("give each agent a --name of its own"),
        FleetError::RunExists { .. } => failure.hint("give the run another --name, or none"),
        FleetError::UnknownRun { .. } => failure.hint("fleet run prints the run's name first"),
        _ => failure,
    }
}
