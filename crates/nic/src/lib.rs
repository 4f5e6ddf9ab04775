//! A network card's receive path as plain data: read, compare, change and restore it.
//!
//! ```no_run
//! use nic::{Card, Page};
//!
//! let mut card = Card::open("eth0")?;
//! let page = Page::read(&mut card)?;
//! println!("{} receives on {} queues", page.driver.name, page.queues.len());
//!
//! // Even if this process is killed, `nic::restore` can undo its changes.
//! let mut session = nic::Session::begin("eth0", "/var/lib/linerate".as_ref())?;
//! session.apply(&["ring.rx=max".parse()?, "rss.table=weights:0,1".parse()?])?;
//! drop(session); // restores every setting
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod advise;
mod card;
mod connections;
mod counters;
mod cpus;
mod error;
mod flow;
mod interrupts;
mod journal;
mod lent;
mod note;
mod owner;
mod page;
mod queues;
mod session;
mod setting;
mod settings;
mod spread;
mod verify;
mod watch;

pub use advise::{Finding, Goal, Surroundings, advise};
pub use card::Card;
pub use connections::connections_through;
pub use counters::{
    Counters, QueueCount, QueueCounts, moved, queue_counts, read_counters, read_queue_counts,
};
pub use cpus::{from_list as cpus_of_list, to_list as cpu_list};
pub use error::NicError;
pub use flow::{FlowError, Prediction, Scaling, Steering, Step, Unpredictable, numa_node_of, predict_with};
pub use interrupts::{Affinity, Interrupt, affinity, card_interrupts, parse_interrupts};
pub use journal::{Entry, Journal, Stage};
pub use lent::{LentInterface, RestoredInterface, restore_lent};
pub use owner::Owner;
pub use page::{Driver, Link, Page, Pcie, Table};
pub use queues::{QueueInterrupt, queue_interrupts};
pub use session::{
    Applied, Left, Outcome, Readback, Repaired, Restored, Saved, Session, SessionError, restore,
    restore_killed, restore_killed_of, set_without_journal,
};
pub use setting::{Change, Setting, Settings, changes};
pub use settings::{
    Reading, SYSCTLS, Sysctl, interrupts_the_link, kinds, parse_rule, read_settings, resolve, rule_text,
};
pub use spread::{Remedy, SpreadError, imbalance, remedies, spread_flows};
pub use verify::{Observed, Verifier, VerifyError};
pub use watch::{CpuRate, QueueRate, Rates, Sample};
