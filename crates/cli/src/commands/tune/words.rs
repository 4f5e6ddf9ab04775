//! The command line of each trial: the search's, without the search's own options, and with the values of a combination.
//! Every value is checked as if it had been typed for `linerate bench`.

use std::ffi::OsString;

use bench::{BenchPlan, Combination};
use clap::Parser;
use lab::Access;
use measure::NicFacts;
use trial::{HostPlan, Pair};
use wire::Rate;

use crate::{
    args::{BenchArgs, Cli, Command, GoalOfTuneArg, TuneArgs},
    commands::bench::{host_plans, lab_plan},
    failure::{Failure, Status},
    scenario::{Own, options_of},
};

/// Options of `tune` that `bench` does not have, or that each trial sets anew.
const OWN: [&str; 17] = [
    "goal",
    "budget",
    "only",
    "never",
    "keep",
    "resume",
    "duration",
    "tx",
    "rx",
    "json",
    "json-stream",
    "save",
    "no-save",
    "dry-run",
    "interval",
    "help",
    "seed",
];

/// The arguments that every trial has, and the engines.
pub(super) struct Words {
    options: Vec<(String, Option<String>)>,
    pub(super) pair: Pair,
    duration: OsString,
}

impl Words {
    pub(super) fn of(args: &TuneArgs) -> Result<Self, Failure> {
        let own = options_of("tune", args.raw.iter().skip(2).cloned().collect());
        let options = own.into_iter().filter(|own| !own.name().is_empty() && !OWN.contains(&own.name()));
        let options =
            options.map(|own: Own| (own.name().to_owned(), own.value().map(str::to_owned))).collect();
        let is_tx = args.goal == GoalOfTuneArg::Tx;
        let tx = one("--tx", &args.paths.tx, "udp")?;
        let rx = one("--rx", &args.paths.rx, if is_tx { "xdp" } else { "udp" })?;
        let pair = Pair { tx, rx };
        if pair.is_stream() {
            return Err(Failure::new(Status::Usage, "the search counts packets, but tcp has streams")
                .hint("linerate bench --sweep compares settings of streams"));
        }
        if args.duration.is_zero() {
            return Err(
                Failure::new(Status::Usage, "--duration must be above zero").hint("try --duration 300ms")
            );
        }
        if args.budget < args.duration * 20 {
            return Err(Failure::new(
                Status::Usage,
                "--budget is too small: a search needs at least twenty trials",
            )
            .hint("try --budget 1m, or a shorter --duration"));
        }
        if args.rate != Rate::Max && args.goal != GoalOfTuneArg::Rx {
            return Err(Failure::new(Status::Usage, "--rate applies only to --goal rx").hint(
                "tx sends at the maximum, ndr searches for the rate, latency uses half of the maximum",
            ));
        }
        if args.goal == GoalOfTuneArg::Latency && args.hosts.peer.is_some() {
            return Err(Failure::new(
                Status::Usage,
                "linerate tune does not measure the latency to another host",
            )
            .hint("linerate send --reflect measures round trips"));
        }
        Ok(Self { options, pair, duration: format!("--duration={}ms", args.duration.as_millis()).into() })
    }

    /// Names of the options that were given.
    pub(super) fn given(&self) -> Vec<String> {
        self.options.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The options of every trial, for a scenario that repeats it.
    pub(super) fn options(&self) -> &[(String, Option<String>)] {
        &self.options
    }

    /// The plan of a combination's trial in the lab or between two interfaces.
    pub(super) fn bench_plan(&self, at: &Combination, access: Access) -> Result<BenchPlan, Failure> {
        let bench = self.bench(at)?;
        lab_plan(&bench, access)
    }

    /// The plan of a combination's trial towards another host.
    pub(super) fn host_plan(&self, at: &Combination) -> Result<HostPlan, Failure> {
        let bench = self.bench(at)?;
        let plans = host_plans(&bench)?;
        plans.into_iter().next().ok_or_else(|| Failure::new(Status::Internal, "no engine to send with"))
    }

    /// The interfaces that packets leave by.
    pub(super) fn baseline_of_peer(&self) -> Result<Vec<NicFacts>, Failure> {
        let plan = self.host_plan(&Combination::default())?;
        Ok(bench::sending_interfaces([&plan.sender].into_iter()))
    }

    fn bench(&self, at: &Combination) -> Result<Box<BenchArgs>, Failure> {
        let label = |spec: String, switches: &[String]| {
            switches
                .iter()
                .filter(|switch| !spec.split('+').any(|on| on == *switch))
                .fold(spec.clone(), |label, switch| format!("{label}+{switch}"))
        };
        let tx = label(self.pair.tx.to_string(), &at.tx_switches);
        let mut words: Vec<OsString> = vec!["linerate".into(), "bench".into(), format!("--tx={tx}").into()];
        let is_peer = self.options.iter().any(|(name, _)| name == "peer");
        if !is_peer {
            words.push(format!("--rx={}", label(self.pair.rx.to_string(), &at.rx_switches)).into());
        }
        words.push(self.duration.clone());
        for (name, value) in self.options.iter().chain(&at.options) {
            words.push(match value {
                Some(value) => format!("--{name}={value}").into(),
                None => format!("--{name}").into(),
            });
        }
        let cli = Cli::try_parse_from(&words).map_err(|error| {
            let words = error.to_string();
            let first = words.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Failure::new(Status::Usage, first)
        })?;
        match cli.command {
            Command::Bench(bench) => Ok(bench),
            _ => Err(Failure::new(Status::Internal, "not a command line of linerate bench")),
        }
    }
}

/// The single engine of a side.
fn one<S: Clone + std::str::FromStr>(option: &str, given: &[S], usual: &str) -> Result<S, Failure> {
    match given {
        [] => usual.parse().map_err(|_| Failure::new(Status::Internal, format!("no engine '{usual}'"))),
        [only] => Ok(only.clone()),
        _ => {
            Err(Failure::new(Status::Usage, format!("a search takes one path: use one engine with {option}")))
        }
    }
}

/// The arguments of a search, parsed from its words.
pub(super) fn parse(words: &[String]) -> Result<TuneArgs, Failure> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let refused = || Failure::new(Status::Refused, "that search has options that this version does not know");
    match Cli::try_parse_from(&words).map_err(|_| refused())?.command {
        Command::Tune(mut args) => {
            args.raw = words;
            Ok(*args)
        }
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        let all: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Words::of(&parse(&all).unwrap()).unwrap()
    }

    #[test]
    fn a_trial_has_the_options_of_the_search_except_the_search_s_own() {
        let words =
            words("linerate tune lab --goal rx --threads 2 --budget=1m --tx udp --spin --never rps,sysctl");
        assert_eq!(words.given(), ["threads", "spin"]);
        let at = Combination {
            tx_switches: vec!["gso".into()],
            options: vec![("batch-size".into(), Some("64".into()))],
            ..Combination::default()
        };
        let bench = words.bench(&at).unwrap();
        assert_eq!((bench.paths.threads, bench.sockets.spin, bench.load.pattern.batch_size), (2, true, 64));
        let labels: Vec<String> = bench.paths.tx.iter().map(ToString::to_string).collect();
        assert_eq!(labels, ["udp+gso"]);
        assert_eq!(bench.duration, std::time::Duration::from_millis(300));
        let twice =
            Combination { options: vec![("threads".into(), Some("3".into()))], ..Combination::default() };
        assert_eq!(words.bench(&twice).unwrap().paths.threads, 3, "the later one wins");
    }

    #[test]
    fn sending_is_measured_towards_a_receiver_that_drops() {
        let pair = words("linerate tune --goal tx --tx packet").pair;
        assert_eq!(pair.to_string(), "packet → xdp");
        assert_eq!(words("linerate tune").pair.to_string(), "udp → udp");
    }
}
