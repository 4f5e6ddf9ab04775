//! What was asked, and the machine with every setting.

use measure::{Endpoint, NicFacts, Run};

use super::page::Page;
use crate::{
    escape::html,
    number,
    table::{Cell, Column, Table},
    tables::plain,
};

/// What was asked, every parameter.
pub(super) fn write_asked(run: &Run, page: &mut Page) {
    if run.start.asked.is_empty() {
        return;
    }
    page.section("asked", "What was asked", |page| {
        page.raw("<ul class=\"chips\">\n");
        for (name, value) in &run.start.asked {
            page.raw(format!("<li><span>{}</span>{}</li>\n", html(name), html(&plain(value))));
        }
        page.raw("</ul>\n");
    });
}

/// The machine, its interfaces, the engines' options, the CPU's mitigations.
pub(super) fn write(run: &Run, page: &mut Page) {
    let machine = &run.start.machine;
    page.section("machine", "The machine and every setting", |page| {
        let known = [
            ("CPU", machine.cpu_model.clone()),
            ("CPUs online", machine.cpus.to_string()),
            ("memory", number::memory(machine.memory_bytes)),
            ("kernel", machine.kernel.clone()),
            ("architecture", machine.architecture.clone()),
            ("clock source", machine.clocksource.clone()),
        ];
        facts(known.map(|(name, value)| (name.to_string(), value)), page);
        page.raw("<div class=\"side\">\n");
        for nic in &machine.interfaces {
            page.raw("<div>\n");
            page.element("h3", "", &format!("Interface {}", nic.name));
            facts(interface(nic), page);
            page.raw("</div>\n");
        }
        page.raw("</div>\n");
        let engines = engines(run);
        if engines.rows() > 0 {
            page.element("h3", "", "Engines");
            page.table(&engines);
        }
        if !machine.mitigations.is_empty() {
            page.element("h3", "", "CPU vulnerabilities");
            facts(machine.mitigations.clone(), page);
        }
    });
}

fn interface(nic: &NicFacts) -> Vec<(String, String)> {
    let known = [
        ("driver", nic.driver.clone()),
        ("role", nic.role.clone()),
        ("MTU", format!("{} bytes", nic.mtu_bytes)),
        ("queues", format!("{} TX, {} RX", nic.tx_queues, nic.rx_queues)),
        ("speed", nic.speed_bps.map_or_else(|| "not told".into(), |bps| number::bits_per_second(bps as f64))),
    ];
    let known = known.map(|(name, value)| (name.to_string(), value));
    known.into_iter().chain(nic.settings.clone()).collect()
}

/// Each side of each label once.
fn engines(run: &Run) -> Table {
    let mut sides: Vec<(&str, &Endpoint)> = Vec::new();
    for trial in &run.end.trials {
        for side in [("send", &trial.tx), ("receive", &trial.rx)] {
            if !sides.contains(&side) {
                sides.push(side);
            }
        }
    }
    let mut table = Table::titled("Engines and their options");
    table.push(Column::words("side", sides.iter().map(|(side, _)| Cell::words(*side))));
    table.push(Column::words("label", sides.iter().map(|(_, end)| Cell::words(&end.label))));
    table.push(Column::words("engine", sides.iter().map(|(_, end)| Cell::words(&end.engine))));
    table.push(Column::figures("threads", "", sides.iter().map(|(_, end)| Cell::count(end.threads.into()))));
    table.push(Column::words("CPUs", sides.iter().map(|(_, end)| Cell::words(pinned(end)))));
    let options = |end: &Endpoint| {
        let options = end.options.iter().map(|(name, value)| format!("{name}={}", plain(value)));
        options.collect::<Vec<_>>().join(", ")
    };
    table.push(Column::words("options", sides.iter().map(|(_, end)| Cell::words(options(end)))));
    table
}

fn pinned(end: &Endpoint) -> String {
    if end.cpus.is_empty() {
        return "not pinned".into();
    }
    end.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn facts(facts: impl IntoIterator<Item = (String, String)>, page: &mut Page) {
    page.raw("<dl class=\"facts\">\n");
    for (name, value) in facts {
        page.element("dt", "", &name);
        page.element("dd", "", &value);
    }
    page.raw("</dl>\n");
}
