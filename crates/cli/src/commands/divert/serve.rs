//! The loop of a running diversion: renews deadlines, answers requests, reads changed rules, prints.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::{Duration, Instant, SystemTime},
};

use ::view::{History, Phase, Snapshot};
use divert::{BEAT, Diversion, DivertError, Prepared, Status};
use serde_json::json;
use session::{ControlRequest, ControlSocket};
use sys::signal;

use super::{config::ConfigFile, explain::explain, rules::ruleset, view};
use crate::{
    args::DivertArgs,
    failure::{self, Failure, in_words},
    live::Views,
    output::print_line,
    service::ServiceManager,
};

/// How often the loop checks the file of rules and the interface.
const LOOK: Duration = Duration::from_millis(200);

/// A diversion and what it reports to.
pub(super) struct Service {
    pub(super) args: DivertArgs,
    /// The file of `--config`.
    pub(super) config: Option<ConfigFile>,
    pub(super) control: ControlSocket,
    pub(super) views: Views,
    pub(super) manager: ServiceManager,
}

/// The result of reading the rules again.
type Again = (Option<ConfigFile>, DivertArgs, Prepared);

impl Service {
    /// Runs until the time is over, a signal arrives or the interface disappears; returns whether it disappeared.
    pub(super) fn run(mut self, mut diversion: Diversion) -> Result<(Status, bool), Failure> {
        let began = Instant::now();
        let mut file = self.args.rules.as_deref().map(WatchedFile::new);
        let (mut printed_at, mut looked_at) = (began, began);
        let mut before = diversion.status().map_err(|error| explain(&error))?;
        let mut stops: Vec<ControlRequest> = Vec::new();
        let mut reading: Option<Receiver<Result<Again, Failure>>> = None;
        let (mut is_gone, mut asked) = (false, false);
        let run = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut history = History::default();
        self.manager.ready(&format!("diverting {}", report::diversion_queues(&before)));
        loop {
            diversion.beat().map_err(|error| explain(&error))?;
            if diversion.is_well() {
                self.manager.alive();
            }
            for request in self.control.requests() {
                if request.body["ask"] == "stop" {
                    stops.push(request);
                } else {
                    answer(request, &mut diversion);
                }
            }
            if looked_at.elapsed() >= LOOK {
                looked_at = Instant::now();
                is_gone = !diversion.has_interface();
                asked |= file.as_mut().is_some_and(WatchedFile::has_changed) | signal::hung_up();
            }
            if asked && reading.is_none() {
                asked = false;
                self.manager.reloading();
                reading = Some(self.read(&diversion));
            }
            if let Some(read) = reading.take() {
                match read.try_recv() {
                    Err(TryRecvError::Empty) => reading = Some(read),
                    read => self.reload(&mut diversion, read.unwrap_or_else(|_| Err(not_read()))),
                }
            }
            if printed_at.elapsed() >= self.args.interval {
                printed_at = Instant::now();
                let now = diversion.status().map_err(|error| explain(&error))?;
                if !self.args.json && !self.views.has_screen() {
                    print_line(&report::diversion_interval(&before, &now))?;
                }
                if self.views.is_watched() {
                    let seen = view::snapshot(&before, &now, &mut history);
                    self.views.publish(Snapshot { run: run.clone(), ..seen });
                }
                before = now;
            }
            let is_over = self.args.duration.is_some_and(|duration| began.elapsed() >= duration);
            if is_over || is_gone || !stops.is_empty() || signal::caught() > 0 {
                self.manager.stopping();
                let last = diversion.finish().map_err(|error| explain(&error))?;
                if self.views.is_watched() {
                    let seen = view::snapshot(&before, &last, &mut history);
                    self.views.publish(Snapshot { run: run.clone(), phase: Phase::Ended, ..seen });
                }
                // Requests to stop are answered once everything is undone.
                stops.into_iter().for_each(|request| request.answer(&report::diversion_document(&last)));
                return Ok((last, is_gone));
            }
            thread::sleep(BEAT / 4);
        }
    }

    /// Reads and compiles the files on a thread of its own: large files must not delay the renewal of deadlines.
    fn read(&self, diversion: &Diversion) -> Receiver<Result<Again, Failure>> {
        let (tell, told) = channel();
        let preparation = diversion.preparation();
        let (config, args) = (self.config.clone(), self.args.clone());
        thread::spawn(move || {
            let read = || {
                let (config, args) = match config {
                    Some(config) => config.again().map(|(config, args)| (Some(config), args))?,
                    None => (None, args),
                };
                let prepared = preparation.prepare(ruleset(&args)?).map_err(|error| explain(&error))?;
                Ok((config, args, prepared))
            };
            tell.send(read()).ok();
        });
        told
    }

    /// Installs new rules; a mistake changes nothing and is reported.
    fn reload(&mut self, diversion: &mut Diversion, read: Result<Again, Failure>) {
        let from = self.config.as_ref().map(ConfigFile::path).or(self.args.rules.as_deref());
        let from = from.map_or_else(|| "the command line".into(), |path| path.display().to_string());
        let replaced = read.and_then(|(config, args, prepared)| {
            diversion.take(prepared).map_err(|error| explain(&error))?;
            (self.config, self.args) = (config, args);
            Ok(())
        });
        match replaced {
            Ok(()) => {
                eprintln!("reloaded rules from {from}");
                self.manager.reloaded(true, &format!("reloaded rules from {from}"));
            }
            Err(failure) => {
                diversion.count_rejected_reload();
                eprintln!("{failure}\nkept the old rules");
                self.manager.reloaded(false, &format!("kept the old rules: {}", failure.words()));
            }
        }
    }
}

fn not_read() -> Failure {
    Failure::new(failure::Status::Internal, "the thread that reads the rules panicked")
}

fn answer(request: ControlRequest, diversion: &mut Diversion) {
    let words = |error: DivertError| json!({"error": in_words(&error)});
    let queue = request.body["queue"].as_u64().and_then(|queue| u32::try_from(queue).ok());
    let answer = match (request.body["ask"].as_str(), queue) {
        (Some("status"), _) => {
            diversion.status().map_or_else(words, |status| report::diversion_document(&status))
        }
        (Some("add-queue"), Some(queue)) => {
            diversion.add_queue(queue).map_or_else(words, |()| json!({"done": true}))
        }
        (Some("remove-queue"), Some(queue)) => {
            diversion.remove_queue(queue).map_or_else(words, |()| json!({"done": true}))
        }
        _ => json!({"error": "unknown request"}),
    };
    request.answer(&answer);
}

/// Detects that a file was written or replaced.
struct WatchedFile {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
}

impl WatchedFile {
    fn new(path: &Path) -> Self {
        Self { seen: Self::look(path), path: path.into() }
    }

    fn look(path: &Path) -> Option<(SystemTime, u64)> {
        fs::metadata(path).and_then(|found| Ok((found.modified()?, found.len()))).ok()
    }

    /// A file that is missing for a moment, as while an editor saves it, has not changed.
    fn has_changed(&mut self) -> bool {
        let now = Self::look(&self.path);
        let has = now.is_some() && now != self.seen;
        if has {
            self.seen = now;
        }
        has
    }
}
