//! The result for use: a plan for the card, a scenario, lines for an application.

use std::fmt::Write;

use measure::TuneArtefacts;
use nic::Setting;

use super::{combination::Combination, plan::TunePlan};

/// The artefacts of these values.
pub(super) fn of(plan: &TunePlan, values: &[usize]) -> TuneArtefacts {
    TuneArtefacts {
        nic_plan: nic_plan(plan, values),
        scenario: scenario(plan, values),
        application: application(plan, values),
    }
}

/// Changed settings of the interface and of the machine.
fn settings(plan: &TunePlan, values: &[usize]) -> Vec<Setting> {
    let nothing = vec![0; values.len()];
    let [before, after] = [&nothing[..], values].map(|values| {
        let Combination { interface, machine, .. } = plan.combination(values);
        [interface, machine].concat()
    });
    after.into_iter().filter(|setting| !before.contains(setting)).collect()
}

fn nic_plan(plan: &TunePlan, values: &[usize]) -> String {
    let settings = settings(plan, values);
    if settings.is_empty() {
        return String::new();
    }
    let interface = plan.interface.as_deref().unwrap_or("INTERFACE");
    let mut text = format!("# linerate nic apply {interface} --plan THIS_FILE\n");
    for Setting { name, value } in settings {
        let _memory_takes_everything = writeln!(text, "{name:?} = {value:?}");
    }
    text
}

fn scenario(plan: &TunePlan, values: &[usize]) -> String {
    let at = plan.combination(values);
    let label = |spec: String, switches: &[String]| {
        switches.iter().fold(spec, |label, switch| format!("{label}+{switch}"))
    };
    let tx = label(plan.pair.tx.to_string(), &at.tx_switches);
    let rx = label(plan.pair.rx.to_string(), &at.rx_switches);
    let mut text =
        format!("scenario = 1\ntitle = \"Settings found by linerate tune --goal {}\"\n", plan.goal.name());
    if !settings(plan, values).is_empty() {
        text +=
            "# The settings of card and machine are in the plan for linerate nic apply: apply that first.\n";
    }
    let _memory_takes_everything = write!(text, "\n[bench]\ntx = {tx:?}\n");
    if plan.place != super::knob::TunePlace::Peer {
        let _memory_takes_everything = writeln!(text, "rx = {rx:?}");
    }
    let mut options: Vec<(String, Option<String>)> = Vec::new();
    for (name, value) in plan.options.iter().chain(&at.options) {
        options.retain(|(known, _)| known != name);
        options.push((name.clone(), value.clone()));
    }
    for (name, value) in options {
        let value = value.map_or_else(|| "true".to_owned(), |value| format!("{value:?}"));
        let _memory_takes_everything = writeln!(text, "{name} = {value}");
    }
    text
}

fn application(plan: &TunePlan, values: &[usize]) -> Vec<String> {
    let changed =
        plan.knobs.iter().zip(values).filter(|(knob, value)| **value > 0 && !knob.application.is_empty());
    changed.map(|(knob, value)| knob.application.replace("{}", &knob.values[*value].shown)).collect()
}
