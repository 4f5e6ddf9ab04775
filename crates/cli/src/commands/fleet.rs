//! `linerate fleet` and `linerate agent`: many machines over NATS.

mod agent;
mod run;
mod status;
mod up;

use std::{error::Error, path::PathBuf};

use fleet::{Access, FleetError, ServerPlan, get_server, new_key};

pub(super) use agent::run as run_agent;

use crate::{
    args::{FleetArgs, FleetCommand, ServerArgs},
    failure::{Failure, Status},
    output::{print_line, state_folder},
};

pub(super) fn run(args: &FleetArgs) -> Result<bool, Failure> {
    match &args.command {
        FleetCommand::Up(args) => up::run(args),
        FleetCommand::Status(args) => status::run(args),
        FleetCommand::Run(args) => run::run(args),
        FleetCommand::Collect(args) => run::run_collect(args),
        FleetCommand::NewKey { file } => {
            let public = new_key(file).map_err(|error| {
                Failure::new(Status::Refused, format!("cannot make {}: {error}", file.display()))
            })?;
            print_line(&public)?;
            Ok(true)
        }
        FleetCommand::GetServer => {
            let found = get_server(&server_folder(), |step| eprintln!("{step}"))
                .map_err(|error| Failure::of(Status::Refused, &error).hint("docs.nats.io says how else"))?;
            eprintln!("nats-server is {}", found.display());
            Ok(true)
        }
    }
}

/// Where nats-server is installed to.
fn server_folder() -> PathBuf {
    state_folder().join("bin")
}

fn server_plan(args: &ServerArgs) -> ServerPlan {
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

/// Why a fleet does not do what it is asked, and what helps.
fn refused(error: &FleetError) -> Failure {
    let status = match error {
        FleetError::Voided { .. } => Status::GoalMissed,
        FleetError::Runtime(_) | FleetError::Unreadable(_) => Status::Internal,
        _ => Status::Refused,
    };
    let failure = Failure::of(status, error as &(dyn Error + 'static));
    match error {
        FleetError::Unreachable { .. } => failure
            .hint("is it running, and does --nats name it? linerate fleet up --here 4 starts one to try"),
        FleetError::Nobody { .. } => failure.hint("linerate fleet status shows the agents and their labels"),
        FleetError::NameTaken { .. } => failure.hint("give each agent a --name of its own"),
        FleetError::UnknownRun { .. } => failure.hint("fleet run says its run's name first"),
        _ => failure,
    }
}
