//! `rps.*`, `rfs.*`, `xps.*`, `xps-queues.*`: the CPUs to which the kernel passes a queue's packets, and the CPUs that
//! send on each queue. One setting per queue.

use super::kind::{Kind, Wrong, number};
use crate::{Card, NicError, cpus};

/// One file in each queue's folder.
pub(super) struct QueueFile {
    prefix: &'static str,
    side: &'static str,
    file: &'static str,
    holds: Holds,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Set,
    Number,
}

/// Receive packet steering: CPUs that process a receive queue's packets.
pub(super) const RPS: QueueFile =
    QueueFile { prefix: "rps", side: "rx", file: "rps_cpus", holds: Holds::Set };
/// Receive flow steering: flows that each receive queue remembers.
pub(super) const RFS: QueueFile =
    QueueFile { prefix: "rfs", side: "rx", file: "rps_flow_cnt", holds: Holds::Number };
/// Transmit packet steering: CPUs that send on a transmit queue.
pub(super) const XPS: QueueFile =
    QueueFile { prefix: "xps", side: "tx", file: "xps_cpus", holds: Holds::Set };
/// The same by receive queue instead of CPU.
pub(super) const XPS_QUEUES: QueueFile =
    QueueFile { prefix: "xps-queues", side: "tx", file: "xps_rxqs", holds: Holds::Set };

impl QueueFile {
    fn path(&self, key: &str) -> String {
        format!("queues/{key}/{}", self.file)
    }
}

impl Kind for QueueFile {
    fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// An interface with one transmit queue has no such file: nothing to steer.
    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        let mut values = Vec::new();
        for queue in card.queues(self.side)? {
            let key = format!("{}-{queue}", self.side);
            let Ok(text) = card.read(&self.path(&key)) else { continue };
            match self.holds {
                Holds::Number => values.push((key, text)),
                Holds::Set => {
                    cpus::from_mask(&text).into_iter().for_each(|set| {
                        values.push((key.clone(), cpus::to_list(&set)));
                    });
                }
            }
        }
        Ok(values)
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        card.read(&self.path(key)).map_err(|_| Wrong::NoSuchKey)?;
        match self.holds {
            Holds::Number => number(value, Some(u32::MAX.into())),
            Holds::Set => cpus::from_list(value)
                .map(|set| cpus::to_list(&set))
                .ok_or_else(|| Wrong::Expected("a list like 0,2-3, or none".into())),
        }
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        for (key, value) in changes {
            let text = match self.holds {
                Holds::Number => (*value).to_owned(),
                Holds::Set => cpus::to_mask(&cpus::from_list(value).unwrap_or_default()),
            };
            card.write(&self.path(key), &text)?;
        }
        Ok(())
    }
}
