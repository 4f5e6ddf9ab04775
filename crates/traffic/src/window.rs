//! Access to the statistics of a running worker, which answers requests once per batch.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::collect::Readings;

/// Whether a read keeps or resets statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterReading {
    /// They go on.
    Continue,
    /// They begin anew.
    Reset,
}

/// Where a worker publishes its statistics on request; it checks for requests once per batch.
#[derive(Default)]
pub(crate) struct Window {
    asked: AtomicU32,
    answer: Mutex<Answer>,
    answered: Condvar,
}

#[derive(Default)]
enum Answer {
    #[default]
    Awaited,
    Given(Vec<Readings>),
    /// The worker has ended.
    Closed,
}

/// The statistics of a running receiver. Reading them waits for the workers, so this is separate from the receiver:
/// the caller needs to hold no lock that others need.
#[derive(Clone)]
pub struct StatisticsReader {
    windows: Arc<[Arc<Window>]>,
    /// One request at a time.
    turn: Arc<Mutex<()>>,
}

/// How long workers may take to answer, even on a busy machine.
const WINDOW_PATIENCE: Duration = Duration::from_secs(5);

const NOT_ASKED: u32 = 0;
const ASKED: u32 = 1;
const ASKED_TO_RESET: u32 = 2;

impl Window {
    /// Requests the worker's statistics.
    fn ask(&self, then: AfterReading) {
        let mut answer = self.answer.lock().expect("no holder panics");
        if let Answer::Given(_) = *answer {
            *answer = Answer::Awaited;
        }
        self.asked.store(if then == AfterReading::Reset { ASKED_TO_RESET } else { ASKED }, Relaxed);
    }

    /// Waits for the answer; `None` from a worker that has ended or takes longer.
    fn answer(&self, at_most: Duration) -> Option<Vec<Readings>> {
        let answer = self.answer.lock().expect("no holder panics");
        let is_awaited = |answer: &mut Answer| matches!(answer, Answer::Awaited);
        let mut answer =
            self.answered.wait_timeout_while(answer, at_most, is_awaited).expect("no holder panics").0;
        match std::mem::take(&mut *answer) {
            Answer::Given(readings) => Some(readings),
            Answer::Awaited => None,
            Answer::Closed => {
                *answer = Answer::Closed;
                None
            }
        }
    }

    /// The worker has ended: do not wait for its answer.
    pub(crate) fn close(&self) {
        *self.answer.lock().expect("no holder panics") = Answer::Closed;
        self.answered.notify_all();
    }

    /// The worker's side, once per batch: publishes requested statistics and, if requested, resets them.
    #[inline]
    pub(crate) fn show(&self, readings: impl FnOnce(AfterReading) -> Vec<Readings>) {
        if self.asked.load(Relaxed) != NOT_ASKED {
            self.show_now(readings);
        }
    }

    #[cold]
    fn show_now(&self, readings: impl FnOnce(AfterReading) -> Vec<Readings>) {
        let then = match self.asked.swap(NOT_ASKED, Relaxed) {
            ASKED_TO_RESET => AfterReading::Reset,
            _ => AfterReading::Continue,
        };
        *self.answer.lock().expect("no holder panics") = Answer::Given(readings(then));
        self.answered.notify_all();
    }
}

impl StatisticsReader {
    pub(crate) fn over(windows: Vec<Arc<Window>>) -> Self {
        Self { windows: windows.into(), turn: Arc::default() }
    }

    /// The measurements of all workers so far, each up to the end of a batch; [`AfterReading::Reset`] restarts them from now
    /// on. `None` when nothing is measured, a worker has ended, or one does not answer for 5 s.
    pub fn read(&self, then: AfterReading) -> Option<Vec<Readings>> {
        if self.windows.is_empty() {
            return None;
        }
        let _turn = self.turn.lock().expect("no holder panics");
        self.windows.iter().for_each(|window| window.ask(then));
        let answers: Option<Vec<_>> =
            self.windows.iter().map(|window| window.answer(WINDOW_PATIENCE)).collect();
        Some(answers?.into_iter().flatten().collect())
    }
}
