//! How a sender's clock and ours belong together, and what that allows to be said about latency.

use std::net::{IpAddr, UdpSocket};

use engine::{LatencyMeans, Readings, TimeSource, reception};
use measure::{ClockRelation, ReceptionStatistics, StatisticsLevel, Timing};
use serde::{Deserialize, Serialize};
use sys::clock::{self, Discipline};

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
    /// They have nothing to do with ours.
    None,
}

/// All readers' statistics, with latency where the clocks allow it.
pub fn timed_reception(readings: &[Readings], claim: ClockClaim) -> ReceptionStatistics {
    let (clocks, clocks_known_by) = relation(readings, claim);
    let latency = if clocks == ClockRelation::None { LatencyMeans::Nothing } else { LatencyMeans::Time };
    let mut statistics = reception(readings, latency);
    if statistics.level == StatisticsLevel::Time {
        let stamp = readings.first().map_or(TimeSource::Loop, Readings::stamp);
        let discipline = (clocks == ClockRelation::Synchronised).then(clock::discipline).flatten();
        let cost = clock::look_cost();
        statistics.timing = Some(Timing {
            rx_stamp: stamp_name(stamp).into(),
            rx_stamp_means: stamp_means(stamp).into(),
            unstamped: readings.iter().map(Readings::unstamped).sum(),
            clocks,
            clocks_known_by,
            clock_offset_ns: discipline.map(|discipline| discipline.offset_ns),
            clock_bound_ns: discipline.map(|discipline| discipline.most_error_ns),
            clock_resolution_ns: cost.resolution_ns,
            clock_read_ns: cost.read_ns,
        });
    }
    statistics
}

fn relation(readings: &[Readings], claim: ClockClaim) -> (ClockRelation, String) {
    let senders = || readings.iter().flat_map(Readings::sender_addresses);
    let is_card = readings.first().map(Readings::stamp) == Some(TimeSource::Card);
    if is_card {
        return (ClockRelation::None, "packets are stamped by the card's own clock".into());
    }
    match claim {
        ClockClaim::SameHost => (ClockRelation::SameHost, "said so with --clocks same-host".into()),
        ClockClaim::None => (ClockRelation::None, "said so with --clocks none".into()),
        ClockClaim::Auto if senders().next().is_none() => (ClockRelation::None, "nobody has sent".into()),
        ClockClaim::Auto if senders().all(is_ours) => {
            (ClockRelation::SameHost, "every sender's address is this host's own".into())
        }
        ClockClaim::Auto => (
            ClockRelation::None,
            "nobody says how: give --clocks same-host or synchronised where you know".into(),
        ),
        ClockClaim::Synchronised => synchronised(readings),
    }
}

/// Wall clocks can be kept together; clocks that count from a host's start cannot be compared.
fn synchronised(readings: &[Readings]) -> (ClockRelation, String) {
    if readings.iter().any(|readings| readings.sent_by_uptime() > 0) {
        let why = "senders write the time since their host's start: send with --probe-clock micros";
        return (ClockRelation::None, why.into());
    }
    match clock::discipline() {
        Some(Discipline { is_synchronised: true, .. }) => (
            ClockRelation::Synchronised,
            "said so with --clocks synchronised; the kernel's clock says so too, with this bound on our side".into(),
        ),
        _ => (
            ClockRelation::Synchronised,
            "said so with --clocks synchronised; the kernel's clock is not told how well: the bound is not known"
                .into(),
        ),
    }
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
        TimeSource::Card => "card",
    }
}

fn stamp_means(stamp: TimeSource) -> &'static str {
    match stamp {
        TimeSource::Loop => "by the reading loop's clock, once a batch: gaps within a batch are 0",
        TimeSource::Kernel => "by the kernel, when the driver handed the packet over",
        TimeSource::Program => "by a program in XDP, before the kernel's buffers",
        TimeSource::Card => "by the card's own clock",
    }
}
