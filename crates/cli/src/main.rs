//! The `linerate` command. The only file that reads the process's arguments and sets its exit status.

mod access;
mod args;
mod commands;
mod failure;
mod hold;
mod live;
mod output;
mod packets;
mod pipeline;
mod privileges;
mod progress;
mod quiet;
mod scenario;
mod screen;
mod service;
mod start;
mod usage;
mod work;

use std::process::ExitCode;

use failure::{Failure, Status};

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == sys::pci::GUARD) {
        return guard();
    }
    // This program, even if its file has been replaced since.
    sys::pci::set_guard_program("/proc/self/exe");
    let outcome = std::panic::catch_unwind(|| {
        let asked = scenario::parse(std::env::args_os().collect())?;
        sys::signal::catch()
            .map_err(|source| Failure::new(Status::Internal, format!("cannot catch signals: {source}")))?;
        match asked {
            scenario::Invocation::Command(cli) => {
                let _held = hold::of(&cli.command)?;
                commands::run(cli.command)
            }
            scenario::Invocation::Steps(steps) => {
                let _held = steps.commands.first().map(|cli| hold::of(&cli.command)).transpose()?;
                commands::run_steps(&steps)
            }
        }
    });
    match outcome {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::from(Status::GoalMissed as u8),
        Ok(Err(failure)) => {
            eprintln!("{failure}");
            ExitCode::from(failure.status as u8)
        }
        // The panic hook has already printed the message.
        Err(_) => {
            eprintln!("error: this is a bug in linerate; please report it with the lines above");
            ExitCode::from(Status::Internal as u8)
        }
    }
}

/// The process that returns a card to its kernel driver after its owner has ended.
fn guard() -> ExitCode {
    match sys::pci::run_guard() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let reason = std::error::Error::source(&error).map(|source| format!(": {source}"));
            eprintln!("error: {error}{}", reason.unwrap_or_default());
            ExitCode::from(Status::Internal as u8)
        }
    }
}
