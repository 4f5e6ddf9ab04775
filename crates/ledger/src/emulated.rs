//! Counters of emulated cards that are not what the cards' own would be.

use std::fs;

use sys::ethtool::Driver;

const MISSED: &str = "rx_missed_errors";
/// The PCI subsystem of QEMU's devices (`PCI_SUBVENDOR_ID_REDHAT_QUMRANET`).
const QEMU: &str = "0x1af4";

/// Whether it is QEMU's 82540EM. The card's register of missed packets (MPC) starts anew when it is read; QEMU's goes on,
/// and the driver adds all of it to its counter each time that it looks.
pub(crate) fn adds_up_what_it_missed(driver: &Driver) -> bool {
    let subsystem = || fs::read_to_string(format!("/sys/bus/pci/devices/{}/subsystem_vendor", driver.bus));
    driver.name == "e1000" && subsystem().is_ok_and(|vendor| vendor.trim() == QEMU)
}

/// Puts the register in place of the sums of it in the driver's counters, and returns it; `None` where the driver has no such
/// counter. `again` reads the driver's counters once more, and so makes the driver add
/// the register once: what it then has more is the register. The driver's own look, every two seconds, may come
/// between and add it again, so that the least of a few is taken.
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
    of_driver.expect("it was there").1 = register;
    Some(register)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_register_is_what_one_more_look_adds() {
        // The driver looked many times while the register went from 0 to 30.
        let sum = Cell::new(19_176_985);
        let looks = Cell::new(0);
        let again = || {
            looks.set(looks.get() + 1);
            // The driver's own look comes before the second.
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
            assert!(!adds_up_what_it_missed(&driver), "{name}");
        }
    }
}
