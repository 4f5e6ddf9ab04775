//! Rules: a list, of which the first match decides.

use std::{fmt, str::FromStr};

use bpf::{Per, TokenBucket};
use serde::Serialize;
use wire::Rate;

use crate::{error::RuleError, expression::Expression, sets::Sets};

mod table;

pub(crate) use table::table_entries;

/// Match, rules and sets: everything that can be replaced while a diversion runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ruleset {
    /// Which packets leave the kernel at all; `None`: those that a rule takes.
    pub selection: Option<Expression>,
    /// The rules; the first match decides.
    pub rules: Vec<Rule>,
    /// The sets of networks that expressions name.
    pub sets: Sets,
}

/// One rule, written `VERDICT [limit RATE [per source|destination|flow]] EXPRESSION`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rule {
    /// Its verdict.
    pub verdict: RuleVerdict,
    /// The limit; packets above it are dropped.
    pub limit: Option<RateLimit>,
    /// Which packets.
    pub expression: Expression,
}

/// What happens to a rule's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleVerdict {
    /// They are dropped.
    Drop,
    /// The kernel gets them.
    Pass,
    /// They are kept for the program: counted, and written to a file where one was given.
    Keep,
}

/// A rate, and whose packets share it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RateLimit {
    /// Packets or bits a second.
    pub rate: Rate,
    /// Whose packets share it.
    #[serde(serialize_with = "per_as_word")]
    pub per: Per,
}

/// Seconds that a full bucket holds: short bursts pass, and a coarse clock is sufficient.
const BURST_NS: u64 = 100_000_000;

impl RateLimit {
    /// A limit for all packets of a rule.
    ///
    /// # Errors
    /// [`RuleError::Limit`] when it is not a number of packets or bits.
    pub fn new(rate: Rate, per: Per) -> Result<Self, RuleError> {
        match rate {
            Rate::Pps(_) | Rate::Bps(_) => Ok(Self { rate, per }),
            _ => Err(RuleError::Limit { rate: rate.to_string() }),
        }
    }

    /// The token bucket: at least one packet fits, and at least 1514 bytes.
    pub(crate) fn bucket(&self) -> TokenBucket {
        let (packet_cost_ns, kilobyte_cost_ns) = match self.rate {
            Rate::Pps(pps) => ((1e9 / pps).max(1.0) as u64, 0),
            Rate::Bps(bps) => (0, (8.0 * 1024.0 * 1e9 / bps).max(1.0) as u64),
            _ => (0, 0),
        };
        let burst_ns = BURST_NS.max(packet_cost_ns).max(2 * kilobyte_cost_ns);
        TokenBucket { per: self.per, packet_cost_ns, kilobyte_cost_ns, burst_ns }
    }
}

impl Rule {
    /// A rule without limit.
    pub fn new(verdict: RuleVerdict, expression: Expression) -> Self {
        Self { verdict, limit: None, expression }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(line: &str) -> Result<Self, RuleError> {
        let (word, mut rest) = next_word(line);
        let verdict = match word {
            "drop" => RuleVerdict::Drop,
            "pass" => RuleVerdict::Pass,
            "keep" => RuleVerdict::Keep,
            _ => return Err(RuleError::Verdict { word: word.into() }),
        };
        let mut limit = None;
        if let ("limit", after) = next_word(rest) {
            let (rate, after) = next_word(after);
            let rate = rate.parse().map_err(|source| RuleError::Rate { text: rate.into(), source })?;
            rest = after;
            let mut per = Per::Rule;
            if let ("per", after) = next_word(rest) {
                let (whose, after) = next_word(after);
                per = parse_per(whose).ok_or_else(|| RuleError::Per { word: whose.into() })?;
                rest = after;
            }
            limit = Some(RateLimit::new(rate, per)?);
        }
        Ok(Self { verdict, limit, expression: rest.parse()? })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        if let Some(RateLimit { rate, per }) = &self.limit {
            write!(f, " limit {rate}")?;
            if *per != Per::Rule {
                write!(f, " per {}", per_word(*per))?;
            }
        }
        write!(f, " {}", self.expression)
    }
}

impl fmt::Display for RuleVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drop => "drop",
            Self::Pass => "pass",
            Self::Keep => "keep",
        })
    }
}

/// Whose packets share a bucket, from `source`, `destination` or `flow`.
pub fn parse_per(word: &str) -> Option<Per> {
    [Per::Source, Per::Destination, Per::Flow, Per::Rule].into_iter().find(|per| per_word(*per) == word)
}

fn per_word(per: Per) -> &'static str {
    match per {
        Per::Rule => "rule",
        Per::Source => "source",
        Per::Destination => "destination",
        Per::Flow => "flow",
    }
}

fn per_as_word<S: serde::Serializer>(per: &Per, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(per_word(*per))
}

/// Reads a file of rules: one a line; empty lines and what follows a `#` at the start of a line do not count.
///
/// # Errors
/// Every invalid line, with its number; one error for a file without rules.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>, Vec<RuleError>> {
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.parse() {
            Ok(rule) => rules.push(rule),
            Err(source) => errors.push(RuleError::Line { number, source: Box::new(source) }),
        }
    }
    if rules.is_empty() && errors.is_empty() {
        errors.push(RuleError::NoRule);
    }
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// The first word and the rest.
fn next_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_a_rule_a_line() {
        let text = "# flood\n\ndrop udp and dst port 53\n  pass limit 10kpps per source icmp  \nkeep all\n";
        let rules = parse_rules(text).unwrap();
        let limit = RateLimit { rate: Rate::Pps(10_000.0), per: Per::Source };
        let rule = |verdict, text: &str| Rule::new(verdict, text.parse().unwrap());
        assert_eq!(
            rules,
            [
                rule(RuleVerdict::Drop, "udp and dst port 53"),
                Rule { limit: Some(limit), ..rule(RuleVerdict::Pass, "icmp") },
                rule(RuleVerdict::Keep, "all"),
            ]
        );
        for rule in &rules {
            assert_eq!(rule.to_string().parse::<Rule>().unwrap(), *rule);
        }
    }

    #[test]
    fn every_wrong_line_is_told_at_once() {
        let text = "drop\nforget udp\npass limit 10 udp\npass limit 50% udp\ndrop limit 1kpps per port udp\ndrop dst prot 9\n";
        let told: Vec<String> = parse_rules(text).unwrap_err().iter().map(in_words).collect();
        assert_eq!(
            told,
            [
                "line 1: the expression is empty: write all for every packet",
                "line 2: 'forget' is no verdict: a rule begins with drop, pass or keep",
                "line 3: cannot limit to '10': rate '10' has no unit: write 10kpps or 10Mpps for packets, 10Mbps \
                 for bits of frames, 10Mbpsl1 for bits on the wire, or 'max'",
                "line 4: cannot limit to 50%: write packets or bits a second, for example 10kpps or 5Mbps",
                "line 5: 'port' is nothing to limit by: write per source, per destination or per flow",
                "line 6: cannot use the expression 'dst prot 9': unknown keyword 'prot'",
            ]
        );
        assert_eq!(parse_rules("# nothing\n").unwrap_err()[0].to_string(), "there is no rule in it");
    }

    fn in_words(error: &RuleError) -> String {
        let mut words = error.to_string();
        let mut at = std::error::Error::source(error);
        while let Some(cause) = at {
            words += &format!(": {cause}");
            at = cause.source();
        }
        words
    }

    #[test]
    fn a_bucket_has_room_for_one_packet_at_least() {
        let bucket = |rate: &str| RateLimit::new(rate.parse().unwrap(), Per::Flow).unwrap().bucket();
        assert_eq!(bucket("10kpps").packet_cost_ns, 100_000);
        assert_eq!(bucket("10kpps").burst_ns, BURST_NS);
        assert_eq!(bucket("1pps").burst_ns, 1_000_000_000);
        assert_eq!(bucket("8Mbps").kilobyte_cost_ns, 1_024_000);
    }
}
