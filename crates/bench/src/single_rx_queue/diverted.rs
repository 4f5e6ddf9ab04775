//! The diversion of a row.

use serde::Serialize;

/// The diverted queues, and the path of their packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DivertedQueues {
    /// The queues' numbers.
    pub queues: Vec<u32>,
    /// `zero-copy` or `copy` if AF_XDP takes the packets; `None` if the program decides.
    pub copy_mode: Option<String>,
    /// Nanoseconds that the program takes for each packet of another queue, with the packet in the CPU's cache.
    pub other_queues_ns: Option<u64>,
    /// Rules of the card, or buckets of its table, that steer packets there; without any the program selects them.
    pub card_rules: Vec<String>,
    /// Packets that the program selects on every queue although the card was to steer them.
    pub selected: Vec<String>,
}
