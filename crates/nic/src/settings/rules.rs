//! `rule.*`: flow rules by their location in the card's table, lower locations first; `none` deletes one, and `rule.any`
//! lets the driver choose the location.

use std::net::IpAddr;

use sys::ethtool::{FlowAction, FlowKind, FlowMatch, FlowRule};

use super::kind::{Kind, Wrong};
use crate::{Card, NicError};

pub(super) struct Rules;

const EXAMPLE: &str =
    "a rule like 'udp4 dst 10.0.0.0/24 dst-port 53 queue 2' (or drop, or context N), or none";

/// A rule as text: `udp4 dst 10.0.0.0/24 dst-port 1024-2047 queue 2`, `ip4 protocol 1 drop`; `raw:` and its bytes where
/// words do not suffice.
pub fn rule_text(rule: &FlowRule) -> String {
    let Some(matches) = rule.matches() else {
        let bytes: String = rule.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        return format!("raw:{bytes}");
    };
    let FlowMatch { kind, src, dst, src_port, dst_port, protocol } = matches;
    let mut text = kind.name().to_owned();
    let width = if kind.is_v6() { 128 } else { 32 };
    for (name, prefix) in [("src", src), ("dst", dst)] {
        match prefix {
            Some((address, len)) if len == width => text.push_str(&format!(" {name} {address}")),
            Some((address, len)) => text.push_str(&format!(" {name} {address}/{len}")),
            None => {}
        }
    }
    for (name, ports) in [("src-port", src_port), ("dst-port", dst_port)] {
        match ports {
            Some((first, last)) if first == last => text.push_str(&format!(" {name} {first}")),
            Some((first, last)) => text.push_str(&format!(" {name} {first}-{last}")),
            None => {}
        }
    }
    if let Some(protocol) = protocol {
        text.push_str(&format!(" protocol {protocol}"));
    }
    text.push_str(&match rule.action() {
        FlowAction::Queue(queue) => format!(" queue {queue}"),
        FlowAction::Drop => " drop".into(),
        FlowAction::Context(context) => format!(" context {context}"),
    });
    text
}

/// A rule from its text, for one location or any; `None` when it is not a rule.
pub fn parse_rule(text: &str, place: Option<u32>) -> Option<FlowRule> {
    if let Some(hex) = text.strip_prefix("raw:") {
        let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
        let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
        return FlowRule::from_bytes(&bytes?);
    }
    let mut words = text.split_ascii_whitespace();
    let name = words.next()?;
    let kind = FlowKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    let mut matches =
        FlowMatch { kind, src: None, dst: None, src_port: None, dst_port: None, protocol: None };
    let prefix = |word: Option<&str>| {
        let (address, len) =
            word?.split_once('/').map_or((word?, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().ok()?;
        let width = if kind.is_v6() { 128 } else { 32 };
        let len = len.map_or(Some(width), |len| len.parse().ok())?;
        // A length of 0 matches everything, and reads back as no prefix.
        (address.is_ipv6() == kind.is_v6() && (1..=width).contains(&len)).then_some((address, len))
    };
    let ports = |word: Option<&str>| {
        let (first, last) = word?.split_once('-').unwrap_or((word?, word?));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (kind.has_ports() && is_block(first, last)).then_some((first, last))
    };
    let mut action = None;
    while let Some(word) = words.next() {
        // An action is the end of a rule.
        if action.is_some() {
            return None;
        }
        match word {
            "src" => matches.src = Some(prefix(words.next())?),
            "dst" => matches.dst = Some(prefix(words.next())?),
            "src-port" => matches.src_port = Some(ports(words.next())?),
            "dst-port" => matches.dst_port = Some(ports(words.next())?),
            "protocol" if !kind.has_ports() => matches.protocol = Some(words.next()?.parse().ok()?),
            "queue" => action = Some(FlowAction::Queue(words.next()?.parse().ok()?)),
            "context" => action = Some(FlowAction::Context(words.next()?.parse().ok()?)),
            "drop" => action = Some(FlowAction::Drop),
            _ => return None,
        }
    }
    Some(FlowRule::new(&matches, action?, place))
}

/// Whether a mask can express these ports: as many as a power of two, but not all, aligned to their number.
fn is_block(first: u16, last: u16) -> bool {
    let differ = first ^ last;
    first <= last && differ != u16::MAX && differ & differ.wrapping_add(1) == 0 && first & differ == 0
}

impl Kind for Rules {
    fn prefix(&self) -> &'static str {
        "rule"
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        let rules = card.ethtool.flow_rules(card.name())?;
        Ok(rules.iter().map(|rule| (rule.place().to_string(), rule_text(rule))).collect())
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        let place = key.parse().ok();
        if place.is_none() && key != "any" {
            return Err(Wrong::NoSuchKey);
        }
        let text = match value {
            "none" => value.into(),
            _ => rule_text(&parse_rule(value, place).ok_or_else(|| Wrong::Expected(EXAMPLE.into()))?),
        };
        // A driver that cannot list rules accepts none.
        card.ethtool.flow_rules(card.name()).map_err(|error| Wrong::Unreadable(error.into()))?;
        Ok(text)
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        let name = card.name().to_owned();
        let existing: Vec<u32> = card.ethtool.flow_rules(&name)?.iter().map(FlowRule::place).collect();
        for (key, value) in changes {
            let place: Option<u32> = key.parse().ok();
            if let Some(place) = place.filter(|place| existing.contains(place)) {
                card.ethtool.delete_flow_rule(&name, place)?;
            }
            if let Some(rule) = parse_rule(value, place).filter(|_| *value != "none") {
                card.ethtool.insert_flow_rule(&name, &rule)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_read_back_as_they_are_written() {
        for text in [
            "udp4 dst 10.0.0.7 dst-port 53 queue 2",
            "udp6 src 2001:db8::1 src-port 9 drop",
            "tcp4 src 10.0.0.1 dst 10.0.0.2 src-port 1 dst-port 2 context 3",
            "udp4 src 10.0.0.0/9 dst-port 1024-2047 queue 1",
            "sctp6 dst 2001:db8::/33 src-port 8-9 drop",
            "ip4 src 192.0.2.0/24 protocol 1 drop",
            "ip6 protocol 58 queue 0",
            "ip4 queue 7",
        ] {
            assert_eq!(parse_rule(text, Some(4)).map(|rule| rule_text(&rule)).as_deref(), Some(text));
        }
        for wrong in [
            "",
            "udp4",
            "udp5 queue 1",
            "udp4 dst ::1 queue 1",
            "udp4 dst 10.0.0.0/33 queue 1",
            "udp4 dst 10.0.0.0/0 queue 1",
            "udp4 dst-port 1-8 queue 1",
            "udp4 dst-port 0-65535 queue 1",
            "udp4 dst-port 9-8 queue 1",
            "udp4 protocol 17 queue 1",
            "ip4 dst-port 9 queue 1",
            "udp4 queue",
            "udp4 drop queue 1",
            "raw:zz",
        ] {
            assert_eq!(parse_rule(wrong, None), None, "{wrong}");
        }
    }
}
