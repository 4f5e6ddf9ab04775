//! The wires of cards with several queues: the emulator's hub has one queue per port, a TAP interface has as many as its
//! card. The two of a pair are ports of a bridge, all in the emulator's namespace.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use sys::NetlinkError;
use sys::netns::NetNs;
use sys::rtnetlink::{RouteSocket, flag};
use sys::tap::create_tap;

use super::error::VmError;
use super::plan::VmPlan;

/// The ends of the wires outside the emulator: descriptors of queues, by card.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    cards: Vec<(String, Vec<OwnedFd>)>,
}

impl Wires {
    /// Creates the wires that a plan needs; none if the emulator's hubs suffice. They end with the descriptors and the namespace.
    pub(crate) fn lay(plan: &VmPlan, namespace: &NetNs) -> Result<Self, VmError> {
        let mut wires = Self::default();
        let pairs = (1..).zip(&plan.pairs);
        for (pair, queues) in pairs.filter_map(|(number, pair)| Some((number, pair.wired_queues()?))) {
            let cards = namespace.run(|| lay_one(pair, queues)).map_err(wire_failed)??;
            wires.cards.extend(cards);
        }
        Ok(wires)
    }

    /// The descriptors of each card's queues, by the emulator's name of the card: `1a`, `1b`.
    pub(crate) fn numbers(&self) -> Vec<(String, Vec<RawFd>)> {
        let numbers = |queues: &[OwnedFd]| queues.iter().map(AsRawFd::as_raw_fd).collect();
        self.cards.iter().map(|(card, queues)| (card.clone(), numbers(queues))).collect()
    }

    /// All descriptors, for the emulator to keep.
    pub(crate) fn into_descriptors(self) -> impl Iterator<Item = OwnedFd> {
        self.cards.into_iter().flat_map(|(_, queues)| queues)
    }
}

fn wire_failed(source: io::Error) -> VmError {
    VmError::Wire { source }
}

fn lay_one(pair: u32, queues: u32) -> Result<Vec<(String, Vec<OwnedFd>)>, VmError> {
    let told = |source: NetlinkError| VmError::Bridge { source };
    let mut route = RouteSocket::open().map_err(told)?;
    let bridge = format!("wire{pair}");
    route.create_bridge(&bridge).map_err(told)?;
    let bridge = route.link_by_name(&bridge).map_err(told)?.index;
    let mut cards = Vec::new();
    for side in ["a", "b"] {
        let name = format!("tap{pair}{side}");
        let tap = create_tap(&name, queues).map_err(wire_failed)?;
        let index = route.link_by_name(&name).map_err(told)?.index;
        // The wire carries only what the cards send.
        route.disable_address_generation(index).map_err(told)?;
        route.add_to_bridge(index, bridge).map_err(told)?;
        route.change_flags(index, flag::UP, flag::UP).map_err(told)?;
        cards.push((format!("{pair}{side}"), tap));
    }
    route.disable_address_generation(bridge).map_err(told)?;
    route.change_flags(bridge, flag::UP, flag::UP).map_err(told)?;
    Ok(cards)
}
