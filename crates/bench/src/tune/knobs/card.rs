//! Settings of the receiving interface, as `linerate nic` has them.

use nic::{Page, Setting, cpu_list};

use super::super::knob::{GIVEN, JOURNALED, KnobValue, Row, SENDING, Surroundings, TuneGoal, TunePlace};

const LINK: &str = "most drivers take the link down for a moment";

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "channels.combined",
        about: "queues in use, each with an interrupt and a CPU of its own",
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
        about: "what of a UDP packet is hashed to choose a queue: addresses (sd), or ports as well (sdfn)",
        risk: "fragments have no ports and take another queue than the rest of their flow",
        undone: JOURNALED,
        application: "",
        values: |around| words(card(around)?, "rss.fields.udp4", &["sdfn", "sd"]),
    },
    Row {
        name: "rss.table",
        about: "which queues the hash leads to",
        risk: "packets of a flow that moves may overtake each other once",
        undone: JOURNALED,
        application: "",
        values: |around| {
            let page = card(around)?;
            let now = page.setting("rss.table").ok_or(ABSENT)?;
            let queues = page.number("channels.combined").unwrap_or(1);
            if now.starts_with("equal") || queues < 2 {
                return Err("it spreads over all queues already");
            }
            words(page, "rss.table", &[&format!("equal:{queues}")])
        },
    },
    Row {
        name: "coalesce.rx-usecs",
        about: "how long a card waits for more packets before it interrupts",
        risk: "a lone packet waits that long; drivers round the time",
        undone: JOURNALED,
        application: "",
        values: |around| match around.is_given("rx-usecs") {
            true => Err(GIVEN),
            false => numbers(card(around)?, "coalesce.rx-usecs", &[0, 30, 100]),
        },
    },
    Row {
        name: "coalesce.adaptive-rx",
        about: "the driver chooses how long to wait",
        risk: "rates and delays change with the load",
        undone: JOURNALED,
        application: "",
        values: |around| words(card(around)?, "coalesce.adaptive-rx", &["on", "off"]),
    },
    Row {
        name: "ring.rx",
        about: "descriptors of each receive ring: how long a burst may be",
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
        about: "the kernel joins received packets of a flow",
        risk: "a router or bridge sees joined packets",
        undone: JOURNALED,
        application: "",
        values: |around| match around.place {
            TunePlace::Lab => Err("the lab sets it as its engines need"),
            _ => words(card(around)?, "feature.rx-gro", &["on", "off"]),
        },
    },
    Row {
        name: "napi.threaded",
        about: "received packets are processed in a kernel thread a queue instead of in softirq",
        risk: "the threads run where the scheduler puts them",
        undone: JOURNALED,
        application: "",
        values: |around| match around.place {
            TunePlace::Lab => Err("of the lab it is threaded-napi"),
            _ => words(card(around)?, "napi.threaded", &["on", "off"]),
        },
    },
    Row {
        name: "napi.deferral",
        about: "polling goes on without interrupts (defer-hard-irqs, gro-flush-timeout-ns)",
        risk: "a lone packet may wait for the timeout",
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
        about: "the kernel hands packets of each queue to the receiver's CPUs (RPS)",
        risk: "an interrupt between CPUs for each batch; the CPUs' backlogs may overflow",
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
                return Err("there is one CPU");
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
            let shown = if now.iter().all(|setting| setting.value == "none") { "none" } else { "as it is" };
            Ok(vec![KnobValue::interface(shown, now), KnobValue::interface(list, then)])
        },
    },
];

const ABSENT: &str = "the interface does not have it";

fn card<'a>(around: &Surroundings<'a>) -> Result<&'a Page, &'static str> {
    if around.goal == TuneGoal::Tx {
        return Err(SENDING);
    }
    around.interface.ok_or("the receiving interface is another host's")
}

fn limit(page: &Page, name: &str) -> Result<u64, &'static str> {
    page.limit(name).map(u64::from).ok_or(ABSENT)
}

fn numbers(page: &Page, name: &str, others: &[u64]) -> Result<Vec<KnobValue>, &'static str> {
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    words(page, name, &others.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The value as it is, and others.
fn words(page: &Page, name: &str, others: &[&str]) -> Result<Vec<KnobValue>, &'static str> {
    let now = page.setting(name).ok_or(ABSENT)?;
    let value = |text: &str| KnobValue::interface(text, vec![Setting::new(name, text)]);
    Ok([now].into_iter().chain(others.iter().copied()).map(value).collect())
}
