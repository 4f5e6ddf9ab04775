//! A plan's expressions as flow rules of the card: it brings the packets to the diverted queue, and no others.

use std::path::PathBuf;

use filter::{Prefix, TupleRule};
use nic::Setting;

use crate::{card::Card, plan::DivertPlan, steering::Steering};

impl Steering {
    /// Only what clears the way, for cards that cannot bring flows to a queue; `None` when nothing is in it.
    pub fn clearing_the_way(plan: &DivertPlan, card: &Card, state: PathBuf) -> Option<Self> {
        let settings = Self::clearing(&plan.cpus, card);
        (!settings.is_empty()).then_some(Self { settings, may_fail: !card.lro, state })
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
        let mut settings = Self::clearing(&plan.cpus, card);
        settings.push(Setting::new("rss.table", format!("weights:{}", weights.join(","))));
        let expressions = match &plan.selection {
            Some(selection) => vec![selection],
            None => plan.rules.iter().map(|rule| &rule.expression).collect(),
        };
        for expression in expressions {
            let more = || format!("'{expression}' says more than addresses and ports, or less");
            for tuple in expression.filter().tuple_rules().ok_or_else(more)? {
                let rule = flow_rule(tuple, queue).ok_or_else(more)?;
                settings.push(Setting::new("rule.any", rule));
            }
        }
        Ok(Self { settings, may_fail: !card.lro, state })
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
        FilterAt,
        error::DivertError,
        exclude::Exclusions,
        expression::Expression,
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
            place: FilterAt::Xdp,
            selection: Some(expression.parse().unwrap()),
            rules: vec![Rule::new(RuleVerdict::Drop, Expression::all())],
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
        assert_eq!(words(&Steering::clearing(&plan.cpus, &card)), cleared);

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
        assert_eq!(words(&Steering::clearing(&plan.cpus, &card)), left, "no thread has a CPU");
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
        ] {
            let refusal = told(expression, queues, card_queues).unwrap_err();
            assert!(refusal.contains(words), "{expression}: {refusal}");
        }
    }
}
