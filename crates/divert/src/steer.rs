//! What the card is told, so that the flow comes to the diverted queue by itself and everything else does not.
//!
//! Changes go through the journal of [`nic`]: they are undone with the diversion, and after a kill by `linerate nic
//! restore`.

use std::path::PathBuf;

use filter::{Filter, Prefix, TupleRule};
use nic::{Session, SessionError, Setting};
use serde::Serialize;

use crate::{
    error::DivertError,
    plan::{Card, DivertPlan},
    rules::ALL,
};

/// Settings of the card for the time of a diversion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Steering {
    /// The settings, all or none of which are made.
    pub settings: Vec<Setting>,
    /// Whether the diversion begins without them where the card refuses: the program then picks the packets on every
    /// queue, as it does in any case.
    pub may_fail: bool,
    /// Where the journal goes.
    #[serde(skip)]
    pub state: PathBuf,
}

/// The offload that joins packets before a program can see them.
pub(crate) const LRO: &str = "feature.rx-lro";
/// The offload that takes VLAN tags off before a program can see them.
pub(crate) const VLAN: &str = "feature.rx-vlan-hw-parse";

impl Steering {
    /// What keeps packets from a diversion, or their VLAN tags, and others off its CPUs: large receive offload, VLAN
    /// offload, and the kernel's own steering where it may lead to the CPU of a queue's thread.
    pub(crate) fn clearing(plan: &DivertPlan, card: &Card) -> Vec<Setting> {
        let lro = card.lro.then(|| Setting::new(LRO, "off"));
        let others = card.hands_on.iter().filter(|_| !plan.cpus.is_empty()).filter_map(|setting| {
            // Flow steering follows the reader of a socket, wherever that runs.
            if setting.name.starts_with("rfs.") {
                return Some(Setting::new(setting.name.clone(), 0));
            }
            let cpus = nic::cpus_of_list(&setting.value)?;
            let left: Vec<u32> = cpus.iter().copied().filter(|cpu| !plan.cpus.contains(cpu)).collect();
            (left.len() < cpus.len()).then(|| Setting::new(setting.name.clone(), nic::cpu_list(&left)))
        });
        let vlan = card.strips_tags.then(|| Setting::new(VLAN, "off"));
        lro.into_iter().chain(others).chain(vlan).collect()
    }

    /// Only what clears the way, for cards that cannot bring flows to a queue; `None` when nothing is in it.
    pub fn clearing_the_way(plan: &DivertPlan, card: &Card, state: PathBuf) -> Option<Self> {
        let settings = Self::clearing(plan, card);
        (!settings.is_empty()).then_some(Self { settings, may_fail: !card.lro, state })
    }

    pub(crate) fn tells(&self, name: &str) -> bool {
        self.settings.iter().any(|setting| setting.name == name)
    }

    /// What clears the way, the table without the diverted queue, and a rule for each flow of the plan's expressions.
    ///
    /// # Errors
    /// Why the card cannot do it, in words: the program then picks the packets, at a cost to every queue.
    pub fn to_the_queue(plan: &DivertPlan, card: &Card, state: PathBuf) -> Result<Self, String> {
        let [queue] = plan.queues[..] else {
            return Err("a card brings flows to one queue, and several are diverted".into());
        };
        if card.queues < 2 {
            return Err(format!("{} has one receive queue, which is everybody's", plan.interface));
        }
        if !card.flow_rules {
            return Err(format!("{} takes no flow rules", plan.interface));
        }
        let weights: Vec<&str> =
            (0..card.queues).map(|other| if other == queue { "0" } else { "1" }).collect();
        let mut settings = Self::clearing(plan, card);
        settings.push(Setting::new("rss.table", format!("weights:{}", weights.join(","))));
        let expressions = match &plan.selection {
            Some(selection) => vec![selection.as_str()],
            None => plan.rules.iter().map(|rule| rule.expression.as_str()).collect(),
        };
        for expression in expressions {
            let more = || format!("'{expression}' says more than addresses and ports, or less");
            let filter = Filter::compile(if expression == ALL { "" } else { expression });
            // A wrong expression is told as such by the plan.
            let filter = filter.map_err(|error| error.to_string())?;
            for tuple in filter.tuple_rules().ok_or_else(more)? {
                let rule = flow_rule(tuple, queue).ok_or_else(more)?;
                settings.push(Setting::new("rule.any", rule));
            }
        }
        Ok(Self { settings, may_fail: !card.lro, state })
    }

    /// Tells the card; what the answer holds undoes it when it goes. Nothing where the card refused and may.
    pub(crate) fn apply(&self, interface: &str) -> Result<(Option<Session>, Option<String>), DivertError> {
        let applied = || -> Result<Session, SessionError> {
            let mut session = Session::begin(interface, &self.state)?;
            session.apply(&self.settings)?;
            Ok(session)
        };
        match applied() {
            Ok(session) => Ok((Some(session), None)),
            // What could not be taken back needs somebody's eyes.
            Err(SessionError::RolledBack { cause, left }) if self.may_fail && left.is_empty() => {
                Ok((None, Some(cause.to_string())))
            }
            Err(source) => Err(DivertError::Card { interface: interface.into(), source: Box::new(source) }),
        }
    }

    /// A card that starts anew for a program or a zero-copy socket may forget its table; rules are the driver's list.
    pub(crate) fn remind(&self, interface: &str, session: &mut Session) -> Result<(), DivertError> {
        let named: Vec<Setting> =
            self.settings.iter().filter(|setting| !setting.name.ends_with(".any")).cloned().collect();
        let again = session.apply(&named);
        let refused = |source| DivertError::Card { interface: interface.into(), source: Box::new(source) };
        again.map(drop).map_err(refused)
    }
}

/// As the card's rules say it: whole addresses and single ports of TCP or UDP.
fn flow_rule(tuple: &TupleRule, queue: u32) -> Option<String> {
    let protocol = match tuple.protocol? {
        6 => "tcp",
        17 => "udp",
        _ => return None,
    };
    let (family, width) = if tuple.v6 { ("6", 128) } else { ("4", 32) };
    let mut rule = format!("{protocol}{family}");
    for (name, prefix) in [("src", tuple.src), ("dst", tuple.dst)] {
        let Prefix { len, .. } = prefix;
        if len == width {
            rule.push_str(&format!(" {name} {}", prefix.address(tuple.v6)));
        } else if len > 0 {
            return None;
        }
    }
    for (name, ports) in [("src-port", &tuple.src_ports), ("dst-port", &tuple.dst_ports)] {
        if let Some(ports) = ports {
            if ports.start() != ports.end() {
                return None;
            }
            rule.push_str(&format!(" {name} {}", ports.start()));
        }
    }
    Some(format!("{rule} queue {queue}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        exclude::Exclusions,
        plan::Place,
        rules::{Rule, RuleVerdict},
    };

    fn card(queues: u32) -> Card {
        Card {
            driver: "ice".into(),
            queues,
            lro: false,
            strips_tags: false,
            flow_rules: true,
            hands_on: Vec::new(),
            program: None,
            index: 0,
        }
    }

    fn plan(expression: &str, queues: Vec<u32>) -> DivertPlan {
        DivertPlan {
            interface: "eth7".into(),
            queues,
            place: Place::Xdp,
            selection: Some(expression.into()),
            rules: vec![Rule::new(RuleVerdict::Drop, ALL)],
            exclusions: Exclusions::default(),
            reinject: false,
            cpus: Vec::new(),
            spin: false,
            sample_one_in: 0,
            sample_file: None,
            keep_file: None,
            steering: None,
        }
    }

    fn told(expression: &str, queues: Vec<u32>, card_queues: u32) -> Result<Vec<String>, String> {
        let (plan, card) = (plan(expression, queues), card(card_queues));
        let steering = Steering::to_the_queue(&plan, &card, PathBuf::new())?;
        Ok(words(&steering.settings))
    }

    fn words(settings: &[Setting]) -> Vec<String> {
        settings.iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect()
    }

    #[test]
    fn nothing_joins_packets_or_hands_others_to_a_threads_cpu() {
        let of = |name: &str, value: &str| Setting::new(name, value);
        let hands_on =
            vec![of("rps.rx-0", "0-3"), of("rps.rx-1", "2"), of("rps.rx-2", "1"), of("rfs.rx-0", "64")];
        let card = Card { lro: true, strips_tags: true, hands_on, ..card(4) };
        let mut plan = DivertPlan { cpus: vec![2], ..plan("udp dst port 53", vec![3]) };
        let cleared = [
            "feature.rx-lro=off",
            "rps.rx-0=0-1,3",
            "rps.rx-1=none",
            "rfs.rx-0=0",
            "feature.rx-vlan-hw-parse=off",
        ];
        assert_eq!(words(&Steering::clearing(&plan, &card)), cleared);

        let told = |plan: &DivertPlan| -> Vec<String> {
            plan.steps(&card).into_iter().map(|step| step.does).collect()
        };
        assert!(
            told(&plan).iter().any(|step| step.contains("rps.rx-0 stays as it is")),
            "{:#?}",
            told(&plan)
        );
        assert!(plan.problems(&card).iter().any(|problem| matches!(problem, DivertError::Joins { .. })));

        let steering = Steering::to_the_queue(&plan, &card, PathBuf::new()).unwrap();
        assert!(!steering.may_fail, "with the offload on, nothing would be diverted rightly");
        assert_eq!(words(&steering.settings)[..cleared.len()], cleared);
        plan.steering = Steering::clearing_the_way(&plan, &card, PathBuf::new());
        assert!(plan.problems(&card).is_empty());
        assert!(!told(&plan).iter().any(|step| step.contains("stays as it is")));
        assert!(told(&plan)[0].contains("feature.rx-lro=off"), "{:#?}", told(&plan));

        plan.cpus.clear();
        let left = [cleared[0], cleared[4]];
        assert_eq!(words(&Steering::clearing(&plan, &card)), left, "no thread has a CPU");
    }

    #[test]
    fn a_flow_becomes_the_table_without_the_queue_and_a_rule_a_family() {
        let mut settings = told("udp and dst port 53", vec![2], 4).unwrap();
        settings.sort();
        assert_eq!(
            settings,
            [
                "rss.table=weights:1,1,0,1",
                "rule.any=udp4 dst-port 53 queue 2",
                "rule.any=udp6 dst-port 53 queue 2"
            ]
        );
        let settings = told("tcp and src host 192.0.2.1 and dst port 80", vec![0], 2).unwrap();
        assert_eq!(settings, ["rss.table=weights:0,1", "rule.any=tcp4 src 192.0.2.1 dst-port 80 queue 0"]);
        for setting in settings.iter().chain(&told("udp dst port 9", vec![1], 2).unwrap()) {
            assert!(setting.parse::<Setting>().is_ok(), "{setting}");
        }
    }

    #[test]
    fn what_a_card_cannot_do_is_said() {
        for (expression, queues, card_queues, words) in [
            ("udp dst port 53", vec![0, 1], 4, "several are diverted"),
            ("udp dst port 53", vec![0], 1, "one receive queue"),
            ("udp and src net 192.0.2.0/24", vec![0], 4, "says more than"),
            ("udp[8] = 1", vec![0], 4, "says more than"),
            ("dst portrange 1-9 and udp", vec![0], 4, "says more than"),
            ("all", vec![0], 4, "says more than"),
            ("udp dst prot 53", vec![0], 4, "prot"),
        ] {
            let refusal = told(expression, queues, card_queues).unwrap_err();
            assert!(refusal.contains(words), "{expression}: {refusal}");
        }
    }
}
