//! Progress of a run of trials: the live views, else one line on a terminal, else a line per trial.

use std::io::{self, IsTerminal};

use bench::{Coming, Row, Watcher};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Interval, Trial};
use sys::signal;
use trial::Tick;
use view::{Ahead, Seen, Snapshot};

use crate::{
    failure::Failure,
    live::Live,
    output::{self, Form, Journal},
};

const BAR_WIDTH: usize = 24;

/// Shows the progress of a run, and passes events on to a stream.
pub(crate) struct Progress {
    live: Live,
    bar: Option<ProgressBar>,
    form: Form,
    /// The journal, which outlives a killed run.
    journal: Option<Journal>,
    failure: Option<Failure>,
}

impl Progress {
    pub(crate) fn new(form: Form, journal: Option<Journal>, live: Live) -> Self {
        let shown = io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
            && !live.views.has_screen();
        let bar = shown.then(|| {
            let bar = ProgressBar::new(0);
            // One field, cut to the terminal's width: indicatif would draw each further one separately.
            let style = ProgressStyle::with_template("{wide_msg}");
            bar.set_style(style.expect("the template is right"));
            bar
        });
        Self { live, bar, form, journal, failure: None }
    }

    /// Ends the display, and reports what could not be printed before.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.live.end();
        self.failure.map_or(Ok(()), Err)
    }

    /// Whether trials are shown while they run.
    pub(crate) fn is_watched(&self) -> bool {
        self.bar.is_some() || self.live.views.is_watched()
    }

    /// Prints a line above the display.
    pub(crate) fn say(&self, words: &str) {
        match &self.bar {
            Some(bar) => bar.println(words),
            // A screen shows the lines of standard error.
            None => eprintln!("{words}"),
        }
    }

    /// Begins a trial outside a ladder.
    pub(crate) fn begins(&mut self, ahead: Ahead) {
        self.live.story.trial_begins(ahead, self.live.now_s());
        self.live.show();
        match &self.bar {
            Some(_) => self.draw(),
            None if self.live.views.has_screen() => {}
            None => {
                // Nothing has been sent yet.
                let now = self.live.story.snapshot(self.live.now_s());
                eprintln!("{}", view::line(&Snapshot { traffic: None, waterfall: None, ..now }));
            }
        }
    }

    /// Shows a sample of the trial.
    pub(crate) fn looks(&mut self, tick: Tick) {
        self.live.story.looks(seen(tick), self.live.now_s());
        self.live.show_when_due();
        self.draw();
    }

    /// Ends the trial.
    pub(crate) fn ends(&mut self, trial: &Trial) {
        self.live.story.trial_ends(trial, self.live.now_s());
        self.live.show();
    }

    /// Draws the progress line of a terminal without a screen.
    fn draw(&self) {
        let Some(bar) = &self.bar else { return };
        let snapshot = self.live.story.snapshot(self.live.now_s());
        let ratio = snapshot.done_ratio.unwrap_or(0.0);
        let full = (ratio * BAR_WIDTH as f64) as usize;
        let (full, empty) = ("█".repeat(full), "░".repeat(BAR_WIDTH - full));
        bar.set_message(format!("{full}{empty} {:>3.0}%  {}", ratio * 100.0, view::line(&snapshot)));
    }

    fn keep(&mut self, outcome: Result<(), Failure>) {
        if let Err(failure) = outcome {
            self.failure.get_or_insert(failure);
        }
    }
}

/// A tick as views show it.
pub(crate) fn seen(tick: Tick) -> Seen {
    Seen {
        done_ratio: tick.done_ratio,
        sent: tick.look.sent,
        delivered: tick.look.delivered,
        rx_dropped: tick.look.rx_dropped,
        sent_pps: tick.sent_pps,
        delivered_pps: tick.delivered_pps,
    }
}

impl Watcher for Progress {
    fn trial_begins(&mut self, coming: &Coming<'_>) {
        let (tx, rx) = match coming.row {
            Row::Ours(pair) => (pair.tx.to_string(), pair.rx.to_string()),
            Row::Peer(pair) => {
                let name = pair.to_string();
                let (tx, rx) = name.split_once(" → ").unwrap_or((&name, ""));
                (tx.to_owned(), rx.to_owned())
            }
        };
        self.begins(Ahead {
            index: coming.index,
            of: coming.of,
            tx,
            rx,
            what: coming.what.clone(),
            asked_pps: coming.asked_pps,
            worker_cpus: coming.worker_cpus.clone(),
        });
    }

    fn tick(&mut self, tick: Tick) -> bool {
        self.looks(tick);
        signal::caught() == 0 && self.failure.is_none()
    }

    fn trial_ends(&mut self, trial: &Trial, intervals: &[Interval]) -> bool {
        // A full disk costs the journal, not the measurement: the run continues and is printed.
        if let Some(Err(failure)) = self.journal.as_mut().map(|journal| journal.add(trial, intervals)) {
            eprintln!("{failure}");
            self.journal.take().into_iter().for_each(Journal::give_up);
        }
        self.ends(trial);
        if self.form == Form::JsonStream {
            for interval in intervals {
                self.keep(output::print_event(report::Event::Interval(interval)));
            }
            self.keep(output::print_event(report::Event::Trial(trial)));
        }
        signal::caught() == 0 && self.failure.is_none()
    }
}
