//! The control connection between a sender and a receiver (consent, progress, and one summary on both ends), and the local
//! socket of a running command. [`drain`] waits for packets in flight, for both ends of a connection and for trials on one
//! machine.
//!
//! One TCP connection per sender, one JSON object per line. The receiver's user started the receiver, so its acceptance of
//! an offer is the consent that linerate needs before it sends. A malformed or hostile peer costs its connection, never the
//! process: lines, waiting times and each address's share of connections and streams are bounded, and its summary of a
//! trial must agree with what the receiver counted.
#![forbid(unsafe_code)]

mod arrivals;
mod claim;
mod clock;
mod consent;
mod counts;
mod deadline;
mod foreign;
mod guest;
mod host;
mod host_clock;
mod lines;
mod local;
mod message;
mod network;
mod room;
mod secure;

pub use arrivals::{InFlight, drain, in_flight};
pub use claim::ClaimError;
pub use consent::{ConsentError, may_send_without_handshake};
pub use counts::{Counts, Joining, Related};
pub use guest::{Accepted, Guest, SessionError, request};
pub use host::{Host, HostError, HostEvent, HostListener, Terms};
pub use host_clock::HostClock;
pub use lines::{LineError, Lines, MOST_LINE_BYTES};
pub use local::{ControlError, ControlRequest, ControlSocket, Running, running, runtime_folder};
pub use message::{
    ClockQuestion, KeptClock, Message, Offer, PROTOCOL, Progress, Report, Request, Wanted, WireReport,
};
pub use network::{Admission, Network, NetworkError};
pub use secure::{Key, KeyError};
