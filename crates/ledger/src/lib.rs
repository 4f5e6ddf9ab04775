//! Counters of a machine → places where packets were lost.
//!
//! [`Place`] is the list of places in the order a packet meets them, with meaning and remedy (`measure`).
//! Counters are read as [`HostCounters`]; a data file gives drivers' own counters their meaning ([`Drivers`]).
//! [`Evidence`] combines counters: a loss that two of them see is counted once.
//!
//! ```
//! use ledger::{Evidence, Place, Witness};
//!
//! let mut evidence = Evidence::default();
//! evidence.saw(Place::NoSocket, Witness::Protocol, 7, "Udp NoPorts");
//! evidence.saw(Place::NoSocket, Witness::Reason, 7, "NO_SOCKET"); // the same seven
//! assert_eq!(evidence.lines()[0].packets, 7);
//! ```
#![forbid(unsafe_code)]

mod counters;
mod drivers;
mod drops;
mod emulated;
mod evidence;
mod interface;
mod live;
mod reasons;
mod rules;
mod sample;

/// The parts of a drop as the BPF program counts it.
pub use bpf::{DropHeaders, DropKind, DropSample};
pub use counters::{CounterError, HostCounters};
pub use drivers::{CounterKind, Drivers, DriversError, LossCounter};
pub use drops::{DropError, DropReading, DropScope, DropWatch, Dropped};
pub use evidence::{Evidence, Witness, grown};
pub use live::{FlowTally, MachineGrowth, MachineReading, SocketGrowth};
pub use measure::Place;
pub use rules::{JoinedDatagrams, LabGrowth, Received, drop_line, host_rx_lines, interface_lines, lab_lines};
pub use sample::flow_words;
