//! The value of a field in packet n, from n alone: no state, so workers, restarts and BPF programs agree.

use crate::values::{Item, Values};

/// How a field's value follows from a packet's sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draw<V> {
    /// The same in every packet.
    Fixed(V),
    /// `first + step × (n mod count)`.
    Increment {
        /// The value of packet 0.
        first: V,
        /// From one value to the next.
        step: u32,
        /// After how many packets the first value comes again.
        cycle: Cycle,
    },
    /// `first + (count × r) >> 32`, where r is the upper half of `mix(seed + n × 0x9e3779b97f4a7c15)` and
    /// `mix` is that of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
    Random {
        /// The smallest value.
        first: V,
        /// How many values there are, at most 2^32.
        count: u64,
        /// Different for each stream and field, though they may share the user's seed.
        seed: u64,
    },
    /// `values[n mod count]`.
    List {
        /// The values.
        values: Vec<V>,
        /// Their number.
        cycle: Cycle,
    },
}

/// Remainders by 1..=2^32 without a division (Lemire, Kaser, Kurz: Faster remainder by direct computation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    count: u64,
    /// 2^64 ÷ count, rounded up; 0 stands for 2^64.
    reciprocal: u64,
}

/// The number that a field holds: a port, a size, or an address as bits.
pub trait DrawValue: Copy {
    /// The number at that distance.
    fn plus(self, distance: u32) -> Self;
}

/// Which field a value is drawn for; so that fields with the same seed vary independently.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    SrcAddr,
    DstAddr,
    SrcPort,
    DstPort,
    Size,
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Cycle {
    /// A cycle of `count` packets, 1..=2^32.
    pub(crate) fn new(count: u64) -> Self {
        debug_assert!((1..=1 << 32).contains(&count));
        Self { count, reciprocal: (u64::MAX / count).wrapping_add(1) }
    }

    /// Packets in the cycle.
    pub fn count(self) -> u64 {
        self.count
    }

    /// `sequence mod count`.
    #[inline]
    pub fn index(self, sequence: u32) -> u32 {
        let fraction = self.reciprocal.wrapping_mul(sequence.into());
        ((u128::from(fraction) * u128::from(self.count)) >> 64) as u32
    }
}

impl<V: DrawValue> Draw<V> {
    /// The rule for these values; `number` turns a value into what the field holds.
    pub(crate) fn new<T: Item>(
        values: &Values<T>,
        number: impl Fn(T) -> V,
        (field, stream): (Field, u16),
    ) -> Self {
        if values.is_fixed() {
            return Self::Fixed(number(values.first()));
        }
        match values {
            Values::Fixed(value) => Self::Fixed(number(*value)),
            Values::Increment { span, step } => Self::Increment {
                first: number(span.first()),
                step: step.get(),
                cycle: Cycle::new((span.count() - 1) / u64::from(step.get()) + 1),
            },
            Values::Random { span, seed } => Self::Random {
                first: number(span.first()),
                count: span.count(),
                seed: mix(mix(*seed).wrapping_add(u64::from(stream) << 8 | field as u64)),
            },
            Values::List(list) => Self::list(list.values().iter().copied().map(number).collect()),
        }
    }

    /// Each of these values in turn; there is at least one.
    pub(crate) fn list(values: Vec<V>) -> Self {
        match values[..] {
            [only] => Self::Fixed(only),
            _ => Self::List { cycle: Cycle::new(values.len() as u64), values },
        }
    }

    /// The value, when it is the same in every packet.
    pub fn fixed(&self) -> Option<V> {
        match self {
            Self::Fixed(value) => Some(*value),
            _ => None,
        }
    }

    /// The value in packet `sequence`.
    #[inline]
    pub fn at(&self, sequence: u32) -> V {
        match self {
            Self::Fixed(value) => *value,
            Self::Increment { first, step, cycle } => first.plus(step * cycle.index(sequence)),
            Self::Random { first, count, seed } => {
                let random = mix(GOLDEN_GAMMA.wrapping_mul(sequence.into()).wrapping_add(*seed)) >> 32;
                first.plus(((random * count) >> 32) as u32)
            }
            Self::List { values, cycle } => values[cycle.index(sequence) as usize],
        }
    }

    /// The value in packet `sequence`, `None` when it is the same in every packet.
    #[inline]
    pub fn varying(&self, sequence: u32) -> Option<V> {
        match self {
            Self::Fixed(_) => None,
            _ => Some(self.at(sequence)),
        }
    }

    /// Every value, each as often as it is likely.
    pub fn every(&self) -> impl Iterator<Item = V> + '_ {
        let count = match self {
            Self::Fixed(_) => 1,
            Self::Increment { cycle, .. } | Self::List { cycle, .. } => cycle.count,
            Self::Random { count, .. } => *count,
        };
        (0..count).map(|index| match self {
            Self::Random { first, .. } => first.plus(index as u32),
            _ => self.at(index as u32),
        })
    }
}

/// The finalizer of SplitMix64.
#[inline]
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

impl DrawValue for u16 {
    #[inline]
    fn plus(self, distance: u32) -> Self {
        self.wrapping_add(distance as u16)
    }
}

impl DrawValue for u32 {
    #[inline]
    fn plus(self, distance: u32) -> Self {
        self.wrapping_add(distance)
    }
}

impl DrawValue for u128 {
    #[inline]
    fn plus(self, distance: u32) -> Self {
        self.wrapping_add(distance.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn ports(text: &str, stream: u16) -> Draw<u16> {
        Draw::new(&text.parse::<Values<u16>>().unwrap(), |port| port, (Field::SrcPort, stream))
    }

    fn first_five(text: &str) -> Vec<u16> {
        (0..5).map(|n| ports(text, 0).at(n)).collect()
    }

    #[test]
    fn a_field_counts_up_and_starts_again() {
        assert_eq!(first_five("7"), [7; 5]);
        assert_eq!(first_five("7-9"), [7, 8, 9, 7, 8]);
        assert_eq!(first_five("inc:0-9,step=4"), [0, 4, 8, 0, 4]);
        assert_eq!(first_five("list:53,123"), [53, 123, 53, 123, 53]);
    }

    #[test]
    fn random_values_cover_the_range_and_differ_by_stream_and_field() {
        let drawn: HashSet<u16> = (0..1000).map(|n| ports("random:10-29", 0).at(n)).collect();
        assert_eq!(drawn, (10..30).collect());
        assert_eq!(first_five("random:0-65535,seed=1"), first_five("random:0-65535,seed=1"));
        assert_ne!(first_five("random:0-65535,seed=1"), first_five("random:0-65535,seed=2"));
        let other_stream: Vec<u16> = (0..5).map(|n| ports("random:0-65535,seed=1", 1).at(n)).collect();
        assert_ne!(first_five("random:0-65535,seed=1"), other_stream);
    }

    #[test]
    fn random_numbers_are_those_of_splitmix64() {
        // The generator's first output from state 0, published with its reference implementation.
        assert_eq!(mix(GOLDEN_GAMMA), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn every_value_is_named_once() {
        for text in ["7", "7-9", "inc:0-9,step=4", "random:3-5", "list:53,123"] {
            let named: Vec<u16> = ports(text, 0).every().collect();
            let drawn: HashSet<u16> = (0..100).map(|n| ports(text, 0).at(n)).collect();
            assert_eq!(named.iter().copied().collect::<HashSet<_>>(), drawn, "{text}");
            assert_eq!(named.len(), drawn.len(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_cycle_is_a_remainder(sequence: u32, count in prop_oneof![1..=1u64 << 32, Just(1), Just(1 << 32), 1..100u64]) {
            prop_assert_eq!(u64::from(Cycle::new(count).index(sequence)), u64::from(sequence) % count);
        }
    }
}
