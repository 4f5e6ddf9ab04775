//! `linerate recv status|reset|set|stop`: requests to a running receiver.

use std::io;

use measure::ReceptionStatistics;
use serde_json::{Value, json};
use session::{Running, running, runtime_folder};

use crate::{
    args::{AskArgs, Display, LevelArg, ReceiverChange, RecvCommand, SetArgs},
    failure::{Failure, Status},
    output,
};

/// The name of receivers' control sockets.
pub(super) const CONTROL: &str = "recv";

pub(crate) fn run(command: &RecvCommand) -> Result<bool, Failure> {
    let (ask, args) = match command {
        RecvCommand::Status(args) => ("status", args),
        RecvCommand::Reset(args) => ("reset", args),
        RecvCommand::Stop(args) => ("stop", args),
        RecvCommand::Set(args) => return set(args),
    };
    let receiver = choose(running(&runtime_folder(), CONTROL), args.pid)?;
    let answer =
        receiver.ask(&json!({ "ask": ask })).map_err(|error| Failure::of(Status::Refused, &error))?;
    show(&answer, args)?;
    Ok(true)
}

fn set(args: &SetArgs) -> Result<bool, Failure> {
    let mut request = json!({ "ask": "set" });
    for change in &args.changes {
        match change {
            ReceiverChange::Stats(level) => request["stats"] = json!(level.map_or("none", LevelArg::name)),
            ReceiverChange::Display(form) => request["display"] = json!(form.name()),
        }
    }
    let receiver = choose(running(&runtime_folder(), CONTROL), args.pid)?;
    let answer = receiver.ask(&request).map_err(|error| Failure::of(Status::Refused, &error))?;
    match answer["error"].as_str() {
        Some(error) => Err(Failure::new(Status::Refused, error)),
        None => output::print_line(answer["set"].as_str().unwrap_or_default()).map(|()| true),
    }
}

fn choose(mut all: Vec<Running>, pid: Option<u32>) -> Result<Running, Failure> {
    if let Some(pid) = pid {
        all.retain(|running| running.pid == pid);
    }
    let pids: Vec<String> = all.iter().map(|running| running.pid.to_string()).collect();
    match (all.pop(), pid) {
        (None, None) => Err(Failure::new(Status::Refused, "no receiver of this user is running")
            .hint("start one with linerate recv --stats time")),
        (None, Some(pid)) => {
            Err(Failure::new(Status::Refused, format!("process {pid} is not a receiver of this user"))
                .hint("omit --pid if only one is running"))
        }
        (Some(_), _) if pids.len() > 1 => {
            Err(Failure::new(Status::Usage, format!("{} receivers are running", pids.len()))
                .hint(format!("choose one with --pid: {}", pids.join(", "))))
        }
        (Some(only), _) => Ok(only),
    }
}

fn show(answer: &Value, args: &AskArgs) -> Result<(), Failure> {
    if let Some(error) = answer["error"].as_str() {
        return Err(Failure::new(Status::Internal, error));
    }
    if args.json {
        return output::print_line(&answer.to_string());
    }
    if let Ok(Some(statistics)) =
        serde_json::from_value::<Option<ReceptionStatistics>>(answer["statistics"].clone())
    {
        let of_receiver = answer["display"].as_str().and_then(Display::named).unwrap_or(Display::Human);
        let display = args.display.unwrap_or(of_receiver);
        return output::printed(output::write_reception(&statistics, display, &mut io::stdout().lock()));
    }
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    output::print_line(&format!(
        "{} packets, {} bytes of payload, {} other packets, {} dropped",
        number("packets"),
        number("payload_bytes"),
        number("foreign"),
        number("dropped")
    ))
}
