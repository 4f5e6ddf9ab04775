//! By how much this host's clock is ahead of senders' clocks: a session finds it out, workers use it.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// By how much this host's clock is ahead of a sender's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderAhead {
    /// For packets that tell the time since their host's start.
    pub uptime_ns: i64,
    /// For packets that tell the wall clock's time.
    pub wall_ns: i64,
}

/// What is known of senders' clocks, by stream tag. Workers look once a batch whether it changed.
#[derive(Debug, Default)]
pub struct SenderClocks {
    changes: AtomicU64,
    known: Mutex<BTreeMap<u16, SenderAhead>>,
}

impl SenderClocks {
    /// From now on the packets with these tags are sent by such a clock; `None`: nothing is known.
    pub fn set(&self, tags: &[u16], ahead: Option<SenderAhead>) {
        let mut known = self.known.lock().expect("no holder panics");
        for tag in tags {
            match ahead {
                Some(ahead) => known.insert(*tag, ahead),
                None => known.remove(tag),
            };
        }
        self.changes.fetch_add(1, Relaxed);
    }

    /// A number that changes with every change.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    pub(crate) fn of(&self, tag: u16) -> Option<SenderAhead> {
        self.known.lock().expect("no holder panics").get(&tag).copied()
    }
}
