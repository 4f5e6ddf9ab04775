//! CPU activity: time, softirqs, interrupts, and the profile of receiving.

use measure::{CpuShare, InterruptAccounting, Machine, Profile};

use super::{
    bar_chart::{self, BarChart, BarRow, Part},
    flame,
    page::Page,
};
use crate::{
    cpus::{self, CpuMean},
    ladder::{Rung, best},
    number, profile,
    queues::{self, SideQueues},
    table::{Cell, Column, Table},
};

/// CPU bars of all pairs up to this many; above, only those of the pair that delivered the most.
const MOST_CPU_BARS: usize = 24;
/// The most pairs whose profile is drawn; the record has all.
const MOST_FLAMES: usize = 8;

type Share = fn(&CpuShare) -> f64;

const PARTS: [(&str, &str, Share); 6] = [
    ("s0", "user", |cpu| cpu.user_ratio),
    ("s1", "system", |cpu| cpu.system_ratio),
    ("s3", "hard interrupts", |cpu| cpu.irq_ratio),
    ("s2", "soft interrupts", |cpu| cpu.softirq_ratio),
    ("s5", "steal (hypervisor)", |cpu| cpu.steal_ratio),
    ("idle", "idle", |cpu| cpu.idle_ratio),
];

pub(super) fn write(rungs: &[Rung], machine: &Machine, page: &mut Page) {
    let means: Vec<(&Rung, Vec<CpuMean>)> = rungs.iter().map(|rung| (rung, cpus::means(rung))).collect();
    let count: usize = means.iter().map(|(_, cpus)| cpus.len()).sum();
    if count == 0 {
        return;
    }
    let table = time_table(&means);
    let only = (count > MOST_CPU_BARS).then(|| best(rungs).map(|rung| rung.name.clone())).flatten();
    page.section("cpus", "CPU time", |page| {
        page.figure("Time of each CPU", &table, |page| {
            let drawn = means.iter().filter(|(rung, _)| only.as_ref().is_none_or(|only| *only == rung.name));
            let chart = BarChart {
                title: "Time of each CPU",
                legend: bar_chart::legend(PARTS.map(|(class, name, _)| (class, name))),
                note: String::new(),
                rows: drawn.flat_map(|(rung, cpus)| cpus.iter().map(|cpu| row(&rung.name, cpu))).collect(),
            };
            chart.write_groups(page);
            if let Some(only) = &only {
                page.element(
                    "p",
                    "note",
                    &format!("Shown: {only}, which delivered the most. The table has all pairs."),
                );
            }
            if machine.interrupt_accounting != InterruptAccounting::Unknown {
                page.element("p", "note", cpus::accounting_in_words(machine.interrupt_accounting));
            }
        });
        for table in [cpus::softirqs(rungs), cpus::interrupts(rungs)] {
            page.details(&table.title, |page| page.table(&table));
        }
    });
}

fn time_table(means: &[(&Rung, Vec<CpuMean>)]) -> Table {
    let rows = || means.iter().flat_map(|(rung, cpus)| cpus.iter().map(move |cpu| (rung, cpu)));
    let mut table = Table::titled("Time of each CPU, means over the trials");
    table.push(Column::words("pair", rows().map(|(rung, _)| Cell::words(&rung.name))));
    table.push(Column::figures("CPU", "", rows().map(|(_, mean)| Cell::count(mean.share.cpu.into()))));
    for (_, name, share) in PARTS {
        let cells = rows().map(|(_, mean)| Cell::figure(share(&mean.share), number::percent));
        table.push(Column::figures(name, "%", cells));
    }
    table
}

fn row(pair: &str, CpuMean { share: cpu, .. }: &CpuMean) -> BarRow {
    let part = |(class, name, share): (&str, &str, Share)| Part {
        class: class.into(),
        name: name.into(),
        share: share(cpu),
        words: format!("{} %", number::percent(share(cpu))),
    };
    let idle = format!("{} % idle", number::percent(cpu.idle_ratio));
    let row = BarRow::new(format!("CPU {}", cpu.cpu), idle, PARTS.map(part).into());
    BarRow { group: pair.to_owned(), ..row }
}

/// Each queue's share of its interface's packets.
pub(super) fn write_queues(rungs: &[Rung], page: &mut Page) {
    let sides = queues::of_pairs(rungs);
    if sides.is_empty() {
        return;
    }
    page.section("queues", "Packets by queue", |page| {
        // a single queue has everything, so that shares say nothing
        let row = |side: &SideQueues<'_>| {
            let parts: Vec<Part> = side
                .queues
                .iter()
                .filter(|queue| queue.packets > 0)
                .map(|queue| Part {
                    class: format!("s{}", queue.queue % 8),
                    name: format!("queue {}", queue.queue),
                    share: side.share(queue),
                    words: format!("{} %", number::percent(side.share(queue))),
                })
                .collect();
            BarRow::new(format!("{}, {}", side.pair, side.side), largest(&parts), parts)
        };
        let chart = BarChart {
            title: "Share of each queue",
            legend: Vec::new(),
            note: String::new(),
            rows: sides.iter().filter(|side| side.queues.len() > 1).map(row).collect(),
        };
        page.figure(chart.title, &queues::table(&sides), |page| chart.write(page));
    });
}

fn largest(parts: &[Part]) -> String {
    let largest = parts.iter().max_by(|a, b| a.share.total_cmp(&b.share));
    largest.map_or_else(String::new, |part| format!("{} {} %", part.name, number::percent(part.share)))
}

/// Stages, functions and a flame graph for each profiled pair.
pub(super) fn write_profiles(rungs: &[Rung], page: &mut Page) {
    let profiles = profile::of_pairs(rungs);
    if profiles.is_empty() {
        return;
    }
    let colour = |index: usize| if index < 8 { format!("s{index}") } else { "idle".into() };
    page.section("profile", "Where the receive path spent its time", |page| {
        page.figure("Stages of the receive path", &profile::stages(&profiles), |page| {
            let stages = profile::stages_there(&profiles);
            let names = stages.iter().enumerate().map(|(at, stage)| (colour(at), stage.name()));
            let names: Vec<(String, &str)> = names.collect();
            let row = |(name, profile): &(String, Profile)| {
                let parts: Vec<Part> = profile
                    .stages
                    .iter()
                    .map(|share| Part {
                        class: colour(stages.iter().position(|stage| *stage == share.stage).unwrap_or(8)),
                        name: share.stage.name().into(),
                        share: share.share_ratio,
                        words: profile::share_in_words(share),
                    })
                    .collect();
                BarRow::new(name.as_str(), largest(&parts), parts)
            };
            let chart = BarChart {
                title: "Stages of the receive path",
                legend: bar_chart::legend(names.iter().map(|(class, name)| (class.as_str(), *name))),
                note: String::new(),
                rows: profiles.iter().map(row).collect(),
            };
            chart.write(page);
        });
        page.details("Functions", |page| page.table(&profile::functions(&profiles)));
        for (name, profile) in profiles.iter().take(MOST_FLAMES) {
            let table = profile::stacks(name, profile);
            page.figure(&table.title, &table, |page| flame::write(name, profile, page));
        }
        if profiles.len() > MOST_FLAMES {
            let more = profiles.len() - MOST_FLAMES;
            page.element("p", "note", &format!("The stacks of {more} more pairs are in the record."));
        }
    });
}
