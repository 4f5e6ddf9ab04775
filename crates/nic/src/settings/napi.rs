//! `napi.*`: how the kernel polls the card's queues.

use super::{Kind, Wrong, number};
use crate::{
    Card, NicError,
    setting::{on_off, switch},
};

pub(super) struct Napi;

/// The files in the interface's folder, and the key of each.
const FILES: [(&str, &str); 3] = [
    // On: a thread for each queue polls, on whatever CPU it may run, instead of the softirq.
    ("threaded", "threaded"),
    // How long GRO may hold packets back, and how often polling goes on without interrupts before they come back.
    ("gro-flush-timeout-ns", "gro_flush_timeout"),
    ("defer-hard-irqs", "napi_defer_hard_irqs"),
];

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
        Ok(FILES.iter().filter_map(value).collect())
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        let (_, file) = FILES.iter().find(|(known, _)| *known == key).ok_or(Wrong::NoSuchKey)?;
        card.read(file).map_err(|_| Wrong::NoSuchKey)?;
        if key == "threaded" {
            let on = switch(value).ok_or_else(|| Wrong::Expected("on or off".into()))?;
            return Ok(on_off(on).into());
        }
        number(value, Some(i32::MAX as u64))
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        for (key, value) in changes {
            let file = FILES.iter().find(|(known, _)| known == key).map_or(*key, |(_, file)| file);
            let text = switch(value).filter(|_| *key == "threaded").map(|on| u8::from(on).to_string());
            card.write(file, text.as_deref().unwrap_or(value))?;
        }
        Ok(())
    }
}
