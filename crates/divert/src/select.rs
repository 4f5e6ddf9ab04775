//! From rules to what the kernel's program and this process look packets up in.

use bpf::{DivertOptions, Instruction, TableEntry};

use crate::{
    error::RuleError,
    rules::{ALL, Rule, table_entry},
};

/// How the packets of a list of rules are found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Selection {
    /// Rules that a hash table finds.
    pub(crate) table: Vec<TableEntry>,
    /// The others, in their order.
    pub(crate) coded: Vec<Coded>,
}

/// A rule whose expression was compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coded {
    /// The rule, from 0.
    pub(crate) rule: u32,
}

impl Selection {
    /// Compiles the expressions.
    pub(crate) fn of<'r>(rules: impl Iterator<Item = &'r Rule>) -> Result<Self, RuleError> {
        let mut selection = Self::default();
        for (number, rule) in (0..).zip(rules) {
            match table_entry(number, &rule.expression) {
                Some(entry) => selection.table.push(entry),
                None if rule.expression == ALL => selection.coded.push(Coded { rule: number }),
                None => {
                    return Err(RuleError::Expression {
                        expression: rule.expression.clone(),
                        reason: "it is more than fixed addresses, ports and protocols".into(),
                    });
                }
            }
        }
        let shapes = selection.shapes();
        let most = DivertOptions::MOST_SHAPES;
        if shapes > most { Err(RuleError::Shapes { shapes, most }) } else { Ok(selection) }
    }

    /// The function that finds the first of the compiled rules; empty when there is none.
    pub(crate) fn code(&self) -> Vec<Instruction> {
        if self.coded.is_empty() {
            Vec::new()
        } else {
            vec![[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]]
        }
    }

    /// Different sets of fields that entries of the larger of the table's two families compare.
    fn shapes(&self) -> usize {
        let of_family = |ipv4: bool| {
            let mut shapes: Vec<_> = self
                .table
                .iter()
                .filter(|entry| entry.network.is_none_or(|(_, address, _)| address.is_ipv4() == ipv4))
                .map(|entry| {
                    let network = entry.network.map(|(side, _, prefix_len)| (side as u8, prefix_len));
                    (network, entry.port.map(|(side, _)| side as u8), entry.protocol)
                })
                .collect();
            shapes.sort_unstable();
            shapes.dedup();
            shapes.len()
        };
        of_family(true).max(of_family(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleVerdict::Drop;

    #[test]
    fn more_kinds_of_rules_than_the_table_holds_are_refused() {
        let rules = |lens: std::ops::Range<u8>| -> Vec<Rule> {
            lens.map(|len| Rule::new(Drop, format!("udp and src net 0.0.0.0/{len}"))).collect()
        };
        assert_eq!(Selection::of(rules(8..24).iter()).unwrap().table.len(), 16);
        let error = Selection::of(rules(8..25).iter()).unwrap_err();
        assert!(matches!(error, RuleError::Shapes { shapes: 17, most: 16 }), "{error}");
    }
}
