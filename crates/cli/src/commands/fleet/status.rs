//! `linerate fleet status`: the connected agents.

use std::io::{self, Write};

use fleet::{Description, status};

use super::server::{refused, server_plan};
use crate::{
    args::FleetStatusArgs,
    failure::{Failure, Status},
    output::printed,
};

pub(super) fn run(args: &FleetStatusArgs) -> Result<bool, Failure> {
    let agents = status(&server_plan(&args.server), args.wait).map_err(|error| refused(&error))?;
    let mut out = io::stdout().lock();
    if args.json {
        let text =
            serde_json::to_string_pretty(&agents).map_err(|error| Failure::new(Status::Internal, error))?;
        printed(writeln!(out, "{text}"))?;
    } else {
        printed(write_text(&agents, &mut out))?;
    }
    Ok(!agents.is_empty())
}

fn write_text(agents: &[Description], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{} agents", agents.len())?;
    for agent in agents {
        let facts = &agent.facts;
        let labels: Vec<String> =
            facts.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let clock = match (agent.clock_ahead_ns, agent.clock_bound_ns) {
            (Some(ahead), Some(bound)) => {
                format!("clock {:+.3} ms ± {:.3} ms", ahead as f64 / 1e6, bound as f64 / 1e6)
            }
            _ => "clock unknown".into(),
        };
        writeln!(
            out,
            "  {:<16} {:<20} {:<16} linerate {}, Linux {}, {} CPUs, {}",
            facts.agent,
            labels.join(","),
            facts.address,
            facts.version,
            facts.kernel,
            facts.cpus,
            clock
        )?;
        let interface = facts.interface.as_deref().unwrap_or("no interface");
        let driver = facts
            .driver
            .as_deref()
            .filter(|name| !name.is_empty())
            .map_or(String::new(), |driver| format!(" ({driver})"));
        let speed = facts.speed_bps.map_or(String::new(), |bps| format!(", {} Gbit/s", bps as f64 / 1e9));
        let mtu = facts.mtu_bytes.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
        let busy = agent.busy_with.as_deref().map_or(String::new(), |run| format!(", in run {run}"));
        writeln!(out, "  {:<16} {interface}{driver}{speed}{mtu}; {}{busy}", "", agent.limits_in_words())?;
        writeln!(out, "  {:<16} {}", "", agent.engines_in_words())?;
    }
    Ok(())
}
