//! From rules to the lookup tables of the kernel's program and this process.

use std::collections::HashMap;

use bpf::{DivertOptions, Instruction, PacketSide, TableEntry};
use filter::{Filter, FilterSet};

use crate::{
    error::RuleError,
    rules::{Rule, table_entries},
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
    /// Whether a rule may take ARP or neighbour discovery.
    pub(crate) may_be_links: bool,
}

/// What entries of one kind have in common.
type Shape = (bool, Option<(PacketSide, u8)>, Option<PacketSide>, Option<u8>);

/// This many comparisons take as long as a lookup in a hash table: `make bench-divert`.
const WORTHWHILE_ENTRIES: usize = 16;
/// The most instructions of all compiled expressions; jumps reach no further.
const MOST_INSTRUCTIONS: usize = i16::MAX as usize;

impl Selection {
    /// From the trees of the rules' expressions.
    pub(crate) fn of(rules: &[Rule]) -> Self {
        let filters: Vec<&Filter> = rules.iter().map(|rule| rule.expression.filter()).collect();
        let may_be_links = !filters.iter().all(|filter| is_never_the_links(filter));
        let listed: Vec<Option<Vec<TableEntry>>> =
            (0..).zip(&filters).map(|(number, filter)| table_entries(number, filter)).collect();
        let shapes = shapes_of_the_table(listed.iter().flatten().flatten());
        let in_table = |entries: &Vec<TableEntry>| entries.iter().all(|entry| shapes.contains(&shape(entry)));
        let is_worthwhile =
            listed.iter().flatten().filter(|entries| in_table(entries)).count() >= WORTHWHILE_ENTRIES;
        let (mut table, mut coded, mut code) = (Vec::new(), Vec::new(), Vec::new());
        for ((number, filter), entries) in (0..).zip(filters).zip(listed) {
            match entries.filter(|entries| is_worthwhile && in_table(entries)) {
                Some(entries) => table.extend(entries),
                None => {
                    coded.push(number);
                    code.push(filter);
                }
            }
        }
        Self { table, filters: FilterSet::new(code), coded, may_be_links }
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
}

/// Whether no packet of a filter can be ARP or neighbour discovery.
fn is_never_the_links(filter: &Filter) -> bool {
    const ICMPV6: u8 = 58;
    let is_other = |protocol: Option<u8>| protocol.is_some_and(|protocol| protocol != ICMPV6);
    filter.tuple_rules().is_some_and(|rules| rules.iter().all(|rule| !rule.v6 || is_other(rule.protocol)))
}

fn shape(entry: &TableEntry) -> Shape {
    let network = entry.network.map(|(side, _, prefix_len)| (side, prefix_len));
    (entry.ipv4, network, entry.port.map(|(side, _)| side), entry.protocol)
}

/// The most frequent shapes, as many of each family as the table holds; rules of others are compiled.
fn shapes_of_the_table<'e>(entries: impl Iterator<Item = &'e TableEntry>) -> Vec<Shape> {
    // In the order of the rules where they are equally frequent.
    let mut found: HashMap<Shape, (usize, usize)> = HashMap::new();
    for (at, entry) in entries.enumerate() {
        found.entry(shape(entry)).or_insert((0, at)).0 += 1;
    }
    let mut found: Vec<(Shape, (usize, usize))> = found.into_iter().collect();
    found.sort_by_key(|(_, (count, first))| (std::cmp::Reverse(*count), *first));
    let of_family = |ipv4: bool| {
        let shapes = found.iter().map(|(shape, _)| *shape).filter(move |shape| shape.0 == ipv4);
        shapes.take(DivertOptions::MOST_SHAPES)
    };
    of_family(true).chain(of_family(false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleVerdict::Drop;

    fn selection(expressions: &[String]) -> Selection {
        let rules: Vec<Rule> =
            expressions.iter().map(|text| Rule::new(Drop, text.parse().unwrap())).collect();
        Selection::of(&rules)
    }

    #[test]
    fn rules_of_more_kinds_than_the_table_holds_are_compiled() {
        let nets = |lens: std::ops::Range<u8>| -> Vec<String> {
            lens.map(|len| format!("udp and src net 0.0.0.0/{len}")).collect()
        };
        let all = selection(&nets(8..24));
        assert_eq!((all.table.len(), all.coded.len()), (16, 0));
        // Two rules of the last kind: it is the most frequent, and one of the others has to go.
        let more = selection(&[nets(8..25), nets(24..25)].concat());
        assert_eq!((more.table.len(), &more.coded[..]), (17, &[15][..]));
    }

    #[test]
    fn a_few_rules_need_no_table() {
        let few = selection(&["udp and dst port 9".to_owned()]);
        assert_eq!((few.table.len(), &few.coded[..]), (0, &[0][..]));
    }

    #[test]
    fn only_rules_that_may_take_the_links_packets_are_looked_after() {
        for (expression, expected) in [
            ("udp and dst port 9", false),
            ("ip and src net 192.0.2.0/24", false),
            ("icmp and dst host 192.0.2.7", false),
            ("all", true),
            ("ip6", true),
            ("icmp6", true),
            ("ether broadcast", true),
        ] {
            assert_eq!(selection(&[expression.to_owned()]).may_be_links, expected, "{expression}");
        }
    }
}
