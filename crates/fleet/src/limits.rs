//! What an agent's owner allows: from a file on the agent's machine and its command line. No coordinator can raise it.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use session::{Network, may_send_without_handshake};
use thiserror::Error;
use trial::HostPlan;
use wire::Rate;

/// What an agent's owner allows.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The highest rate it sends at; `None` is any.
    pub max_pps: Option<f64>,
    /// Networks that it sends to; with none named, loopback, private, link-local and benchmarking addresses.
    pub allow_to: Vec<Network>,
    /// Networks that it receives from; with none named, the same.
    pub allow_from: Vec<Network>,
    /// Networks that it sends to without the receiver's consent, where no agent runs; with none named, nowhere.
    pub allow_without_agent: Vec<Network>,
    /// The longest trial.
    pub max_duration: Duration,
    /// Whether it sends.
    pub may_send: bool,
    /// Whether it receives.
    pub may_receive: bool,
    /// Whether receiving engines may attach programs to its interfaces.
    pub may_attach: bool,
    /// The interface on which a coordinator may divert; `None`: it may not.
    pub divert: Option<String>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pps: None,
            allow_to: Vec::new(),
            allow_from: Vec::new(),
            allow_without_agent: Vec::new(),
            max_duration: Duration::from_secs(600),
            may_send: true,
            may_receive: true,
            may_attach: false,
            divert: None,
        }
    }
}

/// Why a file does not say what an owner allows.
#[derive(Debug, Error)]
pub enum LimitsError {
    /// The file.
    #[error("cannot read the limits {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Its text.
    #[error("the limits {path} cannot be used: {reason}")]
    Text {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LimitsFile {
    max_rate: Option<String>,
    #[serde(default)]
    allow_to: Vec<String>,
    #[serde(default)]
    allow_from: Vec<String>,
    #[serde(default)]
    allow_without_agent: Vec<String>,
    max_duration: Option<String>,
    commands: Option<Vec<Command>>,
    #[serde(default)]
    allow_attach: bool,
    divert: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Command {
    Send,
    Receive,
}

/// The limits as an agent reports them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct StatedLimits {
    pub(crate) max_pps: Option<f64>,
    pub(crate) allow_to: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow_without_agent: Vec<String>,
    pub(crate) max_duration_s: f64,
    pub(crate) may_send: bool,
    pub(crate) may_receive: bool,
    #[serde(default)]
    pub(crate) divert: Option<String>,
}

impl Limits {
    /// The limits in a file.
    ///
    /// # Errors
    /// [`LimitsError`].
    pub fn read(path: &Path) -> Result<Self, LimitsError> {
        let text =
            fs::read_to_string(path).map_err(|source| LimitsError::File { path: path.into(), source })?;
        Self::parse(&text).map_err(|reason| LimitsError::Text { path: path.into(), reason })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: LimitsFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let networks = |texts: Vec<String>| {
            let parsed = texts.iter().map(|text| text.parse().map_err(|error| format!("{error}")));
            parsed.collect::<Result<Vec<Network>, String>>()
        };
        let max_duration = match file.max_duration {
            Some(text) => wire::parse_duration(&text).map_err(|error| error.to_string())?,
            None => Self::default().max_duration,
        };
        let may = |command| file.commands.as_ref().is_none_or(|commands| commands.contains(&command));
        Ok(Self {
            max_pps: file.max_rate.as_deref().map(packets_per_second).transpose()?,
            allow_to: networks(file.allow_to)?,
            allow_from: networks(file.allow_from)?,
            allow_without_agent: networks(file.allow_without_agent)?,
            max_duration,
            may_send: may(Command::Send),
            may_receive: may(Command::Receive),
            may_attach: file.allow_attach,
            divert: file.divert,
        })
    }

    /// Whether it may send what a coordinator requests.
    ///
    /// # Errors
    /// Why not, for the coordinator's user.
    pub(crate) fn permit(&self, plan: &HostPlan) -> Result<(), String> {
        if !self.may_send {
            return Err("its owner does not let it send".into());
        }
        let traffic = &plan.sender.traffic;
        if let Some(most) = self.max_pps
            && traffic.rate_pps.is_none_or(|pps| pps > most)
        {
            let asked = traffic.rate_pps.map_or("the maximum rate".into(), |pps| format!("{pps:.0} pps"));
            return Err(format!("{asked} is more than the {most:.0} pps that its owner allows"));
        }
        let Some(duration_ns) = traffic.limit.duration_ns else {
            return Err("a fleet's trial has a duration".into());
        };
        if Duration::from_nanos(duration_ns) > self.max_duration {
            return Err(format!(
                "{} s is longer than the {} s that its owner allows",
                duration_ns as f64 / 1e9,
                self.max_duration.as_secs_f64()
            ));
        }
        traffic.workers.iter().try_for_each(|worker| self.permit_target(worker.target.ip(), plan.handshake))
    }

    /// Whether it may send to an address, where an agent agrees or none runs.
    ///
    /// # Errors
    /// Why not, for the coordinator's user.
    pub(crate) fn permit_target(&self, target: IpAddr, has_agent: bool) -> Result<(), String> {
        if !has_agent {
            let is_named = self.allow_without_agent.iter().any(|network| network.contains(target));
            let refused = || {
                format!(
                    "{target} is in none of the networks that its owner allows it to send to without an agent there"
                )
            };
            return is_named.then_some(()).ok_or_else(refused);
        }
        if self.allow_to.is_empty() {
            let allowed = may_send_without_handshake(target);
            return allowed.map_err(|error| format!("{error}: its owner names no networks to send to"));
        }
        if self.allow_to.iter().any(|network| network.contains(target)) {
            return Ok(());
        }
        Err(format!("{target} is in none of the networks that its owner allows it to send to"))
    }

    pub(crate) fn stated(&self) -> StatedLimits {
        StatedLimits {
            max_pps: self.max_pps,
            allow_to: self.allow_to.iter().map(Network::to_string).collect(),
            allow_without_agent: self.allow_without_agent.iter().map(Network::to_string).collect(),
            max_duration_s: self.max_duration.as_secs_f64(),
            may_send: self.may_send,
            may_receive: self.may_receive,
            divert: self.divert.clone(),
        }
    }
}

fn packets_per_second(text: &str) -> Result<f64, String> {
    match text.parse::<Rate>().map_err(|error| error.to_string())? {
        Rate::Pps(pps) => Ok(pps),
        _ => Err(format!("'{text}' is no rate in packets per second: write for example 2Mpps")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_its_owner_allows_and_nothing_unknown() {
        let text =
            "max-rate = \"2Mpps\"\nallow-to = [\"10.0.0.0/8\"]\ncommands = [\"send\"]\nmax-duration = \"1m\"";
        let limits = Limits::parse(text).unwrap();
        assert_eq!(limits.max_pps, Some(2e6));
        assert!(limits.may_send && !limits.may_receive && !limits.may_attach);
        assert_eq!(limits.max_duration, Duration::from_secs(60));
        limits.permit_target("10.1.2.3".parse().unwrap(), true).unwrap();
        let refused = limits.permit_target("192.168.0.1".parse().unwrap(), true).unwrap_err();
        assert!(refused.contains("none of the networks"), "{refused}");
        for wrong in
            ["max-rat = \"1pps\"", "max-rate = \"10Gbps\"", "allow-to = [\"x\"]", "commands = [\"rm\"]"]
        {
            assert!(Limits::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_networks_no_stranger_can_be_sent_to() {
        let limits = Limits::default();
        limits.permit_target("198.18.0.1".parse().unwrap(), true).unwrap();
        limits.permit_target("192.168.1.1".parse().unwrap(), true).unwrap();
        assert!(limits.permit_target("8.8.8.8".parse().unwrap(), true).is_err());
    }

    #[test]
    fn a_host_without_an_agent_needs_its_network_in_the_owners_file() {
        let to = |limits: &Limits, target: &str| limits.permit_target(target.parse().unwrap(), false);
        let refused = to(&Limits::default(), "127.0.0.1").unwrap_err();
        assert!(refused.contains("without an agent"), "{refused}");
        let limits =
            Limits::parse("allow-to = [\"10.0.0.0/8\"]\nallow-without-agent = [\"192.0.2.0/24\"]").unwrap();
        to(&limits, "192.0.2.7").unwrap();
        assert!(to(&limits, "10.0.0.1").is_err(), "that is for agents");
        assert_eq!(limits.stated().allow_without_agent, ["192.0.2.0/24"]);
    }

    #[test]
    fn the_shipped_file_allows_what_its_comments_say() {
        let limits = Limits::parse(include_str!("../../../packaging/fleet/agent.toml")).unwrap();
        assert_eq!((limits.max_pps, limits.max_duration), (Some(1e6), Duration::from_secs(600)));
        assert!(limits.may_send && limits.may_receive && !limits.may_attach && limits.divert.is_none());
        limits.permit_target("10.1.2.3".parse().unwrap(), true).unwrap();
        assert!(limits.permit_target("192.168.0.1".parse().unwrap(), true).is_err());
        assert!(limits.permit_target("10.1.2.3".parse().unwrap(), false).is_err());
    }

    #[test]
    fn each_limit_is_checked_again_when_a_coordinator_asks_for_more() {
        let plan = crate::plan::FleetPlan::parse("rate = \"2kpps\"\nduration = \"2s\"").unwrap();
        let share = plan.loads()[0];
        let host = plan.load.plan(&["10.0.0.2:7".parse().unwrap()], share).unwrap();
        let with = |change: fn(&mut Limits, &mut HostPlan)| {
            let (mut limits, mut host) = (Limits::default(), host.clone());
            change(&mut limits, &mut host);
            limits.permit(&host).unwrap_err()
        };
        Limits::default().permit(&host).unwrap();
        let refused = with(|limits, _| limits.max_pps = Some(1999.0));
        assert!(refused.contains("2000 pps is more than the 1999 pps"), "{refused}");
        let refused = with(|limits, host| (limits.max_pps, host.sender.traffic.rate_pps) = (Some(1e6), None));
        assert!(refused.contains("the maximum rate"), "{refused}");
        let refused = with(|limits, _| limits.max_duration = Duration::from_secs(1));
        assert!(refused.contains("2 s is longer than the 1 s"), "{refused}");
        let refused = with(|_, host| host.sender.traffic.limit.duration_ns = None);
        assert!(refused.contains("has a duration"), "{refused}");
        let refused = with(|limits, _| limits.may_send = false);
        assert!(refused.contains("does not let it send"), "{refused}");
        let refused = with(|limits, _| limits.allow_to = vec!["192.168.0.0/16".parse().unwrap()]);
        assert!(refused.contains("none of the networks"), "{refused}");
        let refused = with(|_, host| host.handshake = false);
        assert!(refused.contains("without an agent"), "{refused}");
    }
}
