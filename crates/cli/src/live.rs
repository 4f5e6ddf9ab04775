//! Live views of a running command: the terminal's screen, the web page and the metrics.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
    time::{Duration, Instant},
};

use measure::{Start, Trial};
use view::{Ahead, Hub, Screen, Snapshot, Story, Web, WebPlan};

use crate::{
    args::ViewArgs,
    failure::{Failure, Status},
    output::Form,
};

/// Time between two snapshots.
const STEP: Duration = Duration::from_millis(100);

/// The active views. Drop restores the terminal.
pub(crate) struct Views {
    hub: Arc<Hub>,
    // Dropped in this order: browsers get the last snapshot while the terminal is restored.
    screen: Option<Screen>,
    servers: Vec<Web>,
    published: Option<Instant>,
}

impl Views {
    /// Starts the requested views; a screen only if standard error is a terminal that supports one and `form` is not a
    /// stream on the same terminal.
    pub(crate) fn open(args: &ViewArgs, form: Form) -> Result<Self, Failure> {
        let hub = Hub::new();
        let plans = [
            args.web.map(|address| WebPlan { address, clients: args.web_clients, metrics_only: false }),
            args.prometheus.map(|address| WebPlan { address, clients: args.web_clients, metrics_only: true }),
        ];
        let servers = plans.into_iter().flatten().map(|plan| Web::open(plan, &hub));
        let servers: Vec<Web> = servers.collect::<Result<_, _>>().map_err(|error| {
            Failure::of(Status::Refused, &error).hint("give another address, or port 0 for a free one")
        })?;
        for (server, plan) in servers.iter().zip(plans.into_iter().flatten()) {
            let what = if plan.metrics_only { "metrics" } else { "live page" };
            eprintln!("{what} at {}", server.url());
            if !plan.metrics_only && !plan.address.ip().is_loopback() {
                eprintln!("note: the page is not encrypted: anyone who intercepts its address can read it");
            }
        }
        let fits = io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
            && !(form == Form::JsonStream && io::stdout().is_terminal());
        // Without a terminal to draw on, lines are printed.
        let screen = (fits && !args.plain).then(|| Screen::open(&hub).ok()).flatten();
        Ok(Self { hub, screen, servers, published: None })
    }

    /// No views.
    pub(crate) fn none() -> Self {
        Self { hub: Hub::new(), screen: None, servers: Vec::new(), published: None }
    }

    /// Whether the terminal is in screen mode, which hides printed lines until it ends.
    pub(crate) fn has_screen(&self) -> bool {
        self.screen.is_some()
    }

    /// Whether a view is on and the last snapshot is old enough.
    pub(crate) fn is_due(&self) -> bool {
        self.is_watched() && self.published.is_none_or(|at| at.elapsed() >= STEP)
    }

    /// Whether any view is on.
    pub(crate) fn is_watched(&self) -> bool {
        self.screen.is_some() || !self.servers.is_empty()
    }

    /// Shows a snapshot.
    pub(crate) fn publish(&mut self, snapshot: Snapshot) {
        if self.is_watched() {
            self.published = Some(Instant::now());
            self.hub.publish(snapshot);
        }
    }
}

/// The views of a run, with its story.
pub(crate) struct Live {
    pub(crate) views: Views,
    pub(crate) story: Story,
    began: Instant,
}

impl Live {
    /// Starts the story of a run.
    pub(crate) fn open(args: &ViewArgs, form: Form, start: &Start) -> Result<Self, Failure> {
        let mut live =
            Self { views: Views::open(args, form)?, story: Story::new(start, 0.0), began: Instant::now() };
        live.show();
        Ok(live)
    }

    /// Seconds since the run began.
    pub(crate) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Shows the story now, whenever it was last shown.
    pub(crate) fn show(&mut self) {
        if self.views.is_watched() {
            let snapshot = self.story.snapshot(self.now_s());
            self.views.publish(snapshot);
        }
    }

    /// Shows the story if the interval is over.
    pub(crate) fn show_when_due(&mut self) {
        if self.views.is_due() {
            self.show();
        }
    }

    /// Shows the story at a given moment of its own time.
    pub(crate) fn play(&mut self, at_s: f64, at_once: bool) {
        if self.views.is_due() || (at_once && self.views.is_watched()) {
            let snapshot = self.story.snapshot(at_s);
            self.views.publish(snapshot);
        }
    }

    /// A finished row of an experiment: its name, its trial, and its number among all rows.
    pub(crate) fn row(&mut self, name: &str, trial: &Trial, (index, of): (u32, u32)) {
        let ahead = Ahead {
            index,
            of: Some(of),
            tx: trial.tx.label.clone(),
            rx: trial.rx.label.clone(),
            what: name.into(),
            asked_pps: trial.asked_pps,
            worker_cpus: Vec::new(),
        };
        self.story.trial_begins(ahead, self.now_s());
        self.story.trial_ends(trial, self.now_s());
        self.show();
    }

    /// Shows the conclusion, and ends the views.
    pub(crate) fn end(mut self) {
        self.story.ends(String::new());
        self.show();
    }
}
