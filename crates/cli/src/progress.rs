//! The live display on standard error: a bar on a terminal, a line a trial elsewhere.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use bench::{Coming, Watcher};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Interval, Trial};
use sys::signal;
use trial::Tick;

use crate::{
    failure::Failure,
    output::{self, Form, Journal},
};

const BAR_WIDTH: usize = 24;

/// Shows a ladder while it runs, and passes events on to a stream.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    form: Form,
    /// What a killed run leaves behind.
    journal: Option<Journal>,
    current: String,
    /// Trials that have begun, and how many there will be where that is known.
    begun: u32,
    of: Option<u32>,
    began: Instant,
    failure: Option<Failure>,
}

impl Progress {
    pub(crate) fn new(form: Form, journal: Option<Journal>) -> Self {
        let shown = io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let bar = shown.then(|| {
            let bar = ProgressBar::new(0);
            // One field, cut to the terminal's width: every further one would be drawn by itself.
            let style = ProgressStyle::with_template("{wide_msg}");
            bar.set_style(style.expect("the template is right"));
            bar
        });
        Self {
            bar,
            form,
            journal,
            current: String::new(),
            begun: 0,
            of: None,
            began: Instant::now(),
            failure: None,
        }
    }

    /// Clears the display; what could not be printed meanwhile is told now.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Draws the bar with words behind it; `done_ratio` of the trial that is going.
    fn draw(&self, done_ratio: f64, words: &str) {
        let Some(bar) = &self.bar else { return };
        let of = f64::from(self.of.unwrap_or(self.begun).max(1));
        let ratio = ((f64::from(self.begun.saturating_sub(1)) + done_ratio) / of).clamp(0.0, 1.0);
        let full = (ratio * BAR_WIDTH as f64) as usize;
        let (full, empty) = ("█".repeat(full), "░".repeat(BAR_WIDTH - full));
        bar.set_message(format!("{full}{empty} {:>3.0}%  {words}", ratio * 100.0));
    }

    fn keep(&mut self, outcome: Result<(), Failure>) {
        if let Err(failure) = outcome {
            self.failure.get_or_insert(failure);
        }
    }
}

impl Watcher for Progress {
    fn trial_begins(&mut self, coming: &Coming<'_>) {
        let Coming { index, of, row, what } = coming;
        let number = of.map_or_else(|| format!("{}", index + 1), |of| format!("{}/{of}", index + 1));
        self.current = format!("trial {number}  {row}");
        if !what.is_empty() {
            self.current += &format!("  {what}");
        }
        if let Some(left) = of.and_then(|of| remaining(self.began.elapsed(), *index, of)) {
            self.current += &format!("  {left}");
        }
        (self.begun, self.of) = (index + 1, *of);
        match &self.bar {
            Some(_) => self.draw(0.0, &self.current),
            None => eprintln!("{}", self.current),
        }
    }

    fn tick(&mut self, tick: Tick) -> bool {
        let rates = format!(
            "{}  sent {:.0} kpps, delivered {:.0} kpps",
            self.current,
            tick.sent_pps / 1e3,
            tick.delivered_pps / 1e3
        );
        self.draw(tick.done_ratio, &rates);
        signal::caught() == 0 && self.failure.is_none()
    }

    fn trial_ends(&mut self, trial: &Trial, intervals: &[Interval]) -> bool {
        // A full disk costs what is on it, not the measurement: the run goes on and is printed.
        if let Some(Err(failure)) = self.journal.as_mut().map(|journal| journal.add(trial, intervals)) {
            eprintln!("{failure}");
            self.journal.take().into_iter().for_each(Journal::give_up);
        }
        if self.form == Form::JsonStream {
            for interval in intervals {
                self.keep(output::print_event(report::Event::Interval(interval)));
            }
            self.keep(output::print_event(report::Event::Trial(trial)));
        }
        signal::caught() == 0 && self.failure.is_none()
    }
}

/// How long the trials to come will take, if they take as long as those before; `None` where that is soon, or unknown.
fn remaining(elapsed: Duration, done: u32, of: u32) -> Option<String> {
    const FEWEST: u32 = 3;
    let left =
        (done >= FEWEST).then(|| elapsed.mul_f64(f64::from(of.saturating_sub(done)) / f64::from(done)))?;
    match left.as_secs() {
        0..20 => None,
        seconds @ 20..100 => Some(format!("about {} s left", seconds.next_multiple_of(10))),
        seconds => Some(format!("about {} min left", seconds.div_ceil(60))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_told_once_some_trials_are_done() {
        let after = |seconds, done, of| remaining(Duration::from_secs(seconds), done, of);
        assert_eq!(after(10, 2, 90), None);
        assert_eq!(after(13, 3, 90).as_deref(), Some("about 7 min left"));
        assert_eq!(after(30, 30, 75).as_deref(), Some("about 50 s left"));
        assert_eq!(after(30, 80, 90), None);
    }
}
