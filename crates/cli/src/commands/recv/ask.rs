//! `linerate recv status|reset|stop`: requests to a running receiver.

use std::io;

use measure::ReceptionStatistics;
use serde_json::{Value, json};
use session::{Running, running, runtime_folder};

use crate::{
    args::{AskArgs, RecvCommand},
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
    };
    let receiver = choose(running(&runtime_folder(), CONTROL), args.pid)?;
    let answer =
        receiver.ask(&json!({ "ask": ask })).map_err(|error| Failure::of(Status::Refused, &error))?;
    show(&answer, args)?;
    Ok(true)
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
        return output::printed(output::write_reception(&statistics, args.display, &mut io::stdout().lock()));
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
