//! A plan's expressions as flow rules of the card, as far as it accepts them; the program handles the others.

use std::{net::IpAddr, ops::RangeInclusive, path::PathBuf};

use filter::{Prefix, TupleRule};
use nic::{Setting, parse_rule};
use sys::ethtool::{FlowAction, FlowKind, FlowMatch, FlowRule};

use crate::{
    buckets::{Bucket, Hashing},
    card::Card,
    error::DivertError,
    exclude::Exclusions,
    expression::Expression,
    plan::DivertPlan,
    rules::RuleVerdict,
    steering::{
        Left, SWITCH, Steer, Steering,
        limits::{Limits, OneMask},
    },
};

/// Blocks of ports, one per mask, that a range may need; a card has too few rules for more.
const MOST_BLOCKS: usize = 8;
const TOO_MUCH: &str = "it says more than addresses, protocols and ports, or less";

/// One rule that a card may be sent, without its action.
struct Candidate {
    matches: FlowMatch,
    /// The expression that it is of.
    of: String,
}

impl DivertPlan {
    /// Uses the card for as much of the plan as it accepts. If that is not all, every queue is diverted: the program selects the rest
    /// wherever it arrives.
    #[must_use]
    pub fn steered(mut self, card: &Card, steer: Steer, state: PathBuf) -> Self {
        let steering = Steering::plan(&self, card, steer, state);
        if !steering.left.is_empty() {
            self.divert_all(card);
        }
        self.steering = Some(steering);
        self
    }

    /// Whether the current rules of this plan would request the same of the card as the earlier ones.
    pub(crate) fn keeps_steering(&self, card: &Card) -> Result<(), DivertError> {
        let Some(steering) = self.steering.as_ref().filter(|steering| steering.brings()) else {
            return Ok(());
        };
        let how = if steering.drops { Steer::Drop } else { Steer::ToQueues };
        let queues = if steering.queues.is_empty() { self.queues.clone() } else { steering.queues.clone() };
        let plan = Self { queues, ..self.clone() };
        let now = Steering::plan(&plan, card, how, steering.state.clone());
        let is_same =
            now.rules == steering.rules && now.buckets == steering.buckets && now.left == steering.left;
        match is_same {
            true => Ok(()),
            false => Err(DivertError::Steered { interface: self.interface.clone() }),
        }
    }

    /// Diverts every queue of the card; those that were named stay first, with their CPUs.
    pub(crate) fn divert_all(&mut self, card: &Card) {
        let others: Vec<u32> = (0..card.queues).filter(|queue| !self.queues.contains(queue)).collect();
        self.queues.extend(others);
    }
}

impl Steering {
    /// What a card can do for a plan, and what stays with the program.
    pub fn plan(plan: &DivertPlan, card: &Card, steer: Steer, state: PathBuf) -> Self {
        let limits = Limits::of(&card.driver);
        let mut steering = Self {
            settings: Self::clearing(&plan.cpus, card),
            may_fail: !card.lro,
            state,
            ..Self::default()
        };
        let (expressions, mut left) = match steer {
            Steer::ToQueues => (flows(plan), Vec::new()),
            Steer::Drop => pure_drops(plan),
        };
        let refusal = if steer == Steer::ToQueues && plan.queues.len() >= card.queues as usize {
            Some(match card.queues {
                1 => format!("{} has one receive queue, which is everybody's", plan.interface),
                _ => "every queue is diverted, and none is left for the others: name some by --queue".into(),
            })
        } else if let Some(why) = limits.none {
            Some(format!("{} {why}", card.driver))
        } else if !card.flow_rules {
            Some(format!("{} takes no flow rules", plan.interface))
        } else {
            None
        };
        // Refused for what the card is, not for how many queues it has.
        let takes_no_rules = limits.none.is_some() || !card.flow_rules;
        let by_table = steer == Steer::ToQueues && takes_no_rules && plan.queues.len() < card.queues as usize;
        let hashing = card.hashing.as_ref().filter(|_| by_table);
        let mut candidates = Vec::new();
        for expression in &expressions {
            let mut refusal = refusal.clone();
            if let Some(hashing) = hashing {
                match steering.bring_buckets(plan, hashing, expression) {
                    Ok(()) => continue,
                    Err(why) => refusal = refusal.map(|refusal| format!("{refusal}, and {why}")),
                }
            }
            let stays = |why: String| Left { packets: expression.text().to_owned(), why };
            match (&refusal, expression.filter().tuple_rules()) {
                (Some(why), _) => left.push(stays(why.clone())),
                (None, None) => left.push(stays(TOO_MUCH.into())),
                (None, Some(tuples)) => {
                    for tuple in tuples {
                        match of_tuple(tuple, &limits, &card.driver) {
                            Ok(found) => candidates.extend(
                                found
                                    .into_iter()
                                    .map(|matches| Candidate { matches, of: expression.text().into() }),
                            ),
                            Err((packets, why)) => left
                                .push(Left { packets: format!("{packets} of '{}'", expression.text()), why }),
                        }
                    }
                }
            }
        }
        if steer == Steer::Drop {
            candidates.retain(|candidate| match spared(&candidate.matches, &plan.exclusions) {
                Some(why) => {
                    left.push(Left { packets: candidate.of.clone(), why });
                    false
                }
                None => true,
            });
        }
        with_one_mask(&mut candidates, &mut left, card, limits.one_mask);
        steering.left = left;
        if let (Some(hashing), false) = (hashing, steering.buckets.is_empty()) {
            steering.queues.clone_from(&plan.queues);
            steering.table = Some(hashing.table_with(&steering.buckets, &plan.queues, card.queues));
        }
        if !candidates.is_empty() {
            steering.bring(plan, card, steer, &limits, &candidates);
        }
        steering
    }

    /// Has buckets of the card's table bring an expression's packets; or says why they cannot.
    fn bring_buckets(
        &mut self,
        plan: &DivertPlan,
        hashing: &Hashing,
        expression: &Expression,
    ) -> Result<(), &'static str> {
        let tuples = expression.filter().tuple_rules().ok_or("its hash needs one flow")?;
        let numbers: Vec<usize> =
            tuples.iter().map(|tuple| hashing.bucket(tuple)).collect::<Result<_, _>>()?;
        for number in numbers {
            if self.buckets.iter().any(|bucket| bucket.number == number) {
                continue;
            }
            let queue = plan.queues[self.buckets.len() % plan.queues.len()];
            let packets = expression.text().to_owned();
            self.buckets.push(Bucket { number, of: hashing.table.len(), queue, packets });
        }
        Ok(())
    }

    fn bring(
        &mut self,
        plan: &DivertPlan,
        card: &Card,
        steer: Steer,
        limits: &Limits,
        candidates: &[Candidate],
    ) {
        if card.rules_are_off {
            self.switch = Some(Setting::new(SWITCH, "on"));
            self.switch_ends = limits.switch_ends.map(str::to_owned);
        }
        self.drops = steer == Steer::Drop;
        if !self.drops {
            self.queues.clone_from(&plan.queues);
            let weights = |of_ours: &str, of_others: &str| {
                let weight =
                    |queue| if plan.queues.contains(&queue) { of_ours } else { of_others }.to_owned();
                format!("weights:{}", (0..card.queues).map(weight).collect::<Vec<_>>().join(","))
            };
            self.table = card.has_table.then(|| Setting::new("rss.table", weights("0", "1")));
            self.context = (plan.queues.len() > 1 && limits.contexts && card.has_table)
                .then(|| Setting::new("context.new", weights("1", "0")));
        }
        let mut queues = plan.queues.iter().cycle();
        self.rules = candidates
            .iter()
            .map(|Candidate { matches, of }| {
                let action = match (&self.context, self.drops) {
                    (_, true) => FlowAction::Drop,
                    // The number is the card's choice.
                    (Some(_), _) => FlowAction::Context(0),
                    (None, _) => FlowAction::Queue(*queues.next().expect("a plan has a queue")),
                };
                (nic::rule_text(&FlowRule::new(matches, action, None)), of.clone())
            })
            .collect();
    }
}

/// The flows that are to come to the diverted queues.
fn flows(plan: &DivertPlan) -> Vec<Expression> {
    match &plan.selection {
        Some(selection) => vec![selection.clone()],
        None => plan.rules.iter().map(|rule| rule.expression.clone()).collect(),
    }
}

/// What a card may drop itself: the rules that only drop, up to the first that does something else, which may be about the same
/// packets. The others stay with the program.
fn pure_drops(plan: &DivertPlan) -> (Vec<Expression>, Vec<Left>) {
    let (mut drops, mut left) = (Vec::new(), Vec::new());
    let mut only_drops = true;
    for rule in &plan.rules {
        let is_pure = rule.verdict == RuleVerdict::Drop && rule.limit.is_none();
        only_drops &= is_pure;
        match (&plan.selection, only_drops) {
            (Some(selection), true) => drops.push(selection.and(&rule.expression)),
            (None, true) => drops.push(rule.expression.clone()),
            (_, false) => left.push(Left {
                packets: rule.to_string(),
                why: if is_pure {
                    "a rule before it does not drop".into()
                } else {
                    "a card drops, and does nothing else".into()
                },
            }),
        }
    }
    (drops, left)
}

/// Why a card must not drop these packets: some of them must never be diverted.
fn spared(matches: &FlowMatch, exclusions: &Exclusions) -> Option<String> {
    let meets = |prefix: Option<(IpAddr, u8)>, address: IpAddr, len: u8| match (prefix, address) {
        (None, _) => true,
        (Some((IpAddr::V4(mine), mine_len)), IpAddr::V4(other)) => {
            (mine.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(mine_len.min(len))
        }
        (Some((IpAddr::V6(mine), mine_len)), IpAddr::V6(other)) => {
            (mine.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(mine_len.min(len))
        }
        _ => false,
    };
    let is_family = |address: IpAddr| address.is_ipv6() == matches.kind.is_v6();
    // Neighbour discovery is ICMPv6.
    if matches.kind == FlowKind::Ip6 && matches.protocol.is_none_or(|protocol| protocol == 58) {
        return Some("neighbour discovery is among them, which is never diverted".into());
    }
    let network = exclusions.networks.iter().find(|network| {
        is_family(network.address)
            && (meets(matches.src, network.address, network.prefix_len)
                || meets(matches.dst, network.address, network.prefix_len))
    });
    if let Some(network) = network {
        return Some(format!("packets of {network} may be among them, which are never diverted"));
    }
    let may_be_tcp = match matches.kind {
        FlowKind::Tcp4 | FlowKind::Tcp6 => true,
        FlowKind::Ip4 | FlowKind::Ip6 => matches.protocol.is_none_or(|protocol| protocol == 6),
        _ => false,
    };
    let has =
        |ports: Option<(u16, u16)>, port| ports.is_none_or(|(first, last)| (first..=last).contains(&port));
    let session = exclusions.sessions.iter().find(|session| {
        let peer = session.peer.ip();
        may_be_tcp
            && is_family(peer)
            && meets(matches.src, peer, if peer.is_ipv6() { 128 } else { 32 })
            && has(matches.src_port, session.peer.port())
            && has(matches.dst_port, session.local_port)
    });
    session.map(|session| format!("the session {session} is among them, which is never diverted"))
}

/// A conjunction as rules of a card; or the packets it matches, and why not.
fn of_tuple(tuple: &TupleRule, limits: &Limits, driver: &str) -> Result<Vec<FlowMatch>, (String, String)> {
    let family = if tuple.v6 { "IPv6" } else { "IPv4" };
    let has_ports = tuple.src_ports.is_some() || tuple.dst_ports.is_some();
    let (kind, protocol) = match (tuple.protocol, tuple.v6) {
        (Some(6), false) => (FlowKind::Tcp4, None),
        (Some(6), true) => (FlowKind::Tcp6, None),
        (Some(17), false) => (FlowKind::Udp4, None),
        (Some(17), true) => (FlowKind::Udp6, None),
        (Some(132), false) => (FlowKind::Sctp4, None),
        (Some(132), true) => (FlowKind::Sctp6, None),
        (protocol, false) => (FlowKind::Ip4, protocol),
        (protocol, true) => (FlowKind::Ip6, protocol),
    };
    let packets = match protocol {
        Some(protocol) => format!("{family} packets of protocol {protocol}"),
        None if kind.has_ports() => format!("{} packets", kind.name()),
        None => format!("{family} packets"),
    };
    let refuse = |why: &str| Err((packets.clone(), format!("{driver} takes no rules {why}")));
    if tuple.v6 && !limits.v6 {
        return refuse("for IPv6");
    }
    if protocol.is_some() && !limits.protocols {
        return refuse("of protocols other than TCP, UDP and SCTP");
    }
    if has_ports && !kind.has_ports() {
        return Err((packets, TOO_MUCH.into()));
    }
    let width = if tuple.v6 { 128 } else { 32 };
    let prefix = |prefix: Prefix| (prefix.len > 0).then(|| (prefix.address(tuple.v6), prefix.len));
    let (src, dst) = (prefix(tuple.src), prefix(tuple.dst));
    if !limits.masks && [src, dst].into_iter().flatten().any(|(_, len)| len < width) {
        return refuse("of parts of addresses");
    }
    let blocks = |ports: &Option<RangeInclusive<u16>>| match ports {
        None => vec![None],
        Some(ports) if *ports == (0..=u16::MAX) => vec![None],
        Some(ports) => blocks(*ports.start(), *ports.end()).into_iter().map(Some).collect(),
    };
    let (src_ports, dst_ports) = (blocks(&tuple.src_ports), blocks(&tuple.dst_ports));
    let is_range = |block: &Option<(u16, u16)>| block.is_some_and(|(first, last)| first != last);
    if !limits.masks && src_ports.iter().chain(&dst_ports).any(is_range) {
        return refuse("of ranges of ports");
    }
    if src_ports.len() * dst_ports.len() > MOST_BLOCKS {
        return Err((packets, format!("its ports need more than {MOST_BLOCKS} rules with a mask each")));
    }
    let mut rules = Vec::new();
    for src_port in src_ports {
        for dst_port in &dst_ports {
            rules.push(FlowMatch { kind, src, dst, src_port, dst_port: *dst_port, protocol });
        }
    }
    Ok(rules)
}

/// A range as blocks that a mask can say, from the lowest on.
fn blocks(first: u16, last: u16) -> Vec<(u16, u16)> {
    let mut blocks = Vec::new();
    let (mut at, last) = (u32::from(first), u32::from(last));
    while at <= last {
        let aligned = if at == 0 { 1 << 16 } else { 1 << at.trailing_zeros() };
        let fits = 1 << (last - at + 1).ilog2();
        let size: u32 = fits.min(aligned);
        blocks.push((at as u16, (at + size - 1) as u16));
        at += size;
    }
    blocks
}

/// The mask of a card's rules.
struct Chosen {
    /// Of this kind of packet; `None`: of all.
    of: Option<FlowKind>,
    mask: (Vec<u8>, bool),
    /// Why it is this one.
    because: String,
}

/// Keeps the rules of one mask where the card has only one: that of its existing rules, otherwise the most frequent one.
fn with_one_mask(candidates: &mut Vec<Candidate>, left: &mut Vec<Left>, card: &Card, one_mask: OneMask) {
    let group = |matches: &FlowMatch| match one_mask {
        OneMask::No => None,
        // Whether the protocol matters is in the mask, too.
        OneMask::OfCard => Some(None),
        OneMask::OfKind => Some(Some(matches.kind)),
    };
    let mask = |matches: &FlowMatch| {
        let rule = FlowRule::new(matches, FlowAction::Drop, None);
        (rule.mask().to_vec(), matches.kind.has_ports())
    };
    let there: Vec<(String, FlowMatch)> = card
        .rules
        .iter()
        .filter_map(|text| Some((text.clone(), parse_rule(text, None)?.matches()?)))
        .collect();
    let mut chosen: Vec<Chosen> = Vec::new();
    let mut groups: Vec<Option<FlowKind>> =
        candidates.iter().filter_map(|candidate| group(&candidate.matches)).collect();
    groups.dedup();
    for of in groups {
        let mine = candidates.iter().filter(|candidate| group(&candidate.matches) == Some(of));
        let mine: Vec<&FlowMatch> = mine.map(|candidate| &candidate.matches).collect();
        let first = there.iter().find(|(_, matches)| group(matches) == Some(of));
        let (mask_of, because) = match first {
            Some((text, matches)) => (mask(matches), format!("the card's rule '{text}' has another")),
            None => {
                let count =
                    |wanted: &FlowMatch| mine.iter().filter(|other| mask(other) == mask(wanted)).count();
                // The first of those that are equally frequent.
                let most =
                    mine.iter().rev().max_by_key(|matches| count(matches)).expect("a group has a rule");
                let text = nic::rule_text(&FlowRule::new(most, FlowAction::Drop, None));
                let text = text.trim_end_matches(" drop").to_owned();
                (mask(most), format!("'{text}' has another"))
            }
        };
        chosen.push(Chosen { of, mask: mask_of, because });
    }
    candidates.retain(|candidate| {
        let Some(of) = group(&candidate.matches) else { return true };
        let Some(Chosen { mask: wanted, because, .. }) = chosen.iter().find(|known| known.of == of) else {
            return true;
        };
        let fits = mask(&candidate.matches) == *wanted;
        if !fits {
            let text = nic::rule_text(&FlowRule::new(&candidate.matches, FlowAction::Drop, None));
            let of_which = if of.is_some() { "the rules of a kind of packet" } else { "all rules of a port" };
            left.push(Left {
                packets: format!("'{}' of '{}'", text.trim_end_matches(" drop"), candidate.of),
                why: format!("{} has one mask for {of_which}, and {because}", card.driver),
            });
        }
        fits
    });
}

#[cfg(test)]
mod tests;
