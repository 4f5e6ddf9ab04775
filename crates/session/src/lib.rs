//! The control connection between a sender and a receiver: consent, progress, and one summary on both ends; and
//! the local socket and the metrics page by which a running command is asked from elsewhere.
//!
//! One TCP connection a sender, one JSON object a line. The receiver's user started it, so its accepting an
//! offer is the consent without which linerate sends to nobody. A malformed or hostile peer costs its
//! connection, never the process: lines, waiting times and the number of connections are bounded.
#![forbid(unsafe_code)]

mod arrivals;
mod consent;
mod guest;
mod host;
mod lines;
mod local;
mod message;
mod metrics;

pub use arrivals::await_arrivals;
pub use consent::{ConsentError, may_send_without_handshake};
pub use guest::{Accepted, Guest, SessionError};
pub use host::{Counts, Host, HostError, HostEvent, HostListener};
pub use lines::{LineError, Lines, MOST_LINE_BYTES};
pub use local::{ControlError, ControlRequest, ControlSocket, Running, running, runtime_folder};
pub use message::{Message, Offer, PROTOCOL, Progress, Report};
pub use metrics::{MetricsError, MetricsPage};
