//! The CPUs of both sides of a trial.

use serde::{Deserialize, Serialize};

/// CPUs to pin each side's workers to; empty leaves them to the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuPlan {
    /// The sender's, if the receiver needs CPUs too.
    pub tx: Vec<u32>,
    /// The receiver's.
    pub rx: Vec<u32>,
    /// The sender's, towards a receiver that needs no CPU: its work is done in softirq of the sending CPUs.
    #[serde(default)]
    pub tx_alone: Vec<u32>,
    /// The receiving side's packet processing, if the lab has threads for it: the readers' CPUs when no other is left.
    #[serde(default)]
    pub napi: Vec<u32>,
}

impl CpuPlan {
    /// The same CPUs, whatever the receiver needs.
    pub fn fixed(tx: Vec<u32>, rx: Vec<u32>) -> Self {
        Self { tx_alone: tx.clone(), napi: rx.clone(), tx, rx }
    }

    /// Whether no CPU of the sender does any of the receiver's work, and the receiver takes no CPU from the sender: as
    /// on two machines.
    pub fn is_apart(&self) -> bool {
        let is_own = |cpu: &u32| !self.tx.contains(cpu);
        !self.rx.is_empty() && !self.tx.is_empty() && self.rx.iter().chain(&self.napi).all(is_own)
    }

    /// The sender's CPUs, depending on whether the receiver needs any.
    pub fn sending(&self, receiver_needs_cpus: bool) -> &[u32] {
        // Records of older versions have one list.
        if receiver_needs_cpus || self.tx_alone.is_empty() { &self.tx } else { &self.tx_alone }
    }
}
