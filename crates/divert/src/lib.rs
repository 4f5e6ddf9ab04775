//! Takes chosen flows off the kernel's path on chosen receive queues, and re-injects the valid packets: the single RX
//! queue bypass as one reversible step.
//!
//! A [`DivertPlan`] is plain data: which queues, which rules, what is never diverted. A [`Diversion`] runs it
//! and undoes everything when it is dropped. Nothing outlives the process: the program is attached by a
//! link, the kernel closes sockets, and a queue whose owner does not renew its deadline several times a second returns
//! to the kernel.
//!
//! The plan chooses where packets are decided: in the kernel ([`FilterAt::Xdp`]), or by the same rules or the caller's
//! implementation of [`Verdicts`] in this process ([`FilterAt::User`]).
//!
//! ```no_run
//! use std::time::Duration;
//! use divert::{Diversion, DivertPlan, Frame, Verdict, Verdicts};
//!
//! #[derive(Clone)]
//! struct DropAll;
//! impl Verdicts for DropAll {
//!     fn verdict(&mut self, _: &mut Frame<'_>) -> Verdict { Verdict::Drop }
//! }
//!
//! let plan = DivertPlan::of("eth0", "udp and dst port 53")?;
//! let mut diversion = Diversion::start_with(&plan, |_queue| DropAll)?;
//! for _ in 0..100 {
//!     std::thread::sleep(Duration::from_millis(100));
//!     diversion.beat()?;
//! }
//! println!("{} packets arrived", diversion.status()?.ledger.arrived);
//! # Ok::<(), divert::DivertError>(())
//! ```
//!
//! # A filter of your own
//! Implement [`Verdicts`]: one function from a [`Frame`] to a [`Verdict`]. [`Diversion::start_with`] makes one value for each
//! queue; a value is moved to its queue's thread and never shared, so it needs [`Send`] and no lock. Two
//! programs in `examples/` are complete: `arp_icmp` accepts ARP and ICMP and prints packets per second, as the published
//! example does; `udp_echo` answers datagrams from the queue that they arrived on.
//! ```text
//! cargo run --release -p linerate-divert --example arp_icmp -- eth0 4 10
//! cargo run --release -p linerate-divert --example udp_echo -- eth0 7 10
//! ```
//!
//! # Guarantees
//! **Lifetimes.** A frame is memory that is shared with the kernel, lent for one call: the compiler refuses a filter that keeps it.
//! A filter copies what it keeps. A re-injected frame is copied once the call has returned; a frame that is
//! sent stays where it is until the card has sent it, and only then takes another packet.
//!
//! **Order.** A queue's packets are decided in the order in which the card put them there, each exactly once. Packets that
//! are re-injected reach the kernel in that order, and packets that are sent leave in that order; nothing is promised
//! between the two, between queues, or between a re-injected packet and one that the XDP program left to the kernel:
//! that one may overtake it. The same holds when a queue joins or leaves: packets taken before
//! [`remove_queue`](Diversion::remove_queue) are still decided before it returns, while new ones already go to the kernel.
//!
//! **Ledger.** Every packet that the program saw is in one line of [`DivertLedger`]; `unexplained` is 0 once no packet is in flight,
//! across [`reload`](Diversion::reload), [`add_queue`](Diversion::add_queue) and `remove_queue`.
//!
//! **Failing open.** A queue is the kernel's again after [`DEADLINE`] when [`Diversion::beat`] is not called, or when a call of
//! [`Verdicts::verdict`] takes that long; at once when a filter panics or the process ends, since the socket closes.
//! From then on nothing is dropped.
//!
//! **Undoing.** Dropping a [`Diversion`] ends its threads, closes its sockets, detaches the program and restores the card.
#![forbid(unsafe_code)]

mod buckets;
mod card;
mod checksum;
mod classify;
mod deadline;
mod diversion;
mod error;
mod exclude;
mod expression;
mod flow_rules;
mod offline;
mod plan;
mod record;
mod rules;
mod select;
mod sets;
mod steering;
mod verdict;
mod worker;

pub use bpf::{BpfError, Mode, Per};
pub use buckets::{Bucket, Hashed, Hashing};
pub use card::Card;
pub use deadline::{BEAT, DEADLINE};
pub use diversion::{Diversion, Preparation, Prepared, RuleVerdicts};
pub use error::{DivertError, RuleError};
pub use exclude::{Exclusions, Network, Session};
pub use expression::{ALL, Expression};
pub use measure::{
    DivertLedger, DivertLeft, DivertLine, DivertQueue as QueueStatus, DivertRule as RuleStatus,
    DivertStatus as Status, DivertSteering, Fate, FilterAt,
};
pub use nic::Setting;
pub use offline::{Met, RuleFinder};
pub use plan::{DivertPlan, Step};
pub use rules::{RateLimit, Rule, RuleVerdict, Ruleset, parse_per, parse_rules};
pub use sets::{NetworkSet, Sets};
pub use steering::{Left, Steer, Steered, Steering};
pub use verdict::{Frame, Verdict, Verdicts};
