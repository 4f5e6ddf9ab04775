//! `linerate fleet up`: a trial fleet on this machine.

use std::{thread, time::Duration};

use fleet::{TrialFleet, UpError, UpPlan, find_server};
use sys::signal;

use super::server::server_folder;
use crate::{
    args::FleetUpArgs,
    failure::{Failure, Status},
};

const LOOK: Duration = Duration::from_millis(100);

pub(super) fn run(args: &FleetUpArgs) -> Result<bool, Failure> {
    let server = find_server(&server_folder()).ok_or_else(|| {
        Failure::new(Status::Missing, "nats-server is not installed").hint("linerate fleet get-server")
    })?;
    if !matches!(lab::gain_access(), Ok(lab::Access::Privileged)) {
        return Err(Failure::new(
            Status::Missing,
            "namespaces of a trial fleet need CAP_SYS_ADMIN and CAP_NET_ADMIN",
        )
        .hint("run it as root"));
    }
    let folder = tempfile::Builder::new().prefix("linerate-fleet-").tempdir();
    let folder = folder.map_err(|error| Failure::of(Status::Refused, &error))?;
    let receivers = args.receivers.unwrap_or((args.here / 4).max(1));
    let plan = UpPlan {
        agents: args.here,
        receivers,
        server,
        port: args.port,
        folder: folder.path().into(),
        program: "/proc/self/exe".into(),
        arguments: args.arguments.clone(),
    };
    let mut fleet = TrialFleet::start(&plan).map_err(|error| {
        let status = if matches!(error, UpError::Count { .. }) { Status::Usage } else { Status::Refused };
        Failure::of(status, &error)
    })?;
    for (name, process) in fleet.processes() {
        eprintln!("{name}: process {process}");
    }
    eprintln!(
        "{} agents are ready ({receivers} of them receive), until Ctrl-C; LINERATE_NATS={}",
        args.here,
        fleet.url()
    );
    let mut known = Vec::new();
    while signal::caught() == 0 {
        thread::sleep(LOOK);
        if !fleet.has_server() {
            return Err(Failure::new(Status::Refused, "nats-server ended"));
        }
        for name in fleet.ended() {
            if !known.contains(&name) {
                eprintln!("{name} ended");
                known.push(name);
            }
        }
    }
    drop(fleet);
    Ok(true)
}
