//! A card's interrupts: their numbers, their counts per CPU, and the queue that each serves.

use std::{collections::BTreeSet, fs, path::Path};

use serde::Serialize;

use crate::{Card, NicError, card, cpus};

/// One interrupt line of `/proc/interrupts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The driver's name for it: `eth0-rx-0`.
    pub name: String,
    /// Its count on each online CPU, in the file's order.
    pub counts: Vec<u64>,
    /// The receive queue it serves, as far as its name shows.
    pub rx_queue: Option<u32>,
    /// The transmit queue it serves, as far as its name shows.
    pub tx_queue: Option<u32>,
}

impl Interrupt {
    /// How often it came.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Where an interrupt may go, and where it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Affinity {
    /// CPUs requested.
    pub asked: Vec<u32>,
    /// CPUs it goes to; follows `asked` with the next interrupt.
    pub effective: Vec<u32>,
}

/// The interrupts of a card, by number.
///
/// # Errors
/// When `/proc/interrupts` cannot be read.
pub fn card_interrupts(card: &Card) -> Result<Vec<Interrupt>, NicError> {
    let all = parse_interrupts(&card::read(Path::new("/proc/interrupts"))?);
    let own = message_interrupts(card);
    Ok(all
        .into_iter()
        .filter(|interrupt| own.contains(&interrupt.number) || named_after(&interrupt.name, card.name()))
        .collect())
}

/// Where an interrupt may go and goes; `None` when the kernel does not report it.
pub fn affinity(number: u32) -> Option<Affinity> {
    let list = |file: &str| {
        let text = card::read(Path::new(&format!("/proc/irq/{number}/{file}"))).ok()?;
        cpus::from_list(&text)
    };
    Some(Affinity {
        asked: list("smp_affinity_list")?,
        effective: list("effective_affinity_list").unwrap_or_default(),
    })
}

/// The numbers below `device/msi_irqs`: of the card itself, or of the PCI function that a virtio device sits on.
fn message_interrupts(card: &Card) -> BTreeSet<u32> {
    let numbers = |path: &str| {
        let folder = card.folder().ok()?.join(path);
        Some(
            fs::read_dir(folder).ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()),
        )
    };
    let own = numbers("device/msi_irqs").or_else(|| numbers("device/../msi_irqs"));
    own.into_iter().flatten().collect()
}

/// Whether an interrupt is named after an interface: `eth0`, `eth0-rx-0`, `i40e-eth0-TxRx-0`, not `eth01`.
fn named_after(interrupt: &str, interface: &str) -> bool {
    interrupt.split(['-', '@', ':', ',']).any(|part| part == interface)
        || interrupt.strip_prefix(interface).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Reads `/proc/interrupts`: a line of CPUs, then number, counts, chip, trigger and names. Lines that are not an interrupt
/// with a number are skipped.
pub fn parse_interrupts(text: &str) -> Vec<Interrupt> {
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |head| head.split_ascii_whitespace().count());
    lines.filter_map(|line| parse_line(line, cpus)).collect()
}

fn parse_line(line: &str, cpus: usize) -> Option<Interrupt> {
    let (number, rest) = line.split_once(':')?;
    let number = number.trim().parse().ok()?;
    let mut words = rest.split_ascii_whitespace();
    let counts: Vec<u64> = words.by_ref().take(cpus).map_while(|word| word.parse().ok()).collect();
    if counts.len() < cpus {
        return None;
    }
    let name = words.next_back()?.to_owned();
    let (rx_queue, tx_queue) = queues_of(&name);
    Some(Interrupt { number, name, counts, rx_queue, tx_queue })
}

/// The queues that drivers name interrupts after: `eth0-rx-0`, `eth0-TxRx-3`, `virtio3-input.1`, `mlx5_comp2@pci`.
fn queues_of(name: &str) -> (Option<u32>, Option<u32>) {
    let lower = name.split('@').next().unwrap_or_default().to_ascii_lowercase();
    let digits = lower.len() - lower.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    let (kind, number) = lower.split_at(lower.len() - digits);
    let Ok(queue) = number.parse::<u32>() else { return (None, None) };
    let is = |names: &[&str]| names.iter().any(|name| kind.trim_end_matches(['-', '.', '_']).ends_with(name));
    if is(&["txrx", "rxtx", "tx-rx", "rx-tx", "comp", "fp", "mgmnt"]) {
        (Some(queue), Some(queue))
    } else if is(&["rx", "input"]) {
        (Some(queue), None)
    } else if is(&["tx", "output"]) {
        (None, Some(queue))
    } else {
        (None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "           CPU0       CPU1
  1:          0          9  IO-APIC   1-edge      i8042
 47:          7          5  PCI-MSIX-0000:03:00.0    1-edge      eth6-rx-0
 51:          0          3  PCI-MSIX-0000:03:00.0    5-edge      eth6-tx-1
NMI:          0          0   Non-maskable interrupts
 60:          1
";

    #[test]
    fn lines_with_numbers_are_read_and_others_passed_over() {
        let all = parse_interrupts(TEXT);
        let names: Vec<&str> = all.iter().map(|interrupt| interrupt.name.as_str()).collect();
        assert_eq!(names, ["i8042", "eth6-rx-0", "eth6-tx-1"]);
        assert_eq!((all[1].number, all[1].total(), all[1].rx_queue), (47, 12, Some(0)));
        assert_eq!((all[2].rx_queue, all[2].tx_queue), (None, Some(1)));
        assert_eq!(parse_interrupts(""), []);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "[ -~\n]{0,300}") {
            parse_interrupts(&text);
        }

        #[test]
        fn any_counters_are_read(names in proptest::collection::vec("[ rtxq_ue0-9.:packetsby-]{0,24}", 0..20), value: u64) {
            let statistics: Vec<(String, u64)> = names.into_iter().map(|name| (name, value)).collect();
            crate::queue_counts(&statistics);
        }
    }

    #[test]
    fn drivers_name_queues_in_many_ways() {
        assert_eq!(queues_of("eth0-TxRx-3"), (Some(3), Some(3)));
        assert_eq!(queues_of("eth1-rxtx-2"), (Some(2), Some(2)));
        assert_eq!(queues_of("virtio3-input.1"), (Some(1), None));
        assert_eq!(queues_of("virtio3-output.0"), (None, Some(0)));
        assert_eq!(queues_of("mlx5_comp2@pci:0000:01:00.0"), (Some(2), Some(2)));
        assert_eq!(queues_of("eth6"), (None, None));
        assert_eq!(queues_of("virtio3-config"), (None, None));
    }

    #[test]
    fn only_ones_own_interrupts_match() {
        assert!(named_after("eth0-rx-0", "eth0") && named_after("i40e-eth0-TxRx-0", "eth0"));
        assert!(!named_after("eth01-rx-0", "eth0") && !named_after("virtio0-input.0", "eth0"));
    }
}
