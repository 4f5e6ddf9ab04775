//! `napi.*`: how the kernel polls the card's queues: all of them, and each one separately (`napi.rx-0.*`, since Linux 6.13).

use sys::{
    NetlinkError,
    netdev::{Napi as Instance, NapiPolling},
};

use super::kind::{Kind, Wrong, number};
use crate::{
    Card, NicError,
    setting::{on_off, switch},
};

pub(super) struct Napi;

/// The files in the interface's folder, and the key of each. Writing one sets it for every queue.
const FILES: [(&str, &str); 3] = [
    // On: a thread per queue polls instead of the softirq, on any CPU in its affinity.
    ("threaded", "threaded"),
    // How long GRO may hold packets back, and how often polling goes on without interrupts before they come back.
    ("gro-flush-timeout-ns", "gro_flush_timeout"),
    ("defer-hard-irqs", "napi_defer_hard_irqs"),
];

/// The settings of each single queue, by key.
const EACH: [(&str, Field); 4] = [
    ("threaded", Field::Threaded),
    ("gro-flush-timeout-ns", Field::GroFlushTimeout),
    ("defer-hard-irqs", Field::DeferHardIrqs),
    ("irq-suspend-timeout-ns", Field::IrqSuspendTimeout),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Threaded,
    GroFlushTimeout,
    DeferHardIrqs,
    IrqSuspendTimeout,
}

/// How a queue's thread runs, by the kernel's number (`enum netdev_napi_threaded`).
const THREADED: [&str; 3] = ["off", "on", "busy-poll"];

impl Field {
    fn text(self, polling: &NapiPolling) -> Option<String> {
        match self {
            Self::Threaded => THREADED.get(polling.threaded? as usize).map(|word| (*word).to_owned()),
            Self::GroFlushTimeout => polling.gro_flush_timeout_ns.map(|ns| ns.to_string()),
            Self::DeferHardIrqs => polling.defer_hard_irqs.map(|polls| polls.to_string()),
            Self::IrqSuspendTimeout => polling.irq_suspend_timeout_ns.map(|ns| ns.to_string()),
        }
    }

    /// The value as read back.
    fn resolved(self, value: &str) -> Result<String, Wrong> {
        match self {
            Self::Threaded => match (switch(value), value) {
                (Some(on), _) => Ok(on_off(on).into()),
                (None, "busy-poll") => Ok(value.into()),
                _ => Err(Wrong::Expected("on, off or busy-poll".into())),
            },
            Self::DeferHardIrqs => number(value, Some(i32::MAX as u64)),
            Self::GroFlushTimeout | Self::IrqSuspendTimeout => number(value, None),
        }
    }

    /// The change that sets a resolved value.
    fn change(self, value: &str) -> NapiPolling {
        let mut change = NapiPolling::default();
        match self {
            Self::Threaded => {
                let place = THREADED.iter().position(|word| *word == value);
                change.threaded = place.map(|place| place as u32);
            }
            Self::GroFlushTimeout => change.gro_flush_timeout_ns = value.parse().ok(),
            Self::DeferHardIrqs => change.defer_hard_irqs = value.parse().ok(),
            Self::IrqSuspendTimeout => change.irq_suspend_timeout_ns = value.parse().ok(),
        }
        change
    }
}

/// The instances by the name of their queue: its receive queue if it has one. None when the kernel or the driver
/// does not tell.
fn instances(card: &mut Card) -> Vec<(String, Instance)> {
    let index = card.index();
    let Some(netdev) = card.netdev() else { return Vec::new() };
    let (Ok(queues), Ok(napis)) = (netdev.queues(index), netdev.napis(index)) else {
        return Vec::new();
    };
    let named = napis.into_iter().filter_map(|napi| {
        // Queues that receive come first.
        let queue = queues.iter().find(|queue| queue.napi == Some(napi.id))?;
        Some((format!("{}-{}", if queue.receives { "rx" } else { "tx" }, queue.id), napi))
    });
    named.collect()
}

fn no_family() -> NicError {
    NetlinkError::Unsupported { family: "netdev", since: "6.13" }.into()
}

/// The queue and the field of a key like `rx-0.threaded`.
fn of_one(key: &str) -> Option<(&str, Field)> {
    let (queue, field) = key.split_once('.')?;
    EACH.iter().find(|(known, _)| *known == field).map(|(_, field)| (queue, *field))
}

impl Kind for Napi {
    fn prefix(&self) -> &'static str {
        "napi"
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        card.folder()?;
        let value = |(key, file): &(&str, &str)| {
            let text = card.read(file).ok()?;
            let text = if *key == "threaded" { on_off(text != "0").into() } else { text };
            Some(((*key).to_owned(), text))
        };
        let mut values: Vec<(String, String)> = FILES.iter().filter_map(value).collect();
        for (queue, napi) in instances(card) {
            let own = EACH.iter().filter_map(|(key, field)| Some((key, field.text(&napi.polling)?)));
            values.extend(own.map(|(key, text)| (format!("{queue}.{key}"), text)));
        }
        Ok(values)
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        if let Some((queue, field)) = of_one(key) {
            let known = instances(card).into_iter().find(|(name, _)| name == queue);
            known.and_then(|(_, napi)| field.text(&napi.polling)).ok_or(Wrong::NoSuchKey)?;
            return field.resolved(value);
        }
        let (_, file) = FILES.iter().find(|(known, _)| *known == key).ok_or(Wrong::NoSuchKey)?;
        card.read(file).map_err(|_| Wrong::NoSuchKey)?;
        if key == "threaded" {
            let on = switch(value).ok_or_else(|| Wrong::Expected("on or off".into()))?;
            return Ok(on_off(on).into());
        }
        number(value, Some(i32::MAX as u64))
    }

    /// Settings for all queues first: they set each queue.
    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        for (key, value) in changes.iter().filter(|(key, _)| of_one(key).is_none()) {
            let file = FILES.iter().find(|(known, _)| known == key).map_or(*key, |(_, file)| file);
            let text = switch(value).filter(|_| *key == "threaded").map(|on| u8::from(on).to_string());
            card.write(file, text.as_deref().unwrap_or(value))?;
        }
        let one = |(key, value): &(&str, &str)| {
            let (queue, field) = of_one(key)?;
            Some((queue.to_owned(), field.change(value)))
        };
        let each: Vec<(String, NapiPolling)> = changes.iter().filter_map(one).collect();
        if each.is_empty() {
            return Ok(());
        }
        let instances = instances(card);
        for (queue, polling) in each {
            let napi = instances.iter().find(|(name, _)| *name == queue).map(|(_, napi)| napi.id);
            let gone = || NicError::Absent { name: format!("napi.{queue}"), interface: card.name().into() };
            let napi = napi.ok_or_else(gone)?;
            card.netdev().ok_or_else(no_family)?.set_napi(napi, &polling)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_reads_back_as_it_is_written() {
        for (key, value) in [
            ("rx-3.threaded", "busy-poll"),
            ("rx-3.gro-flush-timeout-ns", "200000"),
            ("tx-0.defer-hard-irqs", "2147483647"),
            ("rx-0.irq-suspend-timeout-ns", "20000000"),
        ] {
            let (_, field) = of_one(key).unwrap();
            let resolved = field.resolved(value).ok().unwrap();
            assert_eq!(field.text(&field.change(&resolved)).as_deref(), Some(value), "{key}");
        }
        assert_eq!(of_one("rx-3.wings"), None);
        assert_eq!(of_one("threaded"), None, "this one is for all queues");
    }

    #[test]
    fn what_a_field_cannot_hold_is_refused_with_what_it_can() {
        let expected = |field: Field, value: &str| match field.resolved(value) {
            Err(Wrong::Expected(words)) => words,
            _ => panic!("{value} is taken"),
        };
        assert_eq!(expected(Field::Threaded, "maybe"), "on, off or busy-poll");
        assert_eq!(expected(Field::DeferHardIrqs, "2147483648"), "a number up to 2147483647");
        assert_eq!(expected(Field::GroFlushTimeout, "-1"), "a number");
    }
}
