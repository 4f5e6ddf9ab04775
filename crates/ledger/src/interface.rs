//! Losses from the counters of one interface: its driver's, its own, and its queueing discipline's.

use measure::Place;
use sys::rtnetlink::LinkStats;

use crate::{
    counters::HostCounters,
    drivers::{CounterKind, Drivers},
    evidence::{Evidence, Witness},
};

/// One interface: its driver's counters, its own, and its queueing discipline's.
pub(crate) fn interface_saw(name: &str, counters: &HostCounters, drivers: &Drivers, evidence: &mut Evidence) {
    let link = &counters.link;
    let mut in_rx_dropped = 0u64;
    let mut missed_elsewhere = false;
    for (counter, value) in &counters.driver_counters {
        if let CounterKind::Loss(loss) = drivers.kind(&counters.driver, counter) {
            let source = format!("{name} {counter}{}", causes(counters, loss.place, drivers));
            missed_elsewhere |= loss.place == Place::NicMissed && *value > 0;
            if loss.also_in.as_deref() == Some("rx_dropped") {
                in_rx_dropped = in_rx_dropped.saturating_add(*value);
            }
            evidence.saw_all(loss.place, Witness::Driver, *value, source, &loss.contains);
        }
    }
    let mut saw = |place, packets, counter: &str, contains: &'static [Place]| {
        evidence.saw_all(place, Witness::Link, packets, format!("{name} {counter}"), contains);
    };
    saw(Place::NicMissed, link.rx_missed_errors, "rx_missed_errors", &[]);
    if !missed_elsewhere {
        saw(Place::NicMissed, link.rx_fifo_errors, "rx_fifo_errors", &[]);
    }
    saw(Place::BadFrame, link.rx_crc_errors, "rx_crc_errors", &[]);
    saw(Place::BadFrame, link.rx_frame_errors, "rx_frame_errors", &[]);
    saw(Place::BadFrame, link.rx_length_errors, "rx_length_errors", &[]);
    saw(Place::OtherHost, link.rx_otherhost_dropped, "rx_otherhost_dropped", &[]);
    saw(Place::NoHandler, link.rx_nohandler, "rx_nohandler", &[]);
    // A veth counts packets that its peer refused; any other driver those that it refused itself.
    if counters.driver == "veth" {
        saw(
            Place::PeerRing,
            link.tx_dropped,
            "tx_dropped",
            &[Place::PeerMtu, Place::XdpTx, Place::XdpRedirect],
        );
    } else {
        saw(Place::DriverTx, link.tx_dropped, "tx_dropped", &[]);
        saw(Place::DriverTx, link.tx_errors, "tx_errors", &[]);
    }
    let rest = link.rx_dropped.saturating_sub(in_rx_dropped);
    const NAMED: &[Place] = &[
        Place::PeerMtu,
        Place::Backlog,
        Place::NoHandler,
        Place::XdpRedirect,
        Place::XskFillEmpty,
        Place::XskFrameSmall,
        Place::XskRingFull,
    ];
    saw(Place::ReceivingInterface, rest, "rx_dropped", NAMED);
    evidence.saw(Place::Qdisc, Witness::Qdisc, counters.qdisc_drops, format!("{name} qdisc drops"));
}

/// The driver's counters that explain its losses at a place.
fn causes(counters: &HostCounters, place: Place, drivers: &Drivers) -> String {
    let is_one =
        |(name, value): &&(String, u64)| *value > 0 && drivers.cause(&counters.driver, name) == Some(place);
    let causes: Vec<String> = counters
        .driver_counters
        .iter()
        .filter(is_one)
        .map(|(name, value)| format!("{name} +{value}"))
        .collect();
    if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) }
}

impl HostCounters {
    /// Whether these belong to a network card, whose counters follow its data sheet.
    pub(crate) fn is_card(&self) -> bool {
        !matches!(self.driver.as_str(), "" | "veth")
    }

    /// Losses in sending, from the interface alone.
    pub(crate) fn sending(&self, drivers: &Drivers) -> Self {
        let link = LinkStats {
            tx_dropped: self.link.tx_dropped,
            tx_errors: self.link.tx_errors,
            ..LinkStats::default()
        };
        self.only(link, |place| place == Place::DriverTx, drivers)
    }

    /// Losses in receiving, from the interface alone; drop reasons count what protocols leave.
    pub(crate) fn receiving(&self, drivers: &Drivers) -> Self {
        let link =
            LinkStats { tx_dropped: 0, tx_errors: 0, rx_nohandler: 0, rx_otherhost_dropped: 0, ..self.link };
        self.only(link, |place| place != Place::DriverTx, drivers)
    }

    fn only(&self, link: LinkStats, is_of: impl Fn(Place) -> bool, drivers: &Drivers) -> Self {
        let is_kept = |name: &str| match drivers.kind(&self.driver, name) {
            CounterKind::Loss(loss) => is_of(loss.place),
            _ => drivers.cause(&self.driver, name).is_some_and(&is_of),
        };
        let counters = self.driver_counters.iter().filter(|(name, _)| is_kept(name));
        Self {
            link,
            driver: self.driver.clone(),
            hides_missed: self.hides_missed,
            driver_counters: counters.cloned().collect(),
            ..Self::default()
        }
    }
}
