//! What a running command shows: one [`Snapshot`], written as lines, as a terminal's screen, as a web page and as metrics.
//!
//! A command publishes snapshots to a [`Hub`] and never waits: each view takes the newest one when it is ready for it, so
//! a slow terminal or browser misses snapshots. Where snapshots of a run come from is a [`Story`]'s: it is given what a run
//! does, live or from a saved record.
//!
//! ```
//! use view::{Hub, Snapshot};
//!
//! let hub = Hub::new();
//! hub.publish(Snapshot { title: "trial 1/3".into(), ..Snapshot::default() });
//! assert_eq!(hub.newest().snapshot.title, "trial 1/3");
//! ```
#![forbid(unsafe_code)]

mod hub;
mod metrics;
mod page;
mod plain;
mod replay;
mod room;
mod screen;
mod snapshot;
mod story;
mod token;
mod web;

pub use hub::{Hub, Published};
pub use metrics::{Form, metrics};
pub use plain::line;
pub use replay::{Moment, moments};
pub use screen::{Frames, Screen};
pub use snapshot::{
    Cell, CellState, Cpu, Family, FamilyKind, Grid, History, Own, Phase, Place, Queue, Rate, Snapshot, Table,
    Traffic, Waterfall,
};
pub use story::{Ahead, Seen, Story};
pub use web::{Web, WebError, WebPlan};
