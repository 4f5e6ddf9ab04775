//! Other generators on the same lab: our receiver and the kernel's counters count their packets, so that their rows are
//! in the same table under the same conditions.

mod command;
mod ends;
mod process;
mod program;

pub use ends::{PeerPair, PeerReceiver, run_peer_trial};
pub use program::Peer;
