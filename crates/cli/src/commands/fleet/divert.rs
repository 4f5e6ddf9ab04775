//! `linerate fleet divert`: the same rules for many hosts.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use fleet::{
    DivertAgent, DivertRevision, FleetRules, RollOut, RollOutError, apply_rules, divert_history,
    divert_status, undo_rules,
};
use serde_json::json;

use super::server::{refused, server_plan};
use crate::{
    args::{FleetDivertArgs, FleetDivertCommand},
    failure::{Failure, Status},
    output::{print_line, printed},
};

pub(super) fn run(args: &FleetDivertArgs) -> Result<bool, Failure> {
    let say = |words: String| eprintln!("{words}");
    match &args.command {
        FleetDivertCommand::Apply(args) => {
            let rules = with_sets(read(&args.rules)?, &args.sets)?;
            let plan = RollOut { to: args.target.to.clone(), canaries: args.canaries, by: user() };
            let agents = apply_rules(&server_plan(&args.target.server), &rules, &plan, say)
                .map_err(|error| not_taken(&error))?;
            printed(write_text(&agents, &mut io::stdout().lock()))?;
            Ok(true)
        }
        FleetDivertCommand::Undo(args) => {
            let plan = RollOut { to: args.to.clone(), by: user(), ..RollOut::default() };
            let agents =
                undo_rules(&server_plan(&args.server), &plan, say).map_err(|error| not_taken(&error))?;
            printed(write_text(&agents, &mut io::stdout().lock()))?;
            Ok(true)
        }
        FleetDivertCommand::Status(args) => {
            let agents = divert_status(&server_plan(&args.target.server), &args.target.to)
                .map_err(|error| refused(&error))?;
            if args.json {
                print_line(&json!(agents.iter().map(document).collect::<Vec<_>>()).to_string())?;
            } else {
                printed(write_text(&agents, &mut io::stdout().lock()))?;
            }
            Ok(true)
        }
        FleetDivertCommand::History(args) => {
            let revisions = divert_history(&server_plan(&args.target.server), &args.target.to)
                .map_err(|error| refused(&error))?;
            if args.json {
                print_line(&json!(revisions.iter().map(revision_document).collect::<Vec<_>>()).to_string())?;
            } else {
                printed(write_history(&revisions, &mut io::stdout().lock()))?;
            }
            Ok(true)
        }
    }
}

fn read(path: &Path) -> Result<FleetRules, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(Status::Refused, format!("cannot read {}: {error}", path.display())))?;
    FleetRules::parse(&text).map_err(|error| {
        Failure::new(Status::Usage, format!("{}: {error}", path.display()))
            .hint("linerate fleet divert apply --help shows a file of rules")
    })
}

/// The rules with the text of each set: agents have no such files.
fn with_sets(rules: FleetRules, sets: &[(String, PathBuf)]) -> Result<FleetRules, Failure> {
    let read = |(name, file): &(String, PathBuf)| {
        let text = fs::read_to_string(file).map_err(|error| {
            Failure::new(Status::Refused, format!("cannot read {}: {error}", file.display()))
        })?;
        Ok((name.clone(), text))
    };
    let sets = sets.iter().map(read).collect::<Result<_, Failure>>()?;
    rules.with_sets(sets).map_err(|error| Failure::of(Status::Usage, &error))
}

fn not_taken(error: &RollOutError) -> Failure {
    match error {
        RollOutError::Fleet(error) => refused(error),
        RollOutError::Changed { .. } => {
            Failure::of(Status::Refused, error).hint("look at linerate fleet divert status, and apply again")
        }
        RollOutError::NotTaken { .. } => Failure::of(Status::GoalMissed, error),
        RollOutError::Unconfirmed { .. } => Failure::of(Status::GoalMissed, error)
            .hint("linerate fleet divert status shows what each agent reports"),
    }
}

/// The user, as `fleet divert status` shows it beside the rules.
fn user() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = std::env::var("USER")
        .or_else(|_| fs::metadata("/proc/self").map(|process| format!("uid {}", process.uid())));
    format!("{} on {}", name.unwrap_or_default(), host.trim())
}

fn document(agent: &DivertAgent) -> serde_json::Value {
    json!({
        "agent": agent.agent,
        "is_here": agent.is_here,
        "revision": agent.revision,
        "rules": agent.rules,
        "by": agent.by,
        "state": agent.state,
    })
}

fn written(revision: &DivertRevision) -> String {
    let at = jiff::Timestamp::from_second(revision.written_s.cast_signed()).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn revision_document(revision: &DivertRevision) -> serde_json::Value {
    json!({
        "agent": revision.agent,
        "revision": revision.revision,
        "written_at": written(revision),
        "by": revision.by,
        "rules": revision.rules,
    })
}

fn write_history(revisions: &[DivertRevision], out: &mut impl Write) -> io::Result<()> {
    if revisions.is_empty() {
        return writeln!(out, "no rules were ever written");
    }
    for revision in revisions {
        let rules = revision.rules.as_ref();
        let rules = rules.map_or("no rules".into(), |rules| {
            format!("{}: {}, lease {}", rules.matching, rules.rules.join("; "), rules.lease)
        });
        let DivertRevision { agent, revision: number, by, .. } = revision;
        writeln!(out, "  {agent:<16} revision {number:<5} {}  {rules} (by {by})", written(revision))?;
    }
    Ok(())
}

fn write_text(agents: &[DivertAgent], out: &mut impl Write) -> io::Result<()> {
    if agents.is_empty() {
        return writeln!(out, "no agents");
    }
    for agent in agents {
        let state = agent.state.as_ref().map_or("no report", |state| state.outcome.word());
        let away = if agent.is_here { "" } else { " (does not answer)" };
        let on = agent.state.as_ref().map_or(String::new(), |state| format!(" on {}", state.interface));
        let revision = if agent.revision == 0 { "-".into() } else { agent.revision.to_string() };
        writeln!(out, "  {:<16} {state:<9} revision {revision}{on}{away}", agent.agent)?;
        if let Some(rules) = &agent.rules {
            writeln!(out, "  {:<16} {}: {} (by {})", "", rules.matching, rules.rules.join("; "), agent.by)?;
        }
        if let Some(state) = agent.state.as_ref().filter(|state| !state.reason.is_empty()) {
            writeln!(out, "  {:<16} {}", "", state.reason)?;
        }
        if let Some((before, with)) = agent.state.as_ref().and_then(|state| state.answers_pps) {
            writeln!(
                out,
                "  {:<16} the host sent {before:.0} pps before the rules and {with:.0} pps with them",
                ""
            )?;
        }
    }
    Ok(())
}
