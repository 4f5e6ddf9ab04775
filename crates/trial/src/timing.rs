//! The relation of a sender's clock to ours, and the latency figures that it allows.

use std::{
    io,
    net::{IpAddr, UdpSocket},
    path::Path,
};

use measure::{ClockComparison, ClockRelation, ReceptionStatistics, StatisticsLevel, Timing, bound_allows};
use serde::{Deserialize, Serialize};
use sys::{
    clock::{self, Discipline},
    ptp::{self, Following, PtpClock},
};
use traffic::{LatencyMeans, Readings, TimeSource, reception};

use crate::machine_clock::ahead_of_reference;

/// The user's knowledge of senders' clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockClaim {
    /// Nothing: they are ours when all senders have addresses of this host.
    #[default]
    Auto,
    /// They are ours.
    SameHost,
    /// PTP or NTP synchronises them with ours.
    Synchronised,
    /// The same, with a bound that the user gives.
    Within {
        /// The largest difference of the two clocks in nanoseconds.
        bound_ns: u64,
    },
    /// They are unrelated to ours.
    None,
}

/// Sources that may know the relation of clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClockSources<'s> {
    /// The socket of linuxptp's daemon, for synchronised clocks.
    pub ptp4l: Option<&'s Path>,
    /// The comparisons of senders' clocks in their sessions.
    pub comparisons: &'s [ClockComparison],
}

/// All readers' statistics, with latency if the clocks allow it: if they are the same clock, or if the possible error is
/// less than a tenth of the latency.
pub fn timed_reception(
    readings: &[Readings],
    claim: ClockClaim,
    sources: ClockSources<'_>,
) -> ReceptionStatistics {
    let kept = match claim {
        ClockClaim::Synchronised | ClockClaim::Within { .. } => Kept::found(sources.ptp4l),
        _ => Kept::default(),
    };
    let relation = relation(readings, claim, (&kept, sources.comparisons));
    let latency = match relation.clocks {
        ClockRelation::None => LatencyMeans::Nothing,
        ClockRelation::Measured => LatencyMeans::Related,
        ClockRelation::SameHost | ClockRelation::Synchronised => LatencyMeans::Time,
    };
    let mut statistics = reception(readings, latency);
    let median_ns = statistics.total.latency.as_ref().map(|latency| latency.p50_ns);
    let latency_refused = refusal(&relation, median_ns);
    if latency_refused.is_some() {
        statistics.total.latency = None;
        statistics.readers.iter_mut().for_each(|reader| reader.latency = None);
    }
    let Relation { clocks, known_by, offset_ns, bound_ns } = relation;
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
            latency_refused,
            comparisons: sources.comparisons.to_vec(),
            clock_resolution_ns: cost.resolution_ns,
            clock_read_ns: cost.read_ns,
            measuring_ns: measuring.map(|cost| cost.alone_ns),
            measuring_together_ns: measuring.map(|cost| cost.together_ns),
        });
    }
    statistics
}

/// Why latency is not shown: the clocks are unrelated, or their relation is not known precisely enough.
fn refusal(relation: &Relation, median_ns: Option<u64>) -> Option<String> {
    match (relation.clocks, relation.bound_ns, median_ns) {
        (ClockRelation::None, ..) => Some(format!("the clocks are not related: {}", relation.known_by)),
        (ClockRelation::SameHost, ..) | (_, _, None) => None,
        (_, None, _) => Some("the difference between the clocks is unknown".into()),
        (_, Some(bound_ns), Some(median_ns)) => (!bound_allows(bound_ns, median_ns)).then(|| {
            format!(
                "the clocks may differ by {bound_ns} ns, which is not below a tenth of the median latency, {median_ns} ns"
            )
        }),
    }
}

/// The relation of two clocks, and its source.
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

/// The known state of this host's clock synchronisation.
#[derive(Debug, Default)]
struct Kept {
    /// The kernel's knowledge of its clock, when a daemon disciplines it.
    kernel: Option<Discipline>,
    hardware: Vec<PtpClock>,
    ptp4l: Option<io::Result<Following>>,
}

impl Kept {
    fn found(ptp4l: Option<&Path>) -> Self {
        Self {
            kernel: clock::discipline().filter(|discipline| discipline.is_synchronised),
            hardware: ptp::clocks(),
            ptp4l: ptp4l.map(ptp::following),
        }
    }

    /// Offset of the wall clock from the clock that PTP follows, and its largest error: the paths of PTP's messages may be
    /// asymmetric, up to their mean delay, and the offset of a card's clock is as accurate as its reading. `None` if unknown.
    fn by_ptp(&self) -> Option<(i64, u64)> {
        let Some(Ok(following)) = &self.ptp4l else { return None };
        ahead_of_reference(following, &self.hardware).filter(|_| following.steps > 0)
    }

    fn in_words(&self) -> String {
        let ptp4l = match &self.ptp4l {
            None => String::new(),
            Some(Err(error)) => format!("; ptp4l does not answer ({error})"),
            Some(Ok(Following { steps: 0, .. })) => "; ptp4l follows no other clock".into(),
            Some(Ok(Following { ahead_ns, path_delay_ns, is_card, .. })) => {
                let whose = if *is_card { "a card's clock" } else { "the wall clock" };
                format!(
                    "; according to ptp4l, {whose} is {ahead_ns} ns ahead of its master, ± {path_delay_ns} ns"
                )
            }
        };
        ptp4l + &hardware_clocks(&self.hardware)
    }
}

fn relation(
    readings: &[Readings],
    claim: ClockClaim,
    (kept, comparisons): (&Kept, &[ClockComparison]),
) -> Relation {
    use ClockRelation::{None as Unrelated, SameHost};
    let senders = || readings.iter().flat_map(Readings::sender_addresses);
    let is_card = readings.first().map(Readings::stamp) == Some(TimeSource::Card);
    if is_card {
        return Relation::of(Unrelated, "packets are stamped by the card's own clock");
    }
    match claim {
        ClockClaim::SameHost => Relation::of(SameHost, "--clocks same-host"),
        ClockClaim::None => Relation::of(Unrelated, "--clocks none"),
        ClockClaim::Auto if senders().next().is_none() => Relation::of(Unrelated, "no packets from a sender"),
        ClockClaim::Auto if senders().all(is_ours) => {
            Relation::of(SameHost, "all senders have addresses of this host")
        }
        ClockClaim::Auto if !comparisons.is_empty() => measured(readings, comparisons),
        ClockClaim::Auto => Relation::of(
            Unrelated,
            "unknown: give --clocks same-host or synchronised if you know; --reflect needs neither",
        ),
        ClockClaim::Synchronised | ClockClaim::Within { .. } => {
            let tell_uptime = readings.iter().any(|readings| readings.sent_by_uptime() > 0);
            let said = synchronised(tell_uptime, claim, kept);
            let measured = || measured(readings, comparisons);
            let better =
                Some(()).filter(|()| said.bound_ns.is_none() && !comparisons.is_empty()).map(|()| measured());
            better.filter(|measured| measured.clocks == ClockRelation::Measured).unwrap_or(said)
        }
    }
}

/// The sessions' comparisons, if they cover all packets.
fn measured(readings: &[Readings], comparisons: &[ClockComparison]) -> Relation {
    let [timed, related] = readings
        .iter()
        .map(Readings::timed_and_related)
        .fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    if related < timed {
        let missing = timed - related;
        let why = format!(
            "{missing} of {timed} packets came from senders without a handshake, whose clocks were not compared"
        );
        return Relation::of(ClockRelation::None, &why);
    }
    let widest = comparisons.iter().max_by_key(|one| one.bound_ns.unwrap_or(u64::MAX));
    let Some(widest) = widest else { return Relation::of(ClockRelation::None, "no packets from a sender") };
    let known_by = match comparisons {
        [one] => format!("{}, {} exchanges with {}", one.known_by, one.exchanges, one.sender),
        many => format!("the widest of {} sessions, with {}: {}", many.len(), widest.sender, widest.known_by),
    };
    let offset_ns = match comparisons {
        [one] => Some(one.ahead_ns),
        _ => None,
    };
    Relation { offset_ns, bound_ns: widest.bound_ns, ..Relation::of(ClockRelation::Measured, &known_by) }
}

/// Wall clocks can be synchronised; clocks that count from a host's start cannot be compared.
fn synchronised(tell_uptime: bool, claim: ClockClaim, kept: &Kept) -> Relation {
    if tell_uptime {
        let why = "senders write the time since their host's start: send with --probe-clock micros";
        return Relation::of(ClockRelation::None, why);
    }
    let by_ptp = kept.by_ptp().map(|(ahead_ns, give_or_take_ns)| {
        (ahead_ns, ahead_ns.unsigned_abs().saturating_add(give_or_take_ns), "ptp4l confirms it")
    });
    let by_kernel = || {
        kept.kernel.map(|Discipline { offset_ns, most_error_ns, .. }| {
            (offset_ns, most_error_ns, "the kernel's clock state confirms it")
        })
    };
    let known = by_ptp.or_else(by_kernel);
    let offset_ns = known.map(|(offset_ns, ..)| offset_ns);
    let (bound_ns, how_well) = match (claim, known) {
        (ClockClaim::Within { bound_ns }, _) => (Some(bound_ns), "bound from --clock-bound".into()),
        (_, Some((_, bound_ns, who))) => (Some(bound_ns), format!("{who}, with this bound on our side")),
        _ => (None, "the kernel does not know its clock's error: no bound".into()),
    };
    let known_by = format!("--clocks synchronised; {how_well}{}", kept.in_words());
    Relation { offset_ns, bound_ns, ..Relation::of(ClockRelation::Synchronised, &known_by) }
}

/// PTP's hardware clocks: the wall clock should be near them.
fn hardware_clocks(clocks: &[PtpClock]) -> String {
    if clocks.is_empty() {
        return "; this host has no readable hardware clock for PTP (/dev/ptp*)".into();
    }
    let words = clocks.iter().map(|PtpClock { device, name, ahead_ns, within_ns }| {
        format!(
            "; {device} ({name}) is {ahead_ns} ns ahead of the wall clock, ± {} ns",
            within_ns.div_ceil(2)
        )
    });
    words.collect()
}

/// Whether this host has the address: only then can a socket bind it.
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
        TimeSource::Loop => "by the reading loop's clock, once per batch: gaps within a batch are 0",
        TimeSource::Kernel => "by the kernel, when the driver handed the packet over",
        TimeSource::Program => "by a program in XDP, before the kernel's buffers",
        TimeSource::Poll => {
            "by a program in XDP, once per poll of the device: gaps within a poll, of up to 64 packets, are 0"
        }
        TimeSource::Card => "by the card's own clock",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(kernel: Option<Discipline>, ptp4l: Option<Following>) -> Kept {
        Kept { kernel, hardware: Vec::new(), ptp4l: ptp4l.map(Ok) }
    }

    const DISCIPLINED: Discipline =
        Discipline { is_synchronised: true, offset_ns: -350, most_error_ns: 4200 };
    const FOLLOWING: Following = Following {
        steps: 1,
        ahead_ns: -253,
        path_delay_ns: 2427,
        is_card: false,
        port: ptp::PortState::Slave,
        reference: None,
    };

    #[test]
    fn synchronised_clocks_have_an_offset_and_a_bound_if_a_source_confirms_it() {
        let told = |claim, kept: &Kept| {
            let Relation { clocks, offset_ns, bound_ns, .. } = synchronised(false, claim, kept);
            assert_eq!(clocks, ClockRelation::Synchronised);
            (offset_ns, bound_ns)
        };
        let within = ClockClaim::Within { bound_ns: 100 };
        let by_kernel = kept(Some(DISCIPLINED), None);
        assert_eq!(told(ClockClaim::Synchronised, &by_kernel), (Some(-350), Some(4200)));
        assert_eq!(told(ClockClaim::Synchronised, &kept(None, None)), (None, None));
        assert_eq!(told(within, &by_kernel), (Some(-350), Some(100)));
        assert_eq!(told(within, &kept(None, None)), (None, Some(100)));
        let by_both = kept(Some(DISCIPLINED), Some(FOLLOWING));
        assert_eq!(told(ClockClaim::Synchronised, &by_both), (Some(-253), Some(253 + 2427)));
        assert_eq!(told(within, &by_both), (Some(-253), Some(100)));
        let alone = Following { steps: 0, ..FOLLOWING };
        assert_eq!(told(ClockClaim::Synchronised, &kept(None, Some(alone))), (None, None));
        let uptime = synchronised(true, within, &by_kernel);
        assert_eq!((uptime.clocks, uptime.bound_ns), (ClockRelation::None, None));
        assert!(uptime.known_by.contains("--probe-clock micros"), "{uptime:?}");
    }

    #[test]
    fn the_bound_of_a_cards_clock_includes_its_reading() {
        let card =
            PtpClock { device: "/dev/ptp0".into(), name: "igb".into(), ahead_ns: 1000, within_ns: 901 };
        let on_card = Following { is_card: true, ..FOLLOWING };
        let one = Kept { hardware: vec![card.clone()], ..kept(None, Some(on_card)) };
        assert_eq!(one.by_ptp(), Some((-1253, 2427 + 451)));
        let two = Kept { hardware: vec![card.clone(), card], ..kept(None, Some(on_card)) };
        assert_eq!((two.by_ptp(), kept(None, Some(on_card)).by_ptp()), (None, None), "which one is unknown");
    }

    #[test]
    fn the_answer_of_ptp4l_is_shown() {
        let says = |ptp4l| Kept { ptp4l: Some(ptp4l), ..Kept::default() }.in_words();
        let ahead = "; according to ptp4l, the wall clock is -253 ns ahead of its master, ± 2427 ns";
        assert!(says(Ok(FOLLOWING)).starts_with(ahead), "{}", says(Ok(FOLLOWING)));
        assert!(says(Ok(Following { is_card: true, ..FOLLOWING })).contains("a card's clock is -253 ns"));
        assert!(says(Ok(Following { steps: 0, ..FOLLOWING })).contains("ptp4l follows no other clock"));
        let silent = says(Err(io::ErrorKind::TimedOut.into()));
        assert!(silent.contains("ptp4l does not answer (timed out)"), "{silent}");
        assert!(!Kept::default().in_words().contains("ptp4l"));
    }

    #[test]
    fn hardware_clocks_are_shown_with_their_offset_and_its_bound() {
        let clock =
            PtpClock { device: "/dev/ptp0".into(), name: "igb".into(), ahead_ns: -120, within_ns: 901 };
        let words = "; /dev/ptp0 (igb) is -120 ns ahead of the wall clock, ± 451 ns";
        assert_eq!(hardware_clocks(&[clock]), words);
        assert!(hardware_clocks(&[]).contains("no readable hardware clock for PTP"));
    }

    #[test]
    fn clocks_are_unrelated_without_senders_or_a_claim() {
        for (claim, why) in
            [(ClockClaim::Auto, "no packets from a sender"), (ClockClaim::None, "--clocks none")]
        {
            let Relation { clocks, known_by, .. } = relation(&[], claim, (&Kept::default(), &[]));
            assert_eq!(clocks, ClockRelation::None);
            assert!(known_by.contains(why), "{known_by}");
        }
        assert_eq!(
            relation(&[], ClockClaim::SameHost, (&Kept::default(), &[])).clocks,
            ClockRelation::SameHost
        );
    }
}
