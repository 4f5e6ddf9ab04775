//! How a sender's clock and ours belong together, and what that allows to be said about latency.

use std::net::{IpAddr, UdpSocket};

use engine::{LatencyMeans, Readings, TimeSource, reception};
use measure::{ClockRelation, ReceptionStatistics, StatisticsLevel, Timing};
use serde::{Deserialize, Serialize};
use sys::{
    clock::{self, Discipline},
    ptp::{self, PtpClock},
};

/// What the user says about senders' clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockClaim {
    /// Nothing: they are ours when all senders have addresses of this host.
    #[default]
    Auto,
    /// They are ours.
    SameHost,
    /// They are kept together with ours by PTP or NTP.
    Synchronised,
    /// The same, and somebody who knows says how well.
    Within {
        /// Nanoseconds that the two clocks are apart, at most.
        bound_ns: u64,
    },
    /// They have nothing to do with ours.
    None,
}

/// All readers' statistics, with latency where the clocks allow it.
pub fn timed_reception(readings: &[Readings], claim: ClockClaim) -> ReceptionStatistics {
    let discipline = clock::discipline().filter(|discipline| discipline.is_synchronised);
    let Relation { clocks, mut known_by, offset_ns, bound_ns } = relation(readings, claim, discipline);
    if clocks == ClockRelation::Synchronised {
        known_by.push_str(&hardware_clocks(&ptp::clocks()));
    }
    let latency = if clocks == ClockRelation::None { LatencyMeans::Nothing } else { LatencyMeans::Time };
    let mut statistics = reception(readings, latency);
    if statistics.level == StatisticsLevel::Time {
        let stamp = readings.first().map_or(TimeSource::Loop, Readings::stamp);
        let cost = clock::look_cost();
        let measuring = readings.iter().find_map(Readings::cost);
        statistics.timing = Some(Timing {
            rx_stamp: stamp_name(stamp).into(),
            rx_stamp_means: stamp_means(stamp).into(),
            unstamped: readings.iter().map(Readings::unstamped).sum(),
            clocks,
            clocks_known_by: known_by,
            clock_offset_ns: offset_ns,
            clock_bound_ns: bound_ns,
            clock_resolution_ns: cost.resolution_ns,
            clock_read_ns: cost.read_ns,
            measuring_ns: measuring.map(|cost| cost.alone_ns),
            measuring_together_ns: measuring.map(|cost| cost.together_ns),
        });
    }
    statistics
}

/// How two clocks belong together, and how that is known.
#[derive(Debug, PartialEq)]
struct Relation {
    clocks: ClockRelation,
    known_by: String,
    offset_ns: Option<i64>,
    bound_ns: Option<u64>,
}

impl Relation {
    fn of(clocks: ClockRelation, known_by: &str) -> Self {
        Self { clocks, known_by: known_by.into(), offset_ns: None, bound_ns: None }
    }
}

/// `discipline` is what the kernel knows of its clock, when that is kept right by somebody.
fn relation(readings: &[Readings], claim: ClockClaim, discipline: Option<Discipline>) -> Relation {
    use ClockRelation::{None as Unrelated, SameHost};
    let senders = || readings.iter().flat_map(Readings::sender_addresses);
    let is_card = readings.first().map(Readings::stamp) == Some(TimeSource::Card);
    if is_card {
        return Relation::of(Unrelated, "packets are stamped by the card's own clock");
    }
    match claim {
        ClockClaim::SameHost => Relation::of(SameHost, "said so with --clocks same-host"),
        ClockClaim::None => Relation::of(Unrelated, "said so with --clocks none"),
        ClockClaim::Auto if senders().next().is_none() => Relation::of(Unrelated, "nobody has sent"),
        ClockClaim::Auto if senders().all(is_ours) => {
            Relation::of(SameHost, "every sender's address is this host's own")
        }
        ClockClaim::Auto => Relation::of(
            Unrelated,
            "nobody says how: give --clocks same-host or synchronised where you know; --reflect needs none",
        ),
        ClockClaim::Synchronised | ClockClaim::Within { .. } => {
            let tell_uptime = readings.iter().any(|readings| readings.sent_by_uptime() > 0);
            synchronised(tell_uptime, claim, discipline)
        }
    }
}

/// Wall clocks can be kept together; clocks that count from a host's start cannot be compared.
fn synchronised(tell_uptime: bool, claim: ClockClaim, discipline: Option<Discipline>) -> Relation {
    if tell_uptime {
        let why = "senders write the time since their host's start: send with --probe-clock micros";
        return Relation::of(ClockRelation::None, why);
    }
    let by_kernel = discipline.map(|discipline| discipline.most_error_ns);
    let (bound_ns, how_well) = match claim {
        ClockClaim::Within { bound_ns } => (Some(bound_ns), "the bound was said with --clock-bound"),
        _ if by_kernel.is_some() => {
            (by_kernel, "the kernel's clock says so too, with this bound on our side")
        }
        _ => (None, "the kernel's clock is not told how well: the bound is not known"),
    };
    let known_by = format!("said so with --clocks synchronised; {how_well}");
    let offset_ns = discipline.map(|discipline| discipline.offset_ns);
    Relation { offset_ns, bound_ns, ..Relation::of(ClockRelation::Synchronised, &known_by) }
}

/// Where PTP keeps a card's clock, the wall clock should be near it.
fn hardware_clocks(clocks: &[PtpClock]) -> String {
    if clocks.is_empty() {
        return "; this host has no hardware clock for PTP that can be read (/dev/ptp*)".into();
    }
    let words = clocks.iter().map(|PtpClock { device, name, ahead_ns, within_ns }| {
        format!(
            "; {device} ({name}) is {ahead_ns} ns ahead of the wall clock, give or take {} ns",
            within_ns.div_ceil(2)
        )
    });
    words.collect()
}

/// Whether this host has the address: only then can it be bound.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn stamp_name(stamp: TimeSource) -> &'static str {
    match stamp {
        TimeSource::Loop => "loop",
        TimeSource::Kernel => "kernel",
        TimeSource::Program => "program",
        TimeSource::Poll => "poll",
        TimeSource::Card => "card",
    }
}

fn stamp_means(stamp: TimeSource) -> &'static str {
    match stamp {
        TimeSource::Loop => "by the reading loop's clock, once a batch: gaps within a batch are 0",
        TimeSource::Kernel => "by the kernel, when the driver handed the packet over",
        TimeSource::Program => "by a program in XDP, before the kernel's buffers",
        TimeSource::Poll => {
            "by a program in XDP, once a poll of the device: gaps within a poll, of up to 64 packets, are 0"
        }
        TimeSource::Card => "by the card's own clock",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synchronised_clocks_have_an_offset_and_a_bound_where_somebody_says_so() {
        let disciplined = Discipline { is_synchronised: true, offset_ns: -350, most_error_ns: 4200 };
        let told = |claim, discipline| {
            let Relation { clocks, offset_ns, bound_ns, .. } = synchronised(false, claim, discipline);
            assert_eq!(clocks, ClockRelation::Synchronised);
            (offset_ns, bound_ns)
        };
        let within = ClockClaim::Within { bound_ns: 100 };
        assert_eq!(told(ClockClaim::Synchronised, Some(disciplined)), (Some(-350), Some(4200)));
        assert_eq!(told(ClockClaim::Synchronised, None), (None, None));
        assert_eq!(told(within, Some(disciplined)), (Some(-350), Some(100)));
        assert_eq!(told(within, None), (None, Some(100)));
        let uptime = synchronised(true, within, Some(disciplined));
        assert_eq!((uptime.clocks, uptime.bound_ns), (ClockRelation::None, None));
        assert!(uptime.known_by.contains("--probe-clock micros"), "{uptime:?}");
    }

    #[test]
    fn hardware_clocks_are_shown_with_their_offset_and_its_bound() {
        let clock =
            PtpClock { device: "/dev/ptp0".into(), name: "igb".into(), ahead_ns: -120, within_ns: 901 };
        let words = "; /dev/ptp0 (igb) is -120 ns ahead of the wall clock, give or take 451 ns";
        assert_eq!(hardware_clocks(&[clock]), words);
        assert!(hardware_clocks(&[]).contains("no hardware clock for PTP"));
    }

    #[test]
    fn unrelated_clocks_are_the_rule_without_senders_or_without_a_word() {
        for (claim, why) in [(ClockClaim::Auto, "nobody has sent"), (ClockClaim::None, "--clocks none")] {
            let Relation { clocks, known_by, .. } = relation(&[], claim, None);
            assert_eq!(clocks, ClockRelation::None);
            assert!(known_by.contains(why), "{known_by}");
        }
        assert_eq!(relation(&[], ClockClaim::SameHost, None).clocks, ClockRelation::SameHost);
    }
}
