//! `linerate nic`: a card's receive path.

mod advise;
mod apply;
mod flow;
mod measure;
mod restore;
mod show;
mod spread;
mod watch;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use nic::{Card, NicError, SessionError};

use crate::{
    args::{NicArgs, NicCommand},
    failure::{Failure, Status, in_words},
};

pub(crate) fn run(args: &NicArgs) -> Result<bool, Failure> {
    match &args.command {
        NicCommand::Show(args) => show::run(args),
        NicCommand::Flow(args) => flow::run(args),
        NicCommand::Spread(args) => spread::run(args),
        NicCommand::Watch(args) => watch::run(args),
        NicCommand::Advise(args) => advise::run(args),
        NicCommand::Apply(args) => apply::run(args),
        NicCommand::Restore(args) => restore::run(args),
    }
}

/// Sleeps between two looks; ends early with a signal. Returns whether to go on.
fn pause(length: Duration) -> bool {
    const LOOK: Duration = Duration::from_millis(20);
    let until = Instant::now() + length;
    while sys::signal::caught() == 0 {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK));
    }
    false
}

/// Whether the service runs that moves interrupts as it likes.
fn irqbalance_runs() -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.trim() == "irqbalance")
    })
}

/// The interface of this name in this process's namespace.
fn open(interface: &str) -> Result<Card, Failure> {
    Card::open(interface).map_err(|error| refused(&error).hint("ip link lists the interfaces of this host"))
}

/// A failure from what the kernel or a driver refused.
fn refused(error: &NicError) -> Failure {
    let status = match error {
        NicError::NoSuchSetting { .. }
        | NicError::Absent { .. }
        | NicError::BadValue { .. }
        | NicError::NotASetting { .. }
        | NicError::NotAPlan { .. }
        | NicError::NotAPlanValue { .. } => Status::Usage,
        _ => Status::Refused,
    };
    Failure::of(status, error)
}

/// A failure of a change or of undoing one.
pub(super) fn session_failure(error: &SessionError) -> Failure {
    match error {
        SessionError::Nic(error) => refused(error),
        SessionError::Problems { problems } => {
            let failures = problems.iter().map(refused).collect();
            Failure::all(failures)
                .unwrap_or_else(|| Failure::of(Status::Usage, error))
                .hint("linerate nic show INTERFACE lists the settings and their values")
        }
        SessionError::Unfinished { interface } => {
            Failure::of(Status::Refused, error).hint(format!("linerate nic restore {interface} undoes it"))
        }
        SessionError::Busy { .. } => {
            Failure::of(Status::Refused, error).hint("wait until it has ended, or end it")
        }
        SessionError::RolledBack { cause, .. } => {
            // The cause decides the status: a missing privilege is not a driver's refusal.
            let failure = Failure::of(Status::Refused, cause.as_ref());
            Failure::new(failure.status, rolled_back(error, cause))
        }
        _ => Failure::of(Status::Refused, error),
    }
}

/// The refusal with its causes, then what became of the rest.
fn rolled_back(error: &SessionError, cause: &NicError) -> String {
    let (refusal, all) = (cause.to_string(), error.to_string());
    let rest = all.strip_prefix(&refusal).unwrap_or_default();
    format!("{}{rest}", in_words(cause))
}
