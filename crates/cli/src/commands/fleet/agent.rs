//! `linerate agent`: this machine's part in a fleet.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use fleet::{
    AgentCounts, AgentPlan, AgentWatcher, Description, DivertPlan, Limits, describe_host, is_name, run_agent,
};
use measure::FleetAgent;
use serde_json::{Value, json};
use session::Network;
use sys::{netns::NetNs, signal};
use view::{Family, Hub, Phase, Snapshot, Web, WebPlan};
use wire::Rate;

use super::server::{refused, server_plan};
use crate::{
    args::AgentArgs,
    failure::{Failure, Status},
    privileges::Privileges,
};

/// Clients that read metrics at once.
const CLIENTS: u32 = 16;

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
        is_simulated: false,
    };
    let privileges = Privileges::of_agent(plan.divert.is_some(), plan.namespace.is_some());
    if args.dry_run {
        println!("{:#}", shown(&plan, &privileges));
        return Ok(true);
    }
    // Before the first thread; coordinators talk to it from then on.
    privileges.reduce();
    let console = Console::open(args)?;
    run_agent(plan, || signal::caught() == 0, console).map_err(|error| refused(&error))?;
    Ok(true)
}

/// The plan as `--dry-run` prints it.
fn shown(plan: &AgentPlan, privileges: &Privileges) -> Value {
    let Limits { max_pps, allow_to, allow_from, .. } = &plan.limits;
    let networks = |networks: &[Network]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "agent": plan.description.facts.agent,
        "labels": plan.description.facts.labels,
        "server": plan.server.url,
        "max_pps": max_pps,
        "allow_to": networks(allow_to),
        "allow_from": networks(allow_from),
        "divert": plan.divert.as_ref().map(|divert| &divert.interface),
        "namespace": plan.namespace,
        "privileges": privileges,
    })
}

/// Standard error, and metrics where they are wanted.
struct Console {
    metrics: Option<(Arc<Hub>, Web)>,
    began: Instant,
}

impl Console {
    fn open(args: &AgentArgs) -> Result<Self, Failure> {
        let hub = Hub::new();
        let plan = args.prometheus.map(|address| WebPlan { address, clients: CLIENTS, metrics_only: true });
        let server = plan.map(|plan| Web::open(plan, &hub)).transpose();
        let server = server.map_err(|error| {
            Failure::of(Status::Refused, &error).hint("give another address, or port 0 for a free one")
        })?;
        if let Some(server) = &server {
            eprintln!("metrics at {}", server.url());
        }
        Ok(Self { metrics: server.map(|server| (hub, server)), began: Instant::now() })
    }
}

impl AgentWatcher for Console {
    fn say(&self, words: String) {
        eprintln!("{words}");
    }

    fn counts(&self, counts: &AgentCounts) {
        let Some((hub, _)) = &self.metrics else { return };
        hub.publish(Snapshot {
            command: "agent".into(),
            run: counts.run.clone().unwrap_or_default(),
            phase: if counts.run.is_some() { Phase::Running } else { Phase::Waiting },
            elapsed_s: self.began.elapsed().as_secs_f64(),
            families: families(counts),
            ..Snapshot::default()
        });
    }

    fn is_watched(&self) -> bool {
        self.metrics.is_some()
    }
}

fn families(counts: &AgentCounts) -> Vec<Family> {
    let labels = [("agent", counts.agent.as_str()), ("incarnation", counts.incarnation.as_str())];
    let counter = |name, help, value: u64| Family::counter(name, help).with(&labels, value as f64);
    let gauge = |name, help, value: f64| Family::gauge(name, help).with(&labels, value);
    let ended = |outcome| [labels[0], labels[1], ("outcome", outcome)];
    vec![
        counter("agent_attempts", "Attempts at trials that the agent prepared.", counts.prepared),
        Family::counter("agent_attempts_ended", "Attempts that are over, by their outcome.")
            .with(&ended("complete"), counts.complete as f64)
            .with(&ended("cut_short"), counts.cut_short as f64),
        counter("agent_requests_refused", "Requests that the agent refused.", counts.refused),
        counter("agent_sent_packets", "Packets sent in attempts that are over.", counts.sent),
        counter("agent_received_packets", "Packets received in attempts that are over.", counts.received),
        gauge(
            "agent_sent_packets_per_second",
            "Packets per second that the agent sends now.",
            counts.sent_pps,
        ),
        gauge(
            "agent_results_waiting",
            "Results that the server has not acknowledged.",
            counts.results_waiting as f64,
        ),
        gauge(
            "agent_connected_ratio",
            "1 while the agent is connected to the server.",
            f64::from(u8::from(counts.is_connected)),
        ),
    ]
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
