//! Which receive queue the packets of sockets came on, as far as the kernel says.

use std::os::fd::AsFd;

use measure::StatisticsLevel;
use port::{SocketLayer, SocketQueues, SocketQueuesOptions};
use sys::{ethtool::rx_queues, rtnetlink::Link};

use crate::{
    collect::OfQueues, error::EngineError, interface::interface, plan::RxTraffic, window::AfterReading,
};

/// How the packets of a receiver's ports are told apart by queue.
pub(crate) enum Queues {
    /// Ports know: they read one each, or nobody asks.
    OfPorts,
    /// The interface has one.
    Only(u32),
    /// The driver writes it down with each packet, and a program at the sockets counts by it.
    Counted(Box<SocketQueues>),
    /// Nobody can tell, and why.
    Unknown(String),
}

impl Queues {
    /// Of these ports, which are open; a program that counts looks at their packets from now on.
    pub(crate) fn of_sockets(
        plan: &RxTraffic,
        layer: SocketLayer,
        sockets: &[impl AsFd],
    ) -> Result<Self, EngineError> {
        let Some(statistics) = plan.statistics else { return Ok(Self::OfPorts) };
        let Some(name) = plan.interface.as_deref() else {
            return Ok(Self::Unknown(
                "packets of all interfaces are taken, each with queues of its own".into(),
            ));
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

    /// What came on each queue where no reader has one of its own, and with `AfterReading::Reset` from now on anew.
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
                let unknown = format!("the driver wrote down no queue with {} packets", unqueued.packets);
                OfQueues { queues, unknown: Some(unknown).filter(|_| unqueued.packets > 0) }
            }
        }
    }
}

/// How many receive queues an interface has, or why that says nothing about a packet of it.
fn queues_of(link: &Link) -> Result<u32, String> {
    let queues = rx_queues(link);
    match link.kind.as_deref() {
        None | Some("tun") => Ok(queues),
        // What stands there is the sender's transmit queue, or nothing: see docs/pktgen-rx.md.
        Some("veth") if queues > 1 => {
            Err(format!("{} is a veth, which writes down no receive queue with its packets", link.name))
        }
        Some("veth") => Ok(queues),
        Some(kind) => Err(format!("{} ({kind}) has no receive queues of its own", link.name)),
    }
}
