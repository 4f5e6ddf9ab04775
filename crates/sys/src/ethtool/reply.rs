//! Parses ioctl answers. A driver may write anything: invalid parts are left out.

use super::buffer::text;
use super::layout::{COUNT, PLACES};
use crate::netlink::field;

/// One feature of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name: `tx-udp-segmentation`, `rx-gro`, …
    pub name: String,
    /// Whether the driver allows changes.
    pub changeable: bool,
    /// Whether it was requested.
    pub requested: bool,
    /// Whether it is on.
    pub active: bool,
}

/// The driver of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// The driver's name.
    pub name: String,
    /// Its version, or the kernel's.
    pub version: String,
    /// The card's firmware version; often empty.
    pub firmware: String,
    /// The card's PCI address; empty for virtual interfaces.
    pub bus: String,
}

/// Bytes of a name (`ETH_GSTRING_LEN`).
pub(super) const NAME: usize = 32;

/// The driver of an interface, from a `struct ethtool_drvinfo`; missing fields are empty.
pub fn parse_driver(answer: &[u8]) -> Driver {
    // The command, then driver, version, firmware and bus of 32 bytes each.
    let part = |n: usize| answer.get(4 + n * NAME..4 + (n + 1) * NAME).map(text).unwrap_or_default();
    Driver { name: part(0), version: part(1), firmware: part(2), bus: part(3) }
}

/// The names in a `struct ethtool_gstrings`. A name without a terminator fills its field.
pub fn parse_names(answer: &[u8]) -> Vec<String> {
    let count = word(answer, 2).unwrap_or(0) as usize;
    let entries = answer.get(12..).unwrap_or_default();
    entries.chunks_exact(NAME).take(count).map(text).collect()
}

/// Counters with their names, from a `struct ethtool_stats`; `None` when the driver answered for another number of them
/// than it has names.
pub fn parse_statistics(names: &[String], answer: &[u8]) -> Option<Vec<(String, u64)>> {
    let values = answer.get(8..)?.chunks_exact(8).map(|value| u64::from_ne_bytes(value.try_into().unwrap()));
    let fits = word(answer, 1)? as usize == names.len() && values.len() >= names.len();
    fits.then(|| names.iter().cloned().zip(values).collect())
}

/// Features with their names, from a `struct ethtool_gfeatures`: blocks of available, requested, active, never changed.
pub fn parse_features(names: &[String], answer: &[u8]) -> Vec<Feature> {
    let blocks = answer.get(8..).unwrap_or_default().chunks_exact(16);
    let bits = blocks.flat_map(|block| {
        let words = [0, 1, 2, 3].map(|at| word(block, at).unwrap_or(0));
        (0..32).map(move |bit| words.map(|word| word >> bit & 1 == 1))
    });
    // Numbers unused in this kernel have an empty name.
    let named = names.iter().zip(bits).filter(|(name, _)| !name.is_empty());
    named
        .map(|(name, [available, requested, active, never_changed])| Feature {
            name: name.clone(),
            changeable: available && !never_changed,
            requested,
            active,
        })
        .collect()
}

/// The locations of flow rules, from a `struct ethtool_rxnfc` that lists them.
pub fn parse_places(answer: &[u8]) -> Vec<u32> {
    let count = word(answer, COUNT / 4).unwrap_or(0) as usize;
    let places = answer.get(PLACES..).unwrap_or_default().chunks_exact(4);
    places.take(count).map(|place| u32::from_ne_bytes(place.try_into().unwrap())).collect()
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    field(bytes, index * 4).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn feature_bits_go_with_their_names_across_words() {
        let mut names = vec![String::new(); 40];
        names[1] = "one".into();
        names[33] = "thirty-three".into();
        let answer = words(&[0x3a, 2, 0b10, 0b10, 0b00, 0b00, 0b10, 0b00, 0b10, 0b10]);
        let feature = |name: &str, changeable, requested, active| Feature {
            name: name.into(),
            changeable,
            requested,
            active,
        };
        let expected = [feature("one", true, true, false), feature("thirty-three", false, false, true)];
        assert_eq!(parse_features(&names, &answer), expected);
        assert_eq!(parse_features(&names, &answer[..answer.len() - 1]), expected[..1], "a torn block");
    }

    #[test]
    fn a_name_without_its_end_is_as_long_as_its_place() {
        let answer = [words(&[0x1b, 1, 3]), vec![b'x'; 32], b"short\0junk".to_vec(), vec![0xff; 22]].concat();
        let names = parse_names(&answer);
        assert_eq!(names, ["x".repeat(32), "short".into()], "three announced, two present");
        assert_eq!(parse_names(&words(&[0x1b, 1, u32::MAX])), [""; 0]);
        assert_eq!(parse_driver(&[b'y'; 70]).version, "y".repeat(32));
        assert_eq!(parse_driver(&[b'y'; 70]).bus, "");
    }

    #[test]
    fn counters_that_vanished_are_no_answer() {
        let names = ["a".to_owned(), "b".to_owned()];
        let answer = |count: u32, values: &[u64]| {
            [words(&[0x1d, count]), values.iter().flat_map(|value| value.to_ne_bytes()).collect()].concat()
        };
        let both = Some(vec![("a".to_owned(), 7), ("b".to_owned(), 8)]);
        assert_eq!(parse_statistics(&names, &answer(2, &[7, 8])), both);
        assert_eq!(parse_statistics(&names, &answer(1, &[7, 8])), None, "one went");
        assert_eq!(parse_statistics(&names, &answer(3, &[7, 8, 9])), None, "one came");
        assert_eq!(parse_statistics(&names, &answer(2, &[7])), None, "half an answer");
        assert_eq!(parse_statistics(&names, &[]), None);
    }

    #[test]
    fn a_list_of_rules_is_read_as_far_as_it_goes() {
        let mut answer = vec![0; super::super::layout::COUNT];
        answer.extend(words(&[3, 9, 4]));
        assert_eq!(parse_places(&answer), [9, 4], "three were announced");
        assert_eq!(parse_places(&answer[..100]), [0; 0]);
    }
}
