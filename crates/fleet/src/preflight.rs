//! The table before a run: what each agent has beside what the plan needs. One red row and nothing starts. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Serialize;
use session::Network;
use wire::{FlowKey, HashFields, RssKey, Toeplitz};

use crate::message::{Description, PROTOCOL, PathFinding};

/// What was compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreflightRow {
    /// Whose.
    pub agent: String,
    /// What.
    pub what: String,
    /// What the agent has.
    pub has: String,
    /// What the plan needs.
    pub needs: String,
    /// Whether that will not do: nothing starts.
    pub is_red: bool,
    /// Whether it will do, but explains results.
    pub is_notable: bool,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Preflight {
    /// Its rows, agent by agent.
    pub rows: Vec<PreflightRow>,
}

/// What a run needs of an agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Needs {
    pub(crate) version: String,
    pub(crate) engine: String,
    pub(crate) is_sender: bool,
    /// A sender's share of the highest rate; of a receiver, that of all its senders. `None` is the maximum.
    pub(crate) rate_pps: Option<f64>,
    pub(crate) frame_size_bytes: u32,
    pub(crate) duration_s: f64,
    /// The clock must be known that well.
    pub(crate) clock_bound_ns: u64,
    /// Where a sender sends without asking an agent.
    pub(crate) without_agents: Vec<IpAddr>,
    /// Of a receiver, the flows of its senders.
    pub(crate) flows: Vec<SenderFlows>,
    /// The receivers' port where all ports are known; kernels choose them without.
    pub(crate) to_port: Option<u16>,
}

/// The flows of one sender to a receiver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SenderFlows {
    pub(crate) from: IpAddr,
    /// One per flow; 0 where it is not known.
    pub(crate) src_ports: Vec<u16>,
}

impl Preflight {
    /// Red rows.
    pub fn red(&self) -> usize {
        self.rows.iter().filter(|row| row.is_red).count()
    }

    /// A sender's path to a receiver, or why it did not look for one.
    pub(crate) fn check_path(
        &mut self,
        (sender, receiver): (&str, &str),
        path: Result<&PathFinding, &str>,
        frame_size_bytes: u32,
    ) {
        let packet = packet_bytes(frame_size_bytes);
        let (has, is_red) = match path {
            Ok(PathFinding { interface: Some(interface), mtu_bytes, .. }) => {
                (format!("{mtu_bytes} bytes by {interface}"), packet > *mtu_bytes)
            }
            Ok(_) => ("no route".into(), true),
            Err(reason) => (reason.into(), true),
        };
        let what = format!("path to {receiver}");
        let needs = format!("packets of {packet} bytes");
        self.rows.push(PreflightRow { agent: sender.into(), what, has, needs, is_red, is_notable: false });
    }

    pub(crate) fn check(&mut self, agent: &Description, needs: &Needs) {
        let name = &agent.facts.agent;
        let mut row = |what: &str, has: String, needs: String, is_red: bool| {
            let (agent, what) = (name.clone(), what.into());
            self.rows.push(PreflightRow { agent, what, has, needs, is_red, is_notable: false });
        };
        let facts = &agent.facts;
        let is_other = facts.version != needs.version || agent.protocol != PROTOCOL;
        row("version", facts.version.clone(), needs.version.clone(), is_other);
        if let Some(run) = &agent.busy_with {
            row("free", format!("takes part in run {run}"), "no run".into(), true);
        }
        let (may, part) = if needs.is_sender {
            (agent.limits.may_send, "send")
        } else {
            (agent.limits.may_receive, "receive")
        };
        row(
            "owner",
            if may { format!("lets it {part}") } else { format!("does not let it {part}") },
            part.into(),
            !may,
        );
        let side = if needs.is_sender { "tx" } else { "rx" };
        let engine = format!("{side} {}", needs.engine.split('+').next().unwrap_or(&needs.engine));
        if let Some(found) = agent.engines.iter().find(|found| found.engine == engine) {
            row("engine", found.detail.clone(), needs.engine.clone(), !found.works);
        }
        if let Some(mtu) = facts.mtu_bytes {
            let packet = packet_bytes(needs.frame_size_bytes);
            row("mtu", format!("{mtu} bytes"), format!("packets of {packet} bytes"), packet > mtu);
        }
        let bound = agent.clock_bound_ns;
        let has = bound.map_or("unknown".into(), |bound| format!("within {} us", bound.div_ceil(1000)));
        row(
            "clock",
            has,
            format!("within {} us", needs.clock_bound_ns / 1000),
            bound.is_none_or(|bound| bound > needs.clock_bound_ns),
        );
        let asked = needs.rate_pps.map_or("max".into(), |pps| format!("{pps:.0} pps"));
        if needs.is_sender {
            if let Some(most) = agent.limits.max_pps {
                let is_more = needs.rate_pps.is_none_or(|pps| pps > most);
                row("owner's rate", format!("at most {most:.0} pps"), asked.clone(), is_more);
            }
            let longest = agent.limits.max_duration_s;
            row(
                "owner's time",
                format!("at most {longest} s"),
                format!("{} s", needs.duration_s),
                needs.duration_s > longest,
            );
        }
        if let (Some(speed), Some(pps)) = (facts.speed_bps, needs.rate_pps) {
            // Preamble and gap are on the wire, too.
            let bps = pps * f64::from(needs.frame_size_bytes + 20) * 8.0;
            row(
                "link",
                format!("{:.1} Gbit/s", speed as f64 / 1e9),
                format!("{:.1} Gbit/s", bps / 1e9),
                bps > speed as f64,
            );
        }
        for target in &needs.without_agents {
            let allowed = &agent.limits.allow_without_agent;
            let is_named =
                |text: &String| text.parse::<Network>().is_ok_and(|network| network.contains(*target));
            let has = if allowed.is_empty() { "only to agents".into() } else { allowed.join(", ") };
            row("owner's consent", has, format!("{target} without an agent"), !allowed.iter().any(is_named));
        }
        if let Some(Spreading { has, needs, is_red, is_notable }) = spread(agent, needs) {
            let (agent, what) = (name.clone(), "queues".into());
            self.rows.push(PreflightRow { agent, what, has, needs, is_red, is_notable });
        }
    }
}

/// A frame without Ethernet's header and check sequence.
pub(crate) fn packet_bytes(frame_size_bytes: u32) -> u32 {
    frame_size_bytes.saturating_sub(18)
}

/// How flows fall on queues.
struct Spreading {
    has: String,
    needs: String,
    is_red: bool,
    is_notable: bool,
}

/// How many of a receiver's queues its senders' flows reach, by the card's own key and table. Where it hashes ports that
/// kernels will choose, the number to expect.
fn spread(agent: &Description, needs: &Needs) -> Option<Spreading> {
    let spread = agent.spread.as_ref()?;
    let to: IpAddr = agent.facts.address.parse().ok()?;
    let queues = spread.table.iter().max()? + 1;
    if needs.is_sender || needs.flows.is_empty() || queues < 2 {
        return None;
    }
    let flows = needs.flows.iter().map(|sender| sender.src_ports.len()).sum::<usize>() as u32;
    let hashed: Vec<(IpAddr, u16)> = if spread.ports {
        needs
            .flows
            .iter()
            .flat_map(|sender| sender.src_ports.iter().map(|port| (sender.from, *port)))
            .collect()
    } else {
        needs.flows.iter().map(|sender| (sender.from, 0)).collect()
    };
    let different = hashed.len() as u32;
    let possible = queues.min(different);
    let needed = format!("{possible} queues");
    if spread.ports && needs.to_port.is_none() {
        let reached = expected_queues(&spread.table, different);
        let has =
            format!("{flows} flows on about {reached:.1} of {queues} queues (their ports are not known)");
        let is_notable = reached < 0.8 * f64::from(possible);
        return Some(Spreading { has, needs: needed, is_red: false, is_notable });
    }
    let (fields, to_port) = match (spread.ports, needs.to_port) {
        (true, Some(port)) => (HashFields::AddressesAndPorts, port),
        _ => (HashFields::Addresses, 0),
    };
    let toeplitz = Toeplitz::new(&RssKey::new(&spread.key).ok()?);
    let mut by_queue: BTreeMap<u32, u32> = BTreeMap::new();
    for (from, port) in hashed {
        let flow = FlowKey::udp((from, port).into(), (to, to_port).into())?;
        let queue = spread.table[toeplitz.hash(&flow, fields) as usize % spread.table.len()];
        *by_queue.entry(queue).or_default() += 1;
    }
    let reached = by_queue.len() as u32;
    let (most, what) =
        (by_queue.values().max().copied().unwrap_or(0), if spread.ports { "flows" } else { "senders" });
    let has = format!("{different} {what} on {reached} of {queues} queues, up to {most} on one");
    // All on one queue though there are others measures that queue, and looks like the machine.
    let is_red = reached == 1 && possible > 1;
    Some(Spreading { has, needs: needed, is_red, is_notable: !is_red && reached < possible })
}

/// How many queues so many flows reach on average, if their hashes are random.
fn expected_queues(table: &[u32], flows: u32) -> f64 {
    let mut slots: BTreeMap<u32, u32> = BTreeMap::new();
    for queue in table {
        *slots.entry(*queue).or_default() += 1;
    }
    let missed = |slots: &u32| (1.0 - f64::from(*slots) / table.len() as f64).powi(flows as i32);
    slots.values().map(|slots| 1.0 - missed(slots)).sum()
}

#[cfg(test)]
mod tests {
    use measure::FleetAgent;

    use super::*;
    use crate::{
        limits::StatedLimits,
        message::{EngineFinding, Spread},
    };

    fn agent() -> Description {
        Description {
            protocol: PROTOCOL,
            facts: FleetAgent {
                agent: "a".into(),
                version: "1".into(),
                address: "198.18.0.9".into(),
                mtu_bytes: Some(1500),
                speed_bps: Some(1_000_000_000),
                ..FleetAgent::default()
            },
            engines: vec![EngineFinding { engine: "tx udp".into(), works: true, detail: "works".into() }],
            limits: StatedLimits {
                max_pps: Some(1e6),
                max_duration_s: 60.0,
                may_send: true,
                may_receive: true,
                ..StatedLimits::default()
            },
            clock_bound_ns: Some(50_000),
            ..Description::default()
        }
    }

    fn needs() -> Needs {
        Needs {
            version: "1".into(),
            engine: "udp+gso".into(),
            is_sender: true,
            rate_pps: Some(1e5),
            frame_size_bytes: 64,
            duration_s: 10.0,
            clock_bound_ns: 1_000_000,
            without_agents: Vec::new(),
            flows: Vec::new(),
            to_port: None,
        }
    }

    /// What is red.
    fn red(agent: &Description, needs: &Needs) -> Vec<String> {
        let mut table = Preflight::default();
        table.check(agent, needs);
        assert_eq!(table.red(), table.rows.iter().filter(|row| row.is_red).count());
        table.rows.into_iter().filter(|row| row.is_red).map(|row| row.what).collect()
    }

    #[test]
    fn each_thing_that_will_not_do_is_a_red_row() {
        assert_eq!(red(&agent(), &needs()), [] as [&str; 0]);
        let with = |change: fn(&mut Description, &mut Needs)| {
            let (mut agent, mut needs) = (agent(), needs());
            change(&mut agent, &mut needs);
            red(&agent, &needs)
        };
        assert_eq!(with(|agent, _| agent.facts.version = "2".into()), ["version"]);
        assert_eq!(with(|agent, _| agent.protocol += 1), ["version"]);
        assert_eq!(with(|agent, _| agent.busy_with = Some("x".into())), ["free"]);
        assert_eq!(with(|agent, _| agent.limits.may_send = false), ["owner"]);
        assert_eq!(with(|agent, _| agent.engines[0].works = false), ["engine"]);
        assert_eq!(with(|_, needs| (needs.frame_size_bytes, needs.rate_pps) = (1519, Some(1e4))), ["mtu"]);
        assert_eq!(with(|agent, _| agent.clock_bound_ns = None), ["clock"]);
        assert_eq!(with(|agent, _| agent.clock_bound_ns = Some(2_000_000)), ["clock"]);
        assert_eq!(with(|_, needs| needs.rate_pps = None), ["owner's rate"]);
        assert_eq!(with(|_, needs| needs.duration_s = 61.0), ["owner's time"]);
        assert_eq!(with(|agent, _| agent.facts.speed_bps = Some(10_000_000)), ["link"]);
    }

    /// A receiver whose card has Microsoft's key and this table, and flows of two senders.
    fn spreads(
        table: Vec<u32>,
        ports: bool,
        (src_ports, to_port): ([&[u16]; 2], Option<u16>),
    ) -> PreflightRow {
        let key = RssKey::microsoft().bytes().to_vec();
        let agent =
            Description { engines: Vec::new(), spread: Some(Spread { key, table, ports }), ..agent() };
        let from = ["198.18.0.1", "198.18.0.2"].map(|from| from.parse().unwrap());
        let flows = from.into_iter().zip(src_ports);
        let flows = flows.map(|(from, ports)| SenderFlows { from, src_ports: ports.to_vec() }).collect();
        let mut preflight = Preflight::default();
        preflight.check(&agent, &Needs { is_sender: false, flows, to_port, ..needs() });
        preflight.rows.into_iter().find(|row| row.what == "queues").unwrap()
    }

    fn in_turn(queues: u32) -> Vec<u32> {
        (0..128).map(|bucket| bucket % queues).collect()
    }

    #[test]
    fn senders_that_all_hash_to_one_queue_are_red() {
        let one_each: ([&[u16]; 2], _) = ([&[0], &[0]], None);
        let row = spreads(vec![3; 128], false, one_each);
        assert!(row.is_red && row.has == "2 senders on 1 of 4 queues, up to 2 on one", "{row:?}");
        let row = spreads(in_turn(4), false, one_each);
        assert!(!row.is_red && row.has.starts_with("2 senders on 2 of 4 queues"), "{row:?}");
    }

    #[test]
    fn known_ports_are_hashed_and_unknown_ones_give_an_expectation() {
        let known: Vec<u16> = (20_000..20_016).collect();
        let row = spreads(in_turn(4), true, ([&known, &known], Some(4321)));
        // As `linerate nic flow` computes it, flow by flow.
        let toeplitz = Toeplitz::new(&RssKey::microsoft());
        let mut by_queue = [0; 4];
        for from in ["198.18.0.1", "198.18.0.2"] {
            for port in &known {
                let (from, to) = (
                    (from.parse::<IpAddr>().unwrap(), *port),
                    ("198.18.0.9".parse::<IpAddr>().unwrap(), 4321),
                );
                let flow = FlowKey::udp(from.into(), to.into()).unwrap();
                by_queue[toeplitz.hash(&flow, HashFields::AddressesAndPorts) as usize % 128 % 4] += 1;
            }
        }
        let reached = by_queue.iter().filter(|flows| **flows > 0).count();
        let most = by_queue.iter().max().unwrap();
        assert_eq!(row.has, format!("32 flows on {reached} of 4 queues, up to {most} on one"));
        let row = spreads(vec![1; 128], true, ([&[5], &[6]], Some(7)));
        assert!(row.is_red, "{row:?}");
        // 8 flows over 4 queues: 4 (1 - 0.75^8) are expected; 2 over 4 more often share one.
        let row = spreads(in_turn(4), true, ([&[0; 4], &[0; 4]], None));
        assert_eq!(row.has, "8 flows on about 3.6 of 4 queues (their ports are not known)");
        assert!(!row.is_red && !row.is_notable, "{row:?}");
        let row = spreads(in_turn(4), true, ([&[0; 2], &[0; 2]], None));
        assert!(!row.is_red && row.is_notable && row.has.contains("about 2.7 of 4"), "{row:?}");
    }

    #[test]
    fn a_host_without_an_agent_needs_its_senders_owner() {
        let needs = Needs { without_agents: vec!["192.0.2.1".parse().unwrap()], ..needs() };
        assert_eq!(red(&agent(), &needs), ["owner's consent"]);
        let mut agent = agent();
        agent.limits.allow_without_agent = vec!["192.0.2.0/24".into()];
        assert_eq!(red(&agent, &needs), [] as [&str; 0]);
    }

    #[test]
    fn a_path_that_is_too_narrow_or_unknown_is_red() {
        let found = |interface: Option<&str>, mtu_bytes| PathFinding {
            to: "198.18.0.2".parse().unwrap(),
            interface: interface.map(str::to_owned),
            mtu_bytes,
        };
        let row = |path: Result<&PathFinding, &str>| {
            let mut table = Preflight::default();
            table.check_path(("s", "r"), path, 1298);
            let row = table.rows.remove(0);
            assert_eq!((row.agent.as_str(), row.what.as_str()), ("s", "path to r"));
            assert_eq!(row.needs, "packets of 1280 bytes");
            (row.has, row.is_red)
        };
        assert_eq!(row(Ok(&found(Some("va"), 1280))), ("1280 bytes by va".into(), false));
        assert_eq!(row(Ok(&found(Some("va"), 1279))), ("1279 bytes by va".into(), true));
        assert_eq!(row(Ok(&found(None, 0))), ("no route".into(), true));
        assert_eq!(row(Err("it does not answer")), ("it does not answer".into(), true));
    }
}
