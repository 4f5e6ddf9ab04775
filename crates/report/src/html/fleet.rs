//! Bars of a fleet's hosts: what each took, passed on and lost.

use measure::{FleetHost, Run, Trial};

use super::{
    bar_chart::{self, BarChart, BarRow, Part},
    page::Page,
};
use crate::{fleet, number};

/// The hosts of the last trial; none without a fleet.
pub(super) fn write(run: &Run, page: &mut Page) {
    let Some(trial) = fleet::shown(run) else { return };
    let table = fleet::hosts(run);
    let title = table.title.clone();
    let row = |host: &FleetHost<Trial>| {
        let [took, passed] = fleet::passed(host);
        let part = |class: &str, name: &str, packets: u64| Part {
            class: class.into(),
            name: name.into(),
            share: packets as f64 / took.max(1) as f64,
            words: format!("{} packets", number::count(packets)),
        };
        let parts = vec![
            part("delivered", "passed on", passed),
            part("s1", "lost here", took.saturating_sub(passed)),
        ];
        let name = format!("{} ({})", host.agent, host.role);
        BarRow::new(name, format!("{} packets", number::count(took)), parts)
    };
    let chart = BarChart {
        title: &title,
        legend: bar_chart::legend([("delivered", "passed on"), ("s1", "lost here")]),
        note: String::new(),
        rows: trial.hosts.iter().map(row).collect(),
    };
    page.section("fleet", "Each host's part", |page| {
        page.figure(&title, &table, |page| chart.write(page));
        page.table(&table);
    });
}
