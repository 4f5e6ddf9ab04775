//! The receive queue of sockets' packets, as far as the kernel reports it.

use std::os::fd::AsFd;

use measure::StatisticsLevel;
use port::{SocketLayer, SocketQueues, SocketQueuesOptions};
use sys::{ethtool::rx_queues, rtnetlink::Link};

use crate::{
    collect::OfQueues, error::EngineError, interface::interface, plan::RxTraffic, window::AfterReading,
};

/// How a receiver's packets are distinguished by queue.
pub(crate) enum Queues {
    /// By port: each reads one queue, or queues are not requested.
    OfPorts,
    /// The interface has one.
    Only(u32),
    /// The driver records it with each packet, and a program at the sockets counts by it.
    Counted(Box<SocketQueues>),
    /// Unknown, with the reason.
    Unknown(String),
}

impl Queues {
    /// For these open ports; a counting program sees their packets from now on.
    pub(crate) fn of_sockets(
        plan: &RxTraffic,
        layer: SocketLayer,
        sockets: &[impl AsFd],
    ) -> Result<Self, EngineError> {
        let Some(statistics) = plan.statistics else { return Ok(Self::OfPorts) };
        let Some(name) = plan.interface.as_deref() else {
            return Ok(Self::Unknown("packets arrive from all interfaces, each with its own queues".into()));
        };
        let link = interface(Some(name))?;
        let queues = match queues_of(&link) {
            Ok(1) => return Ok(Self::Only(0)),
            Ok(queues) => queues,
            Err(unknown) => return Ok(Self::Unknown(unknown)),
        };
        let times = statistics.level >= StatisticsLevel::Basic;
        let watched =
            SocketQueues::load(&SocketQueuesOptions { layer, queues, times }).and_then(|mut program| {
                sockets.iter().try_for_each(|socket| program.watch(socket))?;
                Ok(Box::new(program))
            });
        Ok(watched.map_or_else(|error| Self::Unknown(error.to_string()), Self::Counted))
    }

    /// Packets per queue if no reader has its own queue; `AfterReading::Reset` restarts the counts.
    pub(crate) fn read(&mut self, then: AfterReading) -> OfQueues {
        let read = match (self, then) {
            (Self::Counted(program), AfterReading::Continue) => program.read(),
            (Self::Counted(program), AfterReading::Reset) => program.take(),
            (Self::Unknown(unknown), _) => {
                return OfQueues { unknown: Some(unknown.clone()), ..OfQueues::default() };
            }
            (Self::OfPorts | Self::Only(_), _) => return OfQueues::default(),
        };
        match read {
            Err(error) => OfQueues { queues: Vec::new(), unknown: Some(error.to_string()) },
            Ok((unqueued, queues)) => {
                let unknown = format!("the driver recorded no queue with {} packets", unqueued.packets);
                OfQueues { queues, unknown: Some(unknown).filter(|_| unqueued.packets > 0) }
            }
        }
    }
}

/// The number of an interface's receive queues, or why that does not help for its packets.
fn queues_of(link: &Link) -> Result<u32, String> {
    let queues = rx_queues(link);
    match link.kind.as_deref() {
        None | Some("tun") => Ok(queues),
        // The record there is the sender's transmit queue, or nothing: see docs/pktgen-rx.md.
        Some("veth") if queues > 1 => {
            Err(format!("{} is a veth, which records no receive queue with its packets", link.name))
        }
        Some("veth") => Ok(queues),
        Some(kind) => Err(format!("{} ({kind}) has no receive queues of its own", link.name)),
    }
}
