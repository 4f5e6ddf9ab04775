//! Counters of emulated cards that differ from those of real cards.

use std::fs;

use sys::ethtool::Driver;

const MISSED: &str = "rx_missed_errors";
/// The PCI subsystem of QEMU's devices (`PCI_SUBVENDOR_ID_REDHAT_QUMRANET`).
const QEMU: &str = "0x1af4";

/// Whether it is QEMU's 82540EM. A real card clears its register of missed packets (MPC) on read; QEMU's keeps counting,
/// and the driver adds the whole value to its counter at every read.
pub(crate) fn adds_up_what_it_missed(driver: &Driver) -> bool {
    driver.name == "e1000" && is_of_qemu(driver)
}

/// Whether it is QEMU's 82576. A real card counts a frame for which a queue has no descriptor (RQDPC, MPC); QEMU's drops it
/// and sets the overrun interrupt alone. That happens at every burst larger than the ring: QEMU keeps the rest, and passes
/// the card all of it at the next write to the ring's tail, however few descriptors that adds (`igb_receive_internal`).
pub(crate) fn hides_what_it_missed(driver: &Driver) -> bool {
    driver.name == "igb" && is_of_qemu(driver)
}

fn is_of_qemu(driver: &Driver) -> bool {
    let subsystem = fs::read_to_string(format!("/sys/bus/pci/devices/{}/subsystem_vendor", driver.bus));
    subsystem.is_ok_and(|vendor| vendor.trim() == QEMU)
}

/// Replaces the sums of the register in the driver's counters with the register itself, and returns it; `None` when the
/// driver has no such counter. `again` reads the driver's counters once more, which makes the driver add the register
/// once: the increase is the register. The driver's own read, every two seconds, may come in between and add it again, so
/// the smallest of a few increases is used.
pub(crate) fn correct(counters: &mut [(String, u64)], again: impl Fn() -> Vec<(String, u64)>) -> Option<u64> {
    const READINGS: usize = 3;
    let missed = |counters: &[(String, u64)]| {
        counters.iter().find(|(name, _)| name == MISSED).map(|(_, value)| *value)
    };
    let mut before = missed(counters)?;
    let mut register = u64::MAX;
    for _ in 0..READINGS {
        let now = missed(&again())?;
        register = register.min(now.saturating_sub(before));
        before = now;
    }
    let of_driver = counters.iter_mut().find(|(name, _)| name == MISSED);
    of_driver.expect("the counter existed before").1 = register;
    Some(register)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_register_is_what_one_more_look_adds() {
        // The driver read the register many times while it went from 0 to 30.
        let sum = Cell::new(19_176_985);
        let looks = Cell::new(0);
        let again = || {
            looks.set(looks.get() + 1);
            // The driver's own read comes before the second.
            sum.set(sum.get() + if looks.get() == 2 { 60 } else { 30 });
            vec![("rx_packets".to_owned(), 5), (MISSED.to_owned(), sum.get())]
        };
        let mut counters = [(MISSED.to_owned(), sum.get())];
        assert_eq!(correct(&mut counters, again), Some(30));
        assert_eq!(counters, [(MISSED.to_owned(), 30)]);
        assert_eq!(correct(&mut [], Vec::new), None);
    }

    #[test]
    fn other_cards_are_left_alone() {
        for name in ["e1000", "igb"] {
            let driver = Driver { name: name.into(), bus: "0000:ff:1f.7".into(), ..Driver::default() };
            assert!(!adds_up_what_it_missed(&driver) && !hides_what_it_missed(&driver), "{name}");
        }
    }
}
