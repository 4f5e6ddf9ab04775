//! `linerate agent`: this machine's part in a fleet.

use std::collections::BTreeMap;

use fleet::{AgentPlan, Description, DivertPlan, Limits, describe_host, is_name, run_agent};
use measure::FleetAgent;
use sys::{netns::NetNs, signal};
use wire::Rate;

use super::server::{refused, server_plan};
use crate::{
    args::AgentArgs,
    failure::{Failure, Status},
};

pub(crate) fn run(args: &AgentArgs) -> Result<bool, Failure> {
    let name = args.name.clone().unwrap_or_else(host_name);
    let mut problems = Vec::new();
    if !is_name(&name) {
        problems.push(
            Failure::new(Status::Usage, format!("'{name}' is not a name for an agent"))
                .hint("--name takes letters, digits, - and _"),
        );
    }
    let limits = limits(args, &mut problems);
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    let namespace = args.netns.as_deref().map(NetNs::open).transpose();
    let namespace = namespace.map_err(|error| {
        Failure::of(Status::Refused, &error).hint("--netns takes /run/netns/NAME or /proc/PID/ns/net")
    })?;
    let machine = bench::read_machine();
    let mut description = Description::default();
    description.facts = FleetAgent {
        agent: name,
        labels: args.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: machine.kernel,
        cpus: machine.cpus,
        ..FleetAgent::default()
    };
    describe_host(&mut description, args.address, namespace.as_ref())
        .map_err(|error| Failure::of(Status::Refused, &error))?;
    drop(namespace);
    let divert = limits
        .divert
        .clone()
        .map(|interface| divert_plan(interface, &description.facts.agent))
        .transpose()?;
    let plan = AgentPlan {
        server: server_plan(&args.server),
        description,
        limits,
        divert,
        namespace: args.netns.clone(),
        skew: args.clock_skew.unwrap_or_default(),
    };
    run_agent(plan, || signal::caught() == 0, |words| eprintln!("{words}"))
        .map_err(|error| refused(&error))?;
    Ok(true)
}

/// The owner's limits: the file, overridden by options.
fn limits(args: &AgentArgs, problems: &mut Vec<Failure>) -> Limits {
    let read = args.limits.as_deref().map(Limits::read).transpose();
    let mut limits = read.map(Option::unwrap_or_default).unwrap_or_else(|error| {
        problems.push(Failure::of(Status::Refused, &error));
        Limits::default()
    });
    match args.max_rate {
        Some(Rate::Pps(pps)) => limits.max_pps = Some(pps),
        Some(Rate::Max) | None => {}
        Some(_) => problems.push(Failure::new(
            Status::Usage,
            "--max-rate takes a rate in packets per second, for example 2Mpps",
        )),
    }
    if !args.allow_to.is_empty() {
        limits.allow_to.clone_from(&args.allow_to);
    }
    if args.divert.is_some() {
        limits.divert.clone_from(&args.divert);
    }
    if !args.allow_from.is_empty() {
        limits.allow_from.clone_from(&args.allow_from);
    }
    limits
}

/// This program diverts; the rules' file is in a folder of the agent's own.
fn divert_plan(interface: String, agent: &str) -> Result<DivertPlan, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(Status::Internal, format!("cannot find this program: {error}")))?;
    Ok(DivertPlan { interface, program, folder: session::runtime_folder().join("fleet").join(agent) })
}

/// The host's name as an agent's name; dots would separate words of a NATS subject.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().replace('.', "-")
}
