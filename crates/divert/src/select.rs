//! From rules to what the kernel's program and this process look packets up in.

use bpf::{DivertOptions, Instruction, TableEntry};
use filter::{Filter, FilterSet};

use crate::{
    error::RuleError,
    rules::{ALL, Rule, table_entry},
};

/// How the packets of a list of rules are found.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    /// Rules that a hash table finds.
    pub(crate) table: Vec<TableEntry>,
    /// The others' expressions, in their order.
    pub(crate) filters: FilterSet,
    /// The rules, from 0, of those expressions.
    pub(crate) coded: Vec<u32>,
}

/// As many comparisons, one after the other, take as long as a look into a hash table: `make bench-divert`.
const WORTHWHILE_ENTRIES: usize = 16;
/// The most instructions of the kernel's program that expressions may become; jumps reach no further.
const MOST_INSTRUCTIONS: usize = i16::MAX as usize;

impl Selection {
    /// Compiles the expressions.
    ///
    /// # Errors
    /// [`RuleError::Expression`], [`RuleError::Shapes`].
    pub(crate) fn of<'r>(rules: impl Iterator<Item = &'r Rule>) -> Result<Self, RuleError> {
        let (mut coded, mut filters) = (Vec::new(), Vec::new());
        let rules: Vec<(u32, &Rule)> = (0..).zip(rules).collect();
        let mut table: Vec<TableEntry> =
            rules.iter().filter_map(|(number, rule)| table_entry(*number, &rule.expression)).collect();
        if table.len() < WORTHWHILE_ENTRIES {
            table.clear();
        }
        for (number, rule) in rules {
            if table.binary_search_by_key(&number, |entry| entry.rule).is_ok() {
                continue;
            }
            let text = if rule.expression == ALL { "" } else { &rule.expression };
            filters.push(
                Filter::compile(text).map_err(|source| RuleError::Expression {
                    expression: rule.expression.clone(),
                    source,
                })?,
            );
            coded.push(number);
        }
        let selection = Self { table, filters: FilterSet::new(&filters), coded };
        let (shapes, most) = (selection.shapes(), DivertOptions::MOST_SHAPES);
        if shapes > most { Err(RuleError::Shapes { shapes, most }) } else { Ok(selection) }
    }

    /// The function that finds the first of the compiled expressions; empty when there is none.
    ///
    /// # Errors
    /// [`RuleError::Program`].
    pub(crate) fn code(&self) -> Result<Vec<Instruction>, RuleError> {
        if self.filters.is_empty() {
            return Ok(Vec::new());
        }
        let answers: Vec<i32> = self.coded.iter().map(|rule| *rule as i32 + 1).collect();
        let code = self
            .filters
            .to_ebpf(&answers, 0, MOST_INSTRUCTIONS)
            .map_err(|source| RuleError::Program { source })?;
        Ok(code.into_iter().map(|instruction| instruction.to_bytes()).collect())
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
