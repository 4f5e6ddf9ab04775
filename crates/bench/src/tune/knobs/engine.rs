//! Switches of both engines, from the registry of engines.

use std::collections::BTreeMap;

use traffic::{Engine, EngineSide, engines};

use super::super::{
    combination::Assignment,
    knob::{ENDS_WITH_THE_RUN, GIVEN, Knob, KnobValue, Surroundings, TuneGoal, TunePlace},
};

const RISK: &str = "none: it affects only this program's own sockets";

/// The switches that are off, as knobs.
pub(super) fn switches(around: &Surroundings<'_>, left_out: &mut BTreeMap<String, String>) -> Vec<Knob> {
    let row = |name: &str| engines().iter().find(|engine: &&Engine| engine.name == name);
    let mut knobs = Vec::new();
    let (tx, rx) = (&around.pair.tx, &around.pair.rx);
    if let Some(side) = row(tx.name()).and_then(|engine| engine.tx.as_ref()) {
        let sets = |switch: &str| Assignment::TxSwitch(switch.into());
        knobs.extend(of_side("tx", side, &tx.to_string(), sets, left_out));
    }
    if around.place != TunePlace::Peer
        && around.goal != TuneGoal::Tx
        && let Some(side) = row(rx.name()).and_then(|engine| engine.rx.as_ref())
    {
        let sets = |switch: &str| Assignment::RxSwitch(switch.into());
        knobs.extend(of_side("rx", side, &rx.to_string(), sets, left_out));
    }
    knobs
}

fn of_side<S>(
    side: &str,
    engine: &EngineSide<S>,
    label: &str,
    sets: impl Fn(&str) -> Assignment,
    left_out: &mut BTreeMap<String, String>,
) -> Vec<Knob> {
    let on: Vec<&str> = label.split('+').skip(1).collect();
    let mut knobs = Vec::new();
    for switch in engine.switches {
        let name = format!("{side}+{}", switch.name);
        if on.contains(&switch.name) {
            left_out.insert(name, GIVEN.into());
        } else if engine.is_exclusive && engine.switches.len() > 1 && !on.is_empty() {
            left_out.insert(name, "the engine takes only one of its switches".into());
        } else {
            knobs.push(Knob {
                name,
                about: switch.about.into(),
                values: vec![
                    KnobValue::as_is("off"),
                    KnobValue { shown: "on".into(), sets: vec![sets(switch.name)] },
                ],
                risk: RISK.into(),
                undone: ENDS_WITH_THE_RUN.into(),
                application: format!(
                    "{}: {}",
                    if side == "tx" { "sender" } else { "receiver" },
                    switch.about
                ),
            });
        }
    }
    knobs
}
