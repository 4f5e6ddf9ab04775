//! The table before a run, from what agents have said and from their paths to each other.

use std::net::{IpAddr, SocketAddr};

use async_nats::Client;
use futures_util::{StreamExt, stream};
use std::time::Duration;
use trial::HostPlan;

use crate::{
    asking::{AT_ONCE, request},
    chosen::Chosen,
    load::{FleetLoad, flows_to},
    message::{Answer, Ask, Description, PathFinding},
    plan::FleetPlan,
    preflight::{Needs, Preflight, SenderFlows, packet_bytes},
};

/// Checks each agent and each path.
pub(crate) async fn check_fleet(client: &Client, plan: &FleetPlan, chosen: &Chosen) -> Preflight {
    let mut table = Preflight::default();
    let hardest = plan.hardest();
    let shares = plan.shares(hardest.rate_pps, &chosen.sender_names());
    let without_agents: Vec<IpAddr> = plan.without_agents.iter().map(SocketAddr::ip).collect();
    let needs = Needs {
        version: env!("CARGO_PKG_VERSION").into(),
        engine: plan.load.engine.to_string(),
        is_sender: true,
        rate_pps: None,
        frame_size_bytes: plan.load.largest_frame_bytes(),
        duration_s: hardest.duration_ns as f64 / 1e9,
        clock_bound_ns: plan.most_start_error_ns,
        without_agents: Vec::new(),
        flows: Vec::new(),
        to_port: plan.known_ports(),
    };
    for ((agent, share), to) in chosen.senders.iter().zip(&shares).zip(&chosen.targets) {
        let without_agents = to.iter().filter_map(|at| without_agents.get(*at).copied()).collect();
        table.check(agent, &Needs { rate_pps: *share, without_agents, ..needs.clone() });
    }
    let bytes = needs.frame_size_bytes;
    let found = paths(client, plan, chosen, bytes).await;
    for ((sender, to), paths) in chosen.senders.iter().zip(&chosen.targets).zip(found) {
        for (number, at) in to.iter().enumerate() {
            let path = paths.as_ref().map(|paths| paths.get(number)).map_err(String::as_str);
            let path = path.and_then(|path| path.ok_or("it did not look for this path"));
            let receiver = chosen.receivers.get(*at).map(|receiver| receiver.facts.agent.clone());
            let receiver = receiver.unwrap_or_else(|| without_agents[*at].to_string());
            table.check_path((&sender.facts.agent, &receiver), path, bytes);
        }
    }
    let hosts: Vec<Option<HostPlan>> = chosen
        .senders
        .iter()
        .zip(&chosen.targets)
        .map(|(sender, to)| planned(plan, sender, chosen, to))
        .collect();
    for (at, agent) in chosen.receivers.iter().enumerate() {
        let to_it =
            || chosen.targets.iter().zip(&shares).enumerate().filter(move |(_, (to, _))| to.contains(&at));
        let each = to_it().map(|(_, (to, share))| share.map(|pps| pps / to.len() as f64));
        let flows = to_it().filter_map(|(sender, _)| {
            let from = chosen.senders[sender].facts.address.parse().ok()?;
            let src_ports = flows_to(hosts[sender].as_ref()?, agent.facts.address.parse().ok()?);
            Some(SenderFlows { from, src_ports })
        });
        table.check(
            agent,
            &Needs {
                engine: plan.receiver.engine.to_string(),
                is_sender: false,
                rate_pps: each.sum(),
                flows: flows.collect(),
                ..needs.clone()
            },
        );
    }
    table
}

/// What a sender would send, to the addresses that its receivers have now.
fn planned(plan: &FleetPlan, sender: &Description, chosen: &Chosen, to: &[usize]) -> Option<HostPlan> {
    let port = plan.receiver.traffic.local.port();
    let address =
        |at: &usize| Some((chosen.receivers.get(*at)?.facts.address.parse::<IpAddr>().ok()?, port).into());
    let targets: Vec<SocketAddr> = to.iter().map(address).collect::<Option<_>>()?;
    let is_here = !sender.facts.address.is_empty() && !targets.is_empty();
    let load = FleetLoad { duration_ns: 1_000_000_000, ..plan.hardest() };
    is_here.then(|| plan.load.plan(&targets, load).ok()).flatten()
}

/// Each sender's paths to its receivers, or why it does not know them.
async fn paths(
    client: &Client,
    plan: &FleetPlan,
    chosen: &Chosen,
    frame_size_bytes: u32,
) -> Vec<Result<Vec<PathFinding>, String>> {
    let packet_bytes = packet_bytes(frame_size_bytes);
    let has_agent = plan.without_agents.is_empty();
    let asked = chosen.senders.iter().zip(&chosen.targets).map(async |(sender, to)| {
        let address = |at: &usize| {
            if !has_agent {
                return Ok(plan.without_agents[*at].ip());
            }
            let agent = &chosen.receivers[*at].facts;
            agent.address.parse().map_err(|_| format!("{} has no address", agent.agent))
        };
        let to = to.iter().map(address).collect::<Result<Vec<IpAddr>, String>>()?;
        let ask = Ask::Paths { to, packet_bytes, has_agent };
        match request(client, &sender.facts.agent, &ask, Duration::from_secs(5)).await? {
            Answer::Paths { paths } => Ok(paths),
            Answer::Refused { reason } => Err(reason),
            _ => Err("it does not answer what it was asked".into()),
        }
    });
    stream::iter(asked).buffered(AT_ONCE).collect().await
}
