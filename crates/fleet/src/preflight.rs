//! The table before a run: what each agent has beside what the plan needs. One red row and nothing starts. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Serialize;
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
    /// Whether that will do.
    pub is_red: bool,
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
    /// Addresses of its senders.
    pub(crate) from: Vec<IpAddr>,
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
        self.rows.push(PreflightRow { agent: sender.into(), what, has, needs, is_red });
    }

    pub(crate) fn check(&mut self, agent: &Description, needs: &Needs) {
        let name = &agent.facts.agent;
        let mut row = |what: &str, has: String, needs: String, is_red: bool| {
            self.rows.push(PreflightRow { agent: name.clone(), what: what.into(), has, needs, is_red });
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
        if let Some((has, needs, is_red)) = spread(agent, needs) {
            row("queues", has, needs, is_red);
        }
    }
}

/// A frame without Ethernet's header and check sequence.
pub(crate) fn packet_bytes(frame_size_bytes: u32) -> u32 {
    frame_size_bytes.saturating_sub(18)
}

/// How many of a receiver's queues the senders' flows reach, where the card hashes addresses alone: what ports the kernels will
/// choose is not known.
fn spread(agent: &Description, needs: &Needs) -> Option<(String, String, bool)> {
    let spread = agent.spread.as_ref().filter(|spread| !spread.ports && !spread.table.is_empty())?;
    let to: IpAddr = agent.facts.address.parse().ok()?;
    if needs.is_sender || needs.from.len() < 2 {
        return None;
    }
    let queues = spread.table.iter().max()? + 1;
    let mut by_queue: BTreeMap<u32, u32> = BTreeMap::new();
    let toeplitz = Toeplitz::new(&RssKey::new(&spread.key).ok()?);
    for from in &needs.from {
        let flow = FlowKey::udp((*from, 0).into(), (to, 0).into())?;
        let hash = toeplitz.hash(&flow, HashFields::Addresses);
        let queue = spread.table[hash as usize % spread.table.len()];
        *by_queue.entry(queue).or_default() += 1;
    }
    let senders = needs.from.len() as u32;
    let (reached, possible) = (by_queue.len() as u32, queues.min(senders));
    let most = by_queue.values().max().copied().unwrap_or(0);
    let has = format!("{senders} senders on {reached} of {queues} queues, up to {most} on one");
    // All on one queue though there are others measures that queue, and looks like the machine.
    Some((has, format!("{possible} queues"), reached == 1 && possible > 1))
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
            from: Vec::new(),
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

    #[test]
    fn senders_that_all_hash_to_one_queue_are_red() {
        let key = RssKey::microsoft().bytes().to_vec();
        let mut agent = agent();
        agent.engines.clear();
        agent.spread = Some(Spread { key, table: vec![3; 128], ports: false });
        let needs = Needs {
            is_sender: false,
            from: vec!["198.18.0.1".parse().unwrap(), "198.18.0.2".parse().unwrap()],
            ..needs()
        };
        assert_eq!(red(&agent, &needs), ["queues"]);
        let table: Vec<u32> = (0..128).map(|bucket| bucket % 4).collect();
        agent.spread.as_mut().unwrap().table = table;
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
