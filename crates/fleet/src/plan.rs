//! A plan as a file: which agents send and receive, how much, how long. Everything wrong with it is said at once.

mod loads;
mod sizes;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, str::FromStr};

use measure::Start;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use traffic::{Departures, ReceiverPlan, RxSpec, RxTraffic, TxSpec};

pub use self::loads::FleetSearch;
use self::{
    loads::{Rates, SearchFile},
    sizes::{SizesFile, packet_sizes},
};
use crate::load::{FleetLoad, Load};

/// What a fleet is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetPlan {
    pub(crate) senders: Select,
    pub(crate) receivers: Select,
    /// A share of the load by an agent's name; 1 where none is given.
    pub(crate) weights: BTreeMap<String, f64>,
    /// Whether every sender sends to every receiver, or each to one of them in turn.
    pub(crate) to_all: bool,
    /// Addresses without agents to send to, in place of receivers.
    pub(crate) without_agents: Vec<SocketAddr>,
    loads: Vec<FleetLoad>,
    search: Option<FleetSearch>,
    /// Exact numbers of senders and receivers, where the plan names them.
    pub(crate) counts: [Option<u32>; 2],
    pub(crate) load: Load,
    pub(crate) receiver: ReceiverPlan,
    pub(crate) max_loss: Option<f64>,
    /// Attempts at each trial.
    pub(crate) attempts: u32,
    /// Time between the last agent's being ready and the start.
    pub(crate) lead_ns: u64,
    /// A sender that starts later than this after the others voids the attempt.
    pub(crate) most_start_error_ns: u64,
    /// What the coordinator renews while it runs; `None` is a lease for each whole trial, in which it is silent.
    pub(crate) lease_ns: Option<u64>,
    asked: PlanFile,
}

/// Labels that an agent must have.
pub(crate) type Select = BTreeMap<String, String>;

/// Whether an agent has all the labels.
pub(crate) fn selects(select: &Select, labels: &BTreeMap<String, String>) -> bool {
    select.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// Why a plan cannot be used.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The file.
    #[error("cannot read the plan {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Its text.
    #[error("the plan {path} cannot be used: {}", problems.join("; "))]
    Text {
        /// Which.
        path: PathBuf,
        /// Everything that is wrong.
        problems: Vec<String>,
    },
}

/// The plan as written, with its defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PlanFile {
    #[serde(default = "Rates::max")]
    rate: Rates,
    #[serde(default = "ten_seconds")]
    duration: String,
    #[serde(default = "one")]
    trials: u32,
    #[serde(default)]
    frame_size: Option<SizesFile>,
    #[serde(default)]
    payload: Option<SizesFile>,
    #[serde(default)]
    max_loss: Option<f64>,
    #[serde(default = "three")]
    attempts: u32,
    #[serde(default)]
    lead: Option<String>,
    #[serde(default = "hundred_ms")]
    most_start_error: String,
    #[serde(default)]
    lease: Option<String>,
    #[serde(default)]
    seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    search: Option<SearchFile>,
    #[serde(default)]
    senders: SendersFile,
    #[serde(default)]
    receivers: ReceiversFile,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct SendersFile {
    select: Select,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    engine: String,
    threads: u16,
    flows: Option<u32>,
    departures: String,
    batch_size: u32,
    to: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_agents: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    witness: bool,
    weights: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct ReceiversFile {
    select: Select,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    engine: String,
    threads: u16,
    port: u16,
    interface: Option<String>,
}

fn ten_seconds() -> String {
    "10s".into()
}

fn hundred_ms() -> String {
    "100ms".into()
}

fn one() -> u32 {
    1
}

fn three() -> u32 {
    3
}

fn role(name: &str) -> Select {
    BTreeMap::from([("role".into(), name.into())])
}

impl Default for SendersFile {
    fn default() -> Self {
        Self {
            select: role("sender"),
            count: None,
            engine: "udp".into(),
            threads: 1,
            flows: None,
            departures: Departures::Constant.to_string(),
            batch_size: 1024,
            to: "one".into(),
            without_agents: Vec::new(),
            src_port: None,
            witness: true,
            weights: BTreeMap::new(),
        }
    }
}

impl Default for ReceiversFile {
    fn default() -> Self {
        Self {
            select: role("receiver"),
            count: None,
            engine: "udp".into(),
            threads: 1,
            port: 0,
            interface: None,
        }
    }
}

impl FleetPlan {
    /// The plan in a file.
    ///
    /// # Errors
    /// [`PlanError`], with every problem.
    pub fn read(path: &std::path::Path) -> Result<Self, PlanError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| PlanError::File { path: path.into(), source })?;
        Self::parse(&text).map_err(|problems| PlanError::Text { path: path.into(), problems })
    }

    /// What was asked, with all defaults.
    pub fn asked(&self) -> impl Serialize + use<'_> {
        &self.asked
    }

    /// The largest loss ratio that is no missed goal.
    pub fn max_loss(&self) -> Option<f64> {
        self.max_loss
    }

    /// The search of a stored run, whose record begins with `start`; `None` where its plan names the loads.
    pub fn stored_search(start: &Start) -> Option<FleetSearch> {
        let file: PlanFile = serde_json::from_value(start.asked.get("plan")?.clone()).ok()?;
        Some(file.search?.search(&mut Vec::new()))
    }

    /// The labels of the sending and the receiving engine.
    pub fn engines(&self) -> [String; 2] {
        [self.load.engine.to_string(), self.receiver.engine.to_string()]
    }

    /// The loads in order, where no search chooses them.
    pub fn loads(&self) -> &[FleetLoad] {
        &self.loads
    }

    /// The search that chooses the loads.
    pub fn search(&self) -> Option<&FleetSearch> {
        self.search.as_ref()
    }

    /// The highest rate and the longest duration that agents must allow.
    pub(crate) fn hardest(&self) -> FleetLoad {
        let warm_up = self.search.as_ref().map(FleetSearch::warm_up);
        let all = self.loads.iter().copied().chain(warm_up);
        let harder = |a: FleetLoad, b: FleetLoad| FleetLoad {
            rate_pps: a.rate_pps.zip(b.rate_pps).map(|(a, b)| a.max(b)),
            duration_ns: a.duration_ns.max(b.duration_ns),
            size: 0,
        };
        all.reduce(harder).unwrap_or_default()
    }

    /// Senders' flows are of these ports: the receivers', and the first of each sender. `None` where kernels choose them.
    pub(crate) fn known_ports(&self) -> Option<u16> {
        let is_known = self.load.first_port.is_some() || self.load.engine.facts().makes_frames;
        let port = self.receiver.traffic.local.port();
        (is_known && port > 0).then_some(port)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Vec<String>> {
        let file: PlanFile = toml::from_str(text).map_err(|error| vec![error.to_string()])?;
        let mut problems = Vec::new();
        let rates = file.rate.each(&mut problems);
        let search = file.search.as_ref().map(|search| search.search(&mut problems));
        if search.is_some()
            && (file.rate != Rates::max() || file.trials != 1 || file.duration != ten_seconds())
        {
            problems.push(
                "a search chooses rates, trials and durations: give rate, trials and duration, or search"
                    .into(),
            );
        }
        let mut time = |name: &str, text: &str| {
            let parsed = wire::parse_duration(text).map_err(|error| format!("{name}: {error}"));
            parsed.map_or_else(|error| none(&mut problems, error), |time| time.as_nanos() as u64)
        };
        let duration_ns = time("duration", &file.duration);
        let lead_ns = file.lead.as_deref().map_or(300_000_000, |lead| time("lead", lead));
        let most_start_error_ns = time("most-start-error", &file.most_start_error);
        let lease_ns = file.lease.as_deref().map(|lease| time("lease", lease));
        if duration_ns == 0 {
            problems.push("duration: a trial takes some time, for example 10s".into());
        }
        let sizes = packet_sizes(file.frame_size.as_ref(), file.payload.as_ref(), &mut problems);
        if search.is_some() && sizes.len() > 1 {
            problems.push("a search has one packet size".into());
        }
        let without_agents: Vec<SocketAddr> = file
            .senders
            .without_agents
            .iter()
            .filter_map(|text| parsed("senders.without-agents", text, &mut problems))
            .collect();
        if !file.senders.without_agents.is_empty() && (search.is_some() || file.max_loss.is_some()) {
            problems.push(
                "search and max-loss need receivers that count, but senders.without-agents has none".into(),
            );
        }
        if file.senders.src_port.is_some_and(|port| port < 1024) {
            problems.push("senders.src-port must be at least 1024".into());
        }
        let engine: Option<TxSpec> = parsed("senders.engine", &file.senders.engine, &mut problems);
        let rx_engine: Option<RxSpec> = parsed("receivers.engine", &file.receivers.engine, &mut problems);
        let departures: Option<Departures> =
            parsed("senders.departures", &file.senders.departures, &mut problems);
        if !matches!(file.senders.to.as_str(), "one" | "all") {
            problems.push(format!("senders.to: '{}' is neither \"one\" nor \"all\"", file.senders.to));
        }
        if file.senders.weights.values().any(|weight| !weight.is_finite() || *weight <= 0.0) {
            problems.push("senders.weights: a weight is more than 0".into());
        }
        if file.trials == 0 || file.attempts == 0 || file.senders.threads == 0 || file.receivers.threads == 0
        {
            problems.push("trials, attempts and threads are at least 1".into());
        }
        if file.senders.src_port.is_some() && engine.as_ref().is_some_and(|engine| engine.name() != "udp") {
            problems.push(
                "senders.src-port is for the engine udp: the others choose source ports themselves".into(),
            );
        }
        let (Some(engine), Some(rx_engine), Some(departures), true) =
            (engine, rx_engine, departures, problems.is_empty())
        else {
            return Err(problems);
        };
        let load = Load {
            engine,
            threads: file.senders.threads.into(),
            flows: file.senders.flows.map(|flows| flows as usize),
            sizes,
            departures,
            batch_size: file.senders.batch_size as usize,
            seed: file.seed,
            witness: file.senders.witness,
            first_port: file.senders.src_port,
            handshake: without_agents.is_empty(),
            receiver: None,
        };
        let receiver = ReceiverPlan {
            engine: rx_engine,
            traffic: RxTraffic {
                // The agent puts its own address there.
                local: ([0, 0, 0, 0], file.receivers.port).into(),
                interface: file.receivers.interface.clone(),
                workers: file.receivers.threads.into(),
                spin: false,
                batch_size: 1024,
                statistics: None,
                reflect: false,
                work_ns: 0,
            },
        };
        // What makes no packets is found before anybody is asked.
        let sizes = 0..load.sizes.len();
        let of_a_size = |size| rates.iter().map(move |rate| FleetLoad { rate_pps: *rate, duration_ns, size });
        let loads: Vec<FleetLoad> = match &search {
            Some(_) => Vec::new(),
            None => (0..file.trials).flat_map(|_| sizes.clone().flat_map(of_a_size)).collect(),
        };
        let warm_up = search.as_ref().map(FleetSearch::warm_up);
        if warm_up.is_none() && loads.is_empty() {
            return Err(vec!["the plan has no trial".to_owned()]);
        }
        for example in warm_up.into_iter().chain(loads.iter().copied()) {
            load.plan(&[([198, 18, 0, 1], 1).into()], example).map_err(|problem| vec![problem])?;
        }
        Ok(Self {
            senders: file.senders.select.clone(),
            receivers: file.receivers.select.clone(),
            weights: file.senders.weights.clone(),
            to_all: file.senders.to == "all",
            without_agents,
            loads,
            search,
            counts: [file.senders.count, file.receivers.count],
            load,
            receiver,
            max_loss: file.max_loss,
            attempts: file.attempts,
            lead_ns,
            most_start_error_ns,
            lease_ns,
            asked: file,
        })
    }

    /// Each sender's rate, of a rate of the whole fleet: by weights.
    pub(crate) fn shares(&self, fleet_pps: Option<f64>, senders: &[String]) -> Vec<Option<f64>> {
        let weight = |name: &String| self.weights.get(name).copied().unwrap_or(1.0);
        let sum: f64 = senders.iter().map(weight).sum();
        senders.iter().map(|name| fleet_pps.map(|pps| pps * weight(name) / sum)).collect()
    }
}

fn none(problems: &mut Vec<String>, problem: String) -> u64 {
    problems.push(problem);
    1
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(
    name: &str,
    text: &str,
    problems: &mut Vec<String>,
) -> Option<T> {
    text.parse().map_err(|error| problems.push(format!("{name}: {error}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_plan_is_the_default_one() {
        let plan = FleetPlan::parse("").unwrap();
        assert_eq!(plan.senders, role("sender"));
        assert_eq!(plan.loads(), [FleetLoad { duration_ns: 10_000_000_000, ..FleetLoad::default() }]);
    }

    #[test]
    fn all_problems_of_a_plan_are_said_at_once() {
        let text = "rate = \"10\"\nduration = \"x\"\n[senders]\nengine = \"dpdk\"\nto = \"some\"";
        let problems = FleetPlan::parse(text).unwrap_err();
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(FleetPlan::parse("rat = 1").is_err(), "unknown words are refused");
    }

    #[test]
    fn trials_repeat_the_sweep_and_a_search_chooses_for_itself() {
        let plan = FleetPlan::parse("rate = [\"1kpps\", \"2kpps\"]\ntrials = 2").unwrap();
        let rates: Vec<Option<f64>> = plan.loads().iter().map(|load| load.rate_pps).collect();
        assert_eq!(rates, [Some(1e3), Some(2e3), Some(1e3), Some(2e3)]);
        assert_eq!(plan.hardest().rate_pps, Some(2e3));
        let plan = FleetPlan::parse("[search]\nmax-load = \"5kpps\"").unwrap();
        assert_eq!((plan.loads().len(), plan.hardest().rate_pps), (0, Some(5e3)));
        assert!(FleetPlan::parse("rate = \"1kpps\"\n[search]").is_err());
    }

    #[test]
    fn sizes_are_swept_with_rates_and_the_largest_counts_for_paths() {
        let plan = FleetPlan::parse("rate = [\"1kpps\", \"2kpps\"]\nframe-size = [128, 1518]").unwrap();
        let each: Vec<(Option<f64>, usize)> =
            plan.loads().iter().map(|load| (load.rate_pps, load.size)).collect();
        assert_eq!(each, [(Some(1e3), 0), (Some(2e3), 0), (Some(1e3), 1), (Some(2e3), 1)]);
        assert_eq!(plan.load.largest_frame_bytes(), 1518);
        let frame = |at: usize| {
            let target = "198.18.0.1:7".parse().unwrap();
            plan.load.plan(&[target], plan.loads()[at]).unwrap().frame_size_bytes
        };
        assert_eq!((frame(1), frame(2)), (128, 1518));
        assert!(FleetPlan::parse("frame-size = [128, 1518]\n[search]").is_err());
    }

    #[test]
    fn source_ports_count_up_over_a_senders_flows() {
        let plan =
            FleetPlan::parse("[senders]\nsrc-port = 40000\nthreads = 2\nflows = 5\n[receivers]\nport = 7")
                .unwrap();
        let host = plan.load.plan(&["198.18.0.1:7".parse().unwrap()], plan.loads()[0]).unwrap();
        let workers: Vec<(u16, usize)> =
            host.sender.traffic.workers.iter().map(|worker| (worker.local.port(), worker.flows)).collect();
        assert_eq!(workers, [(40_000, 3), (40_003, 2)]);
        assert_eq!(plan.known_ports(), Some(7));
        let other = FleetPlan::parse("[senders]\nsrc-port = 40000\nengine = \"packet\"").unwrap_err();
        assert!(other[0].contains("src-port is for the engine udp"), "{other:?}");
    }

    #[test]
    fn addresses_without_agents_take_the_place_of_receivers() {
        let plan = FleetPlan::parse("[senders]\nwithout-agents = [\"192.0.2.1:53\"]").unwrap();
        assert_eq!(plan.without_agents, ["192.0.2.1:53".parse().unwrap()]);
        let host = plan.load.plan(&plan.without_agents, plan.loads()[0]).unwrap();
        assert!(!host.handshake && !host.witness);
        let wrong = FleetPlan::parse("max-loss = 0.1\n[senders]\nwithout-agents = [\"x\"]").unwrap_err();
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }

    #[test]
    fn shares_follow_the_weights_and_add_up() {
        let plan = FleetPlan::parse("[senders.weights]\na = 2.0").unwrap();
        let shares = plan.shares(Some(30_000.0), &["a".into(), "b".into()]);
        assert_eq!(shares, [Some(20_000.0), Some(10_000.0)]);
        assert_eq!(plan.shares(None, &["a".into()]), [None]);
    }
}
