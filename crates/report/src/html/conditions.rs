//! The request, and the machine with every setting.

use measure::{Endpoint, Machine, NicFacts, Run};
use serde_json::Value;

use super::page::Page;
use crate::{
    compare::flat,
    escape::html,
    number,
    table::{Cell, Column, Table},
    value::plain,
};

/// The most values to show directly; a model's machine has seventy.
const MOST_CHIPS: usize = 40;

/// The request: plain values directly, every parameter by its path on demand.
pub(super) fn write_asked(run: &Run, page: &mut Page) {
    let asked = &run.start.asked;
    if asked.is_empty() {
        return;
    }
    page.section("asked", "The request", |page| {
        let mut chips: Vec<(&str, String)> = asked.iter().filter_map(chip).collect();
        // A search or scenario with one setting is described by it.
        if let Some([Value::Object(only)]) = asked.get("points").and_then(Value::as_array).map(Vec::as_slice)
        {
            chips.extend(only.iter().filter_map(chip).filter(|(name, _)| !asked.contains_key(*name)));
        }
        if !chips.is_empty() && chips.len() <= MOST_CHIPS {
            page.raw("<ul class=\"chips\">\n");
            for (name, value) in chips {
                page.raw(format!("<li><span>{}</span>{}</li>\n", html(name), html(&value)));
            }
            page.raw("</ul>\n");
        }
        let all = Value::Object(asked.clone().into_iter().collect());
        let paths = flat(&all);
        let mut table = Table::titled("Every parameter");
        table.push(Column::words("name", paths.keys().map(Cell::words)));
        table.push(Column::words("value", paths.values().map(Cell::words)));
        page.details("Every parameter, with the names of the JSON", |page| page.table(&table));
    });
}

/// A name and its value, unless the value has parts; of lists only plain ones.
fn chip<'n>((name, value): (&'n String, &Value)) -> Option<(&'n str, String)> {
    let is_plain = |value: &Value| !value.is_object() && !value.is_array();
    let word = match value {
        Value::Null | Value::Object(_) => return None,
        Value::Array(of) if of.iter().all(is_plain) && !of.is_empty() => {
            of.iter().map(plain).collect::<Vec<_>>().join(", ")
        }
        // Pairs of a sender and a receiver, points of a sweep, steps of a scenario.
        Value::Array(of) => {
            // Published figures have their own table.
            if name == "published" {
                return None;
            }
            let pair = |one: &Value| Some(format!("{} → {}", one["tx"].as_str()?, one["rx"].as_str()?));
            let named = |one: &Value| {
                let known = ["step", "name"].iter().find_map(|name| one[*name].as_str());
                pair(one).or_else(|| known.map(str::to_owned))
            };
            let names: Vec<String> = of.iter().filter_map(named).collect();
            match names.len() == of.len() {
                true if !names.is_empty() => names.join(", "),
                _ if of.len() > 1 => number::count(of.len() as u64),
                _ => return None,
            }
        }
        plain_value => plain(plain_value),
    };
    Some((name, word))
}

/// The machine, its interfaces, the engines' options, the CPU's mitigations.
pub(super) fn write(run: &Run, page: &mut Page) {
    let machine = &run.start.machine;
    page.section("machine", "The machine and every setting", |page| {
        if *machine == Machine::default() {
            page.element("p", "", "None: the run was simulated.");
            write_engines(run, page);
            return;
        }
        let known = [
            ("CPU", machine.cpu_model.clone()),
            ("CPUs online", machine.cpus.to_string()),
            ("memory", number::memory(machine.memory_bytes)),
            ("kernel", machine.kernel.clone()),
            ("architecture", machine.architecture.clone()),
            ("clock source", machine.clocksource.clone()),
        ];
        let uncounted = machine.no_hardware_counters.as_ref();
        let uncounted =
            uncounted.map(|why| ("cycles, instructions, cache misses", format!("not counted: {why}")));
        let control = machine.cpu_control.iter().flat_map(|control| control.rows());
        let known = known.into_iter().chain(uncounted).chain(control);
        facts(known.map(|(name, value)| (name.to_string(), value)), page);
        page.raw("<div class=\"side\">\n");
        for nic in &machine.interfaces {
            page.raw("<div>\n");
            page.element("h3", "", &format!("Interface {}", nic.name));
            facts(interface(nic), page);
            page.raw("</div>\n");
        }
        page.raw("</div>\n");
        write_engines(run, page);
        let interrupts = machine.cpu_control.as_ref().map(|control| &control.interrupt_cpus);
        if let Some(interrupts) = interrupts.filter(|interrupts| !interrupts.is_empty()) {
            page.element("h3", "", "CPUs of the cards' interrupts");
            facts(interrupts.clone(), page);
        }
        if !machine.mitigations.is_empty() {
            page.element("h3", "", "CPU vulnerabilities");
            facts(machine.mitigations.clone(), page);
        }
    });
}

fn write_engines(run: &Run, page: &mut Page) {
    let engines = engines(run);
    if engines.rows() > 0 {
        page.element("h3", "", "Engines");
        page.table(&engines);
    }
}

fn interface(nic: &NicFacts) -> Vec<(String, String)> {
    let known = [
        ("driver", nic.driver.clone()),
        ("role", nic.role.clone()),
        ("MTU", format!("{} bytes", nic.mtu_bytes)),
        ("queues", format!("{} TX, {} RX", nic.tx_queues, nic.rx_queues)),
        ("speed", nic.speed_bps.map_or_else(|| "unknown".into(), |bps| number::bits_per_second(bps as f64))),
    ];
    let known = known.map(|(name, value)| (name.to_string(), value));
    known.into_iter().chain(nic.settings.clone()).collect()
}

/// Each side once per label.
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
