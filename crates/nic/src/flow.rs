//! Where a flow's packets go: rule, or fields → hash → bucket → queue, then interrupt → CPU → NUMA node; each step
//! with its source.

use std::{fs, net::IpAddr, path::Path};

use sys::ethtool::{FlowAction, FlowKind, FlowRule, Rss};
use thiserror::Error;
use wire::{FlowKey, HashFields, RssKey, Toeplitz};

use crate::{
    Card, NicError,
    interrupts::affinity,
    queues::{QueueInterrupt, queue_interrupts},
    settings::rule_text,
};

mod prediction;
mod scaling;

use prediction::flow_type;
pub use prediction::{Prediction, Step};
#[cfg(test)]
pub(crate) use scaling::scaling_of;
pub use scaling::{Scaling, Unpredictable};

/// Why a flow's queue could not be predicted.
#[derive(Debug, Error)]
pub enum FlowError {
    /// The card could not be queried.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// Queues cannot be predicted here.
    #[error("cannot predict queues on {interface}: {reason}")]
    Unpredictable {
        /// The interface's name.
        interface: String,
        /// Why.
        reason: Unpredictable,
    },
}

/// The card's way of choosing queues, read once, for any number of flows.
#[derive(Debug, Clone)]
pub struct Steering {
    interface: String,
    scaling: Result<Scaling, Unpredictable>,
    /// Further tables, which rules can select.
    contexts: Vec<Rss>,
    rules: Vec<FlowRule>,
    interrupts: Vec<QueueInterrupt>,
}

impl Steering {
    /// Reads table, key, function, fields and rules of a card.
    ///
    /// # Errors
    /// When the card cannot be queried at all; flows that cannot be predicted are reported flow by flow.
    pub fn read(card: &mut Card) -> Result<Self, NicError> {
        let scaling = scaling::read(card)?;
        let rules = card.ethtool.flow_rules(card.name()).unwrap_or_default();
        let interrupts = queue_interrupts(card)?;
        let index = card.index();
        let listed = card.netlink.as_mut().and_then(|netlink| netlink.rss_contexts(index).ok());
        let contexts = listed.unwrap_or_default().into_iter().filter(|rss| rss.context != 0).collect();
        Ok(Self { interface: card.name().to_owned(), scaling, contexts, rules, interrupts })
    }

    /// The hash and its table, or why nothing can be predicted.
    ///
    /// # Errors
    /// [`Unpredictable`].
    pub fn scaling(&self) -> Result<&Scaling, &Unpredictable> {
        self.scaling.as_ref()
    }

    /// Where a flow's packets go.
    ///
    /// # Errors
    /// [`FlowError::Unpredictable`] when the card does not report enough.
    pub fn predict(&self, flow: &FlowKey) -> Result<Prediction, FlowError> {
        let unpredictable = |reason: &Unpredictable| FlowError::Unpredictable {
            interface: self.interface.clone(),
            reason: reason.clone(),
        };
        let mut prediction = match self.rules.iter().find(|rule| rule_matches(rule, flow)) {
            Some(rule) => match (by_rule(rule, flow), rule.action()) {
                (Some(prediction), _) => prediction,
                (None, FlowAction::Context(context)) => {
                    self.in_context(context, rule, flow).map_err(|reason| unpredictable(&reason))?
                }
                (None, _) => return Err(unpredictable(&Unpredictable::Context { rule: rule_text(rule) })),
            },
            None => {
                let scaling = self.scaling.as_ref().map_err(unpredictable)?;
                scaling.predict(flow).map_err(|reason| unpredictable(&reason))?
            }
        };
        if let Some(queue) = prediction.queue {
            self.follow(queue, &mut prediction);
        }
        Ok(prediction)
    }

    /// A rule's context has its own table, and may have its own key.
    fn in_context(&self, context: u32, rule: &FlowRule, flow: &FlowKey) -> Result<Prediction, Unpredictable> {
        let scaling = self.scaling.as_ref().map_err(Clone::clone)?;
        let told = self.contexts.iter().find(|rss| rss.context == context && !rss.table.is_empty());
        let told = told.ok_or_else(|| Unpredictable::Context { rule: rule_text(rule) })?;
        let mut prediction = scaling.of_context(told).predict(flow)?;
        let source = format!("flow rule {}", rule.place());
        prediction.steps.insert(0, Step { what: "rule", value: rule_text(rule), source });
        Ok(prediction)
    }

    /// From a queue to its interrupt, CPU and node.
    fn follow(&self, queue: u32, prediction: &mut Prediction) {
        let Some(interrupt) = self.interrupts.iter().find(|one| one.receives && one.queue == queue) else {
            return;
        };
        prediction.interrupt = Some(interrupt.number);
        prediction.steps.push(Step {
            what: "interrupt",
            value: format!("{} ({})", interrupt.number, interrupt.name),
            source: interrupt.source.to_owned(),
        });
        let Some(affinity) = affinity(interrupt.number) else { return };
        let cpus = if affinity.effective.is_empty() { &affinity.asked } else { &affinity.effective };
        let Some(cpu) = cpus.first().copied() else { return };
        prediction.cpu = Some(cpu);
        prediction.steps.push(Step {
            what: "cpu",
            value: cpu.to_string(),
            source: format!("/proc/irq/{}/effective_affinity_list", interrupt.number),
        });
        if let Some(node) = numa_node_of(cpu) {
            prediction.numa_node = Some(node);
            let source = format!("/sys/devices/system/cpu/cpu{cpu}");
            prediction.steps.push(Step { what: "NUMA node", value: node.to_string(), source });
        }
    }
}

/// The bucket and queue of a flow for a given key, table and fields.
pub fn predict_with(flow: &FlowKey, key: &RssKey, fields: HashFields, table: &[u32]) -> Option<Prediction> {
    let hash = Toeplitz::new(key).hash(flow, fields);
    scaling::prediction(flow, hash, table)
}

/// A rule's queue, or none when it drops; `None` when it selects a context.
fn by_rule(rule: &FlowRule, flow: &FlowKey) -> Option<Prediction> {
    let queue = match rule.action() {
        FlowAction::Queue(queue) => Some(queue),
        FlowAction::Drop => None,
        FlowAction::Context(_) => return None,
    };
    let source = format!("flow rule {}", rule.place());
    let steps = vec![
        Step { what: "rule", value: rule_text(rule), source: source.clone() },
        Step {
            what: "queue",
            value: queue.map_or_else(|| "none: dropped by the card".into(), |queue| queue.to_string()),
            source,
        },
    ];
    let nothing = Prediction {
        flow: flow.to_string(),
        hash: None,
        hash_hex: None,
        bucket: None,
        queue,
        interrupt: None,
        cpu: None,
        numa_node: None,
        steps,
    };
    Some(nothing)
}

/// Whether a rule shows everything it matches, and the flow matches. The kernel lists rules by location; lower ones win.
fn rule_matches(rule: &FlowRule, flow: &FlowKey) -> bool {
    let Some(matches) = rule.matches() else { return false };
    let begins = |prefix: Option<(IpAddr, u8)>, address: IpAddr| match (prefix, address) {
        (None, _) => true,
        (Some((IpAddr::V4(wanted), len)), IpAddr::V4(got)) => {
            (wanted.to_bits() ^ got.to_bits()).leading_zeros() >= u32::from(len)
        }
        (Some((IpAddr::V6(wanted), len)), IpAddr::V6(got)) => {
            (wanted.to_bits() ^ got.to_bits()).leading_zeros() >= u32::from(len)
        }
        _ => false,
    };
    let is_in =
        |ports: Option<(u16, u16)>, port| ports.is_none_or(|(first, last)| (first..=last).contains(&port));
    let is_kind = match matches.kind {
        FlowKind::Ip4 | FlowKind::Ip6 => {
            matches.kind.is_v6() == flow.addresses.src().is_ipv6()
                && matches.protocol.is_none_or(|protocol| protocol == flow.protocol)
        }
        kind => flow_type(flow).is_some_and(|flow| flow.name() == kind.name()),
    };
    is_kind
        && begins(matches.src, flow.addresses.src())
        && begins(matches.dst, flow.addresses.dst())
        && is_in(matches.src_port, flow.src_port)
        && is_in(matches.dst_port, flow.dst_port)
}

/// The NUMA node of a CPU, from the link in its folder.
pub fn numa_node_of(cpu: u32) -> Option<u32> {
    let folder = fs::read_dir(Path::new("/sys/devices/system/cpu").join(format!("cpu{cpu}"))).ok()?;
    folder.flatten().find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse_rule;

    fn steering(rules: &[&str], contexts: Vec<Rss>) -> Steering {
        let key = RssKey::new(&[0x6d, 0x5a].repeat(20)).unwrap();
        Steering {
            interface: "eth0".into(),
            scaling: Ok(scaling_of(key, HashFields::AddressesAndPorts, vec![0, 1], true)),
            contexts,
            rules: (0..).zip(rules).map(|(place, rule)| parse_rule(rule, Some(place)).unwrap()).collect(),
            interrupts: Vec::new(),
        }
    }

    fn dns() -> FlowKey {
        FlowKey::udp("10.0.0.1:9".parse().unwrap(), "10.0.0.7:53".parse().unwrap()).unwrap()
    }

    #[test]
    fn a_rule_to_a_context_leads_into_that_contexts_table() {
        let context = Rss { context: 3, table: vec![6, 7], ..Rss::default() };
        let steering = steering(&["udp4 dst-port 53 context 3"], vec![context]);
        let found = steering.predict(&dns()).unwrap();
        let plain = steering.scaling().unwrap().queue(&dns()).unwrap();
        assert_eq!((found.queue, found.bucket), (Some(plain + 6), Some(plain as usize)));
        let said: Vec<&str> = found.steps.iter().map(|step| step.what).collect();
        assert_eq!(said, ["rule", "fields", "key", "hash", "bucket", "queue"]);
        // A context's own key may select another bucket.
        let own = RssKey::new(&[0x55; 40]).unwrap();
        let context = Rss { context: 3, table: vec![6, 7], key: vec![0x55; 40], ..Rss::default() };
        let found = self::steering(&["udp4 context 3"], vec![context]).predict(&dns()).unwrap();
        let expected = predict_with(&dns(), &own, HashFields::AddressesAndPorts, &[6, 7]).unwrap();
        assert_eq!((found.hash, found.queue), (expected.hash, expected.queue));
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_an_unknown_context_is_said() {
        let rules = ["udp4 dst 10.0.0.8 drop", "udp4 dst-port 53 queue 5", "udp4 context 9"];
        let steering = steering(&rules, Vec::new());
        assert_eq!(steering.predict(&dns()).unwrap().queue, Some(5));
        let dropped = FlowKey::udp("10.0.0.1:9".parse().unwrap(), "10.0.0.8:9".parse().unwrap()).unwrap();
        let found = steering.predict(&dropped).unwrap();
        assert_eq!((found.queue, found.steps[1].value.as_str()), (None, "none: dropped by the card"));
        let other = FlowKey::udp("10.0.0.1:9".parse().unwrap(), "10.0.0.7:54".parse().unwrap()).unwrap();
        let error = steering.predict(&other).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot predict queues on eth0: the rule 'udp4 context 9' selects an RSS context whose table is unknown"
        );
    }
}
