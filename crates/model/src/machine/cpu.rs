//! CPUs and reading threads, as they are between two events.

use std::collections::VecDeque;

/// A CPU.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) step: Option<Step>,
    /// When the step ends.
    pub(super) until_ps: u64,
    /// Queues whose interrupt waits.
    pub(super) interrupts: VecDeque<u16>,
    /// Queues that wait for their poll.
    pub(super) polls: VecDeque<u16>,
    /// The queue that is being polled.
    pub(super) polling: Option<u16>,
    /// Reading threads that run here, and whose turn it is.
    pub(super) threads: Vec<u16>,
    pub(super) next_thread: usize,
    /// The sender of this machine runs here.
    pub(super) sends: bool,
    /// How long interrupts and polls have kept a waiting program off.
    pub(super) kept_off_ps: u64,
    /// Until when a program that had to wait may run.
    pub(super) turn_until_ps: u64,
    /// CPU time spent, including the whole current step.
    pub(super) busy: Busy,
}

/// CPU time by kind, in picoseconds.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Busy {
    pub(super) irq: u64,
    pub(super) softirq: u64,
    pub(super) app: u64,
    pub(super) sender: u64,
}

impl Cpu {
    /// CPU time spent up to now.
    pub(super) fn busy_until(&self, now_ps: u64) -> Busy {
        let mut busy = self.busy;
        if let Some(step) = self.step {
            *busy.of(step) -= self.until_ps.saturating_sub(now_ps);
        }
        busy
    }
}

impl Busy {
    #[inline]
    pub(super) fn of(&mut self, step: Step) -> &mut u64 {
        match step {
            Step::Interrupt(_) => &mut self.irq,
            Step::StartPoll | Step::Take(_) | Step::Refill(..) => &mut self.softirq,
            Step::Read(_) => &mut self.app,
            Step::Send => &mut self.sender,
        }
    }
}

/// What a CPU is doing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Interrupt(u16),
    StartPoll,
    Take(u16),
    Refill(u16, u64),
    Read(u16),
    Send,
}

/// A reading thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) cpu: usize,
    pub(super) socket: usize,
    pub(super) asleep: bool,
    /// Frames that the current call may still read.
    pub(super) left: u32,
}

impl Thread {
    pub(super) fn new(cpu: usize, socket: usize) -> Self {
        Self { cpu, socket, asleep: true, left: 0 }
    }
}
