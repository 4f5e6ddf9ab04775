//! `linerate divert`: chosen packets leave the kernel, are filtered, and the valid ones go back.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use ::view::{History, Phase, Snapshot};
use divert::{
    BEAT, BpfError, Card, Diversion, DivertError, DivertPlan, Exclusions, Expression, FilterAt, RateLimit,
    Rule, RuleVerdict, Status, Steer, Steering,
};
use serde_json::json;
use session::{ControlRequest, ControlSocket};
use sys::{cpu, signal};

use crate::{
    args::{DivertArgs, DivertCommand, PlaceArg, QueueList, SteerArg},
    failure::{self, Failure, in_words},
    live::Views,
    output::{Form, print_line, printed, state_folder},
};

mod ask;
mod offline;
mod rules;
mod view;

use rules::{expression, marked, read_rules};

/// How often the file of rules and the interface are looked at.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &DivertArgs) -> Result<bool, Failure> {
    match &args.command {
        Some(DivertCommand::Status(args)) => return ask::status(args),
        Some(DivertCommand::AddQueue(args)) => return ask::change("add-queue", args),
        Some(DivertCommand::RemoveQueue(args)) => return ask::change("remove-queue", args),
        Some(DivertCommand::Stop(args)) => return ask::stop(args),
        Some(DivertCommand::Test(args)) => return offline::run(args),
        None => {}
    }
    let (plan, card) = plan(args)?;
    if args.dry_run {
        printed(view::write_steps(&plan, &card, args, &mut io::stdout().lock()))?;
        return Ok(true);
    }
    let control = ControlSocket::open(&session::runtime_folder(), ask::NAME)
        .map_err(|error| Failure::of(failure::Status::Refused, &error))?;
    if args.rules.is_some() {
        signal::catch_hangup().map_err(|error| Failure::of(failure::Status::Internal, &error))?;
    }
    let diversion = Diversion::start(&plan).map_err(|error| explain(&error))?;
    let begun = diversion.status().map_err(|error| explain(&error))?;
    eprintln!(
        "diverting {} of {} in {} XDP; Ctrl-C ends and undoes it",
        report::diversion_queues(&begun),
        plan.interface,
        diversion.mode()
    );
    eprint!("{}", report::diversion_steering(&begun));
    if plan.place == FilterAt::User && !plan.reinject && plan.keep_file.is_none() {
        eprintln!(
            "packets that pass are counted and go no further; --reinject gives them back to the kernel"
        );
    }
    let form = if args.json { Form::Json } else { Form::Text };
    let mut views = Views::open(&args.view, form)?;
    let served = serve(diversion, args, &control, &mut views);
    drop(views);
    let (last, is_gone) = served?;
    if args.json {
        print_line(
            &serde_json::to_string_pretty(&report::diversion_document(&last)).expect("a status is JSON"),
        )?;
    } else {
        printed(report::write_diversion(&last, &mut io::stdout().lock()))?;
    }
    if is_gone {
        return Err(Failure::new(
            failure::Status::Refused,
            format!("{} is gone, and the diversion with it", plan.interface),
        ));
    }
    Ok(last.ledger.unexplained == 0)
}

/// Beats, answers, watches the rules and prints until the time is over, a signal comes or the interface goes; says
/// whether it went.
fn serve(
    mut diversion: Diversion,
    args: &DivertArgs,
    control: &ControlSocket,
    views: &mut Views,
) -> Result<(Status, bool), Failure> {
    let began = Instant::now();
    let mut file = args.rules.as_deref().map(WatchedFile::new);
    let (mut printed_at, mut looked_at) = (began, began);
    let mut before = diversion.status().map_err(|error| explain(&error))?;
    let mut stops: Vec<ControlRequest> = Vec::new();
    let mut is_gone = false;
    let run = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut history = History::default();
    loop {
        diversion.beat().map_err(|error| explain(&error))?;
        for request in control.requests() {
            if request.body["ask"] == "stop" {
                stops.push(request);
            } else {
                answer(request, &mut diversion);
            }
        }
        if looked_at.elapsed() >= LOOK {
            looked_at = Instant::now();
            is_gone = !diversion.has_interface();
            if let Some(file) = &mut file
                && (file.has_changed() | signal::hung_up())
            {
                reload(&mut diversion, &file.path);
            }
        }
        if printed_at.elapsed() >= args.interval {
            printed_at = Instant::now();
            let now = diversion.status().map_err(|error| explain(&error))?;
            if !args.json && !views.has_screen() {
                print_line(&report::diversion_interval(&before, &now))?;
            }
            if views.is_watched() {
                let seen = view::snapshot(&before, &now, &mut history);
                views.publish(Snapshot { run: run.clone(), ..seen });
            }
            before = now;
        }
        let is_over = args.duration.is_some_and(|duration| began.elapsed() >= duration);
        if is_over || is_gone || !stops.is_empty() || signal::caught() > 0 {
            let last = diversion.finish().map_err(|error| explain(&error))?;
            if views.is_watched() {
                let seen = view::snapshot(&before, &last, &mut history);
                views.publish(Snapshot { run: run.clone(), phase: Phase::Ended, ..seen });
            }
            // Who asked for the end hears of it when all is undone.
            stops.into_iter().for_each(|request| request.answer(&report::diversion_document(&last)));
            return Ok((last, is_gone));
        }
        thread::sleep(BEAT / 4);
    }
}

/// A wrong file changes nothing, and is told.
fn reload(diversion: &mut Diversion, path: &Path) {
    let told = match read_rules(path) {
        Ok(rules) => diversion.reload(rules).map_err(|error| explain(&error)),
        Err(failure) => Err(failure),
    };
    match told {
        Ok(()) => eprintln!("rules read again from {}", path.display()),
        Err(failure) => eprintln!("{failure}\nthe rules stay as they were"),
    }
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
        _ => json!({"error": "this is asked of no diversion"}),
    };
    request.answer(&answer);
}

/// Notices when a file is another one or was written.
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

    /// A file that is gone for a moment, as editors do it, has not changed.
    fn has_changed(&mut self) -> bool {
        let now = Self::look(&self.path);
        let has = now.is_some() && now != self.seen;
        if has {
            self.seen = now;
        }
        has
    }
}

fn plan(args: &DivertArgs) -> Result<(DivertPlan, Card), Failure> {
    let mut problems = Vec::new();
    let interface = args.interface.clone().unwrap_or_default();
    let card = Card::read(&interface).map_err(|error| {
        Failure::of(failure::Status::Refused, &error).hint("ip link lists the interfaces of this host")
    })?;
    if args.place == PlaceArg::Xdp {
        let only_user = [
            ("--reinject", args.reinject),
            ("--cpus", args.cpus.is_some()),
            ("--spin", args.spin),
            ("--sample", args.sample.is_some()),
            ("--keep-to", args.keep_to.is_some()),
        ];
        for (flag, _) in only_user.into_iter().filter(|(_, given)| *given) {
            problems.push(
                Failure::new(
                    failure::Status::Usage,
                    format!("{flag} is for packets that come to this process"),
                )
                .hint("add --where user"),
            );
        }
    }
    if args.per.is_some() && args.limit.is_none() {
        problems.push(
            Failure::new(failure::Status::Usage, "--per says whose packets share the rate of --limit")
                .hint("add --limit RATE"),
        );
    }
    let selection = args.matching.as_ref().map(|text| expression("--match", text)).transpose();
    let selection = selection.unwrap_or_else(|failure| {
        problems.push(failure);
        None
    });
    let rules = rules(args).unwrap_or_else(|failure| {
        problems.push(failure);
        Vec::new()
    });
    if let Some(cpus) = &args.cpus {
        problems.extend(cpus.problem(&cpu::allowed().unwrap_or_default()));
    }
    let mut exclusions = match args.divert_own_session {
        true => Exclusions::default(),
        false => Exclusions::of_this_session(),
    };
    exclusions.networks.extend(&args.management);
    let mut plan = DivertPlan {
        interface,
        queues: match &args.queue {
            QueueList::Auto => (0..card.queues).collect(),
            QueueList::Queues(queues) => queues.clone(),
        },
        place: match args.place {
            PlaceArg::Xdp => FilterAt::Xdp,
            PlaceArg::User => FilterAt::User,
        },
        selection,
        rules,
        exclusions,
        reinject: args.reinject,
        cpus: args.cpus.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
        spin: args.spin,
        sample_one_in: args.sample.unwrap_or(0),
        sample_file: args.sample_to.clone(),
        keep_file: args.keep_to.clone(),
        steering: (!args.card.is_empty()).then(|| Steering::of_settings(args.card.clone(), state_folder())),
        shadow: args.shadow,
    };
    if let Some(steer) = args.steer {
        let steer = match steer {
            SteerArg::Queue => Steer::ToQueues,
            SteerArg::Drop => Steer::Drop,
        };
        plan = plan.steered(&card, steer, state_folder());
    }
    problems.extend(plan.problems(&card).iter().map(explain));
    Failure::all(problems).map_or(Ok((plan, card)), Err)
}

/// What the options say about packets that match.
fn rules(args: &DivertArgs) -> Result<Vec<Rule>, Failure> {
    if let Some(path) = &args.rules {
        return read_rules(path);
    }
    if let Some(keep) = &args.keep {
        let keep = expression("--keep", keep)?;
        return Ok(vec![Rule::new(RuleVerdict::Pass, keep), Rule::new(RuleVerdict::Drop, Expression::all())]);
    }
    if let Some(drop) = &args.drop {
        let drop = expression("--drop", drop)?;
        let leaves_some = !drop.is_all();
        let mut rules = vec![Rule::new(RuleVerdict::Drop, drop)];
        rules.extend(leaves_some.then(|| Rule::new(RuleVerdict::Pass, Expression::all())));
        return Ok(rules);
    }
    if let Some(rate) = args.limit {
        let limit = RateLimit::new(rate, args.per.unwrap_or_default())
            .map_err(|error| Failure::new(failure::Status::Usage, error))?;
        return Ok(vec![Rule { limit: Some(limit), ..Rule::new(RuleVerdict::Pass, Expression::all()) }]);
    }
    Err(Failure::new(failure::Status::Usage, "nothing says what becomes of the packets that match")
        .hint("add --keep EXPR, --drop EXPR (all for every packet), --limit RATE, or --rules FILE"))
}

fn explain(error: &DivertError) -> Failure {
    use failure::Status::{Missing, Refused, Usage};
    let status = match error {
        DivertError::Rule(_)
        | DivertError::NoQueue { .. }
        | DivertError::ShadowLimits
        | DivertError::ShadowKeeps => Usage,
        DivertError::GenericReinjection { .. } | DivertError::Bpf(BpfError::MissingCapability { .. }) => {
            Missing
        }
        _ => Refused,
    };
    let failure = Failure::of(status, error);
    match error {
        DivertError::Rule(error) => marked(error).into_iter().fold(failure, Failure::hint),
        DivertError::ShadowLimits => failure.hint("leave --shadow away, or the rules with limit"),
        DivertError::ShadowKeeps => failure.hint("add --reinject to --shadow --where user"),
        DivertError::GenericReinjection { .. } => failure.hint("use --where xdp, or leave --reinject away"),
        DivertError::Bpf(BpfError::MissingCapability { .. }) => {
            failure.hint("run as root: XDP needs CAP_BPF and CAP_NET_ADMIN, AF_XDP also CAP_NET_RAW")
        }
        DivertError::Joins { interface } => {
            let switch = format!("add --steer to have it off meanwhile, or: ethtool -K {interface} lro off");
            failure.hint(switch)
        }
        DivertError::Card { source, .. } => super::nic::session_failure(source),
        DivertError::Occupied { interface, program, .. }
        | DivertError::Bpf(BpfError::InUse { interface, program, .. }) => failure.hint(match &program[..] {
            "divert" => {
                format!("it is a diversion's: linerate divert stop {interface} ends one of this user")
            }
            _ => format!("end what holds it, or take it off: ip link set dev {interface} xdp off"),
        }),
        _ => failure,
    }
}
