//! How CPUs spent a trial: shares of their time, interrupts, and the work of their network softirqs.

use serde::{Deserialize, Serialize};

/// How one CPU spent a trial, as shares of its time (`/proc/stat`), and what its interrupts did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuShare {
    /// CPU number.
    pub cpu: u32,
    /// User and nice.
    pub user_ratio: f64,
    /// System.
    pub system_ratio: f64,
    /// Hard interrupts.
    pub irq_ratio: f64,
    /// Soft interrupts.
    pub softirq_ratio: f64,
    /// Taken by the hypervisor.
    pub steal_ratio: f64,
    /// Idle and waiting for input or output.
    pub idle_ratio: f64,
    /// The share of hard and soft interrupts together has this error (plus or minus): half of its 95 % interval when
    /// the kernel samples by tick, the counters' resolution when it does not.
    #[serde(default)]
    pub interrupts_margin_ratio: Option<f64>,
    /// Time of the thread `ksoftirqd`, contained in the shares above.
    #[serde(default)]
    pub ksoftirqd_ratio: Option<f64>,
    /// What the receiving softirq did.
    #[serde(default)]
    pub net_rx: Option<NetRx>,
    /// What interrupted this CPU, the most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<InterruptRate>,
}

/// What the softirq that receives packets (`NET_RX`) did on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetRx {
    /// Rounds (`/proc/softirqs`); in each, every device that has packets is polled.
    pub rounds: u64,
    /// Packets that entered the stack here (`softnet_stat`); without packets that XDP consumes.
    pub packets: u64,
    /// Rounds that ended with packets left because the budget or the time for a round was used up
    /// (`net.core.netdev_budget`, `netdev_budget_usecs`). The rest waits for other work, and rings fill.
    pub time_squeezes: u64,
    /// Polls of single devices, when they were counted.
    #[serde(default)]
    pub polls: Option<NapiPolls>,
}

/// Polls of network devices (tracepoint `napi:napi_poll`), and exact time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NapiPolls {
    /// Polls.
    pub polls: u64,
    /// Packets that those polls processed, including packets that XDP consumes.
    pub packets: u64,
    /// Polls that used their whole budget: the device had more packets.
    pub full: u64,
    /// Polls that found nothing.
    pub empty: u64,
    /// Share of the CPU's time in the receiving softirq, by a clock read at its begin and end: what the shares by tick
    /// are samples of.
    pub net_rx_ratio: f64,
}

/// How often something interrupted a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterruptRate {
    /// The driver's name for it, mostly interface and queue, or the kernel's name.
    pub name: String,
    /// Interrupts a second.
    pub rate_per_s: f64,
}

/// How the kernel accounts time in interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum InterruptAccounting {
    /// The kernel reads a clock at every interrupt's begin and end (`CONFIG_IRQ_TIME_ACCOUNTING`).
    Precise,
    /// The timer tick charges its whole period to what is running: a sample. Time in hard interrupts is charged
    /// to what they interrupt.
    Ticks,
    /// Not known.
    #[default]
    Unknown,
}

impl NetRx {
    /// Mean packets of a round.
    pub fn packets_per_round(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.packets as f64 / self.rounds as f64)
    }
}

impl NapiPolls {
    /// Mean packets of a poll.
    pub fn packets_per_poll(&self) -> Option<f64> {
        (self.polls > 0).then(|| self.packets as f64 / self.polls as f64)
    }
}

/// Half of the 95 % interval of a share estimated from `looks` samples (Agresti and Coull, 1998, which is valid
/// also for shares near 0 and 1).
///
/// It assumes that samples are independent of the work. Work in step with the tick (a sender paced by the same timer) can
/// be missed altogether, and no number of samples bounds that.
pub fn tick_margin(share: f64, looks: f64) -> f64 {
    const Z: f64 = 1.96;
    let n = looks.max(0.0) + Z * Z;
    let p = (share.clamp(0.0, 1.0) * looks.max(0.0) + Z * Z / 2.0) / n;
    Z * (p * (1.0 - p) / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_looks_know_a_share_better_and_none_know_nothing() {
        assert!((tick_margin(0.5, 10_000.0) - 0.0098).abs() < 1e-4);
        assert!((tick_margin(0.5, 100.0) - 0.096).abs() < 1e-3);
        assert!(tick_margin(0.0, 100.0) > 0.01, "a share that was never sampled may still exist");
        assert!(tick_margin(0.3, 0.0) >= 0.49);
        assert!(tick_margin(f64::NAN, f64::NAN).is_nan() || tick_margin(f64::NAN, f64::NAN) >= 0.0);
    }

    #[test]
    fn means_of_nothing_are_not_numbers() {
        assert_eq!(
            (NetRx::default().packets_per_round(), NapiPolls::default().packets_per_poll()),
            (None, None)
        );
        assert_eq!(NetRx { rounds: 2, packets: 7, ..NetRx::default() }.packets_per_round(), Some(3.5));
    }
}
