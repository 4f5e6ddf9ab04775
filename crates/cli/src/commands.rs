//! One file per command: plan, preflight, run, report.

mod bench;
mod compare;
mod divert;
#[cfg(feature = "fleet")]
mod fleet;
mod lab;
mod ledger;
mod manual;
mod model;
mod nic;
mod probe;
mod recv;
mod replay;
mod report;
mod send;
mod tune;

use crate::{args::Command, failure::Failure};

pub(crate) use bench::run_steps;

/// Runs a command; returns whether its goals were met.
pub(crate) fn run(command: Command) -> Result<bool, Failure> {
    match command {
        Command::Bench(args) => bench::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Recv(args) => recv::run(&args),
        #[cfg(feature = "fleet")]
        Command::Agent(args) => fleet::run_agent(&args),
        #[cfg(feature = "fleet")]
        Command::Fleet(args) => fleet::run(&args),
        Command::Divert(args) => divert::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Nic(args) => nic::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Ledger(args) => ledger::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Man => manual::write_man_page(),
        Command::Completions { shell } => manual::write_completions(shell),
    }
}
