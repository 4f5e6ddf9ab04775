//! The meaning of drivers' own counters (`ethtool -S`), from a data file that users can extend.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use measure::Place;

/// What comes with linerate.
const BUILT_IN: &str = include_str!("../drivers.toml");

/// What drivers' counters mean.
#[derive(Debug, Clone)]
pub struct Drivers {
    by_name: BTreeMap<String, Driver>,
}

/// The meaning of one counter of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterKind<'d> {
    /// Packets lost.
    Loss(&'d LossCounter),
    /// Anything but a loss: packets, bytes, interrupts, refills.
    Traffic,
    /// Not in the file: shown when it moves.
    Unknown,
}

/// A counter of lost packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossCounter {
    /// Where they were lost.
    pub place: Place,
    /// What exactly it counts, and which other counters include it.
    pub includes: String,
    /// Width of the counter in bits, after which it wraps.
    pub bits: u32,
    /// The interface's counter that contains it, when its name suggests another: `rx_dropped`.
    pub also_in: Option<String>,
    /// Places whose packets it counts as well, when another counter or event identifies them.
    pub contains: Vec<Place>,
    pattern: String,
}

#[derive(Debug, Clone, Default)]
struct Driver {
    losses: Vec<LossCounter>,
    causes: Vec<LossCounter>,
    traffic: Vec<String>,
}

/// A data file that cannot be used.
#[derive(Debug, Error)]
pub enum DriversError {
    /// Not TOML, or with unknown keys.
    #[error("cannot read the counters of drivers")]
    Parse(#[from] toml::de::Error),
    /// A place that does not exist.
    #[error("{driver}: counter {counter}: unknown place '{place}'")]
    NoSuchPlace {
        /// The driver.
        driver: String,
        /// The counter.
        counter: String,
        /// The place as written.
        place: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverFile {
    /// The source of the meanings.
    #[serde(rename = "source")]
    _source: String,
    /// Other names of the driver.
    #[serde(default)]
    also: Vec<String>,
    #[serde(default)]
    losses: Vec<LossFile>,
    #[serde(default)]
    causes: Vec<LossFile>,
    #[serde(default)]
    traffic: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LossFile {
    counter: String,
    place: String,
    includes: String,
    #[serde(default = "sixty_four")]
    bits: u32,
    also_in: Option<String>,
    #[serde(default)]
    contains: Vec<String>,
}

fn sixty_four() -> u32 {
    64
}

impl Drivers {
    /// What comes with linerate.
    ///
    /// # Panics
    /// Never: a test reads the same text.
    pub fn built_in() -> Self {
        let mut drivers = Self { by_name: BTreeMap::new() };
        drivers.extend(BUILT_IN).expect("tested");
        drivers
    }

    /// Adds a file's drivers and counters; the file overrides known counters.
    ///
    /// # Errors
    /// [`DriversError`]; then nothing was added.
    pub fn extend(&mut self, text: &str) -> Result<(), DriversError> {
        let files: BTreeMap<String, DriverFile> = toml::from_str(text)?;
        let mut read = Vec::new();
        for (name, file) in files {
            let checked = |counters: Vec<LossFile>| {
                counters.into_iter().map(|loss| loss.checked(&name)).collect::<Result<Vec<_>, _>>()
            };
            let (losses, causes) = (checked(file.losses)?, checked(file.causes)?);
            let driver = Driver { losses, causes, traffic: file.traffic };
            read.extend(file.also.into_iter().map(|also| (also, driver.clone())));
            read.push((name, driver));
        }
        for (name, mut driver) in read {
            let known = self.by_name.entry(name).or_default();
            driver.losses.append(&mut known.losses);
            driver.causes.append(&mut known.causes);
            driver.traffic.append(&mut known.traffic);
            *known = driver;
        }
        Ok(())
    }

    /// Whether the driver is known.
    pub fn knows(&self, driver: &str) -> bool {
        self.by_name.contains_key(driver)
    }

    /// The meaning of a driver's counter.
    pub fn kind(&self, driver: &str, counter: &str) -> CounterKind<'_> {
        let Some(known) = self.by_name.get(driver) else { return CounterKind::Unknown };
        match known.losses.iter().find(|loss| matches(&loss.pattern, counter)) {
            Some(loss) => CounterKind::Loss(loss),
            None if known.causes.iter().any(|cause| cause.is(counter)) => CounterKind::Traffic,
            None if known.traffic.iter().any(|pattern| matches(pattern, counter)) => CounterKind::Traffic,
            None => CounterKind::Unknown,
        }
    }

    /// The counters of losses that a driver has according to the file.
    pub fn losses(&self, driver: &str) -> &[LossCounter] {
        self.by_name.get(driver).map_or(&[], |known| &known.losses)
    }

    /// The place whose losses a counter explains without counting packets.
    pub fn cause(&self, driver: &str, counter: &str) -> Option<Place> {
        let causes = &self.by_name.get(driver)?.causes;
        causes.iter().find(|cause| cause.is(counter)).map(|cause| cause.place)
    }

    /// The drivers' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

impl LossCounter {
    /// Whether the pattern matches this counter.
    pub fn is(&self, name: &str) -> bool {
        matches(&self.pattern, name)
    }

    /// Its name; # stands for a number, * for anything.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }
}

impl LossFile {
    fn checked(self, driver: &str) -> Result<LossCounter, DriversError> {
        let Self { counter, place, includes, bits, also_in, contains } = self;
        let named = |place: String| {
            let (driver, counter) = (driver.to_owned(), counter.clone());
            Place::named(&place).ok_or(DriversError::NoSuchPlace { driver, counter, place })
        };
        let place = named(place)?;
        let contains = contains.into_iter().map(named).collect::<Result<_, _>>()?;
        Ok(LossCounter { place, includes, bits, also_in, contains, pattern: counter })
    }
}

/// `#` stands for a number, `*` for anything, and other characters for themselves.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    match first {
        '*' => (0..=name.len()).any(|at| name.is_char_boundary(at) && matches(rest, &name[at..])),
        '#' => {
            let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            (1..=digits).any(|at| matches(rest, &name[at..]))
        }
        letter => name.strip_prefix(letter).is_some_and(|name| matches(rest, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_drivers_can_be_read_and_are_these() {
        let drivers = Drivers::built_in();
        for name in [
            "veth",
            "virtio_net",
            "e1000",
            "e1000e",
            "igb",
            "igc",
            "ixgbe",
            "ixgbevf",
            "i40e",
            "iavf",
            "ice",
            "mlx5_core",
            "ena",
            "bnxt_en",
            "vmxnet3",
            "gve",
        ] {
            assert!(drivers.knows(name), "{name}");
        }
    }

    #[test]
    fn queue_numbers_stand_for_any_queue() {
        let drivers = Drivers::built_in();
        let place = |driver, counter| match drivers.kind(driver, counter) {
            CounterKind::Loss(loss) => Some(loss.place),
            _ => None,
        };
        assert_eq!(place("veth", "rx_queue_12_xdp_drops"), Some(Place::XdpDrop));
        assert_eq!(place("veth", "rx_queue_x_xdp_drops"), None);
        assert_eq!(place("bnxt_en", "[3]: rx_discards"), Some(Place::NicMissed));
        assert_eq!(place("gve", "rx_no_buffers_posted[0]"), Some(Place::NicMissed));
        assert_eq!(place("vmxnet3", "  pkts rx OOB"), Some(Place::NicMissed));
        assert_eq!(drivers.kind("veth", "rx_queue_0_xdp_packets"), CounterKind::Traffic);
        assert_eq!(drivers.kind("veth", "rx_queue_0_new_thing"), CounterKind::Unknown);
        assert_eq!(drivers.kind("no such driver", "rx_packets"), CounterKind::Unknown);
    }

    #[test]
    fn a_file_adds_drivers_and_corrects_counters() {
        let mut drivers = Drivers::built_in();
        let text = "[mine]\nsource = \"data sheet\"\nlosses = [{ counter = \"lost\", place = \"nic-missed\", includes = \"all\", bits = 32 }]\n\
                    [veth]\nsource = \"me\"\ntraffic = [\"new_thing\"]\n";
        drivers.extend(text).unwrap();
        assert!(matches!(drivers.kind("mine", "lost"), CounterKind::Loss(LossCounter { bits: 32, .. })));
        assert_eq!(drivers.kind("veth", "new_thing"), CounterKind::Traffic);
        assert!(
            matches!(drivers.kind("veth", "rx_queue_0_xdp_drops"), CounterKind::Loss(_)),
            "the old ones stay"
        );
    }

    #[test]
    fn a_file_with_a_wrong_place_is_refused_and_changes_nothing() {
        let mut drivers = Drivers::built_in();
        let text = "[mine]\nsource = \"x\"\nlosses = [{ counter = \"lost\", place = \"nowhere\", includes = \"all\" }]\n";
        assert_eq!(
            drivers.extend(text).unwrap_err().to_string(),
            "mine: counter lost: unknown place 'nowhere'"
        );
        assert!(!drivers.knows("mine"));
        let inside =
            text.replace("nowhere", "xdp-drop").replace("\"all\"", "\"all\", contains = [\"inside\"]");
        let error = drivers.extend(&inside).unwrap_err().to_string();
        assert_eq!(error, "mine: counter lost: unknown place 'inside'");
        assert!(drivers.extend("[mine]\nsurce = 1\n").is_err());
    }

    #[test]
    fn every_counter_says_what_it_includes() {
        for driver in Drivers::built_in().by_name.values() {
            for loss in &driver.losses {
                assert!(loss.includes.len() >= 8 && matches!(loss.bits, 32 | 64), "{loss:?}");
            }
        }
    }
}
