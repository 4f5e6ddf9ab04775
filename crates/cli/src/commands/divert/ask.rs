//! Requests to running diversions.

use std::{io, thread, time::Duration};

use divert::Status;
use serde_json::{Value, json};
use session::{Running, running, runtime_folder};
use sys::signal;

use crate::{
    args::{DivertQueueArgs, DivertStatusArgs, DivertStopArgs},
    failure::{self, Failure},
    output::{print_line, printed},
    screen::Screen,
};

/// The name of the control socket.
pub(super) const NAME: &str = "divert";
/// How often --watch redraws the status.
const REDRAW: Duration = Duration::from_secs(1);

/// Shows every running diversion of this user, or the one on an interface.
pub(super) fn status(args: &DivertStatusArgs) -> Result<bool, Failure> {
    if !args.watch {
        let found = statuses(args.interface.as_deref())?;
        if args.json {
            let documents: Vec<Value> =
                found.iter().map(|(_, status)| report::diversion_document(status)).collect();
            print_line(&serde_json::to_string_pretty(&documents).expect("statuses are JSON"))?;
            return Ok(true);
        }
        let mut out = io::stdout().lock();
        for (running, status) in &found {
            printed(report::write_diversion_heading(running.pid, status, &mut out))?;
            printed(report::write_diversion(status, &mut out))?;
        }
        return Ok(true);
    }
    let mut screen = Screen::new()?;
    let mut before: Vec<(Running, Status)> = Vec::new();
    while signal::caught() == 0 {
        let found = statuses(args.interface.as_deref())?;
        let mut text = Vec::new();
        for (running, status) in &found {
            report::write_diversion_heading(running.pid, status, &mut text)
                .expect("writing to memory cannot fail");
            if let Some((_, earlier)) = before.iter().find(|(known, _)| known == running) {
                text.extend(report::diversion_interval(earlier, status).into_bytes());
                text.push(b'\n');
            }
            report::write_diversion(status, &mut text).expect("writing to memory cannot fail");
        }
        screen.draw(&String::from_utf8_lossy(&text))?;
        before = found;
        thread::sleep(REDRAW);
    }
    Ok(true)
}

/// Changes the queues of the running diversion, or of that on an interface.
pub(super) fn change(what: &str, args: &DivertQueueArgs) -> Result<bool, Failure> {
    let running = the_one(args.interface.as_deref(), "choose one with --interface")?;
    done(ask(&running, &question(what, Some(args.queue)))?)?;
    Ok(true)
}

/// Ends the running diversion, or that on an interface, and shows its last status.
pub(super) fn stop(args: &DivertStopArgs) -> Result<bool, Failure> {
    let running = the_one(args.interface.as_deref(), "choose one: linerate divert stop INTERFACE")?;
    let last = status_in(done(ask(&running, &question("stop", None))?)?)?;
    printed(report::write_diversion(&last, &mut io::stdout().lock()))?;
    Ok(last.ledger.unexplained == 0)
}

fn the_one(interface: Option<&str>, which: &str) -> Result<Running, Failure> {
    let mut found = statuses(interface)?;
    if found.len() > 1 {
        let interfaces: Vec<&str> = found.iter().map(|(_, status)| status.interface.as_str()).collect();
        let several = format!("several diversions are running, on {}", interfaces.join(", "));
        return Err(Failure::new(failure::Status::Usage, several).hint(which));
    }
    Ok(found.remove(0).0)
}

/// The answer, unless it is a refusal.
fn done(answer: Value) -> Result<Value, Failure> {
    match answer["error"].as_str() {
        Some(error) => Err(Failure::new(failure::Status::Refused, error)),
        None => Ok(answer),
    }
}

fn status_in(answer: Value) -> Result<Status, Failure> {
    serde_json::from_value(answer).map_err(|error| {
        Failure::of(failure::Status::Refused, &error).hint("does it run another version of linerate?")
    })
}

fn statuses(interface: Option<&str>) -> Result<Vec<(Running, Status)>, Failure> {
    let mut found = Vec::new();
    for running in running(&runtime_folder(), NAME) {
        let answer = ask(&running, &question("status", None))?;
        let status = status_in(answer)?;
        if interface.is_none_or(|interface| interface == status.interface) {
            found.push((running, status));
        }
    }
    if found.is_empty() {
        let on = interface.map(|interface| format!(" on {interface}")).unwrap_or_default();
        return Err(Failure::new(
            failure::Status::Refused,
            format!("no diversion of this user is running{on}"),
        )
        .hint("start one with linerate divert INTERFACE --match EXPR --drop all"));
    }
    Ok(found)
}

fn ask(running: &Running, request: &Value) -> Result<Value, Failure> {
    running.ask(request).map_err(|error| Failure::of(failure::Status::Refused, &error))
}

/// A request to a running diversion.
fn question(ask: &str, queue: Option<u32>) -> Value {
    queue.map_or_else(|| json!({"ask": ask}), |queue| json!({"ask": ask, "queue": queue}))
}
