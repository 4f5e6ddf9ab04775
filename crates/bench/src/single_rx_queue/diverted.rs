//! The diversion of a row.

use serde::Serialize;

/// The diverted queues, and the path of their packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DivertedQueues {
    /// The queues' numbers.
    pub queues: Vec<u32>,
    /// `zero-copy` or `copy` if AF_XDP takes the packets; `None` if the program decides.
    pub copy_mode: Option<String>,
    /// Rules of the card that steer packets there; without rules the program selects them.
    pub card_rules: usize,
}
