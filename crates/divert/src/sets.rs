//! Sets of networks that rules name: `drop src set bad`.
//!
//! A set is the sorted bounds of its networks, joined where they meet: 8 bytes an IPv4 network, 32 an IPv6 one, and a
//! fifteenth and a seventh of that for the levels above, whatever the prefixes' lengths. The program in the kernel reads the same
//! lines as this process.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use bpf::{DivertOptions, PacketSide, SetLevel, SetLine4, SetLine6, SetMember};
use filter::{Member, Side};
use serde::{Serialize, Serializer};

use crate::{error::RuleError, exclude::Network};

/// Networks that rules know by a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkSet {
    v4: Levels<u32, 16>,
    v6: Levels<u128, 8>,
    networks: usize,
}

/// Sets by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sets(BTreeMap<String, Arc<NetworkSet>>);

/// Sorted bounds, `N` in a line, and above them levels of which each bound is the first of a line below.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Levels<T, const N: usize> {
    lines: Vec<[T; N]>,
    /// The highest first.
    levels: Vec<SetLevel>,
}

/// Bounds that the program's levels hold.
const MOST_BOUNDS: usize = 1 << 24;

impl NetworkSet {
    /// Networks in any order, which may overlap.
    ///
    /// # Errors
    /// [`RuleError::SetTooLarge`] above 2^24 bounds: 8 million networks that do not meet.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Result<Self, RuleError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match network.address {
                IpAddr::V4(address) => {
                    let host = u32::MAX.checked_shr(network.prefix_len.into()).unwrap_or(0);
                    v4.push((address.to_bits() & !host, address.to_bits() | host));
                }
                IpAddr::V6(address) => {
                    let host = u128::MAX.checked_shr(network.prefix_len.into()).unwrap_or(0);
                    v6.push((address.to_bits() & !host, address.to_bits() | host));
                }
            }
        }
        let networks = v4.len() + v6.len();
        let v4 = Levels::over(bounds(v4, |last: u32| last.checked_add(1)), u32::MAX)?;
        let v6 = Levels::over(bounds(v6, |last: u128| last.checked_add(1)), u128::MAX)?;
        Ok(Self { v4, v6, networks })
    }

    /// From a text: a network or an address a line; empty lines and what follows a `#` do not count.
    ///
    /// # Errors
    /// The first ten invalid lines, with their numbers.
    pub fn parse(text: &str) -> Result<Self, Vec<RuleError>> {
        let (mut networks, mut errors) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split_once('#').map_or(line, |(line, _)| line).trim();
            if line.is_empty() {
                continue;
            }
            match line.parse() {
                Ok(network) => networks.push(network),
                Err(problem) => {
                    let source = Box::new(RuleError::Network { problem });
                    errors.push(RuleError::Line { number, source });
                    if errors.len() == 10 {
                        break;
                    }
                }
            }
        }
        if errors.is_empty() { Self::new(networks).map_err(|error| vec![error]) } else { Err(errors) }
    }

    /// Whether an address is in one of the networks.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.contains(address.to_bits()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits()),
        }
    }

    /// Networks that it was made from.
    pub fn len(&self) -> usize {
        self.networks
    }

    /// Whether no address is in it.
    pub fn is_empty(&self) -> bool {
        self.networks == 0
    }

    /// Its bytes of memory, here and again in the kernel.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.v4.lines[..]) + size_of_val(&self.v6.lines[..])
    }
}

impl Sets {
    /// Adds a set, or replaces the one of that name.
    pub fn insert(&mut self, name: impl Into<String>, set: NetworkSet) {
        self.0.insert(name.into(), Arc::new(set));
    }

    /// The set of a name.
    pub fn get(&self, name: &str) -> Option<&NetworkSet> {
        self.0.get(name).map(Arc::as_ref)
    }

    /// The expressions' lookups, each with its set.
    ///
    /// # Errors
    /// [`RuleError::UnknownSet`], [`RuleError::TooManySets`].
    pub(crate) fn members(&self, asked: &[Member]) -> Result<Members, RuleError> {
        if asked.len() > DivertOptions::MOST_MEMBERS {
            return Err(RuleError::TooManySets { most: DivertOptions::MOST_MEMBERS });
        }
        let found = asked.iter().map(|Member { side, set }| match self.0.get(set) {
            Some(found) => Ok((*side, found.clone())),
            None => Err(RuleError::UnknownSet { set: set.clone() }),
        });
        Ok(Members(found.collect::<Result<_, _>>()?))
    }
}

/// Names and numbers of networks: the networks would fill a screen.
impl Serialize for Sets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, set)| (name, set.len())))
    }
}

/// Addresses of a frame and the sets that they may be in, as expressions number them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members(Vec<(Side, Arc<NetworkSet>)>);

impl Members {
    /// A bit for each of them that is true of a frame.
    #[inline]
    pub(crate) fn of(&self, frame: &[u8]) -> u64 {
        if self.0.is_empty() {
            return 0;
        }
        let Some([src, dst]) = addresses(frame) else { return 0 };
        (0..).zip(&self.0).fold(0, |bits, (at, (side, set))| {
            let address = if *side == Side::Source { src } else { dst };
            bits | u64::from(set.contains(address)) << at
        })
    }

    /// The same for the program in the kernel; each set appears once.
    pub(crate) fn for_program(&self) -> (Vec<SetMember>, Vec<SetLine4>, Vec<SetLine6>) {
        let (mut members, mut lines4, mut lines6) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: Vec<(&Arc<NetworkSet>, u32, u32)> = Vec::new();
        for (side, set) in &self.0 {
            let there =
                known.iter().find(|(other, ..)| Arc::ptr_eq(other, set)).map(|(_, v4, v6)| (*v4, *v6));
            let (at4, at6) = there.unwrap_or_else(|| {
                let at = (lines4.len() as u32, lines6.len() as u32);
                lines4.extend_from_slice(&set.v4.lines);
                lines6.extend_from_slice(&set.v6.lines);
                known.push((set, at.0, at.1));
                at
            });
            let moved = |levels: &[SetLevel], by: u32| {
                levels.iter().map(|level| SetLevel { first_line: level.first_line + by, ..*level }).collect()
            };
            members.push(SetMember {
                side: match side {
                    Side::Source => PacketSide::Source,
                    Side::Destination => PacketSide::Destination,
                },
                levels4: moved(&set.v4.levels, at4),
                levels6: moved(&set.v6.levels, at6),
            });
        }
        (members, lines4, lines6)
    }
}

impl<T, const N: usize> Default for Levels<T, N> {
    fn default() -> Self {
        Self { lines: Vec::new(), levels: Vec::new() }
    }
}

impl<T: Copy + Ord, const N: usize> Levels<T, N> {
    fn over(bounds: Vec<T>, highest: T) -> Result<Self, RuleError> {
        if bounds.len() > MOST_BOUNDS {
            return Err(RuleError::SetTooLarge);
        }
        if bounds.is_empty() {
            return Ok(Self::default());
        }
        let mut upwards = vec![bounds];
        while upwards[upwards.len() - 1].len() > N {
            upwards.push(upwards[upwards.len() - 1].iter().step_by(N).copied().collect());
        }
        let (mut lines, mut levels) = (Vec::new(), Vec::new());
        for bounds in upwards.iter().rev() {
            levels.push(SetLevel { first_line: lines.len() as u32, bounds: bounds.len() as u32 });
            lines.extend(bounds.chunks(N).map(|chunk| {
                let mut line = [highest; N];
                line[..chunk.len()].copy_from_slice(chunk);
                line
            }));
        }
        Ok(Self { lines, levels })
    }

    /// As `is_in4` and `is_in6` of `divert.bpf.c`.
    #[inline]
    fn contains(&self, address: T) -> bool {
        let mut at = 0;
        for level in &self.levels {
            let line = &self.lines[level.first_line as usize + at];
            let count: usize = line.iter().map(|bound| usize::from(*bound <= address)).sum();
            if count == 0 {
                return false;
            }
            // The last line is filled with the highest address.
            at = (at * N + count - 1).min(level.bounds as usize - 1);
        }
        !self.levels.is_empty() && at % 2 == 0
    }
}

/// The first address of each run of networks that meet, and the first one behind it, where there is one.
fn bounds<T: Copy + Ord>(mut networks: Vec<(T, T)>, next: impl Fn(T) -> Option<T>) -> Vec<T> {
    networks.sort_unstable();
    let mut bounds = Vec::new();
    let mut at = networks.into_iter();
    let Some((mut first, mut last)) = at.next() else { return bounds };
    for (begins, ends) in at {
        if next(last).is_none_or(|next| begins <= next) {
            last = last.max(ends);
        } else {
            bounds.extend([Some(first), next(last)].into_iter().flatten());
            (first, last) = (begins, ends);
        }
    }
    bounds.extend([Some(first), next(last)].into_iter().flatten());
    bounds
}

/// Source and destination of IPv4 and IPv6, behind up to two VLAN tags.
#[inline]
fn addresses(frame: &[u8]) -> Option<[IpAddr; 2]> {
    let mut at = 14;
    let mut ethertype: [u8; 2] = *frame.get(12..)?.first_chunk()?;
    for _ in 0..2 {
        if ethertype != [0x81, 0x00] && ethertype != [0x88, 0xa8] {
            break;
        }
        ethertype = *frame.get(at + 2..)?.first_chunk()?;
        at += 4;
    }
    let packet = frame.get(at..)?;
    match ethertype {
        [0x08, 0x00] => {
            let header = packet.first_chunk::<20>()?;
            let address = |at: usize| -> IpAddr {
                Ipv4Addr::from(*header[at..].first_chunk::<4>().expect("20 bytes")).into()
            };
            Some([address(12), address(16)])
        }
        [0x86, 0xdd] => {
            let header = packet.first_chunk::<40>()?;
            let address = |at: usize| -> IpAddr {
                Ipv6Addr::from(*header[at..].first_chunk::<16>().expect("40 bytes")).into()
            };
            Some([address(8), address(24)])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> NetworkSet {
        NetworkSet::parse(text).unwrap()
    }

    #[test]
    fn networks_overlap_meet_and_reach_the_last_address() {
        let set = set(
            "# bad\n192.0.2.0/25\n192.0.2.128/25 # meets\n192.0.2.7\n\n255.255.255.255\n0.0.0.0/32\n2001:db8::/32\n\
                       ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n",
        );
        let cases = [
            ("192.0.1.255", false),
            ("192.0.2.0", true),
            ("192.0.2.127", true),
            ("192.0.2.255", true),
            ("192.0.3.0", false),
            ("0.0.0.0", true),
            ("0.0.0.1", false),
            ("255.255.255.254", false),
            ("255.255.255.255", true),
            ("2001:db7:ffff::", false),
            ("2001:db8::1", true),
            ("2001:db9::", false),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", false),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true),
        ];
        for (address, is_in) in cases {
            assert_eq!(set.contains(address.parse().unwrap()), is_in, "{address}");
        }
        assert_eq!((set.v4.levels[0].bounds, set.v6.levels[0].bounds, set.len()), (5, 3, 7));
        assert!(!NetworkSet::default().contains("192.0.2.1".parse().unwrap()));
        let all = self::set("0.0.0.0/0\n");
        assert!(all.contains("1.2.3.4".parse().unwrap()) && !all.contains("::".parse().unwrap()));
    }

    #[test]
    fn every_address_is_found_in_sets_of_any_size() {
        for count in [1u32, 7, 8, 9, 16, 17, 255, 257, 5000] {
            // Every other /24, and the same in IPv6.
            let networks = (0..count).flat_map(|at| {
                let v4 = Network { address: Ipv4Addr::from_bits(at << 9).into(), prefix_len: 24 };
                let v6 =
                    Network { address: Ipv6Addr::from_bits(u128::from(at) << 65).into(), prefix_len: 64 };
                [v4, v6]
            });
            let set = NetworkSet::new(networks).unwrap();
            for at in 0..2 * count {
                let is_in = at % 2 == 0;
                for host in [0u32, 255] {
                    let address = Ipv4Addr::from_bits(at << 8 | host).into();
                    assert_eq!(set.contains(address), is_in, "{count}: {address}");
                }
                let address = Ipv6Addr::from_bits(u128::from(at) << 64 | 7).into();
                assert_eq!(set.contains(address), is_in, "{count}: {address}");
            }
        }
    }

    #[test]
    fn wrong_lines_are_told_with_their_numbers() {
        let errors = NetworkSet::parse("192.0.2.0/24\nnope\n192.0.2.0/33\n").unwrap_err();
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["line 2", "line 3"]);
    }

    #[test]
    fn addresses_are_found_behind_tags() {
        let mut frame = [0; 60];
        (frame[12], frame[14], frame[26], frame[30]) = (8, 0x45, 192, 198);
        let [src, dst] = addresses(&frame).unwrap();
        assert_eq!((src.to_string(), dst.to_string()), ("192.0.0.0".into(), "198.0.0.0".into()));
        let tagged = [&frame[..12], &[0x81, 0, 0, 5, 0x88, 0xa8, 0, 6], &frame[12..]].concat();
        assert_eq!(addresses(&tagged), Some([src, dst]));
        for len in 0..34 {
            assert_eq!(addresses(&frame[..len]), None, "{len}");
        }
    }
}
