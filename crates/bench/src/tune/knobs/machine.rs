//! Settings of the whole machine (sysctl).

use nic::Setting;

use super::super::knob::{JOURNALED, KnobValue, Row, Surroundings, TunePlace};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "sysctl.netdev-budget",
        about: "packets and microseconds per round of the receiving softirq (net.core.netdev_budget, netdev_budget_usecs)",
        risk: "applies to the whole machine: other work on a CPU waits longer for the softirq",
        undone: JOURNALED,
        application: "",
        values: |around| {
            let names = ["net.core.netdev_budget", "net.core.netdev_budget_usecs"];
            scaled(around, &names, 4, 1_000_000)
        },
    },
    Row {
        name: "sysctl.netdev-max-backlog",
        about: "queue length of a CPU for packets from RPS, loopback or an interface without NAPI (net.core.netdev_max_backlog)",
        risk: "applies to the whole machine: more memory, and more delay on a CPU that does not keep up",
        undone: JOURNALED,
        application: "",
        values: |around| scaled(around, &["net.core.netdev_max_backlog"], 8, 65_536),
    },
    Row {
        name: "sysctl.rmem-max",
        about: "largest receive buffer in bytes that an unprivileged socket may request (net.core.rmem_max)",
        risk: "applies to the whole machine: any program may use that much memory per socket",
        undone: JOURNALED,
        application: "",
        values: |_| {
            Err(
                "this program may exceed it (SO_RCVBUFFORCE): the knob is receive-buffer, and an application needs this setting for it",
            )
        },
    },
];

/// The original settings, and `factor` times their values, up to a bound.
fn scaled(
    around: &Surroundings<'_>,
    names: &[&str],
    factor: u64,
    at_most: u64,
) -> Result<Vec<KnobValue>, &'static str> {
    if around.place == TunePlace::Peer {
        return Err("the receiver is on another machine");
    }
    let page = around.machine.ok_or("this process may not change the machine's settings")?;
    let mut now = Vec::new();
    let mut then = Vec::new();
    for name in names {
        let setting = format!("sysctl.{name}");
        let value = page.number(&setting).ok_or("this namespace does not have it")?;
        now.push(Setting::new(setting.clone(), value));
        then.push(Setting::new(setting, (value * factor).min(at_most).max(value)));
    }
    let shown = |settings: &[Setting]| {
        settings.iter().map(|setting| setting.value.as_str()).collect::<Vec<_>>().join("/")
    };
    let values = [now, then].map(|settings| KnobValue::machine(shown(&settings), settings));
    Ok(values.into())
}
