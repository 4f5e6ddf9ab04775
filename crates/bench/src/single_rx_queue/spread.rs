//! Which queue of a card each flow of a row comes to.

use std::net::{Ipv4Addr, SocketAddrV4};

use divert::{Card, Hashing};
use lab::Lab;
use traffic::FIRST_SOURCE_PORT;
use wire::{Addresses, FlowKey, PROTOCOL_TCP, PROTOCOL_UDP};

use super::{
    error::SingleRxQueueError,
    plan::{BESIDE_PORT, SingleRxQueuePlan},
};

/// How the card spreads the flows of a row.
pub(super) struct Spread {
    hashing: Hashing,
    flooded: u32,
    queues: u32,
}

/// The queue of packets without a hash, such as ARP.
const UNHASHED_QUEUE: u32 = 0;
/// Source addresses that the UDP flow may have, by their last octet: none is an address of the lab.
const HOSTS: std::ops::Range<u8> = 100..200;

impl Spread {
    /// Reads the card's table, as the row's filter left it; `None` without a queue of choice.
    pub(super) fn read(plan: &SingleRxQueuePlan, lab: &Lab) -> Result<Option<Self>, SingleRxQueueError> {
        let Some(flooded) = plan.queue else { return Ok(None) };
        let interface = lab.rx().interface();
        let card = lab.rx().run(|| Card::read(interface))??;
        let unknown = || SingleRxQueueError::Spread { interface: interface.to_owned() };
        Ok(Some(Self { hashing: card.hashing.ok_or_else(unknown)?, flooded, queues: card.queues }))
    }

    fn queue(&self, protocol: u8, [src, dst]: [SocketAddrV4; 2]) -> Option<u32> {
        let addresses = Addresses::new((*src.ip()).into(), (*dst.ip()).into())?;
        let flow = FlowKey { addresses, src_port: src.port(), dst_port: dst.port(), protocol };
        self.hashing.queue(&flow)
    }

    /// The UDP flow's queue: neither the flooded one nor, if there are enough, the one of packets without a hash.
    pub(super) fn beside_queue(&self) -> u32 {
        let mut others = (0..self.queues).rev().filter(|queue| *queue != self.flooded);
        others.next().unwrap_or(UNHASHED_QUEUE)
    }

    /// Whether the UDP flow's queue has no other packets.
    pub(super) fn is_apart(&self, transfer_queue: u32) -> bool {
        let beside = self.beside_queue();
        beside != transfer_queue && beside != UNHASHED_QUEUE
    }

    /// The addresses and ports of the UDP flow.
    pub(super) fn beside(&self, lab: &Lab) -> Result<[SocketAddrV4; 2], SingleRxQueueError> {
        let [a, b, c, _] = lab.tx().ipv4()[0].octets();
        let dst = SocketAddrV4::new(lab.rx().ipv4()[0], BESIDE_PORT);
        let flow = |host| [SocketAddrV4::new(Ipv4Addr::new(a, b, c, host), FIRST_SOURCE_PORT), dst];
        let mut found =
            HOSTS.map(flow).filter(|flow| self.queue(PROTOCOL_UDP, *flow) == Some(self.beside_queue()));
        found.next().ok_or_else(|| SingleRxQueueError::Spread { interface: lab.rx().interface().to_owned() })
    }

    /// Source ports for the transfer to `dst`, each with its queue, which is not the flooded one.
    pub(super) fn transfer_ports(
        &self,
        src: Ipv4Addr,
        dst: SocketAddrV4,
    ) -> impl Iterator<Item = (u16, u32)> + '_ {
        let taken = if self.queues > 2 { self.beside_queue() } else { self.flooded };
        let queue = move |port| Some((port, self.queue(PROTOCOL_TCP, [SocketAddrV4::new(src, port), dst])?));
        (FIRST_SOURCE_PORT..)
            .filter_map(queue)
            .filter(move |(_, queue)| *queue != self.flooded && *queue != taken)
    }
}
