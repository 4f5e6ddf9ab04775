//! The `linerate` command: reads arguments, runs, prints, exits. Alone in doing any of these.

mod args;
mod bench_command;
mod compare_command;
mod failure;
mod hosts_ladder;
mod manual;
mod model_command;
mod output;
mod packets;
mod probe_command;
mod progress;
mod recv_command;
mod report_command;
mod scenario;
mod send_command;
mod start;

use std::process::ExitCode;

use args::Command;
use failure::{Failure, Status};

fn main() -> ExitCode {
    let outcome = std::panic::catch_unwind(|| {
        let cli = scenario::parse(std::env::args_os())?;
        sys::signal::catch()
            .map_err(|source| Failure::new(Status::Internal, format!("cannot catch signals: {source}")))?;
        run(cli.command)
    });
    match outcome {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::from(Status::GoalMissed as u8),
        Ok(Err(failure)) => {
            eprintln!("{failure}");
            ExitCode::from(failure.status as u8)
        }
        // The panic itself has been printed where it happened.
        Err(_) => {
            eprintln!("error: this is a bug in linerate; please report it with the lines above");
            ExitCode::from(Status::Internal as u8)
        }
    }
}

/// Runs a command; returns whether its goals were met.
fn run(command: Command) -> Result<bool, Failure> {
    match command {
        Command::Bench(args) => bench_command::run(&args),
        Command::Send(args) => send_command::run(&args),
        Command::Recv(args) => recv_command::run(&args),
        Command::Probe(args) => probe_command::run(&args),
        Command::Model(args) => model_command::run(&args),
        Command::Report(args) => report_command::run(&args),
        Command::Compare(args) => compare_command::run(&args),
        Command::Man => manual::write_man_page(),
        Command::Completions { shell } => manual::write_completions(shell),
    }
}
