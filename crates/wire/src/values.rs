//! The values that a field takes from packet to packet: ports, addresses and sizes, as users write them.
//!
//! | text | packet n holds |
//! |---|---|
//! | `53` | always the same value |
//! | `inc:1024-2047`, or just `1024-2047` | the next value, starting over after the last |
//! | `inc:1024-2047,step=8` | every eighth value |
//! | `random:10.0.0.0/24,seed=7` | a random value, the same for the same seed and n |
//! | `list:53,123,443` | the next value of the list |
//!
//! A range is `a-b`, both ends included, or for addresses a network such as `10.0.0.0/24`, all of it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU32,
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::Text;

/// Values that a field takes, of ports (`u16`), addresses (`IpAddr`) or sizes in bytes (`u32`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String", bound = "T: Item")]
pub enum Values<T> {
    /// One value for all packets.
    Fixed(T),
    /// Incrementing: `first + step × (n mod count)`.
    Increment {
        /// Where the values lie.
        span: Span<T>,
        /// Distance between values.
        step: NonZeroU32,
    },
    /// Drawn at random for each packet, all values equally likely.
    Random {
        /// Where the values lie.
        span: Span<T>,
        /// The same seed yields the same values.
        seed: u64,
    },
    /// One after the other, as listed.
    List(List<T>),
}

/// A range with both ends in it, of at most 2^32 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span<T> {
    first: T,
    last: T,
}

/// Between 1 and [`List::MOST`] values of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(Vec<T>);

/// What [`Values`] can hold.
pub trait Item: Copy + Ord + fmt::Display + FromStr + sealed::Sealed {
    /// The word for it in messages.
    const NAME: &'static str;
    /// What can be written for it.
    const FORMS: &'static str;

    /// How far `last` is from here; `None` when it is smaller, or of another kind.
    fn distance_to(self, last: Self) -> Option<u128>;

    /// The value at that distance.
    fn plus(self, distance: u32) -> Self;

    /// True when both can be in one list.
    fn same_kind(self, other: Self) -> bool;

    /// The first and last value of a network such as `10.0.0.0/24`; `None` when this kind has no networks.
    fn network(text: &str) -> Option<Result<(Self, Self), ValuesError>>;

    /// The prefix length when these are the ends of a network.
    fn prefix_len(first: Self, last: Self) -> Option<u8>;
}

impl<T: Item> Values<T> {
    /// The same values, each increased by that much.
    #[must_use]
    pub(crate) fn each_plus(&self, distance: u32) -> Self {
        let moved =
            |span: &Span<T>| Span { first: span.first.plus(distance), last: span.last.plus(distance) };
        match self {
            Self::Fixed(value) => Self::Fixed(value.plus(distance)),
            Self::Increment { span, step } => Self::Increment { span: moved(span), step: *step },
            Self::Random { span, seed } => Self::Random { span: moved(span), seed: *seed },
            Self::List(List(values)) => {
                Self::List(List(values.iter().map(|value| value.plus(distance)).collect()))
            }
        }
    }
}

/// Why values cannot be used; the message says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ValuesError {
    /// Not a value, a range or a rule.
    #[error("'{text}' is not {name}: write {forms}")]
    NotAValue {
        /// What was written.
        text: String,
        /// What it should be.
        name: &'static str,
        /// What can be written.
        forms: &'static str,
    },
    /// The first value is larger than the last.
    #[error("range '{first}-{last}' runs backwards: write {last}-{first}")]
    Backwards {
        /// The first value.
        first: String,
        /// The last value.
        last: String,
    },
    /// IPv4 and IPv6 mixed.
    #[error("'{a}' and '{b}' are of different IP versions: write addresses of one version")]
    MixedVersions {
        /// One address.
        a: String,
        /// The other.
        b: String,
    },
    /// Packets are numbered with 32 bits.
    #[error("range '{first}-{last}' holds more than 2^32 values: for IPv6 write a /96 or a narrower network")]
    TooWide {
        /// The first value.
        first: String,
        /// The last value.
        last: String,
    },
    /// An address inside a network instead of the network's first.
    #[error("'{text}' is an address inside a network: write {network} for the whole network")]
    HostBits {
        /// What was written.
        text: String,
        /// The network around it.
        network: String,
    },
    /// A prefix longer than the address.
    #[error("'{text}' needs a prefix length from 0 to {most} after the /")]
    PrefixLen {
        /// What was written.
        text: String,
        /// The length of the address.
        most: u8,
    },
    /// An option unknown to the rule.
    #[error("'{text}' is not an option of {rule}: expected {takes}")]
    UnknownOption {
        /// What was written.
        text: String,
        /// The rule.
        rule: &'static str,
        /// The option it takes.
        takes: &'static str,
    },
    /// No values, or too many to keep.
    #[error("a list must have 1 to {most} values, not {len}")]
    ListLen {
        /// Values in the list.
        len: usize,
        /// The most values.
        most: usize,
    },
}

impl<T: Item> Span<T> {
    /// From `first` to `last`.
    ///
    /// # Errors
    /// [`ValuesError`] when it runs backwards, is wider than 2^32 values, or mixes IP versions.
    pub fn new(first: T, last: T) -> Result<Self, ValuesError> {
        let (a, b) = (first.to_string(), last.to_string());
        if !first.same_kind(last) {
            return Err(ValuesError::MixedVersions { a, b });
        }
        match first.distance_to(last) {
            None => Err(ValuesError::Backwards { first: a, last: b }),
            Some(distance) if distance > u32::MAX.into() => Err(ValuesError::TooWide { first: a, last: b }),
            Some(_) => Ok(Self { first, last }),
        }
    }

    /// The first value.
    pub fn first(&self) -> T {
        self.first
    }

    /// The last value.
    pub fn last(&self) -> T {
        self.last
    }

    /// How many values there are, 1..=2^32.
    pub fn count(&self) -> u64 {
        self.first.distance_to(self.last).expect("`new` compared the ends") as u64 + 1
    }
}

impl<T: Item> List<T> {
    /// The longest list: every port.
    pub const MOST: usize = 65_536;

    /// A list of these values.
    ///
    /// # Errors
    /// [`ValuesError`] when there are none or too many, or when they mix IP versions.
    pub fn new(values: Vec<T>) -> Result<Self, ValuesError> {
        let (len, most) = (values.len(), Self::MOST);
        let first = *values.first().ok_or(ValuesError::ListLen { len, most })?;
        if len > most {
            return Err(ValuesError::ListLen { len, most });
        }
        match values.iter().find(|value| !value.same_kind(first)) {
            Some(other) => Err(ValuesError::MixedVersions { a: first.to_string(), b: other.to_string() }),
            None => Ok(Self(values)),
        }
    }

    /// The values.
    pub fn values(&self) -> &[T] {
        &self.0
    }
}

impl<T: Item> Values<T> {
    /// One value, the smallest or the first; all others have its kind.
    pub fn first(&self) -> T {
        match self {
            Self::Fixed(value) => *value,
            Self::Increment { span, .. } | Self::Random { span, .. } => span.first(),
            Self::List(list) => list.values()[0],
        }
    }

    /// Every value once, the first [`List::MOST`] of them, in no particular order.
    pub fn listed(&self) -> Vec<T> {
        let every = |span: &Span<T>, step: u64| {
            let places = (0..span.count()).step_by(step as usize).take(List::<T>::MOST);
            places.map(|place| span.first().plus(place as u32)).collect()
        };
        match self {
            Self::Fixed(value) => vec![*value],
            Self::Increment { span, step } => every(span, step.get().into()),
            Self::Random { span, .. } => every(span, 1),
            Self::List(list) => list.values().to_vec(),
        }
    }

    /// True when the field is the same in every packet.
    pub fn is_fixed(&self) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Increment { span, step } => span.count() <= step.get().into(),
            Self::Random { span, .. } => span.count() == 1,
            Self::List(list) => list.values().iter().all(|value| *value == self.first()),
        }
    }
}

impl<T: Item> From<T> for Values<T> {
    fn from(value: T) -> Self {
        Self::Fixed(value)
    }
}

impl<T: Item> FromStr for Values<T> {
    type Err = ValuesError;

    fn from_str(text: &str) -> Result<Self, ValuesError> {
        match text.split_once(':') {
            Some(("inc", rest)) => {
                let (span, step) = span_and_option(rest, "inc", "step", "step=N from 1")?;
                Ok(Self::Increment { span, step: step.unwrap_or(NonZeroU32::MIN) })
            }
            Some(("random", rest)) => {
                let (span, seed) = span_and_option(rest, "random", "seed", "seed=N")?;
                Ok(Self::Random { span, seed: seed.unwrap_or(0) })
            }
            Some(("list", rest)) => {
                let values = rest.split(',').map(parse_one).collect::<Result<_, _>>()?;
                Ok(Self::List(List::new(values)?))
            }
            _ if text.contains(['-', '/']) => {
                Ok(Self::Increment { span: text.parse()?, step: NonZeroU32::MIN })
            }
            _ => Ok(Self::Fixed(parse_one(text)?)),
        }
    }
}

impl<T: Item> FromStr for Span<T> {
    type Err = ValuesError;

    fn from_str(text: &str) -> Result<Self, ValuesError> {
        if text.contains('/')
            && let Some(ends) = T::network(text)
        {
            let (first, last) = ends?;
            return Self::new(first, last);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::new(parse_one(first)?, parse_one(last)?)
    }
}

fn parse_one<T: Item>(text: &str) -> Result<T, ValuesError> {
    text.parse().map_err(|_| not_a_value::<T>(text))
}

fn not_a_value<T: Item>(text: &str) -> ValuesError {
    ValuesError::NotAValue { text: text.into(), name: T::NAME, forms: T::FORMS }
}

/// Reads `a-b` or `a-b,name=value`.
fn span_and_option<T: Item, O: FromStr>(
    text: &str,
    rule: &'static str,
    name: &str,
    takes: &'static str,
) -> Result<(Span<T>, Option<O>), ValuesError> {
    let Some((span, option)) = text.split_once(',') else { return Ok((text.parse()?, None)) };
    let value = option.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
    let value = value.and_then(|value| value.parse().ok());
    let unknown = || ValuesError::UnknownOption { text: option.into(), rule, takes };
    Ok((span.parse()?, Some(value.ok_or_else(unknown)?)))
}

impl<T: Item> fmt::Display for Values<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(value) => write!(f, "{value}"),
            Self::Increment { span, step: NonZeroU32::MIN } => write!(f, "inc:{span}"),
            Self::Increment { span, step } => write!(f, "inc:{span},step={step}"),
            Self::Random { span, seed: 0 } => write!(f, "random:{span}"),
            Self::Random { span, seed } => write!(f, "random:{span},seed={seed}"),
            Self::List(List(values)) => {
                f.write_str("list:")?;
                for (at, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl<T: Item> fmt::Display for Span<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match T::prefix_len(self.first, self.last) {
            Some(len) => write!(f, "{}/{len}", self.first),
            None => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl<T: Item> TryFrom<Text> for Values<T> {
    type Error = ValuesError;
    fn try_from(text: Text) -> Result<Self, ValuesError> {
        text.0.parse()
    }
}

impl<T: Item> From<Values<T>> for String {
    fn from(values: Values<T>) -> Self {
        values.to_string()
    }
}

mod sealed {
    /// Sealed: only this crate decides what can vary.
    pub trait Sealed {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
    impl Sealed for std::net::IpAddr {}
}

/// Ports and sizes are numbers: they have no kinds and no networks.
macro_rules! number_item {
    ($number:ty, $name:literal, $forms:literal) => {
        impl Item for $number {
            const NAME: &'static str = $name;
            const FORMS: &'static str = $forms;

            fn distance_to(self, last: Self) -> Option<u128> {
                last.checked_sub(self).map(u128::from)
            }

            fn plus(self, distance: u32) -> Self {
                self + distance as Self
            }

            fn same_kind(self, _: Self) -> bool {
                true
            }

            fn network(_: &str) -> Option<Result<(Self, Self), ValuesError>> {
                None
            }

            fn prefix_len(_: Self, _: Self) -> Option<u8> {
                None
            }
        }
    };
}

number_item!(u16, "a port", "53, 1024-2047, inc:1024-2047,step=8, random:1024-65535,seed=7 or list:53,123");
number_item!(
    u32,
    "a size in bytes",
    "64, 64-1518, inc:64-1518,step=64, random:64-1518,seed=7 or list:64,1518"
);

impl Item for IpAddr {
    const NAME: &'static str = "an IP address";
    const FORMS: &'static str = "10.0.0.1, 10.0.0.1-10.0.0.9, inc:10.0.0.0/24,step=2, random:2001:db8::/112,seed=7 or list:10.0.0.1,10.0.0.5";

    fn distance_to(self, last: Self) -> Option<u128> {
        bits(last).checked_sub(bits(self))
    }

    fn plus(self, distance: u32) -> Self {
        match self {
            Self::V4(address) => Ipv4Addr::from_bits(address.to_bits() + distance).into(),
            Self::V6(address) => Ipv6Addr::from_bits(address.to_bits() + u128::from(distance)).into(),
        }
    }

    fn same_kind(self, other: Self) -> bool {
        self.is_ipv4() == other.is_ipv4()
    }

    fn network(text: &str) -> Option<Result<(Self, Self), ValuesError>> {
        Some(network(text))
    }

    fn prefix_len(first: Self, last: Self) -> Option<u8> {
        let count = first.distance_to(last)? + 1;
        let is_network = count > 1 && count.is_power_of_two() && bits(first).is_multiple_of(count);
        is_network.then(|| width(first) - count.trailing_zeros() as u8)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Bits of an address of this version.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn network(text: &str) -> Result<(IpAddr, IpAddr), ValuesError> {
    let (address, len) = text.split_once('/').ok_or_else(|| not_a_value::<IpAddr>(text))?;
    let address: IpAddr = parse_one(address)?;
    let most = width(address);
    let wrong_len = || ValuesError::PrefixLen { text: text.into(), most };
    let len: u8 = len.parse().ok().filter(|len| *len <= most).ok_or_else(wrong_len)?;
    let host_bits = u128::MAX.checked_shr((128 - most + len).into()).unwrap_or(0);
    let at = |bits: u128| match address {
        IpAddr::V4(_) => Ipv4Addr::from_bits(bits as u32).into(),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    };
    let first = at(bits(address) & !host_bits);
    if first != address {
        return Err(ValuesError::HostBits { text: text.into(), network: format!("{first}/{len}") });
    }
    Ok((first, at(bits(address) | host_bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Ports = Values<u16>;
    type Addrs = Values<IpAddr>;

    #[test]
    fn every_value_is_listed_once() {
        let ports = |text: &str| text.parse::<Values<u16>>().unwrap().listed();
        assert_eq!(ports("53"), [53]);
        assert_eq!(ports("inc:1-7,step=3"), [1, 4, 7]);
        assert_eq!(ports("random:5-6,seed=1"), [5, 6]);
        assert_eq!(ports("list:9,3"), [9, 3]);
        assert_eq!("10.0.0.0/8".parse::<Values<IpAddr>>().unwrap().listed().len(), 65_536);
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in
            ["53", "inc:1024-2047", "inc:0-65535,step=8", "random:1-2", "random:1-2,seed=7", "list:53,123,53"]
        {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        for text in [
            "10.0.0.1",
            "2001:db8::1",
            "inc:10.0.0.0/24",
            "inc:10.0.0.1-10.0.0.9",
            "random:0.0.0.0/0",
            "inc:::1-::9",
            "random:2001:db8::/96,seed=18446744073709551615",
            "list:10.0.0.1,192.168.0.1",
            "list:::1,::2",
        ] {
            assert_eq!(text.parse::<Addrs>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bare_range_counts_up() {
        assert_eq!("1024-2047".parse::<Ports>(), "inc:1024-2047".parse());
        assert_eq!("10.0.0.0/30".parse::<Addrs>(), "inc:10.0.0.0-10.0.0.3".parse());
        assert_eq!("10.0.0.1/32".parse::<Addrs>(), "inc:10.0.0.1-10.0.0.1".parse());
    }

    #[test]
    fn a_network_is_all_of_its_addresses() {
        let span = |text: &str| {
            let span: Span<IpAddr> = text.parse().unwrap();
            (span.first().to_string(), span.last().to_string(), span.count())
        };
        assert_eq!(span("10.1.0.0/16"), ("10.1.0.0".into(), "10.1.255.255".into(), 65_536));
        assert_eq!(span("0.0.0.0/0"), ("0.0.0.0".into(), "255.255.255.255".into(), 1 << 32));
        assert_eq!(span("2001:db8::/127"), ("2001:db8::".into(), "2001:db8::1".into(), 2));
    }

    #[test]
    fn one_value_is_fixed_however_it_is_written() {
        for text in ["7", "inc:7", "7-7", "inc:1-5,step=5", "random:7", "list:7,7"] {
            assert!(text.parse::<Ports>().unwrap().is_fixed(), "{text}");
        }
        for text in ["7-8", "inc:1-6,step=5", "random:7-8", "list:7,8"] {
            assert!(!text.parse::<Ports>().unwrap().is_fixed(), "{text}");
        }
    }

    #[test]
    fn refusals_say_what_to_write_instead() {
        let port = |text: &str| text.parse::<Ports>().unwrap_err().to_string();
        let addr = |text: &str| text.parse::<Addrs>().unwrap_err().to_string();
        assert_eq!(
            port("http"),
            "'http' is not a port: write 53, 1024-2047, inc:1024-2047,step=8, random:1024-65535,seed=7 or list:53,123"
        );
        assert!(port("65536").starts_with("'65536' is not a port"));
        assert!(port("seq:1-2").starts_with("'seq:1' is not a port"));
        assert!(port("list:").starts_with("'' is not a port"));
        assert!(port("1/2").starts_with("'1/2' is not a port"));
        assert_eq!(port("2047-1024"), "range '2047-1024' runs backwards: write 1024-2047");
        assert_eq!(port("inc:1-9,stp=4"), "'stp=4' is not an option of inc: expected step=N from 1");
        assert_eq!(port("inc:1-9,step=0"), "'step=0' is not an option of inc: expected step=N from 1");
        assert_eq!(port("random:1-9,step=4"), "'step=4' is not an option of random: expected seed=N");
        assert_eq!(
            addr("10.0.0.5/24"),
            "'10.0.0.5/24' is an address inside a network: write 10.0.0.0/24 for the whole network"
        );
        assert_eq!(addr("10.0.0.0/33"), "'10.0.0.0/33' needs a prefix length from 0 to 32 after the /");
        assert_eq!(
            addr("2001:db8::/64"),
            "range '2001:db8::-2001:db8::ffff:ffff:ffff:ffff' holds more than 2^32 values: for IPv6 write a /96 or a narrower network"
        );
        assert_eq!(
            addr("10.0.0.1-::1"),
            "'10.0.0.1' and '::1' are of different IP versions: write addresses of one version"
        );
        assert!(addr("list:10.0.0.1,::1").contains("different IP versions"));
        assert!(addr("10.0.0").contains("is not an IP address: write 10.0.0.1"), "{}", addr("10.0.0"));
        let long = vec![1u16; 65_537];
        assert_eq!(List::new(long).unwrap_err().to_string(), "a list must have 1 to 65536 values, not 65537");
    }
}
