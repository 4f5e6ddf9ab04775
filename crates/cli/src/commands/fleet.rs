//! `linerate fleet` and `linerate agent`: many machines over NATS.

mod agent;
mod divert;
mod loads;
mod run;
mod server;
mod status;
mod up;

use fleet::{get_server, new_key};

pub(super) use agent::run as run_agent;

use crate::{
    args::{FleetArgs, FleetCommand},
    failure::{Failure, Status},
    output::print_line,
};
use server::server_folder;

pub(super) fn run(args: &FleetArgs) -> Result<bool, Failure> {
    match &args.command {
        FleetCommand::Up(args) => up::run(args),
        FleetCommand::Status(args) => status::run(args),
        FleetCommand::Run(args) => run::run(args),
        FleetCommand::Collect(args) => run::run_collect(args),
        FleetCommand::Divert(args) => divert::run(args),
        FleetCommand::NewKey { file } => {
            let public = new_key(file).map_err(|error| {
                Failure::new(Status::Refused, format!("cannot make {}: {error}", file.display()))
            })?;
            print_line(&public)?;
            Ok(true)
        }
        FleetCommand::GetServer => {
            let found = get_server(&server_folder(), |step| eprintln!("{step}")).map_err(|error| {
                Failure::of(Status::Refused, &error).hint("docs.nats.io describes other ways")
            })?;
            eprintln!("installed nats-server as {}", found.display());
            Ok(true)
        }
    }
}
