//! What all commands about a card need: opening it, pauses, and failures.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use nic::{Card, NicError, SessionError};

use crate::failure::{Failure, Status, in_words};

/// Sleeps between two samples; a signal ends it early. Returns whether to continue.
pub(super) fn pause(length: Duration) -> bool {
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

/// Whether irqbalance runs, which moves interrupts.
pub(super) fn irqbalance_runs() -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.trim() == "irqbalance")
    })
}

/// The interface of this name in this process's namespace.
pub(super) fn open(interface: &str) -> Result<Card, Failure> {
    Card::open(interface).map_err(|error| refused(&error).hint("ip link lists the interfaces of this host"))
}

/// The failure for a refusal of the kernel or a driver.
pub(super) fn refused(error: &NicError) -> Failure {
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

/// The failure of a change, or of undoing one.
pub(crate) fn session_failure(error: &SessionError) -> Failure {
    match error {
        SessionError::Nic(error) => refused(error),
        SessionError::Problems { problems } => {
            let failures = problems.iter().map(refused).collect();
            Failure::all(failures)
                .unwrap_or_else(|| Failure::of(Status::Usage, error))
                .hint("linerate nic show INTERFACE lists the settings and their values")
        }
        SessionError::Unfinished { interface, .. } => Failure::of(Status::Refused, error)
            .hint(format!("linerate nic restore {interface} --killed undoes them")),
        SessionError::Busy { .. } => {
            Failure::of(Status::Refused, error).hint("wait until it ends, or end it")
        }
        SessionError::RolledBack { cause, .. } => {
            // The cause decides the status: a missing privilege is not a driver's refusal.
            let failure = Failure::of(Status::Refused, cause.as_ref());
            Failure::new(failure.status, rolled_back(error, cause))
        }
        _ => Failure::of(Status::Refused, error),
    }
}

/// The refusal with its causes, then the state of the rest.
fn rolled_back(error: &SessionError, cause: &NicError) -> String {
    let (refusal, all) = (cause.to_string(), error.to_string());
    let rest = all.strip_prefix(&refusal).unwrap_or_default();
    format!("{}{rest}", in_words(cause))
}
