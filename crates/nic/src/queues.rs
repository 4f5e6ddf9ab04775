//! A card's queues: the NAPI instance that polls each, and the interrupt and CPU that run it.

use serde::Serialize;
use sys::netdev::NetdevSocket;

use crate::{
    Card, NicError,
    interrupts::{Interrupt, affinity, card_interrupts},
};

/// The interrupt of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueInterrupt {
    /// The queue's number among those of its direction.
    pub queue: u32,
    /// Whether it receives.
    pub receives: bool,
    /// The NAPI instance that polls it; `None` before Linux 6.8 and when the driver does not report it.
    pub napi: Option<u32>,
    /// The kernel thread that runs it, when NAPI is threaded.
    pub thread: Option<u32>,
    /// The interrupt's number.
    pub number: u32,
    /// The driver's name for it.
    pub name: String,
    /// Its count on all CPUs together.
    pub total: u64,
    /// CPUs that it may run on.
    pub cpus_asked: Vec<u32>,
    /// CPUs that it runs on.
    pub cpus_effective: Vec<u32>,
    /// The source of the mapping from interrupt to queue.
    pub source: &'static str,
}

/// The interrupts of a card's queues: from the kernel's netdev family, else from their names.
///
/// # Errors
/// When `/proc/interrupts` cannot be read.
pub fn queue_interrupts(card: &Card) -> Result<Vec<QueueInterrupt>, NicError> {
    let interrupts = card_interrupts(card)?;
    let told = by_netlink(card, &interrupts);
    Ok(if told.is_empty() { by_name(&interrupts) } else { told })
}

fn by_netlink(card: &Card, interrupts: &[Interrupt]) -> Vec<QueueInterrupt> {
    let Ok(mut netdev) = NetdevSocket::open() else { return Vec::new() };
    let queues = netdev.queues(card.index()).unwrap_or_default();
    let napis = netdev.napis(card.index()).unwrap_or_default();
    let of = |queue: &sys::netdev::Queue| {
        let napi = napis.iter().find(|napi| Some(napi.id) == queue.napi)?;
        let told = interrupts.iter().find(|interrupt| Some(interrupt.number) == napi.interrupt)?;
        let named = interrupts.iter().find(|interrupt| is_named(interrupt, queue.id, queue.receives));
        let known = match named {
            // e1000e polls both directions in one NAPI instance, which has the interrupt of one of them.
            Some(named)
                if is_named(told, queue.id, !queue.receives) && !is_named(told, queue.id, queue.receives) =>
            {
                queue_interrupt(named, queue.id, queue.receives, BY_NAME)
            }
            _ => queue_interrupt(told, queue.id, queue.receives, "the kernel's netdev family"),
        };
        Some(QueueInterrupt { napi: Some(napi.id), thread: napi.thread, ..known })
    };
    queues.iter().filter_map(of).collect()
}

/// Whether an interrupt's name is that of a queue.
fn is_named(interrupt: &Interrupt, queue: u32, receives: bool) -> bool {
    Some(queue) == if receives { interrupt.rx_queue } else { interrupt.tx_queue }
}

/// The source of a mapping that names tell.
const BY_NAME: &str = "the interrupt's name";

fn by_name(interrupts: &[Interrupt]) -> Vec<QueueInterrupt> {
    let mut found = Vec::new();
    for interrupt in interrupts {
        for (queue, receives) in [(interrupt.rx_queue, true), (interrupt.tx_queue, false)] {
            found.extend(queue.map(|queue| queue_interrupt(interrupt, queue, receives, BY_NAME)));
        }
    }
    found
}

fn queue_interrupt(
    interrupt: &Interrupt,
    queue: u32,
    receives: bool,
    source: &'static str,
) -> QueueInterrupt {
    let affinity = affinity(interrupt.number).unwrap_or_default();
    QueueInterrupt {
        queue,
        receives,
        napi: None,
        thread: None,
        number: interrupt.number,
        name: interrupt.name.clone(),
        total: interrupt.total(),
        cpus_asked: affinity.asked,
        cpus_effective: affinity.effective,
        source,
    }
}
