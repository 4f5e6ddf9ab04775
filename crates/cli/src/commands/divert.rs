//! `linerate divert`: takes chosen packets off the kernel's receive path, filters them, and re-injects the valid ones.

use std::{env, io};

use divert::{Card, Diversion, DivertPlan, Exclusions, FilterAt, Ruleset, Steer, Steering};
use session::ControlSocket;
use sys::{cpu, signal};

use crate::{
    args::{DivertArgs, DivertCommand, PlaceArg, QueueList, SteerArg},
    failure::{self, Failure},
    live::Views,
    output::{Form, print_line, printed, state_folder},
    service::ServiceManager,
};

mod ask;
mod config;
mod explain;
mod offline;
mod rules;
mod serve;
mod view;

use config::ConfigFile;
use explain::explain;
use rules::ruleset;
use serve::Service;

pub(crate) fn run(args: &DivertArgs) -> Result<bool, Failure> {
    match &args.command {
        Some(DivertCommand::Status(args)) => return ask::status(args),
        Some(DivertCommand::AddQueue(args)) => return ask::change("add-queue", args),
        Some(DivertCommand::RemoveQueue(args)) => return ask::change("remove-queue", args),
        Some(DivertCommand::Stop(args)) => return ask::stop(args),
        Some(DivertCommand::Test(args)) => return offline::run(args),
        None => {}
    }
    let Some(path) = &args.config else { return carry_out(args.clone(), None) };
    let typed = env::args_os().skip_while(|word| word != "divert").skip(1).collect();
    let (config, args) = ConfigFile::read(path, typed)?;
    carry_out(args, Some(config))
}

fn carry_out(args: DivertArgs, config: Option<ConfigFile>) -> Result<bool, Failure> {
    let (plan, card) = plan(&args)?;
    if args.dry_run {
        printed(view::write_steps(&plan, &card, &args, &mut io::stdout().lock()))?;
        return Ok(true);
    }
    let control = ControlSocket::open(&session::runtime_folder(), ask::NAME)
        .map_err(|error| Failure::of(failure::Status::Refused, &error))?;
    let form = if args.json { Form::Json } else { Form::Text };
    let views = Views::open(&args.view, form)?;
    if args.rules.is_some() || config.is_some() {
        signal::catch_hangup().map_err(|error| Failure::of(failure::Status::Internal, &error))?;
    }
    let diversion = Diversion::start(&plan).map_err(|error| explain(&error))?;
    let begun = diversion.status().map_err(|error| explain(&error))?;
    eprintln!(
        "diverting {} of {} in {} XDP; Ctrl-C stops and undoes it",
        report::diversion_queues(&begun),
        plan.interface,
        diversion.mode()
    );
    eprint!("{}", report::diversion_steering(&begun));
    if plan.place == FilterAt::User && !plan.reinject && plan.keep_file.is_none() {
        eprintln!("passed packets are counted and kept from the kernel; --reinject returns them to it");
    }
    let is_json = args.json;
    let service = Service { args, config, control, views, manager: ServiceManager::of_environment() };
    let (last, is_gone) = service.run(diversion)?;
    if is_json {
        print_line(
            &serde_json::to_string_pretty(&report::diversion_document(&last)).expect("a status is JSON"),
        )?;
    } else {
        printed(report::write_diversion(&last, &mut io::stdout().lock()))?;
    }
    if is_gone {
        return Err(Failure::new(
            failure::Status::Refused,
            format!("{} disappeared, which ended the diversion", plan.interface),
        ));
    }
    Ok(last.ledger.unexplained == 0)
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
            ("--keep-to", args.keep_to.is_some()),
        ];
        for (flag, _) in only_user.into_iter().filter(|(_, given)| *given) {
            problems.push(
                Failure::new(failure::Status::Usage, format!("{flag} needs packets in this process"))
                    .hint("add --where user"),
            );
        }
    }
    if args.per.is_some() && args.limit.is_none() {
        problems.push(Failure::new(failure::Status::Usage, "--per needs --limit").hint("add --limit RATE"));
    }
    let Ruleset { selection, rules, sets } = ruleset(args).unwrap_or_else(|failure| {
        problems.push(failure);
        Ruleset::default()
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
        sets,
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
