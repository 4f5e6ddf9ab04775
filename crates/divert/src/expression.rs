//! Which packets: `all`, or an expression of tcpdump's filter language, parsed once.

use std::{fmt, str::FromStr, sync::Arc};

use filter::{Filter, FilterError};
use serde::{Serialize, Serializer};

use crate::error::RuleError;

/// Which packets a rule or a diversion is about. The tree that was parsed from the text is what the kernel's program, this
/// process and the card's flow rules are made from.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    filter: Arc<Filter>,
}

/// The expression that takes every packet.
pub const ALL: &str = "all";

impl Expression {
    /// Every packet.
    pub fn all() -> Self {
        Self::compiled(ALL, "").expect("an empty filter is right")
    }

    /// The packets that both take; each part reads a packet from its first byte, as [`Filter::and`] says.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self.is_all(), other.is_all()) {
            (true, _) => other.clone(),
            (_, true) => self.clone(),
            _ => {
                let filter = Arc::new(self.filter.and(&other.filter));
                Self { text: filter.expression().to_owned(), filter }
            }
        }
    }

    /// Whether it is `all`.
    pub fn is_all(&self) -> bool {
        self.text == ALL
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    fn compiled(text: &str, expression: &str) -> Result<Self, FilterError> {
        Ok(Self { text: text.to_owned(), filter: Arc::new(Filter::compile_with_sets(expression)?) })
    }
}

impl FromStr for Expression {
    type Err = RuleError;

    /// An empty text is refused: for a capture it means every packet, and a variable that a script left empty would
    /// divert or drop all of them.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text.trim() {
            "" => Err(RuleError::NoExpression),
            ALL => Ok(Self::all()),
            _ => Self::compiled(text, text)
                .map_err(|source| RuleError::Expression { expression: text.to_owned(), source }),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Texts mean the same filter everywhere here: names are the well-known ones.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(text: &str) -> Expression {
        text.parse().unwrap()
    }

    #[test]
    fn all_takes_every_packet_and_adds_nothing_to_another_expression() {
        assert!(expression(" all ").is_all() && expression("all").filter().matches(&[]));
        for (one, other) in [("all", "udp"), ("udp", "all")] {
            let both = expression(one).and(&expression(other));
            assert_eq!((both.text(), both.filter().expression()), ("udp", "udp"));
        }
        assert_eq!(expression("udp").and(&expression("port 53")).text(), "[udp] and [port 53]");
    }

    #[test]
    fn an_empty_expression_is_refused() {
        for text in ["", " \t"] {
            let error = text.parse::<Expression>().unwrap_err();
            assert_eq!(error.to_string(), "the expression is empty: write all for every packet");
        }
    }
}
