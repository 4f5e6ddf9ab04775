//! The plan of a diversion as plain data, with every step and what undoes it.

use std::{path::PathBuf, time::Duration};

use bpf::{Divert, DivertOptions, Fate, Instruction, RuleAction};
use measure::FilterAt;
use nic::Setting;
use serde::Serialize;

use crate::{
    buckets::Bucket,
    card::Card,
    deadline::{BEAT, DEADLINE},
    error::{DivertError, RuleError},
    exclude::Exclusions,
    expression::Expression,
    rules::{Rule, RuleVerdict, Ruleset},
    select::Selection,
    sets::{Members, Sets},
    steering::{LRO, Left, SWITCH, Steering, VLAN},
};

/// All settings of a diversion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DivertPlan {
    /// The interface's name in the calling thread's network namespace.
    pub interface: String,
    /// The queues that are diverted.
    pub queues: Vec<u32>,
    /// Where packets are decided.
    pub place: FilterAt,
    /// Which packets leave the kernel at all; `None`: those that a rule takes.
    pub selection: Option<Expression>,
    /// The rules; the first match decides, and packets without one go to the kernel.
    pub rules: Vec<Rule>,
    /// The sets of networks that the expressions name.
    pub sets: Sets,
    /// What is never diverted.
    pub exclusions: Exclusions,
    /// Whether packets that pass a filter in user space go back to the kernel.
    pub reinject: bool,
    /// CPUs of the queues' threads, in the queues' order; the scheduler places the others. A thread that has
    /// one and does not spin outranks the ordinary threads there, if permitted (`SCHED_FIFO`).
    pub cpus: Vec<u32>,
    /// Whether the queues' threads spin instead of sleeping until a packet arrives.
    pub spin: bool,
    /// Sampling interval of dropped packets; 0: none.
    pub sample_one_in: u32,
    /// The pcapng file for those, each with its rule in a comment.
    pub sample_file: Option<PathBuf>,
    /// The pcap file for packets that are kept.
    pub keep_file: Option<PathBuf>,
    /// The card's settings during the diversion; `None`: none.
    pub steering: Option<Steering>,
    /// Whether packets that would be dropped are counted and pass (`--shadow`).
    pub shadow: bool,
}

/// One change of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What is done.
    pub does: String,
    /// What undoes it, and when.
    pub undone_by: String,
}

/// The rules of the kernel's program, compiled.
pub(crate) struct KernelPart {
    rules: Vec<Rule>,
    selection: Selection,
    code: Vec<Instruction>,
    members: Members,
}

impl DivertPlan {
    /// Packets that an expression takes, on all queues, decided in user space; those that pass are re-injected: the
    /// start for a filter of your own.
    ///
    /// # Errors
    /// [`DivertError::Interface`], [`DivertError::Rule`].
    pub fn of(interface: &str, selection: &str) -> Result<Self, DivertError> {
        let selection = selection.parse()?;
        let queues = Card::read(interface)?.queues;
        Ok(Self {
            selection: Some(selection),
            rules: vec![Rule::new(RuleVerdict::Drop, Expression::all())],
            exclusions: Exclusions::of_this_session(),
            ..Self::bare(interface, 0..queues, FilterAt::User)
        })
    }

    /// No rules, nothing excluded; packets that pass go back to the kernel.
    pub fn bare(interface: &str, queues: impl IntoIterator<Item = u32>, place: FilterAt) -> Self {
        Self {
            interface: interface.into(),
            queues: queues.into_iter().collect(),
            place,
            selection: None,
            rules: Vec::new(),
            sets: Sets::default(),
            exclusions: Exclusions::default(),
            reinject: true,
            cpus: Vec::new(),
            spin: false,
            sample_one_in: 0,
            sample_file: None,
            keep_file: None,
            steering: None,
            shadow: false,
        }
    }

    /// The match, the rules and the sets.
    pub fn ruleset(&self) -> Ruleset {
        Ruleset { selection: self.selection.clone(), rules: self.rules.clone(), sets: self.sets.clone() }
    }

    /// Everything that is wrong with the plan on this card; nothing has been changed yet.
    pub fn problems(&self, card: &Card) -> Vec<DivertError> {
        self.kernel_part(card).err().unwrap_or_default()
    }

    /// What the kernel's program is made from.
    ///
    /// # Errors
    /// Everything that is wrong with the plan on this card.
    pub(crate) fn kernel_part(&self, card: &Card) -> Result<KernelPart, Vec<DivertError>> {
        let mut problems = self.problems_before_rules(card);
        let rules = self.kernel_rules();
        let selection = Selection::of(&rules);
        let members = self.sets.members(selection.filters.members());
        if self.place == FilterAt::User && members.is_ok() {
            // For the decisions of this process.
            let asked = Selection::of(&self.rules);
            problems.extend(self.sets.members(asked.filters.members()).err().map(DivertError::from));
        }
        match (selection.code(), members) {
            (Ok(code), Ok(members)) if problems.is_empty() => {
                Ok(KernelPart { rules, selection, code, members })
            }
            (code, members) => {
                problems.extend(code.err().into_iter().chain(members.err()).map(DivertError::from));
                Err(problems)
            }
        }
    }

    fn problems_before_rules(&self, card: &Card) -> Vec<DivertError> {
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
        if self.shadow {
            if self.rules.iter().any(|rule| rule.limit.is_some()) {
                problems.push(DivertError::ShadowLimits);
            }
            if self.place == FilterAt::User && !self.reinject {
                problems.push(DivertError::ShadowKeeps);
            }
            if self.place == FilterAt::User && self.sample_one_in > 0 {
                problems.push(DivertError::ShadowSamples);
            }
        }
        if self.place == FilterAt::Xdp {
            let keeping = self.rules.iter().filter(|rule| rule.verdict == RuleVerdict::Keep);
            problems.extend(keeping.map(|rule| RuleError::NothingToKeep { rule: rule.to_string() }.into()));
        }
        problems
    }

    /// What will be done, in this order; it is undone in the reverse one.
    pub fn steps(&self, card: &Card) -> Vec<Step> {
        let step = |does: String, undone_by: &str| Step { does, undone_by: undone_by.into() };
        let Self { interface, queues, .. } = self;
        let list = list(queues);
        let mut steps = Vec::new();
        for setting in self.steering.iter().flat_map(Steering::asks) {
            let ends = self.steering.as_ref().and_then(|steering| steering.switch_ends.as_ref());
            let ends = ends.filter(|_| setting.name == SWITCH);
            let ends = ends.map_or(String::new(), |ends| format!(", which ends {ends} meanwhile"));
            steps.push(step(
                format!(
                    "set {}={} on {interface}{ends}, recorded in the journal first",
                    setting.name, setting.value
                ),
                "the end of the diversion; after a kill, linerate nic restore",
            ));
        }
        for Bucket { number, of, queue, packets } in
            self.steering.iter().flat_map(|steering| &steering.buckets)
        {
            steps.push(step(
                format!(
                    "bucket {number} of {of} in that table steers {packets} to queue {queue}, with every other flow in the \
                     same bucket: 1 of {of} on average"
                ),
                "the table's end",
            ));
        }
        for Left { packets, why } in self.steering.iter().flat_map(|steering| &steering.left) {
            steps.push(step(
                format!("the program selects {packets} on every queue, not the card: {why}"),
                "nothing to undo",
            ));
        }
        let told =
            |setting: &&Setting| self.steering.as_ref().is_some_and(|steering| steering.tells(&setting.name));
        let untouched = Steering::clearing(&self.cpus, card).into_iter().filter(|setting| !told(&setting));
        for setting in untouched.filter(|setting| setting.name != LRO) {
            let because = match &setting.name[..] {
                VLAN => {
                    "the card removes VLAN tags before a program sees them, so a rule takes packets of every VLAN, \
                     and those that this process re-injects have none"
                }
                _ => "the kernel may hand packets of other queues to the CPU of a queue's thread",
            };
            let Setting { name, value } = &setting;
            steps.push(step(
                format!("{name} stays as it is: {because}; --steer sets it to {value} meanwhile"),
                "nothing to undo",
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
                    Some(expression) if !expression.is_all() => format!("match '{expression}'"),
                    Some(_) => "come".into(),
                    None => "a rule takes".into(),
                },
                match card.driver.as_str() {
                    "veth" | "virtio_net" | "tun" => "",
                    _ => "; many cards restart their link when the first XDP program is attached or the last one detached",
                },
                match &self.steering {
                    Some(Steering { rules, drops: true, .. }) if !rules.is_empty() => {
                        "; the card drops first, and its drops are in no counter here"
                    }
                    Some(Steering { rules, left, table, .. }) if !rules.is_empty() => {
                        match (left.is_empty(), table) {
                            (true, Some(_)) => "; the card steers them there, and little else",
                            (true, None) => "; the card steers them there, beside its table's packets",
                            (false, _) => "; the card steers some of them to its queue, the others arrive on any",
                        }
                    }
                    Some(Steering { buckets, left, .. }) if !buckets.is_empty() => match left.is_empty() {
                        true => "; the card's table steers them there, with a few others",
                        false => "; the card's table steers some of them to its queue, the others arrive on any",
                    },
                    _ if card.flow_rules => "; the card's own flow rules stay unchanged",
                    _ => "; the driver takes no flow rules, so the program selects them",
                },
                excluded.join(", ")
            ),
            "the kernel, when the link's descriptor closes: when the process ends for any reason",
        ));
        for (at, queue) in queues.iter().enumerate() {
            match self.place {
                FilterAt::Xdp => {}
                FilterAt::User => {
                    let cpu = match self.cpus.get(at) {
                        Some(cpu) if self.threads_go_first() => {
                            format!("CPU {cpu}, where it outranks ordinary threads")
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
        if self.place == FilterAt::User {
            let passing = match &self.keep_file {
                _ if self.reinject => {
                    format!("go back to {interface} by BPF_PROG_RUN, as if they had just arrived")
                }
                Some(file) => format!("are written to {}: {NOT_BACK}", file.display()),
                None => format!("are counted and discarded: {NOT_BACK}"),
            };
            steps.push(step(format!("packets that pass {passing}"), "nothing to undo"));
        }
        steps.push(step(
            format!(
                "queue {list} is diverted for {} ms at a time, renewed {} times a second",
                DEADLINE.as_millis(),
                1000 / BEAT.as_millis()
            ),
            "the deadline: the queues of a process that hangs return to the kernel",
        ));
        if let Some(file) = self.sample_file.as_ref().filter(|_| self.sample_one_in > 0) {
            let each = match self.sample_one_in {
                1 => "every dropped packet is".to_owned(),
                n => format!("one of {n} dropped packets is"),
            };
            steps.push(step(
                format!("{each} written to {}, its rule in a comment", file.display()),
                "nothing to undo",
            ));
        }
        if self.shadow {
            steps.push(step("packets that a rule would drop pass and are counted".into(), "nothing to undo"));
        }
        for (number, rule) in (1..).zip(&self.rules) {
            let of_those = if self.selects_some() { ", of those" } else { "" };
            steps.push(step(format!("rule {number}{of_those}: {rule}"), "the program's end"));
        }
        steps
    }

    /// Whether `--match` excludes packets that a rule may name.
    fn selects_some(&self) -> bool {
        self.selection.as_ref().is_some_and(|selection| !selection.is_all())
    }

    /// Whether the queues' threads that have a CPU outrank ordinary threads there. One that never sleeps does not:
    /// no other thread could run.
    pub(crate) fn threads_go_first(&self) -> bool {
        !self.spin
    }

    /// The kernel's program's time per packet of a diverted queue on this machine, with the packet in the CPU's cache.
    /// `None` where the program cannot be loaded.
    pub fn program_cost(&self, card: &Card) -> Option<Duration> {
        self.loaded_program(card).ok()?.cost().ok()
    }

    /// The same for a packet of a queue that is not diverted: the program cannot be attached to single queues.
    pub fn other_queues_cost(&self, card: &Card) -> Option<Duration> {
        self.loaded_program(card).ok()?.idle_cost().ok()
    }

    /// The kernel's program of this plan, loaded and attached to nothing.
    ///
    /// # Errors
    /// Everything that is wrong with the plan on this card, or the kernel's refusal of the program.
    pub fn loaded_program(&self, card: &Card) -> Result<Divert, Vec<DivertError>> {
        let part = self.kernel_part(card)?;
        self.program(card, part).map(|(program, _)| program).map_err(|error| vec![error])
    }

    /// Whether the kernel's program distinguishes the rules that are decided in user space.
    pub(crate) fn program_knows_rules(&self) -> bool {
        self.selection.is_none() || self.rules.iter().any(|rule| rule.limit.is_some())
    }

    /// The actions of the kernel's program, by rule.
    pub(crate) fn kernel_rules(&self) -> Vec<Rule> {
        match (&self.selection, self.place) {
            // A decision in user space needs only the selection, unless a limit depends on the rule.
            (Some(selection), FilterAt::User) if !self.program_knows_rules() => {
                vec![Rule::new(RuleVerdict::Pass, selection.clone())]
            }
            (Some(selection), _) => self
                .rules
                .iter()
                .map(|rule| Rule { expression: selection.and(&rule.expression), ..rule.clone() })
                .collect(),
            (None, _) => self.rules.clone(),
        }
    }

    /// The kernel's program of this plan, and the rules that it counts by.
    pub(crate) fn program(&self, card: &Card, part: KernelPart) -> Result<(Divert, Vec<Rule>), DivertError> {
        let KernelPart { rules, selection, code, members } = part;
        let fate = |rule: &Rule| match (self.place, rule.verdict) {
            (FilterAt::User, _) => Fate::HandOver,
            (FilterAt::Xdp, RuleVerdict::Drop) if !self.shadow => Fate::Drop,
            (FilterAt::Xdp, RuleVerdict::Drop) => Fate::WouldDrop,
            (FilterAt::Xdp, RuleVerdict::Pass | RuleVerdict::Keep) => Fate::GiveBack,
        };
        let (members, lines4, lines6) = members.for_program();
        let options = DivertOptions {
            queues: card.queues,
            rules: rules
                .iter()
                .map(|rule| RuleAction { fate: fate(rule), limit: rule.limit.map(|limit| limit.bucket()) })
                .collect(),
            code,
            table: selection.table,
            members,
            lines4,
            lines6,
            sample_every: self.sample_one_in,
            networks: self.exclusions.networks.iter().map(|net| (net.address, net.prefix_len)).collect(),
            sessions: self.exclusions.sessions.iter().map(|session| session.for_program()).collect(),
            buckets: MOST_BUCKETS,
            may_be_links: selection.may_be_links,
        };
        Ok((Divert::load(&options)?, rules))
    }
}

/// The plan's text where packets are not re-injected.
const NOT_BACK: &str = "the kernel does not get them (--reinject returns them)";

/// Token buckets that are remembered: 8 MiB.
const MOST_BUCKETS: u32 = 65_536;

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

    fn plan(place: FilterAt, selection: Option<&str>, rules: &[&str]) -> DivertPlan {
        DivertPlan {
            selection: selection.map(|text| text.parse().unwrap()),
            rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            cpus: vec![2],
            ..DivertPlan::bare("eth7", [0, 3], place)
        }
    }

    fn card() -> Card {
        Card {
            driver: "veth".into(),
            queues: 4,
            lro: false,
            strips_tags: false,
            flow_rules: false,
            rules_are_off: false,
            rules: Vec::new(),
            has_table: false,
            hashing: None,
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
            told(FilterAt::Xdp, Some("udp"), &["drop port 53", "pass all"]),
            ["drop [udp] and [port 53]", "pass udp"]
        );
        assert_eq!(told(FilterAt::User, Some("udp"), &["drop port 53", "pass all"]), ["pass udp"]);
        assert_eq!(
            told(FilterAt::User, Some("all"), &["drop limit 1000pps port 53", "pass all"]),
            ["drop limit 1000pps port 53", "pass all"]
        );
        assert_eq!(told(FilterAt::User, None, &["drop udp"]), ["drop udp"]);
    }

    #[test]
    fn every_problem_is_told_before_anything_changes() {
        let plan = plan(FilterAt::Xdp, None, &["keep all"]);
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
        let steps = plan(FilterAt::User, None, &["drop all"]).steps(&card());
        assert_eq!(steps.len(), 6, "program, two sockets, re-injection, deadline, rule: {steps:#?}");
        assert!(steps.iter().all(|step| !step.undone_by.is_empty()));
        assert!(steps[0].does.contains("on queue 0 and 3"), "{}", steps[0].does);
        assert!(steps[1].does.ends_with("on CPU 2, where it outranks ordinary threads"), "{}", steps[1].does);
        assert!(steps[2].does.ends_with("on a thread on any CPU"), "{}", steps[2].does);
    }

    #[test]
    fn a_plan_says_which_packets_are_meant_and_where_they_go() {
        let told = |plan: DivertPlan| -> Vec<String> {
            plan.steps(&card()).into_iter().map(|step| step.does).collect()
        };
        let plan = plan(FilterAt::User, Some("udp"), &["drop all"]);
        let steps = told(DivertPlan { spin: true, ..plan.clone() });
        assert!(steps[0].contains("all but those that match 'udp' on queue 0 and 3"), "{}", steps[0]);
        assert!(steps[0].contains("takes no flow rules, so the program selects them"), "{}", steps[0]);
        assert!(steps[1].ends_with("on a thread on CPU 2, which never sleeps"), "{}", steps[1]);
        assert!(steps[3].contains("go back to eth7"), "{}", steps[3]);
        assert_eq!(steps.last().unwrap(), "rule 1, of those: drop all");
        let steps = told(DivertPlan { reinject: false, keep_file: Some("kept.pcap".into()), ..plan.clone() });
        assert!(steps[3].starts_with("packets that pass are written to kept.pcap: the kernel does not"));
        let steps = told(DivertPlan { reinject: false, ..plan });
        assert!(steps[3].starts_with("packets that pass are counted and discarded: "), "{}", steps[3]);
    }

    #[test]
    fn a_plan_says_that_the_card_takes_tags_off() {
        let steps = plan(FilterAt::Xdp, None, &["drop udp"]).steps(&Card { strips_tags: true, ..card() });
        assert!(
            steps[0].does.starts_with("feature.rx-vlan-hw-parse stays as it is: the card removes VLAN tags")
        );
        assert!(steps[0].does.ends_with("--steer sets it to off meanwhile"), "{}", steps[0].does);
    }
}
