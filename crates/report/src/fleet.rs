//! The hosts of a fleet's run: each one's own part of a trial.

use measure::{FleetHost, FleetTrial, Run, Trial};

use crate::{
    number::{count, nanos, percent, rate},
    table::{Cell, Column, Table},
};

/// The trial that the tables and bars show: the last one.
pub(crate) fn shown(run: &Run) -> Option<&FleetTrial<Trial>> {
    run.end.fleet.as_ref()?.trials.last()
}

/// Packets that came to a host's part of the path, and those that got through it.
pub(crate) fn passed(host: &FleetHost<Trial>) -> [u64; 2] {
    [host.ledger.sent, host.ledger.delivered]
}

/// One row per host: what it took, what it passed on, and how exactly it started; no rows without a fleet.
pub(crate) fn hosts(run: &Run) -> Table {
    let trial = shown(run);
    let hosts: &[FleetHost<Trial>] = trial.map_or(&[], |trial| &trial.hosts);
    let title = trial.map(|trial| format!("Hosts in trial {}", trial.trial)).unwrap_or_default();
    let mut table = Table::titled(title);
    let packets = |which: usize| hosts.iter().map(move |host| Cell::count(passed(host)[which]));
    let time = |ns: Option<f64>| ns.map_or_else(|| Cell::words("-"), |ns| Cell::words(nanos(ns)));
    table.push(Column::words("agent", hosts.iter().map(|host| Cell::words(&host.agent))));
    table.push(Column::words("role", hosts.iter().map(|host| Cell::words(&host.role))));
    table.push(Column::figures("took", "packets", packets(0)));
    table.push(Column::figures("passed on", "packets", packets(1)));
    let lost = hosts.iter().map(|host| Cell::count(host.ledger.lost()));
    table.push(Column::figures("lost here", "packets", lost));
    let unexplained = hosts.iter().map(|host| Cell::words(host.ledger.unexplained.to_string()));
    table.push(Column::words("unexplained", unexplained));
    let errors = hosts.iter().map(|host| time(host.start_error_ns.map(|ns| ns as f64)));
    table.push(Column::words("start error", errors).gives_way(2));
    let bounds = hosts.iter().map(|host| time(host.clock_bound_ns.map(|ns| ns as f64)));
    table.push(Column::words("clock known within", bounds).gives_way(1));
    table.legend = "took: a sender's packets handed to the kernel, a receiver's that reached it. start error: after the \
                  common start, by the agent's corrected clock."
        .into();
    table
}

/// The senders, the receivers, their rates and the weakest agent; without the final stop.
pub(crate) fn verdict(run: &Run) -> Option<String> {
    let trial = shown(run)?;
    let of = |role: &str| trial.hosts.iter().filter(|host| host.role == role).count();
    let whole = run.end.trials.last()?;
    let noun = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    let lost = match trial.loss_ratio_bounds {
        Some([least, most]) => {
            format!("between {} and {} % were lost (agents are missing)", percent(least), percent(most))
        }
        None => format!("{} % were lost", percent(whole.loss_ratio)),
    };
    let weakest = trial.weakest.as_ref().map(|agent| format!("; {agent} was furthest behind its rate"));
    Some(format!(
        "{} sent {} together to {}, which took {}: {} packets, of which {lost}{}",
        noun(of("sender"), "sender"),
        rate(whole.sent_pps),
        noun(of("receiver"), "receiver"),
        rate(whole.delivered_pps),
        count(whole.sent),
        weakest.unwrap_or_default()
    ))
}
