//! Measurements with many senders and receivers on many machines, over NATS: agents, a coordinator that is silent while packets
//! are sent, and results that are stored by the server and counted once.
//!
//! What one host sends to another is [`trial::HostPlan`], as of `linerate bench --peer`: consent, progress and reports go
//! directly between the two. NATS carries the list of agents, the start time and the results. This crate alone has an async
//! runtime, which stays inside: its functions block.
#![forbid(unsafe_code)]

mod agent;
mod asking;
mod checks;
mod chosen;
mod clock;
mod collect;
mod connect;
mod coordinator;
mod counts;
mod divert;
mod error;
mod host;
mod job;
mod keys;
mod limits;
mod load;
mod merge;
mod message;
mod names;
mod plan;
mod preflight;
mod server;
mod simulated;
mod store;
mod up;

pub use agent::{AgentPlan, run_agent, run_agents};
pub use clock::Skew;
pub use collect::{FleetOutcome, collect};
pub use connect::{Access, ServerPlan};
pub use coordinator::{Watcher, run_fleet, status};
pub use counts::{AgentCounts, AgentWatcher};
pub use divert::{
    DivertAgent, DivertOutcome, DivertPlan, DivertRevision, DivertState, FleetRules, FleetRulesError,
    RollOut, RollOutError, apply_rules, divert_history, divert_status, undo_rules,
};
pub use error::FleetError;
pub use host::describe_host;
pub use keys::new_key;
pub use limits::{Limits, LimitsError};
pub use load::FleetLoad;
pub use message::{Description, EngineFinding, Spread};
pub use names::is_name;
pub use plan::{FleetPlan, FleetSearch, PlanError};
pub use preflight::{Preflight, PreflightRow};
pub use server::{NatsServer, ServerError, find_server, get_server};
pub use up::{TrialFleet, UpError, UpPlan};
