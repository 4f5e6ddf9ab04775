//! Where results go: standard output in the asked form, and a file in the state directory.

use std::{
    env, fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use measure::{Interval, ReceptionStatistics, Run, Start, Trial};
use report::Style;
use serde::Serialize;
use tempfile::NamedTempFile;

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

/// The file a run will be saved to: known to be writable before any traffic, complete or absent afterwards.
pub(crate) struct Save {
    path: PathBuf,
}

/// What a run has measured so far, as a stream of events; synchronised with the disk after each trial.
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
                .hint("the run goes on, and cannot be resumed if it is killed")
        })
    }

    /// Makes room for what can still be saved.
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
    /// Makes sure that the run can be saved; `None` when it shall not be.
    pub(crate) fn prepare(args: &OutputArgs, command: &str) -> Result<Option<Self>, Failure> {
        if args.no_save {
            return Ok(None);
        }
        let path = match &args.save {
            Some(path) => path.clone(),
            None => runs_folder().join(format!("{}-{command}-{}.json", timestamp(), std::process::id())),
        };
        let folder = folder_of(&path);
        let refused = |source: io::Error| {
            Failure::new(Status::Refused, format!("cannot write {}: {source}", path.display()))
                .hint("give another file with --save FILE, or --no-save")
        };
        if path.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory.into()));
        }
        if args.save.is_none() {
            fs::create_dir_all(folder).map_err(refused)?;
        }
        // It goes again at once: a run that is killed leaves nothing but its journal.
        unfinished(folder).map_err(refused)?;
        Ok(Some(Self { path }))
    }

    /// A journal of the run beside the file it will be saved to, `FILE.partial`, beginning with what an earlier run
    /// measured. It goes when the run is saved; a killed process leaves it, and `bench --resume` goes on from it.
    pub(crate) fn journal(&self, start: &Start, earlier: Option<&Run>) -> Result<Journal, Failure> {
        let path = self.partial();
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
            // In its place at once: it may be the one that is gone on with, and a kill must not cost what that holds.
            let mut file = unfinished(folder_of(&path))?;
            file.write_all(&begin)?;
            file.as_file().sync_data()?;
            Ok(file.persist(&path)?)
        });
        let file = file.map_err(|error| {
            Failure::new(Status::Refused, format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(Journal { file, path })
    }

    fn partial(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".partial");
        name.into()
    }

    /// Writes the run and puts it in place.
    pub(crate) fn finish(self, run: &Run) -> Result<PathBuf, Failure> {
        let refused = |source: io::Error| {
            Failure::new(Status::Refused, format!("cannot write {}: {source}", self.path.display()))
                .hint("the results were printed; save them from there")
        };
        let mut text = Vec::new();
        report::write_json(run, &mut text).map_err(refused)?;
        let mut file = unfinished(folder_of(&self.path)).map_err(refused)?;
        file.write_all(&text).map_err(refused)?;
        file.as_file().sync_all().map_err(refused)?;
        let (path, partial) = (self.path.clone(), self.partial());
        file.persist(&path).map_err(|error| {
            Failure::new(Status::Refused, format!("cannot write {}: {}", path.display(), error.error))
        })?;
        fs::remove_file(partial).ok();
        Ok(path)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What files are called that are being written, with the number of the process that does.
const UNFINISHED: &str = ".linerate-";

/// A file that is being written. Those of processes that ended in the middle of it go.
fn unfinished(folder: &Path) -> io::Result<NamedTempFile> {
    for left in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = left.file_name().to_string_lossy().into_owned();
        let process =
            name.strip_prefix(UNFINISHED).and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            fs::remove_file(left.path()).ok();
        }
    }
    tempfile::Builder::new()
        .prefix(&format!("{UNFINISHED}{}-", std::process::id()))
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)
}

/// Where runs are saved.
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

/// Saves a run where it was prepared to go, and says where that is.
pub(crate) fn save_run(run: &Run, save: Option<Save>) -> Result<(), Failure> {
    if let Some(save) = save {
        let path = save.finish(run)?;
        eprintln!("saved: {}", path.display());
    }
    Ok(())
}

/// Prints a line of words.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    printed(writeln!(io::stdout(), "{line}"))
}

/// Prints a finished run in the asked form. In a stream, everything but the end has been printed already.
pub(crate) fn print_run(run: &Run, form: Form) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = match form {
        Form::Text => report::write_text(run, style(), &mut out),
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

/// Prints what a receiver measured.
pub(crate) fn print_reception(statistics: &ReceptionStatistics, display: Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = match display {
        Display::Human => report::write_reception_human(statistics, &mut out),
        Display::Script => report::write_reception_script(statistics, &mut out),
    };
    printed(written.and_then(|()| out.flush()))
}

/// Writes a run as an HTML page.
pub(crate) fn write_page(run: &Run, path: &Path) -> Result<(), Failure> {
    let mut page = Vec::new();
    let written = report::write_html(run, &mut page).and_then(|()| fs::write(path, page));
    written.map_err(|source| {
        Failure::new(Status::Refused, format!("cannot write {}: {source}", path.display()))
            .hint("give another file with --plot FILE")
    })?;
    eprintln!("plotted: {}", path.display());
    Ok(())
}

/// Prints an interval as udpreceiver does.
pub(crate) fn print_interval(interval: &Interval) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(report::write_interval_line(interval, &mut out).and_then(|()| out.flush()))
}

/// A closed pipe is a clean exit: whoever read has seen enough.
pub(crate) fn printed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(Status::Refused, format!("cannot write to stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

pub(crate) fn style() -> Style {
    Style { width: width(), ..Style::default() }
}

/// Columns of the terminal; 100 where there is none.
pub(crate) fn width() -> usize {
    let width = if io::stdout().is_terminal() { terminal_width() } else { None };
    width.unwrap_or(100)
}

fn terminal_width() -> Option<usize> {
    let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.or_else(|| console::Term::stdout().size_checked().map(|(_, columns)| columns.into()))
}
