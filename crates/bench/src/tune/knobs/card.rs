//! Settings of the receiving interface, as in `linerate nic`.

use nic::{Page, Setting, cpu_list};

use super::super::knob::{GIVEN, JOURNALED, KnobValue, Row, SENDING, Surroundings, TuneGoal, TunePlace};

const LINK: &str = "most drivers take the link down briefly";

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "channels.combined",
        about: "queues in use, each with its own interrupt and CPU",
        risk: LINK,
        undone: JOURNALED,
        application: "",
        values: |around| {
            let page = card(around)?;
            let most = limit(page, "channels.combined")?;
            let cpus = around.cpus.len() as u64;
            numbers(page, "channels.combined", &[1, most.min(cpus), most])
        },
    },
    Row {
        name: "rss.fields.udp4",
        about: "fields of a UDP packet that the hash uses to choose a queue: addresses (sd), or also ports (sdfn)",
        risk: "fragments have no ports and arrive on another queue than the rest of their flow",
        undone: JOURNALED,
        application: "",
        values: |around| words(card(around)?, "rss.fields.udp4", &["sdfn", "sd"]),
    },
    Row {
        name: "rss.table",
        about: "the queues that the hash selects",
        risk: "packets of a flow that moves may be reordered once",
        undone: JOURNALED,
        application: "",
        values: |around| {
            let page = card(around)?;
            let now = page.setting("rss.table").ok_or(ABSENT)?;
            let queues = page.number("channels.combined").unwrap_or(1);
            if now.starts_with("equal") || queues < 2 {
                return Err("it already spreads over all queues");
            }
            words(page, "rss.table", &[&format!("equal:{queues}")])
        },
    },
    Row {
        name: "coalesce.rx-usecs",
        about: "how long the card waits for more packets before it interrupts",
        risk: "a single packet waits that long; drivers round the time",
        undone: JOURNALED,
        application: "",
        values: |around| match around.is_given("rx-usecs") {
            true => Err(GIVEN),
            false => numbers(card(around)?, "coalesce.rx-usecs", &[0, 30, 100]),
        },
    },
    Row {
        name: "coalesce.adaptive-rx",
        about: "the driver adapts the interrupt delay",
        risk: "rates and delays change with the load",
        undone: JOURNALED,
        application: "",
        values: |around| words(card(around)?, "coalesce.adaptive-rx", &["on", "off"]),
    },
    Row {
        name: "ring.rx",
        about: "descriptors of each receive ring: the longest burst that fits",
        risk: LINK,
        undone: JOURNALED,
        application: "",
        values: |around| {
            if around.is_given("rx-ring") {
                return Err(GIVEN);
            }
            let page = card(around)?;
            let most = limit(page, "ring.rx")?;
            numbers(page, "ring.rx", &[512.min(most), most.min(4096)])
        },
    },
    Row {
        name: "feature.rx-gro",
        about: "the kernel merges received packets of a flow (GRO)",
        risk: "a router or bridge sees merged packets",
        undone: JOURNALED,
        application: "",
        values: |around| match around.place {
            TunePlace::Lab => Err("the lab sets it to suit its engines"),
            _ => words(card(around)?, "feature.rx-gro", &["on", "off"]),
        },
    },
    Row {
        name: "napi.threaded",
        about: "one kernel thread per queue processes received packets instead of softirq",
        risk: "the threads run where the scheduler puts them",
        undone: JOURNALED,
        application: "",
        values: |around| match around.place {
            TunePlace::Lab => Err("in the lab it is threaded-napi"),
            _ => words(card(around)?, "napi.threaded", &["on", "off"]),
        },
    },
    Row {
        name: "napi.deferral",
        about: "polling continues without interrupts (defer-hard-irqs, gro-flush-timeout-ns)",
        risk: "a single packet may wait for the timeout",
        undone: JOURNALED,
        application: "",
        values: |around| {
            let page = card(around)?;
            let names = ["napi.defer-hard-irqs", "napi.gro-flush-timeout-ns"];
            let now = names.map(|name| page.number(name).map(|value| Setting::new(name, value)));
            let [Some(polls), Some(timeout)] = now else { return Err(ABSENT) };
            let is_off = polls.value == "0";
            let then = [Setting::new(names[0], 2), Setting::new(names[1], 200_000)];
            let shown = |settings: &[Setting; 2]| format!("{}/{}", settings[0].value, settings[1].value);
            let now = [polls, timeout];
            let mut values = vec![KnobValue::interface(shown(&now), now.into())];
            if is_off {
                values.push(KnobValue::interface(shown(&then), then.into()));
            }
            Ok(values)
        },
    },
    Row {
        name: "rps",
        about: "the kernel passes packets of each queue to the receiver's CPUs (RPS)",
        risk: "one interrupt between CPUs per batch; the CPUs' backlogs may overflow",
        undone: JOURNALED,
        application: "",
        values: |around| {
            let page = card(around)?;
            let queues = page.settings.settings.iter().filter(|(name, _)| name.starts_with("rps."));
            let now: Vec<Setting> = queues.map(|(name, value)| Setting::new(name, value)).collect();
            if now.is_empty() {
                return Err(ABSENT);
            }
            if around.cpus.len() < 2 {
                return Err("the machine has one CPU");
            }
            let cpus: Vec<u32> = match around.place {
                TunePlace::Lab => around.rx_cpus.to_vec(),
                _ => around.cpus.to_vec(),
            };
            if cpus.is_empty() {
                return Err("the receiver has no CPUs of its own");
            }
            let list = cpu_list(&cpus);
            let then = now.iter().map(|setting| Setting::new(&setting.name, &list)).collect();
            let shown = if now.iter().all(|setting| setting.value == "none") { "none" } else { "unchanged" };
            Ok(vec![KnobValue::interface(shown, now), KnobValue::interface(list, then)])
        },
    },
];

const ABSENT: &str = "the interface does not support it";

fn card<'a>(around: &Surroundings<'a>) -> Result<&'a Page, &'static str> {
    if around.goal == TuneGoal::Tx {
        return Err(SENDING);
    }
    around.interface.ok_or("the receiving interface is on another host")
}

fn limit(page: &Page, name: &str) -> Result<u64, &'static str> {
    page.limit(name).map(u64::from).ok_or(ABSENT)
}

fn numbers(page: &Page, name: &str, others: &[u64]) -> Result<Vec<KnobValue>, &'static str> {
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    words(page, name, &others.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The original value, and others.
fn words(page: &Page, name: &str, others: &[&str]) -> Result<Vec<KnobValue>, &'static str> {
    let now = page.setting(name).ok_or(ABSENT)?;
    let value = |text: &str| KnobValue::interface(text, vec![Setting::new(name, text)]);
    Ok([now].into_iter().chain(others.iter().copied()).map(value).collect())
}
