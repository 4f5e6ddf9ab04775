//! BPF programs and their loaders: what is attached is a link and goes away with the value, or with the process.
//!
//! The programs are C (`programs/*.bpf.c`) and come compiled (`objects/*.bpf.o`), so that building linerate
//! needs no clang; `scripts/bpf-objects` rebuilds and compares them. Interfaces are numbers in the network
//! namespace of the calling thread.
//!
//! ```no_run
//! use bpf::{Mode, Redirect, RedirectOptions};
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?; // in truth an AF_XDP socket of queue 0
//! let mut redirect = Redirect::attach(2, Mode::Native, &RedirectOptions { dst_port: 4321, ..RedirectOptions::default() })?;
//! redirect.insert(0, &socket)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod bound;
mod count;
mod divert;
mod drop;
mod drops;
mod error;
mod functions;
mod inject;
mod live;
mod measure;
mod mode;
mod parking;
mod pass;
mod places;
mod program;
mod queues;
mod redirect;
mod returns;
mod send;
mod softirq;
mod splice;
mod witness;

pub use count::{Count, CountOptions, Counts, ProbeAction, StreamCount, WORK_AT_MOST_NS};
pub use divert::{
    Divert, DivertOptions, DropShown, Fate, PacketSide, Passed, Per, RuleAction, RuleCount, SetLevel,
    SetLine4, SetLine6, SetMember, TableEntry, TcpSession, TokenBucket,
};
pub use drop::DropFlood;
pub use drops::{DropCount, DropCounts, DropHeaders, DropKind, DropOptions, DropSample, Drops, Streams};
pub use error::{BpfError, Cause};
pub use functions::FunctionNames;
pub use inject::Inject;
pub use live::LIVE_RUN_GAP_NS;
pub use measure::{
    Measure, MeasureOptions, Measured, MeasuredFlow, MeasuredSender, MeasuredTimes, MeasuringCost, ProbeTime,
    WayBack,
};
pub use mode::Mode;
pub use pass::Pass;
pub use program::foreign_program;
pub use queues::{QueuePackets, SocketLayer, SocketQueues, SocketQueuesOptions};
pub use redirect::{Redirect, RedirectOptions, Stamp, Stamping};
pub use returns::ReturnMap;
pub use send::{FieldDraw, SendPath, SendPlan, Sender};
pub use softirq::{NapiCounts, SoftirqWatch};
pub use splice::Instruction;
pub use witness::{Way, Witness, Witnessed};
