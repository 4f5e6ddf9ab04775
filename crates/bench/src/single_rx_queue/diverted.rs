//! What a diversion of a row took.

use serde::Serialize;

/// Which queues a diversion took, and how packets came to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DivertedQueues {
    /// The queues' numbers.
    pub queues: Vec<u32>,
    /// `zero-copy` or `copy` where AF_XDP takes the packets; `None` where the program decides.
    pub copy_mode: Option<String>,
    /// Rules of the card that bring packets there; without any the program picks them.
    pub card_rules: usize,
}
