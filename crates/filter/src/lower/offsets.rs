//! Offsets of headers, which `vlan`, `mpls`, `pppoes` and `geneve` shift.

use crate::value::ValueAt;

/// Where headers are, at this point of the expression.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkState {
    pub(super) kind: LinkKind,
    /// The link header.
    pub(super) header: ValueAt,
    /// The type of what follows it.
    pub(super) ethertype: ValueAt,
    /// What follows it.
    pub(super) payload: ValueAt,
    /// The network header, from the payload on; behind MPLS labels.
    pub(super) network: u32,
    /// The network header behind 802.2 without SNAP.
    pub(super) network_802: u32,
    /// MPLS labels so far.
    pub(super) labels: u32,
    /// Geneve headers so far.
    pub(super) tunnels: u32,
    /// The field of the Geneve header that says whether there is an inner Ethernet header.
    pub(super) inner_ethernet: Option<ValueAt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkKind {
    Ethernet,
    Ppp,
}

impl LinkState {
    pub(super) fn ethernet() -> Self {
        let at = |at| ValueAt { base: None, at };
        Self {
            kind: LinkKind::Ethernet,
            header: at(0),
            ethertype: at(12),
            payload: at(14),
            network: 0,
            network_802: 3,
            labels: 0,
            tunnels: 0,
            inner_ethernet: None,
        }
    }

    pub(super) fn network(&self) -> ValueAt {
        self.payload.plus(self.network)
    }

    pub(super) fn network_802(&self) -> ValueAt {
        self.payload.plus(self.network_802)
    }
}
