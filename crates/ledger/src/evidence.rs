//! Losses as seen by counters, and the rule that counts a loss once when several counters saw it.

use std::collections::BTreeMap;

use measure::{LedgerLine, Place};

/// Which counter saw a loss. Counts of one witness are of different packets and add up; different witnesses of a place
/// see the same packets, and the largest count is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    /// The receiving socket or ring itself.
    Port,
    /// The protocols (`/proc/net/snmp`).
    Protocol,
    /// The queueing discipline.
    Qdisc,
    /// The interface's own counters.
    Link,
    /// The driver's counters (`ethtool -S`).
    Driver,
    /// The per-CPU network counters (`softnet_stat`).
    Softnet,
    /// The kernel's drop reasons and XDP's error events.
    Reason,
}

/// What all counters saw.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    sightings: Vec<Sighting>,
}

#[derive(Debug, Clone)]
struct Sighting {
    place: Place,
    witness: Witness,
    packets: u64,
    source: String,
    /// Places whose packets this counter contains.
    contains: Vec<Place>,
}

/// The counters behind one place.
struct Account {
    packets: u64,
    source: String,
}

impl Evidence {
    /// Records that the counter `source` counted `packets` at `place`.
    pub fn saw(&mut self, place: Place, witness: Witness, packets: u64, source: impl Into<String>) {
        self.saw_all(place, witness, packets, source, &[]);
    }

    /// The same for a counter that includes the losses at the places `contains`: what it saw beyond them was
    /// lost at `place`.
    pub fn saw_all(
        &mut self,
        place: Place,
        witness: Witness,
        packets: u64,
        source: impl Into<String>,
        contains: &[Place],
    ) {
        if packets > 0 {
            let (source, contains) = (source.into(), contains.to_vec());
            self.sightings.push(Sighting { place, witness, packets, source, contains });
        }
    }

    /// Adds what others saw.
    pub fn merge(&mut self, other: Self) {
        self.sightings.extend(other.sightings);
    }

    /// Packets lost at one place.
    pub fn packets(&self, place: Place) -> u64 {
        self.account(place, &mut Vec::new()).map_or(0, |account| account.packets)
    }

    /// One line per place with losses, in the order a packet meets them.
    pub fn lines(&self) -> Vec<LedgerLine> {
        let places = Place::ALL.iter().copied();
        places
            .filter_map(|place| Some((place, self.account(place, &mut Vec::new())?)))
            .filter(|(_, account)| account.packets > 0)
            .map(|(place, account)| LedgerLine::at(place, account.packets, &account.source))
            .collect()
    }

    fn account(&self, place: Place, above: &mut Vec<Place>) -> Option<Account> {
        // A counter cannot contain itself indirectly; rules that claimed that would end here.
        if above.contains(&place) {
            return None;
        }
        above.push(place);
        let mut witnesses: BTreeMap<Witness, Vec<&Sighting>> = BTreeMap::new();
        for sighting in self.sightings.iter().filter(|sighting| sighting.place == place) {
            witnesses.entry(sighting.witness).or_default().push(sighting);
        }
        let accounts = witnesses.into_values().map(|sightings| self.of_witness(&sightings, above));
        // Of equal counts the first: the counters nearest to the loss come first.
        let account = accounts.reduce(|best, next| if next.packets > best.packets { next } else { best });
        above.pop();
        account
    }

    fn of_witness(&self, sightings: &[&Sighting], above: &mut Vec<Place>) -> Account {
        let total = sightings.iter().fold(0u64, |sum, sighting| sum.saturating_add(sighting.packets));
        let mut contained: Vec<Place> =
            sightings.iter().flat_map(|sighting| &sighting.contains).copied().collect();
        contained.sort_unstable();
        contained.dedup();
        let mut packets = total;
        let mut source = String::new();
        for sighting in sightings {
            if !source.split(" + ").any(|known| known == sighting.source) {
                source += if source.is_empty() { "" } else { " + " };
                source += &sighting.source;
            }
        }
        for place in contained {
            let inside = self.account(place, above).map_or(0, |account| account.packets);
            if inside > 0 {
                packets = packets.saturating_sub(inside);
                source = format!("{source} − {}", place.name());
            }
        }
        Account { packets, source }
    }
}

/// The increase of a counter of `bits` bits since an earlier reading.
///
/// A counter of 64 bits that is lower than before was reset to 0 (driver reloaded, interface recreated): what
/// it shows was counted since then. A narrower one wrapped.
#[must_use]
pub fn grown(earlier: u64, now: u64, bits: u32) -> u64 {
    match now.checked_sub(earlier) {
        Some(grown) => grown,
        None if bits < 64 && earlier >> bits == 0 => (1u64 << bits) - earlier + now,
        None => now,
    }
}

#[cfg(test)]
mod tests;
