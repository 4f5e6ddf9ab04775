//! `irq.*`: the CPUs that may take each of the card's interrupts; one setting per interrupt, with the driver's name for it.

use std::path::PathBuf;

use super::kind::{Kind, Wrong};
use crate::{Card, NicError, card, cpus, interrupts::card_interrupts};

pub(super) struct Interrupts;

fn path(number: u32) -> PathBuf {
    format!("/proc/irq/{number}/smp_affinity_list").into()
}

impl Kind for Interrupts {
    fn prefix(&self) -> &'static str {
        "irq"
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        let interrupts = card_interrupts(card)?;
        let value = |(number, name): (u32, String)| {
            let list = card::read(&path(number)).ok()?;
            Some((name, cpus::to_list(&cpus::from_list(&list)?)))
        };
        Ok(interrupts
            .into_iter()
            .map(|interrupt| (interrupt.number, interrupt.name))
            .filter_map(value)
            .collect())
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        let known = card_interrupts(card).map_err(Wrong::Unreadable)?;
        known.iter().find(|interrupt| interrupt.name == key).ok_or(Wrong::NoSuchKey)?;
        let set = cpus::from_list(value).filter(|set| !set.is_empty());
        set.map(|set| cpus::to_list(&set)).ok_or_else(|| Wrong::Expected("a list of CPUs like 0,2-3".into()))
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        let known = card_interrupts(card)?;
        for (key, value) in changes {
            // An interrupt that vanished with its queue has no affinity.
            if let Some(interrupt) = known.iter().find(|interrupt| interrupt.name == *key) {
                card::write(&path(interrupt.number), value)?;
            }
        }
        Ok(())
    }
}
