//! Taking chosen flows past the kernel on chosen receive queues, and giving the valid packets back: the single RX
//! queue bypass as one reversible thing.
//!
//! A [`DivertPlan`] is plain data: which queues, which rules, what is never diverted. A [`Diversion`] carries it
//! out and undoes everything when it is dropped. Nothing of it outlives the process: the program is attached by a
//! link, sockets close themselves, and a queue whose owner does not say several times a second that it is well goes
//! back to the kernel by itself.
//!
//! Where packets are decided about is the plan's choice: in the kernel ([`FilterAt::Xdp`]), or by the same rules or an
//! own implementation of [`Verdicts`] in this process ([`FilterAt::User`]).
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
#![forbid(unsafe_code)]

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
