//! What an agent counts of itself, for metrics.

/// Totals since the agent's start, and what it does now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentCounts {
    /// Its name.
    pub agent: String,
    /// A number that a restarted agent does not have again.
    pub incarnation: String,
    /// The run that it takes part in.
    pub run: Option<String>,
    /// Attempts at trials that it prepared.
    pub prepared: u64,
    /// Of those, the ones that ended as planned.
    pub complete: u64,
    /// And those that ended early or failed.
    pub cut_short: u64,
    /// Requests that its owner's limits or its state did not allow.
    pub refused: u64,
    /// Packets sent in all attempts.
    pub sent: u64,
    /// Packets that its receivers delivered in all attempts, as a receiver.
    pub received: u64,
    /// Packets per second now, as a sender.
    pub sent_pps: f64,
    /// Results that the server has not acknowledged yet.
    pub results_waiting: u64,
    /// Whether the server is connected.
    pub is_connected: bool,
}

/// Receives what an agent reports.
pub trait AgentWatcher: Send + Sync + 'static {
    /// What a person wants to know.
    fn say(&self, words: String);
    /// Its counters, about five times a second.
    fn counts(&self, counts: &AgentCounts);
    /// Whether the counters of a running trial are wanted.
    fn is_watched(&self) -> bool;
}
