//! The sequence of every command that makes a record: print the plan (`--dry-run`) and exit, or check the file to save to,
//! start the stream of events, run the command, then save and print the record, also after a failure.

use std::io::{self, Write};

use measure::{Interval, Run, Start, Trial};
use report::{Event, Style};
use serde::Serialize;

use crate::{
    args::{OutputArgs, ViewArgs},
    failure::{Failure, Status},
    live::Live,
    output::{self, Form, Save},
    progress::Progress,
};

/// Where a command's record goes.
pub(crate) struct Pipeline {
    form: Form,
    is_verbose: bool,
    save: Option<Save>,
    view: ViewArgs,
}

/// How a command prints its record as text.
pub(crate) type WriteText<'e> = dyn Fn(&Run, &mut dyn Write) -> io::Result<()> + 'e;

/// What is special about the end of a run.
#[derive(Default)]
pub(crate) struct Ending<'e> {
    /// The failure that ended it early; what was measured before is still saved and printed.
    pub(crate) failure: Option<Failure>,
    /// The largest share of packets that a trial may lose.
    pub(crate) max_loss: Option<f64>,
    /// Text to print instead of the run's.
    pub(crate) text: Option<&'e WriteText<'e>>,
}

impl Pipeline {
    /// Prints the plan and returns `None` for `--dry-run`; otherwise checks that the run can be saved, by default under
    /// `name`.
    pub(crate) fn open(to: &OutputArgs, name: &str, plan: &impl Serialize) -> Result<Option<Self>, Failure> {
        if to.dry_run {
            return output::print_plan(plan).map(|_| None);
        }
        Self::of(to, name).map(Some)
    }

    /// The same without a plan to print.
    pub(crate) fn of(to: &OutputArgs, name: &str) -> Result<Self, Failure> {
        Ok(Self {
            form: to.form(),
            is_verbose: to.verbose,
            save: Save::prepare(to, name)?,
            view: to.view.clone(),
        })
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Starts the stream of events.
    pub(crate) fn begin(&self, start: &Start) -> Result<(), Failure> {
        self.event(Event::start(start))
    }

    /// The live display, with a journal of the run beside the file it will be saved to.
    pub(crate) fn progress(&self, start: &Start, earlier: Option<&Run>) -> Result<Progress, Failure> {
        let journal = self.save.as_ref().map_or(Ok(None), |save| save.journal(start, earlier))?;
        Ok(Progress::new(self.form, journal, self.live(start)?))
    }

    /// Refuses live views for a command that ends at once.
    pub(crate) fn refuse_views(to: &OutputArgs) -> Result<(), Failure> {
        if to.view.web.is_none() && to.view.prometheus.is_none() {
            return Ok(());
        }
        Err(Failure::new(
            Status::Usage,
            "--web and --prometheus cannot show a model, which is computed at once",
        )
        .hint("linerate replay shows a recorded run"))
    }

    /// The live views of a run.
    pub(crate) fn live(&self, start: &Start) -> Result<Live, Failure> {
        Live::open(&self.view, self.form, start)
    }

    /// Prints an interval while the command runs.
    pub(crate) fn interval(&self, interval: &Interval) -> Result<(), Failure> {
        match self.form {
            Form::Text => output::print_interval(interval),
            Form::JsonStream => output::print_event(Event::Interval(interval)),
            Form::Json | Form::Iperf3 => Ok(()),
        }
    }

    /// Adds a finished trial to the stream of events.
    pub(crate) fn trial(&self, trial: &Trial) -> Result<(), Failure> {
        self.event(Event::Trial(trial))
    }

    /// Adds the trials of a run that failed before its first event was printed.
    pub(crate) fn trials(&self, run: &Run) -> Result<(), Failure> {
        if self.form != Form::JsonStream {
            return Ok(());
        }
        for (at, trial) in run.end.trials.iter().enumerate() {
            let of_it = run.intervals.iter().filter(|interval| interval.trial as usize == at);
            of_it.map(Event::Interval).try_for_each(|event| self.event(event))?;
            self.trial(trial)?;
        }
        Ok(())
    }

    /// Saves and prints the run; returns whether its goals were met.
    pub(crate) fn conclude(self, run: &Run, ending: Ending<'_>) -> Result<bool, Failure> {
        // Saved before printing, which ends the process if the reader has closed the pipe.
        let saved = self.save.map(|save| save.finish(run)).transpose();
        let printed = match ending.text.filter(|_| self.form == Form::Text) {
            Some(write) => output::printed(write(run, &mut io::stdout().lock())),
            None => output::print_run(run, self.form, Style { verbose: self.is_verbose, ..output::style() }),
        };
        if let Some(path) = saved? {
            eprintln!("saved: {}", path.display());
        }
        printed?;
        let is_held = |most: f64| run.end.trials.iter().all(|trial| trial.loss_ratio <= most);
        match ending.failure {
            Some(failure) => Err(failure),
            None => Ok(run.end.goals_met() && ending.max_loss.is_none_or(is_held)),
        }
    }

    fn event(&self, event: Event<'_>) -> Result<(), Failure> {
        if self.form == Form::JsonStream { output::print_event(event) } else { Ok(()) }
    }
}
