//! What shall be diverted, as plain data, with every step and what undoes it.

use std::{path::PathBuf, time::Duration};

use bpf::{Divert, DivertOptions, Fate, RuleAction};
use nic::Setting;
use serde::Serialize;
use sys::{
    ethtool::{EthtoolSocket, rx_queues},
    rtnetlink::RouteSocket,
};

use crate::{
    error::{DivertError, RuleError},
    exclude::Exclusions,
    rules::{ALL, Rule, RuleVerdict},
    select::Selection,
    steer::{LRO, Steering, VLAN},
};

/// Everything that a diversion is asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DivertPlan {
    /// The interface's name in the calling thread's network namespace.
    pub interface: String,
    /// The queues that are diverted.
    pub queues: Vec<u32>,
    /// Where packets are decided about.
    pub place: Place,
    /// Which packets leave the kernel at all, in tcpdump's filter language; `None`: those that a rule takes.
    pub selection: Option<String>,
    /// What is done with them; the first rule that fits decides, and what no rule takes goes to the kernel.
    pub rules: Vec<Rule>,
    /// What is never diverted.
    pub exclusions: Exclusions,
    /// Whether packets that pass a filter in user space go back to the kernel.
    pub reinject: bool,
    /// CPUs of the queues' threads, in the queues' order; a queue without one is left to the scheduler. A thread that has
    /// one and does not spin goes before the ordinary threads there, where it may (`SCHED_FIFO`).
    pub cpus: Vec<u32>,
    /// Whether the queues' threads look again at once instead of sleeping until a packet comes.
    pub spin: bool,
    /// One packet of so many that a queue's thread sees is written to the sample file; 0: none.
    pub sample_one_in: u32,
    /// The pcap file for samples.
    pub sample_file: Option<PathBuf>,
    /// The pcap file for packets that are kept.
    pub keep_file: Option<PathBuf>,
    /// What the card is told meanwhile; `None`: nothing.
    pub steering: Option<Steering>,
}

/// Where packets are decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In the kernel, by an XDP program.
    Xdp,
    /// In this process, through AF_XDP sockets.
    User,
}

/// One thing that a diversion does to the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What is done.
    pub does: String,
    /// What undoes it, and when.
    pub undone_by: String,
}

/// What a plan has to know about the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Card {
    /// The driver, such as `igb` or `veth`.
    pub driver: String,
    /// Its receive queues.
    pub queues: u32,
    /// Whether large receive offload joins packets before XDP sees them.
    pub lro: bool,
    /// Whether the card takes VLAN tags off before a program sees them, and could leave them.
    pub strips_tags: bool,
    /// Whether the card can be told by rules which flows go to which queue.
    pub flow_rules: bool,
    /// By which the kernel hands packets of the queues on to other CPUs: `rps.*` that name some, `rfs.*` above 0.
    pub hands_on: Vec<Setting>,
    /// The XDP program that it carries already: the kernel's number and the name, if it may be known.
    pub program: Option<(u32, String)>,
    /// The interface's number.
    pub(crate) index: u32,
}

impl Card {
    /// Asks the kernel about an interface.
    ///
    /// # Errors
    /// [`DivertError::Interface`].
    pub fn read(interface: &str) -> Result<Self, DivertError> {
        let missing = |source| DivertError::Interface { interface: interface.into(), source };
        let link =
            RouteSocket::open().and_then(|mut route| route.link_by_name(interface)).map_err(missing)?;
        let queues = rx_queues(&link);
        let ethtool = EthtoolSocket::open().ok();
        let driver = ethtool.as_ref().and_then(|ethtool| ethtool.driver(interface).ok());
        let features =
            ethtool.as_ref().and_then(|ethtool| ethtool.features(interface).ok()).unwrap_or_default();
        let feature = |name: &str| features.iter().find(|feature| feature.name == name);
        let driver = driver.map(|driver| driver.name).or(link.kind).unwrap_or_default();
        Ok(Self {
            // What a veth's peer put beside a packet stays there whatever this end is told.
            strips_tags: driver != "veth"
                && feature("rx-vlan-hw-parse").is_some_and(|feature| feature.active && feature.changeable),
            driver,
            queues,
            lro: feature("rx-lro").is_some_and(|feature| feature.active),
            flow_rules: feature("rx-ntuple-filter")
                .is_some_and(|feature| feature.active || feature.changeable),
            hands_on: hands_on(interface),
            program: bpf::foreign_program(link.index),
            index: link.index,
        })
    }
}

fn hands_on(interface: &str) -> Vec<Setting> {
    let read = nic::Card::open(interface).and_then(|mut card| nic::read_settings(&mut card));
    let settings = read.map(|reading| reading.settings).unwrap_or_default();
    let is_on = |name: &str, value: &str| match name.split_once('.') {
        Some(("rps", _)) => value != "none",
        Some(("rfs", _)) => value != "0",
        _ => false,
    };
    let on = settings.iter().filter(|(name, value)| is_on(name, value));
    on.map(|(name, value)| Setting::new(name.clone(), value)).collect()
}

impl DivertPlan {
    /// Packets that an expression takes, on all queues, decided about in user space and nothing given back yet: the
    /// start for an own filter.
    ///
    /// # Errors
    /// [`DivertError::Interface`].
    pub fn of(interface: &str, selection: &str) -> Result<Self, DivertError> {
        let queues = Card::read(interface)?.queues;
        Ok(Self {
            interface: interface.into(),
            queues: (0..queues).collect(),
            place: Place::User,
            selection: Some(selection.into()),
            rules: vec![Rule::new(RuleVerdict::Drop, ALL)],
            exclusions: Exclusions::of_this_session(),
            reinject: true,
            cpus: Vec::new(),
            spin: false,
            sample_one_in: 0,
            sample_file: None,
            keep_file: None,
            steering: None,
        })
    }

    /// Everything that is wrong with the plan on this card; nothing has been changed yet.
    pub fn problems(&self, card: &Card) -> Vec<DivertError> {
        let queues = self.queues.iter().filter(|queue| **queue >= card.queues);
        let mut problems: Vec<DivertError> = queues
            .map(|queue| DivertError::NoQueue {
                interface: self.interface.clone(),
                queue: *queue,
                queues: card.queues,
            })
            .collect();
        let is_told = |name| self.steering.as_ref().is_some_and(|steering| steering.tells(name));
        if card.lro && !is_told(LRO) {
            problems.push(DivertError::Joins { interface: self.interface.clone() });
        }
        if let Some((id, program)) = &card.program {
            let (interface, program) = (self.interface.clone(), program.clone());
            problems.push(DivertError::Occupied { interface, program, id: *id });
        }
        if self.place == Place::Xdp {
            let keeping = self.rules.iter().filter(|rule| rule.verdict == RuleVerdict::Keep);
            problems.extend(keeping.map(|rule| RuleError::NothingToKeep { rule: rule.to_string() }.into()));
        }
        let selection = self.kernel_rules();
        let coded = Selection::of(selection.iter()).and_then(|selection| selection.code());
        problems.extend(coded.err().map(DivertError::from));
        if self.place == Place::User {
            problems.extend(Selection::of(self.rules.iter()).err().map(DivertError::from));
        }
        problems
    }

    /// What will be done, in this order; it is undone in the reverse one.
    pub fn steps(&self, card: &Card) -> Vec<Step> {
        let step = |does: String, undone_by: &str| Step { does, undone_by: undone_by.into() };
        let Self { interface, queues, .. } = self;
        let list = list(queues);
        let mut steps = Vec::new();
        for setting in self.steering.iter().flat_map(|steering| &steering.settings) {
            steps.push(step(
                format!("{interface} is told {}={}, in the journal first", setting.name, setting.value),
                "the end of the diversion; after a kill, linerate nic restore",
            ));
        }
        let told =
            |setting: &&Setting| self.steering.as_ref().is_some_and(|steering| steering.tells(&setting.name));
        let untouched = Steering::clearing(self, card).into_iter().filter(|setting| !told(&setting));
        for setting in untouched.filter(|setting| setting.name != LRO) {
            let because = match &setting.name[..] {
                VLAN => {
                    "the card takes VLAN tags off before a program sees them, so a rule takes packets of every VLAN, \
                     and those that this process gives back have none"
                }
                _ => "the kernel may hand packets of other queues to the CPU of a queue's thread",
            };
            let Setting { name, value } = &setting;
            steps.push(step(
                format!("{name} stays as it is: {because}; --steer sets it to {value} meanwhile"),
                "nothing is done",
            ));
        }
        let excluded = self.exclusions.sessions.iter().map(ToString::to_string);
        let excluded = excluded.chain(self.exclusions.networks.iter().map(ToString::to_string));
        let excluded: Vec<String> = excluded.chain(["ARP".into(), "neighbour discovery".into()]).collect();
        steps.push(step(
            format!(
                "an XDP program on {interface} ({}) sees every packet of every queue; it passes on all but those \
                 that {} on queue {list}{}{}; never diverted: {}",
                if card.driver.is_empty() { "no driver named" } else { &card.driver },
                match &self.selection {
                    Some(expression) if expression != ALL => format!("match '{expression}'"),
                    Some(_) => "come".into(),
                    None => "a rule takes".into(),
                },
                match card.driver.as_str() {
                    "veth" | "virtio_net" | "tun" => "",
                    _ => "; many cards restart their link when the first XDP program comes or the last one goes",
                },
                match &self.steering {
                    Some(_) => "; the card brings it little else on that queue",
                    None if card.flow_rules => "; the card's own flow rules are left as they are",
                    None => "; the driver takes no flow rules, so the program picks them itself",
                },
                excluded.join(", ")
            ),
            "the kernel, when the link's descriptor closes: at the end of the process, however it ends",
        ));
        for (at, queue) in queues.iter().enumerate() {
            match self.place {
                Place::Xdp => {}
                Place::User => {
                    let cpu = match self.cpus.get(at) {
                        Some(cpu) if self.threads_go_first() => {
                            format!("CPU {cpu}, before the ordinary threads there")
                        }
                        Some(cpu) => format!("CPU {cpu}"),
                        None => "any CPU".into(),
                    };
                    let spins = if self.spin { ", which never sleeps" } else { "" };
                    steps.push(step(
                        format!(
                            "an AF_XDP socket takes them from queue {queue}, on a thread on {cpu}{spins}"
                        ),
                        "the kernel, when the socket closes",
                    ));
                }
            }
        }
        if self.place == Place::User {
            let passing = match &self.keep_file {
                _ if self.reinject => {
                    format!("go back to {interface} by BPF_PROG_RUN, as if they had just arrived")
                }
                Some(file) => format!("are written to {}: {NOT_BACK}", file.display()),
                None => format!("are counted and go no further: {NOT_BACK}"),
            };
            steps.push(step(format!("packets that pass {passing}"), "nothing remains"));
        }
        steps.push(step(
            format!(
                "queue {list} is diverted for {} ms at a time, which is put off {} times a second",
                crate::diversion::DEADLINE.as_millis(),
                1000 / crate::diversion::BEAT.as_millis()
            ),
            "time: a process that hangs loses its queues by itself",
        ));
        for (number, rule) in (1..).zip(&self.rules) {
            let of_those = if self.selects_some() { ", of those" } else { "" };
            steps.push(step(format!("rule {number}{of_those}: {rule}"), "the program's end"));
        }
        steps
    }

    /// Whether `--match` leaves packets out that a rule may name.
    fn selects_some(&self) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection != ALL)
    }

    /// Whether the queues' threads that have a CPU go before the ordinary threads there. One that never sleeps does not:
    /// nobody else would come to its turn.
    pub(crate) fn threads_go_first(&self) -> bool {
        !self.spin
    }

    /// How long the kernel's program takes for a packet on this machine, once the packet is in the CPU's cache: what every
    /// packet of the interface pays. `None` where the program cannot be loaded.
    pub fn program_cost(&self, card: &Card) -> Option<Duration> {
        self.program(card).and_then(|(mut program, _)| Ok(program.cost()?)).ok()
    }

    /// Whether the kernel's program tells the rules apart that are decided about in user space.
    pub(crate) fn program_knows_rules(&self) -> bool {
        self.selection.is_none() || self.rules.iter().any(|rule| rule.limit.is_some())
    }

    /// What the kernel's program does with which packets.
    pub(crate) fn kernel_rules(&self) -> Vec<Rule> {
        match (&self.selection, self.place) {
            // Who is to decide in user space needs only the selection, unless a limit has to know the rule.
            (Some(selection), Place::User) if !self.program_knows_rules() => {
                vec![Rule::new(RuleVerdict::Pass, selection.clone())]
            }
            (Some(selection), _) => self
                .rules
                .iter()
                .map(|rule| Rule { expression: both(selection, &rule.expression), ..rule.clone() })
                .collect(),
            (None, _) => self.rules.clone(),
        }
    }

    /// The kernel's program of this plan.
    pub(crate) fn program(&self, card: &Card) -> Result<(Divert, Vec<Rule>), DivertError> {
        let rules = self.kernel_rules();
        let selection = Selection::of(rules.iter())?;
        let fate = |rule: &Rule| match (self.place, rule.verdict) {
            (Place::User, _) => Fate::HandOver,
            (Place::Xdp, RuleVerdict::Drop) => Fate::Drop,
            (Place::Xdp, RuleVerdict::Pass | RuleVerdict::Keep) => Fate::GiveBack,
        };
        let options = DivertOptions {
            queues: card.queues,
            rules: rules
                .iter()
                .map(|rule| RuleAction { fate: fate(rule), limit: rule.limit.map(|limit| limit.bucket()) })
                .collect(),
            code: selection.code()?,
            table: selection.table,
            networks: self.exclusions.networks.iter().map(|net| (net.address, net.prefix_len)).collect(),
            sessions: self.exclusions.sessions.iter().map(|session| session.for_program()).collect(),
            buckets: MOST_BUCKETS,
            may_be_links: selection.may_be_links,
        };
        Ok((Divert::load(&options)?, rules))
    }
}

/// What a plan says where packets are not given back.
const NOT_BACK: &str = "the kernel does not get them (--reinject gives them back)";

/// Token buckets that are remembered: 8 MiB.
const MOST_BUCKETS: u32 = 65_536;

/// An expression for what both take.
pub(crate) fn both(one: &str, other: &str) -> String {
    match (one, other) {
        (ALL, other) => other.into(),
        (one, ALL) => one.into(),
        (one, other) => format!("({one}) and ({other})"),
    }
}

/// `0, 1 and 3`.
fn list(queues: &[u32]) -> String {
    let words: Vec<String> = queues.iter().map(u32::to_string).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => "none".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(place: Place, selection: Option<&str>, rules: &[&str]) -> DivertPlan {
        DivertPlan {
            interface: "eth7".into(),
            queues: vec![0, 3],
            place,
            selection: selection.map(Into::into),
            rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            exclusions: Exclusions::default(),
            reinject: true,
            cpus: vec![2],
            spin: false,
            sample_one_in: 0,
            sample_file: None,
            keep_file: None,
            steering: None,
        }
    }

    fn card() -> Card {
        Card {
            driver: "veth".into(),
            queues: 4,
            lro: false,
            strips_tags: false,
            flow_rules: false,
            hands_on: Vec::new(),
            program: None,
            index: 0,
        }
    }

    #[test]
    fn the_kernel_decides_or_hands_over() {
        let told = |place, selection, rules: &[&str]| -> Vec<String> {
            plan(place, selection, rules).kernel_rules().iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            told(Place::Xdp, Some("udp"), &["drop port 53", "pass all"]),
            ["drop (udp) and (port 53)", "pass udp"]
        );
        assert_eq!(told(Place::User, Some("udp"), &["drop port 53", "pass all"]), ["pass udp"]);
        assert_eq!(
            told(Place::User, Some(ALL), &["drop limit 1000pps port 53", "pass all"]),
            ["drop limit 1000pps port 53", "pass all"]
        );
        assert_eq!(told(Place::User, None, &["drop udp"]), ["drop udp"]);
    }

    #[test]
    fn every_problem_is_told_before_anything_changes() {
        let plan = plan(Place::Xdp, None, &["keep all"]);
        let told: Vec<String> = plan
            .problems(&Card { queues: 1, lro: true, program: Some((7, "theirs".into())), ..card() })
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "eth7 has no receive queue 3: it has 1, numbered from 0",
                "eth7 joins packets before a program can see them (large receive offload)",
                "eth7 carries the XDP program 'theirs' (id 7) already",
                "the rule 'keep all' keeps packets, which needs --where user",
            ]
        );
    }

    #[test]
    fn every_step_says_what_undoes_it() {
        let steps = plan(Place::User, None, &["drop all"]).steps(&card());
        assert_eq!(steps.len(), 6, "program, two sockets, giving back, deadline, rule: {steps:#?}");
        assert!(steps.iter().all(|step| !step.undone_by.is_empty()));
        assert!(steps[0].does.contains("on queue 0 and 3"), "{}", steps[0].does);
        assert!(steps[1].does.ends_with("on CPU 2, before the ordinary threads there"), "{}", steps[1].does);
        assert!(steps[2].does.ends_with("on a thread on any CPU"), "{}", steps[2].does);
    }

    #[test]
    fn a_plan_says_which_packets_are_meant_and_where_they_go() {
        let told = |plan: DivertPlan| -> Vec<String> {
            plan.steps(&card()).into_iter().map(|step| step.does).collect()
        };
        let plan = plan(Place::User, Some("udp"), &["drop all"]);
        let steps = told(DivertPlan { spin: true, ..plan.clone() });
        assert!(steps[0].contains("all but those that match 'udp' on queue 0 and 3"), "{}", steps[0]);
        assert!(steps[0].contains("takes no flow rules, so the program picks them itself"), "{}", steps[0]);
        assert!(steps[1].ends_with("on a thread on CPU 2, which never sleeps"), "{}", steps[1]);
        assert!(steps[3].contains("go back to eth7"), "{}", steps[3]);
        assert_eq!(steps.last().unwrap(), "rule 1, of those: drop all");
        let steps = told(DivertPlan { reinject: false, keep_file: Some("kept.pcap".into()), ..plan.clone() });
        assert!(steps[3].starts_with("packets that pass are written to kept.pcap: the kernel does not"));
        let steps = told(DivertPlan { reinject: false, ..plan });
        assert!(steps[3].starts_with("packets that pass are counted and go no further: "), "{}", steps[3]);
    }

    #[test]
    fn a_plan_says_that_the_card_takes_tags_off() {
        let steps = plan(Place::Xdp, None, &["drop udp"]).steps(&Card { strips_tags: true, ..card() });
        assert!(
            steps[0]
                .does
                .starts_with("feature.rx-vlan-hw-parse stays as it is: the card takes VLAN tags off")
        );
        assert!(steps[0].does.ends_with("--steer sets it to off meanwhile"), "{}", steps[0].does);
    }
}
