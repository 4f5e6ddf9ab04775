//! A flow beside the flooded one, to a port of its own.

use lab::Lab;
use serde::Serialize;
use traffic::Sender;

use super::{
    error::SingleRxQueueError,
    plan::{BESIDE_STREAM, SingleRxQueuePlan},
    service::Service,
    spread::Spread,
};

/// What became of the flows beside the flooded one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherFlows {
    /// The queue of a UDP flow to a port of its own.
    pub beside_queue: u32,
    /// Its packets sent.
    pub beside_sent: u64,
    /// Its packets that arrived at its socket.
    pub beside_delivered: u64,
    /// Packets that the card counted on its queue; `None` if it does not count by queue, or other flows have the same queue.
    pub beside_counted: Option<u64>,
    /// The queue of the transfer.
    pub transfer_queue: u32,
    /// Packets that the card counted, by queue, from 0.
    pub packets_by_queue: Vec<u64>,
}

impl OtherFlows {
    /// Whether each packet of the UDP flow arrived and was counted once.
    pub fn is_exact(&self) -> bool {
        self.beside_delivered == self.beside_sent
            && self.beside_counted.is_none_or(|counted| counted == self.beside_sent)
    }
}

/// The UDP flow, with its service.
pub(super) struct Beside {
    pub(super) sender: Option<Sender>,
    pub(super) service: Service,
    pub(super) sent: u64,
    pub(super) queue: u32,
}

impl Beside {
    /// Opens the flow's service and prepares its sender.
    pub(super) fn prepare(
        plan: &SingleRxQueuePlan,
        lab: &Lab,
        spread: &Spread,
    ) -> Result<Self, SingleRxQueueError> {
        let flow = spread.beside(lab)?;
        let service = Service::start_beside(lab.rx(), plan)?;
        let sender = plan.sender(lab, (BESIDE_STREAM, flow), Some(plan.valid_pps), Some(plan.row_ns));
        let sender = sender.prepare(&plan.sending(lab, BESIDE_STREAM)?)?;
        Ok(Self { sender: Some(sender), service, sent: 0, queue: spread.beside_queue() })
    }
}
