//! Expressions: parsed once, combined as trees, compiled from them.

use std::{fmt, net::Ipv4Addr};

use crate::{
    error::FilterError,
    graph::{Graph, Target},
    lower::{Tree, lower},
    names::{Context, NameTables},
    parse::parse,
    run::Machine,
    tuple::{Conjunctions, TupleRule},
    value::Member,
};

/// One expression: its tree, and what was compiled from it.
#[derive(Clone)]
pub struct Filter {
    expression: String,
    tree: Tree,
    conjunctions: Option<Conjunctions>,
    graph: Graph,
    rules: Option<Vec<TupleRule>>,
    machine: Machine,
}

impl Filter {
    /// Compiles an expression; names of services and protocols are the well-known ones. An empty one matches everything.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn compile(expression: &str) -> Result<Self, FilterError> {
        let names = NameTables::default();
        Self::compile_in(
            expression,
            Context { names: &names, netmask: Ipv4Addr::UNSPECIFIED, has_sets: false },
        )
    }

    /// As [`compile`](Self::compile), and the expression may name sets of networks.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn compile_with_sets(expression: &str) -> Result<Self, FilterError> {
        let names = NameTables::default();
        Self::compile_in(
            expression,
            Context { names: &names, netmask: Ipv4Addr::UNSPECIFIED, has_sets: true },
        )
    }

    /// Compiles an expression with the names of a context.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn compile_in(expression: &str, context: Context<'_>) -> Result<Self, FilterError> {
        let node = parse(expression)?;
        let tree = lower(node.as_ref(), context)?;
        let conjunctions = Conjunctions::of(node.as_ref(), context);
        Ok(Self::from_tree(expression.to_owned(), tree, conjunctions))
    }

    fn from_tree(expression: String, tree: Tree, conjunctions: Option<Conjunctions>) -> Self {
        let graph = Graph::of(&tree);
        let machine = Machine::new(&graph);
        let rules = conjunctions.as_ref().and_then(Conjunctions::rules);
        Self { expression, tree, conjunctions, graph, rules, machine }
    }

    /// A filter for the frames that both filters match. Each expression reads the frame from its start: unlike in
    /// `vlan and udp`, a `vlan` in the one does not shift the offsets of the other.
    ///
    /// ```
    /// use filter::Filter;
    ///
    /// let (tagged, udp) = (Filter::compile("vlan 5")?, Filter::compile("udp")?);
    /// let mut frame = [0; 64];
    /// frame[12..19].copy_from_slice(&[0x81, 0x00, 0, 5, 0x08, 0x00, 0x45]); // tag 5, IPv4
    /// frame[27] = 17; // UDP
    /// assert!(Filter::compile("vlan 5 and udp")?.matches(&frame));
    /// assert!(!tagged.and(&udp).matches(&frame), "without a tag before it, it is not a UDP packet");
    /// assert!(tagged.and(&Filter::compile("vlan and udp")?).matches(&frame));
    /// # Ok::<(), filter::FilterError>(())
    /// ```
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        if self.matches_everything() {
            return other.clone();
        }
        if other.matches_everything() {
            return self.clone();
        }
        let conjunctions = match (&self.conjunctions, &other.conjunctions) {
            (Some(one), Some(other)) => one.and(other),
            _ => None,
        };
        let expression = format!("[{}] and [{}]", self.expression, other.expression);
        Self::from_tree(expression, self.tree.and(&other.tree), conjunctions)
    }

    /// Whether a frame (from its Ethernet header, without FCS) matches. A test that reads outside the
    /// frame ends the filter without a match, as in libpcap.
    #[inline]
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.matches_in(frame, 0)
    }

    /// As [`matches`](Self::matches); bit `n` of `in_sets` says whether the frame's address of [`members`](Self::members)`[n]`
    /// is in that set.
    #[inline]
    pub fn matches_in(&self, frame: &[u8], in_sets: u64) -> bool {
        self.machine.run(frame, in_sets).is_some()
    }

    /// The addresses that the expression looks for in sets, each once.
    pub fn members(&self) -> &[Member] {
        self.tree.values.members()
    }

    /// The filter as rules of which one must hold; `None` when it tests anything else, or needs more than 64.
    ///
    /// ```
    /// use filter::Filter;
    ///
    /// let filter = Filter::compile("ip and udp dst port 53 and src net 198.51.100.0/24").unwrap();
    /// let [rule] = filter.tuple_rules().unwrap() else { panic!("one rule") };
    /// assert_eq!((rule.protocol, rule.dst_ports.clone()), (Some(17), Some(53..=53)));
    /// assert_eq!((rule.src.address(rule.v6).to_string(), rule.src.len), ("198.51.100.0".into(), 24));
    /// // Such tables cannot hold ARP packets.
    /// assert_eq!(Filter::compile("net 198.51.100.0/24").unwrap().tuple_rules(), None);
    /// ```
    pub fn tuple_rules(&self) -> Option<&[TupleRule]> {
        self.rules.as_deref()
    }

    /// Whether the expression is empty or equivalent to an empty one.
    pub fn matches_everything(&self) -> bool {
        self.graph.start == Target::Match(0)
    }

    /// Whether the expression contradicts itself, like `tcp and udp`; libpcap rejects those. Not every contradiction
    /// is seen.
    pub fn matches_nothing(&self) -> bool {
        self.graph.start == Target::Nothing
    }

    /// The expression as written; for a conjunction both parts, each in square brackets.
    pub fn expression(&self) -> &str {
        &self.expression
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("expression", &self.expression)
            .field("steps", &self.graph.steps.len())
            .finish()
    }
}

/// Several filters in order, of which the first match counts; shared tests run once.
#[derive(Debug, Clone)]
pub struct FilterSet {
    pub(crate) graph: Graph,
    machine: Machine,
    len: usize,
}

impl FilterSet {
    /// The filters in their order.
    pub fn new<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Self {
        let graphs: Vec<_> = filters.into_iter().map(|filter| &filter.graph).collect();
        let graph = Graph::first_of(graphs.iter().copied());
        let machine = Machine::new(&graph);
        Self { graph, machine, len: graphs.len() }
    }

    /// The index of the first filter that matches a frame.
    #[inline]
    pub fn first_match(&self, frame: &[u8]) -> Option<usize> {
        self.first_match_in(frame, 0)
    }

    /// The same, with bit `n` of `in_sets` as [`Filter::matches_in`] has it, by this set's own [`members`](Self::members).
    #[inline]
    pub fn first_match_in(&self, frame: &[u8], in_sets: u64) -> Option<usize> {
        self.machine.run(frame, in_sets).map(|filter| filter as usize)
    }

    /// The addresses that the filters look for in sets, each once.
    pub fn members(&self) -> &[Member] {
        self.graph.values.members()
    }

    /// How many filters there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
