//! Flows by the buckets of a card's table, for cards that take no rules: what is known of the hash, and the table that
//! leads a flow's bucket to a queue.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use filter::TupleRule;
use nic::Setting;
use serde::Serialize;
use wire::{Addresses, FlowKey, HashFields, PROTOCOL_TCP, PROTOCOL_UDP, RssKey};

/// How a card spreads flows over its queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hashing {
    /// The queue of each bucket.
    pub table: Vec<u32>,
    /// The key of the Toeplitz hash.
    pub key: RssKey,
    /// The fields that are hashed.
    pub fields: Vec<Hashed>,
}

/// What is hashed of one kind of packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hashed {
    /// IPv6; else IPv4.
    pub v6: bool,
    /// UDP's number or TCP's.
    pub protocol: u8,
    /// The fields.
    pub fields: HashFields,
}

/// A bucket of the table that leads to a diverted queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Its number.
    pub number: usize,
    /// How many the table has.
    pub of: usize,
    /// The queue.
    pub queue: u32,
    /// The expression whose packets it brings.
    pub packets: String,
}

impl Bucket {
    /// As the diversion's status names it.
    pub(crate) fn told(&self) -> String {
        format!("rss.table bucket {} of {} to queue {}", self.number, self.of, self.queue)
    }
}

impl Hashing {
    /// The queue of a flow; `None` when its hash is not known.
    pub fn queue(&self, flow: &FlowKey) -> Option<u32> {
        let v6 = matches!(flow.addresses, Addresses::V6 { .. });
        let mut known = self.fields.iter();
        let hashed = known.find(|known| known.v6 == v6 && known.protocol == flow.protocol)?;
        nic::predict_with(flow, &self.key, hashed.fields, &self.table)?.queue
    }

    /// Reads it; `None` where the card does not report enough.
    pub(crate) fn of(card: &mut nic::Card) -> Option<Self> {
        let steering = nic::Steering::read(card).ok()?;
        let scaling = steering.scaling().ok()?;
        let mut fields = Vec::new();
        for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)] {
            for protocol in [PROTOCOL_UDP, PROTOCOL_TCP] {
                let addresses = Addresses::new(any, any)?;
                let flow = FlowKey { addresses, src_port: 0, dst_port: 0, protocol };
                fields.extend(scaling.fields_of(&flow).map(|fields| Hashed {
                    v6: any.is_ipv6(),
                    protocol,
                    fields,
                }));
            }
        }
        Some(Self { table: scaling.table.clone(), key: scaling.key.clone(), fields })
    }

    /// The bucket of all packets of a conjunction; or why they are in several.
    pub(crate) fn bucket(&self, tuple: &TupleRule) -> Result<usize, &'static str> {
        let hashed = |protocol| {
            let mut known = self.fields.iter();
            known.find(|known| known.v6 == tuple.v6 && known.protocol == protocol)
        };
        let hashed = tuple.protocol.and_then(hashed).ok_or("its hash is known of UDP or TCP flows only")?;
        let width = if tuple.v6 { 128 } else { 32 };
        if tuple.src.len != width || tuple.dst.len != width {
            return Err("its hash needs both addresses");
        }
        let ports = [&tuple.src_ports, &tuple.dst_ports].map(|ports| {
            let ports = ports.as_ref()?;
            (ports.start() == ports.end()).then_some(*ports.start())
        });
        let (src_port, dst_port) = match (hashed.fields, ports) {
            (_, [Some(src), Some(dst)]) => (src, dst),
            (HashFields::Addresses, _) => (0, 0),
            (HashFields::AddressesAndPorts, _) => return Err("its hash needs both ports"),
        };
        let addresses = Addresses::new(tuple.src.address(tuple.v6), tuple.dst.address(tuple.v6));
        let addresses = addresses.expect("a conjunction is about one IP version");
        let flow = FlowKey { addresses, src_port, dst_port, protocol: hashed.protocol };
        let found = nic::predict_with(&flow, &self.key, hashed.fields, &self.table);
        found.and_then(|found| found.bucket).ok_or("it has no table")
    }

    /// The table with these buckets; the other buckets of the diverted queues lead to the other queues in turn.
    pub(crate) fn table_with(&self, buckets: &[Bucket], diverted: &[u32], queues: u32) -> Setting {
        let others: Vec<u32> = (0..queues).filter(|queue| !diverted.contains(queue)).collect();
        let mut others = others.iter().cycle();
        let queue = |(number, old): (usize, &u32)| {
            let own = buckets.iter().find(|bucket| bucket.number == number).map(|bucket| bucket.queue);
            own.unwrap_or_else(|| match diverted.contains(old) {
                true => *others.next().expect("some queues are not diverted"),
                false => *old,
            })
        };
        let table: Vec<String> = self.table.iter().enumerate().map(queue).map(|at| at.to_string()).collect();
        Setting::new("rss.table", format!("queues:{}", table.join(",")))
    }
}
