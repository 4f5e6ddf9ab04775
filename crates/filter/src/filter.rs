//! Compiled expressions.

use std::{fmt, net::Ipv4Addr};

use crate::{
    error::FilterError,
    graph::{Graph, Target},
    lower::lower,
    names::{NameTables, Names},
    parse::parse,
    run::Machine,
    tuple::{TupleRule, tuple_rules},
};

/// One compiled expression.
#[derive(Clone)]
pub struct Filter {
    expression: String,
    pub(crate) graph: Graph,
    pub(crate) tuples: Option<Vec<TupleRule>>,
    machine: Machine,
}

/// What an expression can refer to beyond the frame.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// What names mean.
    pub names: &'c dyn Names,
    /// The mask of the interface's IPv4 network, for `ip broadcast`; 0.0.0.0 when there is none, and then only
    /// 0.0.0.0 and 255.255.255.255 are broadcasts.
    pub netmask: Ipv4Addr,
}

impl Filter {
    /// Compiles an expression; names of services and protocols are the well-known ones. An empty one matches everything.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn compile(expression: &str) -> Result<Self, FilterError> {
        let names = NameTables::default();
        Self::compile_in(expression, Context { names: &names, netmask: Ipv4Addr::UNSPECIFIED })
    }

    /// Compiles an expression with the names of a context.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn compile_in(expression: &str, context: Context<'_>) -> Result<Self, FilterError> {
        let node = parse(expression)?;
        let (cond, values) = lower(node.as_ref(), context.names, context.netmask)?;
        let graph = Graph::of(&cond, values);
        let machine = Machine::new(&graph);
        let tuples = tuple_rules(node.as_ref(), context);
        Ok(Self { expression: expression.to_owned(), graph, tuples, machine })
    }

    /// Whether a frame matches; it begins with its Ethernet header and has no FCS. A test that reads outside the
    /// frame ends the filter without a match, as in libpcap.
    #[inline]
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.machine.run(frame).is_some()
    }

    /// Whether the expression contradicts itself, like `tcp and udp`; libpcap refuses such ones. Not every contradiction
    /// is seen.
    pub fn matches_nothing(&self) -> bool {
        self.graph.start == Target::Nothing
    }

    /// The expression as it was written.
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

/// Several filters in order, of which the first that matches counts; what they share is tested once.
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

    /// The place of the first filter that matches a frame.
    #[inline]
    pub fn first_match(&self, frame: &[u8]) -> Option<usize> {
        self.machine.run(frame).map(|filter| filter as usize)
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
