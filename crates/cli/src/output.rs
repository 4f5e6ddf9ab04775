//! Output: standard output in the chosen form, and a file in the state directory.

use std::{
    env,
    fs::{self, TryLockError},
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
};

use measure::{Interval, ReceptionStatistics, Run, Start, Trial};
use report::Style;
use serde::Serialize;
use sys::output::{Destination, OutputFile};

use crate::{
    args::{Display, JsonArg, OutputArgs},
    failure::{Failure, Status},
};

/// What goes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
    JsonStream,
    Iperf3,
}

/// The file a run will be saved to.
pub(crate) struct Save {
    file: Output,
}

/// An output file that the user named: checked to be writable before the command runs, and then either written completely
/// or left as it was.
pub(crate) struct Output {
    path: PathBuf,
    option: &'static str,
    destination: Destination,
}

impl Output {
    /// Checks that the file can be written; `option` is the option that named it.
    pub(crate) fn prepare(path: &Path, option: &'static str) -> Result<Self, Failure> {
        match Destination::check(path) {
            Ok(destination) => Ok(Self { path: path.into(), option, destination }),
            Err(source) => {
                Err(unwritable(path, &source).hint(format!("choose another file with {option} FILE")))
            }
        }
    }

    /// Begins writing it.
    pub(crate) fn begin(self) -> Result<OutputFile, Failure> {
        self.destination.begin().map_err(|source| unwritable(&self.path, &source))
    }

    /// Writes it.
    pub(crate) fn write(self, content: &[u8]) -> Result<(), Failure> {
        let Self { path, option, destination } = self;
        let written = destination.begin().and_then(|mut file| {
            file.write_all(content)?;
            file.finish().map(drop)
        });
        written.map_err(|source| {
            unwritable(&path, &source).hint(format!("choose another file with {option} FILE"))
        })
    }
}

pub(crate) fn unwritable(path: &Path, source: &io::Error) -> Failure {
    Failure::new(Status::Refused, format!("cannot write {}: {source}", path.display()))
}

/// What a run has measured so far, as a stream of events; flushed to disk after each trial.
pub(crate) struct Journal {
    file: fs::File,
    path: PathBuf,
}

impl Journal {
    /// Adds a finished trial.
    pub(crate) fn add(&mut self, trial: &Trial, intervals: &[Interval]) -> Result<(), Failure> {
        let mut lines = Vec::new();
        let written = write_trial_events(trial, intervals.iter(), &mut lines);
        let synced = written.and_then(|()| self.file.write_all(&lines)).and_then(|()| self.file.sync_data());
        synced.map_err(|error| {
            Failure::new(Status::Refused, format!("cannot write {}: {error}", self.path.display()))
                .hint("the run continues, but cannot be resumed if it is killed")
        })
    }

    /// Frees disk space for what can still be saved.
    pub(crate) fn give_up(self) {
        fs::remove_file(self.path).ok();
    }
}

fn write_trial_events<'i>(
    trial: &Trial,
    mut intervals: impl Iterator<Item = &'i Interval>,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    intervals.try_for_each(|interval| report::write_event(report::Event::Interval(interval), out))?;
    report::write_event(report::Event::Trial(trial), out)
}

impl OutputArgs {
    pub(crate) fn form(&self) -> Form {
        match (self.json, self.json_stream) {
            (Some(JsonArg::Run), _) => Form::Json,
            (Some(JsonArg::Iperf3), _) => Form::Iperf3,
            (None, true) => Form::JsonStream,
            (None, false) => Form::Text,
        }
    }
}

impl Save {
    /// Checks that the run can be saved; `None` with `--no-save`.
    pub(crate) fn prepare(args: &OutputArgs, command: &str) -> Result<Option<Self>, Failure> {
        if args.no_save {
            return Ok(None);
        }
        let path = match &args.save {
            Some(path) => path.clone(),
            None => runs_folder().join(format!("{}-{command}-{}.json", timestamp(), std::process::id())),
        };
        if args.save.is_none() {
            let folder = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder).map_err(|source| {
                unwritable(&path, &source).hint("choose another file with --save FILE, or --no-save")
            })?;
            remove_empty_journals(folder);
        }
        let destination = Destination::check(&path).map_err(|source| {
            unwritable(&path, &source).hint("choose another file with --save FILE, or --no-save")
        })?;
        Ok(Some(Self { file: Output { path, option: "--save", destination } }))
    }

    /// A journal of the run beside the file it will be saved to, `FILE.partial`, starting with what an earlier run
    /// measured. It is removed when the run is saved; a killed process leaves it for `bench --resume`. `None` beside a
    /// device or a pipe.
    pub(crate) fn journal(&self, start: &Start, earlier: Option<&Run>) -> Result<Option<Journal>, Failure> {
        if !self.file.destination.is_file() {
            return Ok(None);
        }
        let path = self.partial();
        if fs::File::open(&path).is_ok_and(|other| matches!(other.try_lock(), Err(TryLockError::WouldBlock)))
        {
            return Err(Failure::new(
                Status::Refused,
                format!("cannot write {}: another run is writing it", path.display()),
            )
            .hint("choose another file with --save FILE"));
        }
        let mut begin = Vec::new();
        let written = report::write_event(report::Event::start(start), &mut begin);
        let trials = earlier.map_or(&[][..], |run| &run.end.trials);
        let lines = trials.iter().enumerate().take_while(|(_, trial)| !trial.interrupted).try_for_each(
            |(at, trial)| {
                let of_it = |interval: &&Interval| interval.trial as usize == at;
                let intervals = earlier.into_iter().flat_map(|run| &run.intervals).filter(of_it);
                write_trial_events(trial, intervals, &mut begin)
            },
        );
        let file = written.and(lines).and_then(|()| {
            // Moved into place at once: it may replace the file being resumed, whose trials a kill must not lose.
            let mut file = OutputFile::create(&path)?;
            file.write_all(&begin)?;
            file.finish()
        });
        let file = file.map_err(|error| unwritable(&path, &error))?;
        Ok(Some(Journal { file, path }))
    }

    fn partial(&self) -> PathBuf {
        let mut name = self.file.path.clone().into_os_string();
        name.push(".partial");
        name.into()
    }

    /// Writes the run and moves it into place.
    pub(crate) fn finish(self, run: &Run) -> Result<PathBuf, Failure> {
        let (path, partial) = (self.file.path.clone(), self.partial());
        let is_file = self.file.destination.is_file();
        let mut text = Vec::new();
        let written = report::write_json(run, &mut text).and_then(|()| {
            let mut file = self.file.destination.begin()?;
            file.write_all(&text)?;
            file.finish().map(drop)
        });
        written
            .map_err(|source| unwritable(&path, &source).hint("copy the results from the output above"))?;
        if is_file && fs::symlink_metadata(&partial).is_ok_and(|found| found.is_file()) {
            fs::remove_file(partial).ok();
        }
        Ok(path)
    }
}

/// Removes journals that hold no trial and that no process has locked: no run can resume from them.
fn remove_empty_journals(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_empty = |mut file: fs::File| {
            let mut text = String::new();
            file.try_lock().is_ok() && file.read_to_string(&mut text).is_ok() && text.lines().count() <= 1
        };
        if path.extension().is_some_and(|extension| extension == "partial")
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && fs::File::open(&path).is_ok_and(is_empty)
        {
            fs::remove_file(path).ok();
        }
    }
}

/// The folder of saved runs.
pub(crate) fn runs_folder() -> PathBuf {
    state_folder().join("runs")
}

/// `$XDG_STATE_HOME/linerate`, below the home directory by default.
pub(crate) fn state_folder() -> PathBuf {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.or_else(home).unwrap_or_else(env::temp_dir).join("linerate")
}

fn timestamp() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Prints a line of text.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    printed(writeln!(io::stdout(), "{line}"))
}

/// Prints a finished run in the chosen form, text in this style. A stream has only its end left to print.
pub(crate) fn print_run(run: &Run, form: Form, style: Style) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = match form {
        Form::Text => report::write_text(run, style, &mut out),
        Form::Json => report::write_json(run, &mut out),
        Form::JsonStream => report::write_event(report::Event::End(&run.end), &mut out),
        Form::Iperf3 => report::write_iperf3(run, &mut out),
    };
    printed(written.and_then(|()| out.flush()))
}

/// Prints a plan as JSON, for `--dry-run`.
pub(crate) fn print_plan(plan: &impl Serialize) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    let written = serde_json::to_writer_pretty(&mut out, plan).map_err(io::Error::from);
    printed(written.and_then(|()| writeln!(out)))?;
    Ok(true)
}

/// Prints one event of a stream.
pub(crate) fn print_event(event: report::Event<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(report::write_event(event, &mut out).and_then(|()| out.flush()))
}

/// Prints a trial as text.
pub(crate) fn print_trial(trial: &Trial) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(report::write_trial(trial, style(), &mut out).and_then(|()| out.flush()))
}

/// Writes what a receiver measured.
pub(crate) fn write_reception(
    statistics: &ReceptionStatistics,
    display: Display,
    mut out: &mut dyn Write,
) -> io::Result<()> {
    match display {
        Display::Human => report::write_reception_human(statistics, &mut out),
        Display::Script => report::write_reception_script(statistics, &mut out),
    }
}

/// Writes a run as an HTML page.
pub(crate) fn write_page(run: &Run, to: Output) -> Result<(), Failure> {
    let path = to.path.clone();
    let mut page = Vec::new();
    report::write_html(run, &mut page).map_err(|source| unwritable(&path, &source))?;
    to.write(&page)?;
    eprintln!("plotted: {}", path.display());
    Ok(())
}

/// Prints an interval as udpreceiver does.
pub(crate) fn print_interval(interval: &Interval) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(report::write_interval_line(interval, &mut out).and_then(|()| out.flush()))
}

/// A closed pipe is a clean exit: the reader has seen enough.
pub(crate) fn printed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            sys::terminal::restore();
            std::process::exit(0)
        }
        Err(error) => Err(Failure::new(Status::Refused, format!("cannot write to stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Standard output's text style: on a terminal the text fits its width, and the last lines stay in view.
pub(crate) fn style() -> Style {
    let is_terminal = io::stdout().is_terminal();
    let lines = if is_terminal { terminal_lines() } else { None };
    Style { width: width(), lines, verdict_last: is_terminal, ..Style::default() }
}

/// Columns of the terminal; 100 without one.
pub(crate) fn width() -> usize {
    let width = if io::stdout().is_terminal() { terminal_width() } else { None };
    width.unwrap_or(100)
}

fn terminal_width() -> Option<usize> {
    let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.or_else(|| console::Term::stdout().size_checked().map(|(_, columns)| columns.into()))
}

fn terminal_lines() -> Option<usize> {
    let lines = env::var("LINES").ok().and_then(|lines| lines.parse().ok());
    lines.or_else(|| console::Term::stdout().size_checked().map(|(lines, _)| lines.into()))
}
