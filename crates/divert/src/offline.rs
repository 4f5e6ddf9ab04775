//! Finds a packet's rule without any interface.

use wire::{ETHERTYPE_IPV6, EthView};

use crate::{
    classify::Classifier, error::RuleError, expression::Expression, rules::Ruleset, select::Selection,
    sets::Members,
};

/// Finds the rule of packets as a diversion does, from the packets alone: for trying rules on a recording.
#[derive(Clone)]
pub struct RuleFinder {
    classifier: Classifier,
    selection: Option<(Expression, Members)>,
}

/// The result for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Met {
    /// It is ARP or neighbour discovery, which are never diverted.
    Links,
    /// `--match` does not select it.
    Unselected,
    /// No rule takes it: it goes to the kernel.
    NoRule,
    /// This rule, from 0.
    Rule(usize),
}

impl RuleFinder {
    /// With the rules of a ruleset.
    ///
    /// # Errors
    /// [`RuleError::UnknownSet`], [`RuleError::TooManySets`].
    pub fn new(ruleset: &Ruleset) -> Result<Self, RuleError> {
        let Ruleset { selection, rules, sets } = ruleset;
        let selection = selection.clone().map(|selection| {
            let members = sets.members(selection.filter().members())?;
            Ok::<_, RuleError>((selection, members))
        });
        let classifier = Classifier::new(&Selection::of(rules), sets)?;
        Ok(Self { classifier, selection: selection.transpose()? })
    }

    /// The result for a frame, from its Ethernet header on.
    pub fn find(&self, frame: &[u8]) -> Met {
        if is_the_links(frame) {
            return Met::Links;
        }
        if self
            .selection
            .as_ref()
            .is_some_and(|(selection, members)| !selection.filter().matches_in(frame, members.of(frame)))
        {
            return Met::Unselected;
        }
        self.classifier.first(frame).map_or(Met::NoRule, |rule| Met::Rule(rule as usize))
    }
}

/// As in the kernel's program: ARP, and router and neighbour solicitations, advertisements and redirects (RFC 4861).
fn is_the_links(frame: &[u8]) -> bool {
    const ARP: u16 = 0x0806;
    const IPV6_LEN: usize = 40;
    const ICMPV6: u8 = 58;
    let Ok(header) = EthView::new(frame) else { return false };
    let rest = header.payload();
    match header.ethertype() {
        ARP => true,
        ETHERTYPE_IPV6 => {
            rest.get(6) == Some(&ICMPV6) && rest.get(IPV6_LEN).is_some_and(|kind| (133..=137).contains(kind))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::parse_rules;

    fn frame(ethertype: u16, behind: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &ethertype.to_be_bytes(), behind].concat()
    }

    #[test]
    fn the_first_rule_that_takes_a_packet_is_met_and_arp_meets_none() {
        let rules = parse_rules("drop udp and dst port 9\npass udp\n").unwrap();
        let udp = |port: u8| {
            let mut packet = [0; 28];
            (packet[0], packet[9], packet[23]) = (0x45, 17, port);
            frame(0x0800, &packet)
        };
        let ruleset = Ruleset { rules, ..Ruleset::default() };
        let finder = RuleFinder::new(&ruleset).unwrap();
        assert_eq!(finder.find(&udp(9)), Met::Rule(0));
        assert_eq!(finder.find(&udp(10)), Met::Rule(1));
        assert_eq!(finder.find(&frame(0x0800, &[0x45])), Met::NoRule);
        assert_eq!(finder.find(&[]), Met::NoRule);
        assert_eq!(finder.find(&frame(0x0806, &[0; 28])), Met::Links);
        let mut discovery = [0; 48];
        (discovery[6], discovery[40]) = (58, 135);
        assert_eq!(finder.find(&frame(0x86dd, &discovery)), Met::Links);
        discovery[40] = 128;
        assert_eq!(finder.find(&frame(0x86dd, &discovery)), Met::NoRule, "an echo request");
        let selection = Some("port 10".parse().unwrap());
        let of_ten = RuleFinder::new(&Ruleset { selection, ..ruleset }).unwrap();
        assert_eq!((of_ten.find(&udp(9)), of_ten.find(&udp(10))), (Met::Unselected, Met::Rule(1)));
    }
}
