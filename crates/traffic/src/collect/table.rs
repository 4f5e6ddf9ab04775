//! A hash table of bounded size: entries beyond it are rejected.

use std::{collections::hash_map::RandomState, hash::BuildHasher, net::IpAddr, sync::OnceLock};

use wire::{Addresses, FlowKey};

/// 64 bits that identify a sender or a flow. Mixed with a secret, so that an attacker cannot make two
/// that collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u64);

/// Entries by key; linear probing over twice as many slots as entries.
#[derive(Debug, Clone)]
pub(super) struct Table<T> {
    places: Box<[u32]>,
    entries: Vec<(Key, T)>,
    most: usize,
}

const EMPTY: u32 = u32::MAX;

impl Key {
    /// A sender: its address and its stream.
    #[inline]
    pub(crate) fn of_sender(address: IpAddr, stream: u16) -> Self {
        let [a, b, _] = seeds();
        let address = match address {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => folded(address.to_bits(), a),
        };
        Self(mixed(address ^ a, u64::from(stream) ^ b))
    }

    /// A flow of a sender.
    #[inline]
    pub(crate) fn of_flow(flow: &FlowKey, sender: Self) -> Self {
        let [_, b, c] = seeds();
        let address = match flow.addresses {
            Addresses::V4 { dst, .. } => u64::from(dst.to_bits()),
            Addresses::V6 { dst, .. } => folded(dst.to_bits(), b),
        };
        let ports = u64::from(flow.src_port) << 16 | u64::from(flow.dst_port);
        Self(mixed(address << 32 ^ address >> 32 ^ ports ^ b, sender.0 ^ c))
    }
}

impl<T> Table<T> {
    /// Room for `most` entries; memory is allocated as they arrive.
    pub(super) fn new(most: usize) -> Self {
        let places = vec![EMPTY; (2 * most).next_power_of_two()].into();
        Self { places, entries: Vec::with_capacity(most), most }
    }

    /// An entry by its index.
    #[inline]
    pub(super) fn at(&mut self, place: usize) -> &mut T {
        &mut self.entries[place].1
    }

    pub(super) fn each_mut(&mut self, each: impl FnMut(&mut T)) {
        self.entries.iter_mut().map(|(_, entry)| entry).for_each(each);
    }

    /// The index of this key's entry, created if missing and if the table has room.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: Key, make: impl FnOnce() -> T) -> Option<usize> {
        let mask = self.places.len() - 1;
        let mut place = key.0 as usize & mask;
        loop {
            match self.places[place] {
                EMPTY if self.entries.len() == self.most => return None,
                EMPTY => {
                    self.places[place] = self.entries.len() as u32;
                    self.entries.push((key, make()));
                    return Some(self.entries.len() - 1);
                }
                entry if self.entries[entry as usize].0 == key => return Some(entry as usize),
                _ => place = (place + 1) & mask,
            }
        }
    }

    /// All entries, in order of arrival.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().map(|(key, entry)| (*key, entry))
    }
}

/// Multiplies to 128 bits and folds, as wyhash does; both factors hold a secret.
#[inline]
fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[inline]
fn folded(address: u128, seed: u64) -> u64 {
    mixed((address >> 64) as u64 ^ seed, address as u64)
}

/// The same for all readers of a process: their tables are merged by key.
fn seeds() -> [u64; 3] {
    static SEEDS: OnceLock<[u64; 3]> = OnceLock::new();
    *SEEDS.get_or_init(|| [0, 1, 2].map(|number| RandomState::new().hash_one(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_again_and_a_full_table_turns_away() {
        let [a, b, _] = seeds();
        let key = |number: u64| Key(mixed(number ^ a, b));
        let mut table = Table::new(100);
        for number in 0..150u64 {
            assert_eq!(table.find_or_insert(key(number), || number).is_some(), number < 100);
        }
        for number in (0..100).rev() {
            let found = table.find_or_insert(key(number), || unreachable!("the entry exists"));
            assert_eq!(found.map(|place| *table.at(place)), Some(number));
        }
        assert_eq!(table.iter().count(), 100);
        assert!(Table::<u64>::new(0).find_or_insert(Key(1), || 1).is_none());
    }

    #[test]
    fn keys_differ_by_every_part() {
        let flow = |src: &str, dst: &str| FlowKey::udp(src.parse().unwrap(), dst.parse().unwrap()).unwrap();
        let mut keys = Vec::new();
        for (src, dst) in [
            ("10.0.0.1:1", "10.0.0.2:2"),
            ("10.0.0.1:2", "10.0.0.2:1"),
            ("10.0.0.1:1", "10.0.0.3:2"),
            ("10.0.0.2:1", "10.0.0.1:2"),
            ("[2001:db8::1]:1", "[2001:db8::2]:2"),
            ("[2001:db8::1:0:0:0]:1", "[2001:db8::2]:2"),
        ] {
            let flow = flow(src, dst);
            for stream in 0..3 {
                keys.push(Key::of_flow(&flow, Key::of_sender(flow.addresses.src(), stream)));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 18);
    }
}
