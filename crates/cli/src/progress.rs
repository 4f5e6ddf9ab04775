//! The live display on standard error: a bar on a terminal, a line a trial elsewhere.

use std::io::{self, IsTerminal};

use bench::{Coming, Watcher};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Interval, Trial};
use sys::signal;
use trial::Tick;

use crate::{
    failure::Failure,
    output::{self, Form, Journal},
};

/// Shows a ladder while it runs, and passes events on to a stream.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    form: Form,
    /// What a killed run leaves behind.
    journal: Option<Journal>,
    current: String,
    failure: Option<Failure>,
}

impl Progress {
    pub(crate) fn new(form: Form, journal: Option<Journal>) -> Self {
        let shown = io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let bar = shown.then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{bar:24} {percent:>3}%  {msg}");
            bar.set_style(style.expect("the template is right"));
            bar
        });
        Self { bar, form, journal, current: String::new(), failure: None }
    }

    /// Clears the display; what could not be printed meanwhile is told now.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.failure.map_or(Ok(()), Err)
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
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::from(of.unwrap_or(index + 1)) * 100);
                bar.set_position(u64::from(*index) * 100);
                bar.set_message(self.current.clone());
            }
            None => eprintln!("{}", self.current),
        }
    }

    fn tick(&mut self, tick: Tick) -> bool {
        if let Some(bar) = &self.bar {
            let whole = bar.position() / 100 * 100;
            bar.set_position(whole + (tick.done_ratio * 99.0) as u64);
            bar.set_message(format!(
                "{}  sent {:.0} kpps, delivered {:.0} kpps",
                self.current,
                tick.sent_pps / 1e3,
                tick.delivered_pps / 1e3
            ));
        }
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
