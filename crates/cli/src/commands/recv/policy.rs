//! Which senders a receiver serves, and with which engines: options, and a file for unit files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use session::{Admission, Key, Network};
use traffic::{RxOptions, RxSpec};
use trial::{EngineChoice, Policy};
use wire::Rate;

use crate::{
    args::RecvArgs,
    failure::{Failure, Status, read_key},
};

/// What a receiver allows, as printed and recorded.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct PolicyPlan {
    /// Networks whose senders are served; empty: private and local ones.
    allow: Vec<String>,
    /// Engines that senders may request; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_engines: Option<Vec<String>>,
    allow_attach: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_rate_pps: Option<f64>,
    #[serde(skip)]
    networks: Vec<Network>,
    /// Whether senders must have a secret.
    has_key: bool,
    #[serde(skip)]
    key: Option<Key>,
}

/// The file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct ConfigFile {
    allow_from: Vec<String>,
    allow_engines: Option<Vec<String>>,
    allow_attach: bool,
    max_rate: Option<String>,
    key: Option<PathBuf>,
}

impl PolicyPlan {
    /// From the options, and from the file for those that were not given.
    pub(super) fn of(args: &RecvArgs, problems: &mut Vec<Failure>) -> Self {
        let file = args.config.as_deref().map(ConfigFile::read).transpose().unwrap_or_else(|failure| {
            problems.push(failure);
            None
        });
        let file = file.unwrap_or_default();
        let key = read_key(args.key.as_deref().or(file.key.as_deref()), problems);
        let mut usage = |error: String| problems.push(Failure::new(Status::Usage, error));
        let mut networks = args.allow.clone();
        if networks.is_empty() {
            for text in &file.allow_from {
                match text.parse() {
                    Ok(network) => networks.push(network),
                    Err(error) => usage(format!("allow-from: {error}")),
                }
            }
        }
        let max_rate = args.max_rate.or_else(|| {
            let parsed = file.max_rate.as_deref()?.parse::<Rate>();
            parsed.map_err(|error| usage(format!("max-rate: {error}"))).ok()
        });
        let max_rate_pps = match max_rate {
            None | Some(Rate::Max) => None,
            Some(Rate::Pps(pps)) => Some(pps),
            Some(other) => {
                usage(format!("--max-rate {other} is not in packets per second: write for example 1Mpps"));
                None
            }
        };
        let allow_engines = args.allow_engines.clone().or(file.allow_engines);
        for name in allow_engines.iter().flatten() {
            if let Err(error) = name.parse::<RxSpec>() {
                usage(format!("--allow-engines: {error}"));
            } else if name.contains('+') {
                usage(format!("--allow-engines takes names without switches, not '{name}'"));
            }
        }
        Self {
            allow: networks.iter().map(ToString::to_string).collect(),
            allow_engines,
            allow_attach: args.allow_attach || file.allow_attach,
            max_rate_pps,
            networks,
            has_key: key.is_some(),
            key,
        }
    }

    /// The policy that the receiver enforces.
    pub(super) fn policy(&self, args: &RecvArgs) -> Policy {
        let fixed = [
            ("--stats", args.measure.stats.is_some()),
            ("--reflect", args.reflect),
            ("--work", args.work.is_some()),
            ("--profile", args.profile),
        ];
        Policy {
            admission: Admission::of(self.networks.clone()),
            most_pps: self.max_rate_pps,
            ptp4l: args.measure.ptp4l.clone(),
            key: self.key.clone(),
            engines: EngineChoice {
                allowed: self.allow_engines.clone(),
                may_attach: self.allow_attach,
                fixed_by: fixed.iter().find(|(_, given)| *given).map(|(option, _)| *option),
                options: RxOptions { receive_buffer_bytes: args.receive_buffer, ..RxOptions::default() },
            },
        }
    }
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(Status::Usage, format!("cannot read {}: {error}", path.display()))
        };
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        toml::from_str(&text).map_err(|error| failed(&error.message()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(words: &[&str]) -> RecvArgs {
        let all = ["linerate", "recv"].iter().chain(words);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Recv(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn with_file(text: &str, words: &[&str]) -> (PolicyPlan, Vec<String>) {
        let path = testing::own_folder().join("recv.toml");
        fs::write(&path, text).unwrap();
        let mut all = vec!["--config", path.to_str().unwrap()];
        all.extend(words);
        let mut problems = Vec::new();
        let plan = PolicyPlan::of(&parsed(&all), &mut problems);
        (plan, problems.iter().map(ToString::to_string).collect())
    }

    const FILE: &str = "allow-from = ['192.0.2.0/24']\nallow-engines = ['packet', 'xdp']\nallow-attach = true\nmax-rate = '1Mpps'\n";

    #[test]
    fn the_file_has_the_same_settings_as_the_options_which_override_it() {
        let (plan, problems) = with_file(FILE, &[]);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!((plan.allow, plan.max_rate_pps), (vec!["192.0.2.0/24".to_owned()], Some(1e6)));
        assert_eq!(
            (plan.allow_engines, plan.allow_attach),
            (Some(vec!["packet".into(), "xdp".into()]), true)
        );
        let (plan, _) =
            with_file(FILE, &["--max-rate", "5kpps", "--allow-from", "10.0.0.0/8", "--allow-engines", "udp"]);
        assert_eq!((plan.allow, plan.max_rate_pps), (vec!["10.0.0.0/8".to_owned()], Some(5e3)));
        assert_eq!(plan.allow_engines, Some(vec!["udp".to_owned()]));
    }

    #[test]
    fn all_mistakes_of_a_file_are_reported_at_once() {
        let (_, problems) =
            with_file("allow-from = ['x']\nallow-engines = ['dpdk', 'udp+gro']\nmax-rate = '10%'\n", &[]);
        for (problem, said) in problems.iter().zip([
            "allow-from: 'x' is not a network",
            "--max-rate 10% is not in packets per second",
            "--allow-engines: unknown receiving engine 'dpdk'",
            "--allow-engines takes names without switches, not 'udp+gro'",
        ]) {
            assert!(problem.contains(said), "{problem}");
        }
        assert_eq!(problems.len(), 4, "{problems:?}");
        let (_, problems) = with_file("allow = true\n", &[]);
        assert!(problems[0].contains("unknown field `allow`"), "{problems:?}");
    }
}
