//! The thread that runs `linerate divert` for an agent: validates rules before they reach the kernel, applies them, compares the
//! host's answers before and after, and undoes them when answers fall or the lease ends.

use std::{
    collections::VecDeque,
    fs::{self, DirBuilder},
    io::{BufRead, BufReader},
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use sys::{
    child::{Request, Ties, request, tie},
    netns::NetNs,
    rtnetlink::RouteSocket,
};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    DivertOutcome, DivertPlan, DivertState, FleetRules,
    notices::{Notice, Notices},
};

/// Time between two looks at the host's counters.
const LOOK: Duration = Duration::from_millis(200);
/// Loading a program into a busy kernel takes less.
const PATIENCE: Duration = Duration::from_secs(30);
/// A host that answers less often says nothing about its service.
const LEAST_ANSWERS_PPS: f64 = 10.0;
/// Answers are known for this time before rules come.
const BEFORE: Duration = Duration::from_secs(5);

/// To the thread.
pub(crate) enum Order {
    /// Revision, rules (`None`: divert nothing) and the time that is left of their lease.
    Take(u64, Option<FleetRules>, Duration),
    /// Undo, and end.
    End,
}

/// Starts the thread; its states come through `states`.
pub(crate) fn start(
    plan: DivertPlan,
    namespace: Option<PathBuf>,
    states: UnboundedSender<DivertState>,
) -> std::io::Result<(Sender<Order>, thread::JoinHandle<()>)> {
    let (orders, received) = channel();
    let thread = thread::Builder::new().name("fleet-divert".into()).spawn(move || {
        if let Some(path) = namespace
            && let Err(error) = NetNs::open(path).and_then(|space| space.enter())
        {
            let mut keeper = Keeper::new(plan, states);
            keeper.report(0, DivertOutcome::Refused, format!("cannot enter the network namespace: {error}"));
            return;
        }
        Keeper::new(plan, states).serve(&received);
    })?;
    Ok((orders, thread))
}

struct Keeper {
    plan: DivertPlan,
    states: UnboundedSender<DivertState>,
    route: Option<RouteSocket>,
    /// Packets that the host had sent on the interface, by time.
    sent: VecDeque<(Instant, u64)>,
    running: Option<Running>,
}

/// Rules in force.
struct Running {
    revision: u64,
    rules: FleetRules,
    until: Instant,
    child: Child,
    /// What it prints to standard error.
    lines: Receiver<String>,
    notices: Notices,
    /// Answers are compared until then.
    watch: Option<Watch>,
}

/// The comparison of answers after new rules.
struct Watch {
    before_pps: f64,
    from: (Instant, u64),
    /// What was in force before, to return to.
    previous: Option<(u64, FleetRules)>,
}

impl Keeper {
    fn new(plan: DivertPlan, states: UnboundedSender<DivertState>) -> Self {
        Self { plan, states, route: RouteSocket::open().ok(), sent: VecDeque::new(), running: None }
    }

    fn serve(&mut self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(LOOK) {
                Ok(Order::Take(revision, rules, lease)) => self.take(revision, rules, lease),
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look();
        }
        self.stop();
    }

    fn report(&mut self, revision: u64, outcome: DivertOutcome, reason: impl Into<String>) {
        self.report_answers(revision, outcome, reason, None);
    }

    fn report_answers(
        &mut self,
        revision: u64,
        outcome: DivertOutcome,
        reason: impl Into<String>,
        answers_pps: Option<(f64, f64)>,
    ) {
        let interface = self.plan.interface.clone();
        let state = DivertState { revision, outcome, reason: reason.into(), interface, answers_pps };
        self.states.send(state).ok();
    }

    fn take(&mut self, revision: u64, rules: Option<FleetRules>, lease: Duration) {
        let Some(rules) = rules else {
            self.stop();
            return self.report(revision, DivertOutcome::Off, "");
        };
        if lease.is_zero() {
            return self.report(revision, DivertOutcome::Undone, "the lease is over");
        }
        if let Some(running) = self.running.as_mut().filter(|running| running.rules == rules) {
            (running.revision, running.until) = (revision, Instant::now() + lease);
            let outcome = if running.watch.is_some() { DivertOutcome::Applied } else { DivertOutcome::Well };
            return self.report(revision, outcome, "the lease is renewed");
        }
        self.measure();
        let before_pps = self.answers_pps();
        let previous = self.running.as_ref().map(|running| (running.revision, running.rules.clone()));
        match self.apply(revision, &rules, Instant::now() + lease) {
            Ok(()) => {
                let from = self.measure();
                let watch = before_pps.filter(|pps| *pps >= LEAST_ANSWERS_PPS && rules.keep_answers > 0.0);
                let watch = watch.zip(from).map(|(before_pps, from)| Watch { before_pps, from, previous });
                let (outcome, reason) = match &watch {
                    Some(_) => (DivertOutcome::Applied, ""),
                    None => (
                        DivertOutcome::Well,
                        "answers are not compared: the host sent fewer than 10 packets per second before",
                    ),
                };
                self.running.as_mut().expect("it was applied").watch = watch;
                self.report(revision, outcome, reason);
            }
            Err(reason) => self.report(revision, DivertOutcome::Refused, reason),
        }
    }

    /// Validates and applies rules. After an error the rules before them are in force.
    fn apply(&mut self, revision: u64, rules: &FleetRules, until: Instant) -> Result<(), String> {
        let here = |error: std::io::Error| format!("cannot write the rules: {error}");
        DirBuilder::new().recursive(true).mode(0o700).create(&self.plan.folder).map_err(here)?;
        self.write(rules).map_err(here)?;
        // A running diversion checks what it reads again, and keeps its rules after a mistake.
        if self.running.is_none() {
            self.validate()?;
        }
        // What a running diversion can read again keeps its packets counted and never leaves a gap.
        let can_reload =
            |running: &Running| (&running.rules.place, running.rules.shadow) == (&rules.place, rules.shadow);
        let before =
            self.running.as_ref().map(|running| (running.revision, running.rules.clone(), running.until));
        if let Some(running) = self.running.as_mut().filter(|running| can_reload(running)) {
            request(&running.child, Request::Reload).map_err(here)?;
            return match running.wait_for(Notice::Reloaded) {
                Ok(()) => {
                    (running.revision, running.rules, running.until) = (revision, rules.clone(), until);
                    Ok(())
                }
                Err(reason) => {
                    let old = running.rules.clone();
                    self.write(&old).ok();
                    Err(reason)
                }
            };
        }
        self.stop();
        let started = self.spawn(revision, rules, until);
        if let (Err(_), Some((revision, rules, until))) = (&started, before) {
            self.write(&rules).ok();
            self.spawn(revision, &rules, until).ok();
        }
        started
    }

    fn file(&self) -> PathBuf {
        self.plan.folder.join("rules.toml")
    }

    /// Writes the files that `linerate divert` reads.
    fn write(&self, rules: &FleetRules) -> std::io::Result<()> {
        let (config, sets) = rules.files(&self.plan.folder);
        sets.iter().try_for_each(|(file, text)| fs::write(file, text))?;
        fs::write(self.file(), config)
    }

    /// Whether this version of linerate takes the rules on this interface; changes nothing.
    fn validate(&self) -> Result<(), String> {
        let mut command = self.command();
        let output = command.arg("--dry-run").stdout(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot run linerate divert: {error}"))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(in_a_line(&String::from_utf8_lossy(&output.stderr)))
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.plan.program);
        command.arg("divert").arg(&self.plan.interface).arg("--config").arg(self.file()).stdin(Stdio::null());
        // The agent's service manager watches the agent.
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        command
    }

    fn spawn(&mut self, revision: u64, rules: &FleetRules, until: Instant) -> Result<(), String> {
        let notices = Notices::open(&self.plan.folder)
            .map_err(|error| format!("cannot listen to linerate divert: {error}"))?;
        let mut command = self.command();
        command.env("NOTIFY_SOCKET", notices.path());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C is the agent's to handle.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        tie(&mut command, Ties::default());
        let mut child = command.spawn().map_err(|error| format!("cannot run linerate divert: {error}"))?;
        let stderr = child.stderr.take().expect("it is piped");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let rules = rules.clone();
        let mut running = Running { revision, rules, until, child, lines, notices, watch: None };
        let started = running.wait_for(Notice::Up);
        match &started {
            Ok(()) => self.running = Some(running),
            Err(_) => {
                running.child.kill().ok();
                running.child.wait().ok();
            }
        }
        started
    }

    /// Ends the diversion, which undoes what it changed.
    fn stop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        request(&running.child, Request::End).ok();
        let until = Instant::now() + PATIENCE;
        while running.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > until {
                running.child.kill().ok();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn look(&mut self) {
        let now = self.measure();
        let Some(running) = self.running.as_mut() else { return };
        let revision = running.revision;
        if let Ok(Some(status)) = running.child.try_wait() {
            let last = running.last_words();
            self.running = None;
            return self.report(
                revision,
                DivertOutcome::Undone,
                format!("linerate divert ended with {status}: {last}"),
            );
        }
        if Instant::now() >= running.until {
            self.stop();
            return self.report(revision, DivertOutcome::Undone, "the lease is over");
        }
        let (Some(watch), Some((now, sent))) = (&running.watch, now) else { return };
        let watched = now - watch.from.0;
        if watched < running.rules.settle() {
            return;
        }
        let with_pps = sent.saturating_sub(watch.from.1) as f64 / watched.as_secs_f64();
        let answers = (watch.before_pps, with_pps);
        let Some(watch) = running.watch.take() else { return };
        if with_pps >= running.rules.keep_answers * watch.before_pps {
            return self.report_answers(revision, DivertOutcome::Well, "", Some(answers));
        }
        let until = running.until;
        let undone = match watch.previous {
            Some((before, rules)) => match self.apply(before, &rules, until) {
                Ok(()) => format!("the rules of revision {before} are in force again"),
                Err(reason) => {
                    self.stop();
                    format!("nothing is diverted, since the rules before them were refused: {reason}")
                }
            },
            None => {
                self.stop();
                "nothing is diverted".into()
            }
        };
        let reason = format!(
            "the host sent {:.0} pps before the rules and {with_pps:.0} pps with them; {undone}",
            answers.0
        );
        self.report_answers(revision, DivertOutcome::Undone, reason, Some(answers));
    }

    /// Reads the counter of packets that the host sent.
    fn measure(&mut self) -> Option<(Instant, u64)> {
        let links = self.route.as_mut()?.links().ok()?;
        let link = links.into_iter().find(|link| link.name == self.plan.interface)?;
        let reading = (Instant::now(), link.stats.tx_packets);
        self.sent.push_back(reading);
        while self.sent.front().is_some_and(|(at, _)| reading.0 - *at > BEFORE) {
            self.sent.pop_front();
        }
        Some(reading)
    }

    /// Packets per second that the host sent lately.
    fn answers_pps(&self) -> Option<f64> {
        let ((from, first), (to, last)) = (self.sent.front()?, self.sent.back()?);
        let seconds = (*to - *from).as_secs_f64();
        (seconds >= 1.0).then(|| last.saturating_sub(*first) as f64 / seconds)
    }
}

impl Running {
    /// Waits until it reports this; else why it does not.
    fn wait_for(&mut self, wanted: Notice) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.notices.next(until.min(Instant::now() + LOOK)).map_err(|error| error.to_string())? {
                Some(notice) if notice == wanted => return Ok(()),
                Some(Notice::ReloadRefused(reason)) => return Err(in_a_line(&reason)),
                _ => {}
            }
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(self.last_words());
            }
        }
        Err(format!("linerate divert reported nothing for {PATIENCE:?}"))
    }

    /// What it printed, to its last line where it has ended.
    fn last_words(&self) -> String {
        let until = Instant::now() + LOOK;
        let next = || self.lines.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        in_a_line(&std::iter::from_fn(next).collect::<Vec<_>>().join("\n"))
    }
}

/// Errors and hints, without the word `error:`.
fn in_a_line(text: &str) -> String {
    let lines =
        text.lines().map(|line| line.trim().trim_start_matches("error: ")).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}
