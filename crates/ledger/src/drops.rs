//! The kernel's drops by name: reasons, functions, and a sample packet of each.

use std::{
    collections::BTreeMap,
    io,
    sync::{LazyLock, Mutex, OnceLock},
};

use bpf::{BpfError, DropCount, DropKind, DropOptions, DropSample, Drops, FunctionNames, Streams};
use measure::Place;
use sys::{btf::KernelTypes, netns::NetNs, profile::KernelSymbols};
use thiserror::Error;

use crate::reasons::{errno_name, place_by_packet, place_of};

/// A program that counts the kernel's drops, attached until this value is dropped.
#[derive(Debug)]
pub struct DropWatch {
    drops: Drops,
    /// Holds the namespaces, so that the kernel does not reuse their addresses while they are watched.
    _namespaces: Vec<NetNs>,
}

/// Which drops are counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DropScope {
    /// Only packets received on or sent to the interface with this index; 0: any.
    pub interface: u32,
    /// Only UDP.
    pub only_udp: bool,
    /// A reason that is not counted, by its name.
    pub ignored: Option<&'static str>,
    /// Copy the headers of every packet for [`DropWatch::headers`].
    pub headers: bool,
    /// Only probe packets of these streams.
    pub streams: Option<Streams>,
}

/// Why drops cannot be watched.
#[derive(Debug, Error)]
pub enum DropError {
    /// The program.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A network namespace.
    #[error("cannot identify a network namespace")]
    Namespace(#[source] io::Error),
}

/// Drops for one reason in one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// The index of the watched namespace.
    pub namespace: u32,
    /// Why.
    pub kind: DropKind,
    /// The kernel's name for it: `NO_SOCKET`, `XDP redirect ENXIO`.
    pub reason: String,
    /// The kernel's function; empty where it has no name, and for XDP.
    pub function: String,
    /// Buffers or frames.
    pub buffers: u64,
    /// Packets in them.
    pub packets: u64,
    /// One of the last.
    pub sample: Option<DropSample>,
}

/// A reading, or the difference of two.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DropReading {
    /// By reason and function, most packets first.
    pub places: Vec<Dropped>,
    /// Events that the program counted.
    pub events: u64,
    /// Events that did not fit its tables.
    pub lost: u64,
    /// CPU time of the program, in nanoseconds.
    pub cost_ns: u64,
}

impl DropWatch {
    /// Starts counting drops in these namespaces (at most four), or in all when none is given.
    ///
    /// # Errors
    /// [`DropError`]: missing capabilities, or a kernel without drop reasons.
    ///
    /// # Panics
    /// With more than four namespaces.
    pub fn over(namespaces: &[&NetNs], scope: &DropScope) -> Result<Self, DropError> {
        // Do this now, not between the first drop and the counters read with it.
        functions();
        let ignored = scope.ignored.and_then(number_of).unwrap_or(0);
        let cookies: io::Result<Vec<u64>> = namespaces.iter().map(|namespace| namespace.cookie()).collect();
        let mut watched = [0; Drops::MOST_NAMESPACES];
        watched[..namespaces.len()].copy_from_slice(&cookies.map_err(DropError::Namespace)?);
        let kept: io::Result<Vec<NetNs>> = namespaces.iter().map(|namespace| namespace.try_clone()).collect();
        let drops = Drops::attach(&DropOptions {
            namespaces: watched,
            interface: scope.interface,
            only_udp: scope.only_udp,
            ignored_reason: ignored,
            headers: scope.headers,
            streams: scope.streams.clone(),
        })?;
        Ok(Self { drops, _namespaces: kept.map_err(DropError::Namespace)? })
    }

    /// The counts so far.
    ///
    /// # Errors
    /// [`DropError::Bpf`].
    pub fn read(&self) -> Result<DropReading, DropError> {
        let counts = self.drops.read()?;
        let places = Dropped::all(counts.places);
        Ok(DropReading { places, events: counts.events, lost: counts.lost, cost_ns: counts.cost_ns })
    }

    /// Counts nothing until [`Self::resume`]; a benchmark compares both.
    pub fn pause(&mut self) {
        self.drops.pause();
    }

    /// Counts the kernel's dropped buffers again.
    ///
    /// # Errors
    /// [`DropError::Bpf`].
    pub fn resume(&mut self) -> Result<(), DropError> {
        Ok(self.drops.resume()?)
    }

    /// The headers of packets dropped since the last call; at most `most` of them.
    pub fn headers(&mut self, most: usize, each: impl FnMut(bpf::DropHeaders<'_>)) {
        self.drops.headers(most, each);
    }
}

impl Dropped {
    /// Counts with their names, one per reason and function.
    pub(crate) fn all(counts: impl IntoIterator<Item = DropCount>) -> Vec<Self> {
        Self::joined(counts.into_iter().map(Self::named))
    }

    /// Each loss once: without buffers freed after transmission, and without drops that another event already counted.
    fn joined(drops: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for dropped in drops {
            // The segments of a GRO buffer are freed after it: they were counted with it.
            if dropped.function == "skb_release_data" || dropped.is_freed_by_a_driver() {
                continue;
            }
            // A function drops at several addresses.
            match all.iter_mut().find(|other| other.is_of(&dropped)) {
                Some(same) => same.add(dropped),
                None => all.push(dropped),
            }
        }
        // XDP's own event already counted a buffer whose redirect failed.
        if all.iter().any(|dropped| matches!(dropped.kind, DropKind::XdpRedirect(_))) {
            all.retain(|dropped| dropped.reason != "XDP" || dropped.function != "do_xdp_generic");
        }
        all
    }

    fn named(count: DropCount) -> Self {
        let function = match count.location {
            0 => String::new(),
            address => functions().name(address),
        };
        Self {
            namespace: count.namespace,
            kind: count.kind,
            reason: reason_name(count.kind),
            function,
            buffers: count.buffers,
            packets: count.packets,
            sample: count.sample,
        }
    }

    /// Some drivers free transmitted buffers as if they were dropped, most by the kernel's `dev_kfree_skb_any()` or, in an
    /// interrupt, by its `net_tx_action()`; their real drops are in their counters.
    fn is_freed_by_a_driver(&self) -> bool {
        const FREEING: [&str; 6] =
            ["dev_kfree_skb_any", "tx_complete", "unmap_pkt", "clean_tx", "free_tx", "net_tx_action"];
        self.reason == "NOT_SPECIFIED" && FREEING.iter().any(|name| self.function.contains(name))
    }

    fn is_of(&self, other: &Self) -> bool {
        (self.namespace, self.kind, &self.function) == (other.namespace, other.kind, &other.function)
    }

    fn add(&mut self, other: Self) {
        self.buffers += other.buffers;
        self.packets += other.packets;
        self.sample = self.sample.take().or(other.sample);
    }

    /// The place; `None` for a reason without a place of its own.
    pub fn place(&self) -> Option<Place> {
        match self.kind {
            DropKind::Reason(_) => {
                let packet = self.sample.as_ref().map_or(&[][..], |sample| &sample.bytes);
                place_by_packet(&self.reason, &self.function, packet)
                    .or_else(|| place_of(&self.reason, &self.function))
            }
            DropKind::XdpException(0) => Some(Place::XdpAborted),
            DropKind::XdpException(XDP_TX) | DropKind::XdpBounce(_) => Some(Place::XdpTx),
            DropKind::XdpException(XDP_REDIRECT) | DropKind::XdpRedirect(_) | DropKind::XdpTransmit(_) => {
                Some(Place::XdpRedirect)
            }
            DropKind::XdpException(_) => Some(Place::XdpAborted),
        }
    }

    /// The counter's name in a ledger.
    pub fn source(&self) -> String {
        match self.kind {
            DropKind::Reason(_) if self.function.is_empty() => format!("drop reason {}", self.reason),
            DropKind::Reason(_) => format!("drop reason {} in {}", self.reason, self.function),
            _ => self.reason.clone(),
        }
    }
}

impl DropReading {
    /// The difference to an earlier reading of the same watch.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut places: Vec<Dropped> = self.places.clone();
        for place in &mut places {
            if let Some(before) = earlier.places.iter().find(|other| other.is_of(place)) {
                place.buffers = place.buffers.saturating_sub(before.buffers);
                place.packets = place.packets.saturating_sub(before.packets);
            }
        }
        places.retain(|place| place.buffers > 0);
        places.sort_by_key(|place| std::cmp::Reverse(place.packets));
        Self {
            places,
            events: self.events.saturating_sub(earlier.events),
            lost: self.lost.saturating_sub(earlier.lost),
            cost_ns: self.cost_ns.saturating_sub(earlier.cost_ns),
        }
    }
}

/// `enum xdp_action` of `linux/bpf.h`.
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

fn reason_name(kind: DropKind) -> String {
    const SUBSYSTEM: u32 = 16;
    let verdict = |verdict: u32| match verdict {
        0 => "XDP_ABORTED".to_owned(),
        XDP_TX => "XDP_TX".to_owned(),
        XDP_REDIRECT => "XDP_REDIRECT".to_owned(),
        other => format!("verdict {other}"),
    };
    match kind {
        DropKind::Reason(reason) => {
            REASONS.get(&reason).cloned().unwrap_or_else(|| match reason >> SUBSYSTEM {
                0 => format!("reason {reason}"),
                subsystem => format!("reason {} of subsystem {subsystem}", reason & 0xffff),
            })
        }
        DropKind::XdpException(action) => format!("xdp_exception {}", verdict(action)),
        DropKind::XdpRedirect(errno) => format!("xdp_redirect_err {}", errno_name(errno)),
        DropKind::XdpTransmit(errno) => format!("xdp_devmap_xmit {}", errno_name(errno)),
        DropKind::XdpBounce(errno) => format!("xdp_bulk_tx {}", errno_name(errno)),
    }
}

fn number_of(reason: &str) -> Option<u32> {
    REASONS.iter().find(|(_, name)| *name == reason).map(|(number, _)| *number)
}

/// The names of the kernel's reasons, which do not change while it runs.
static REASONS: LazyLock<BTreeMap<u32, String>> = LazyLock::new(|| {
    let types = KernelTypes::read().ok();
    let reasons = types.map(|types| types.enumeration("skb_drop_reason")).unwrap_or_default();
    let short = |name: String| name.trim_start_matches("SKB_DROP_REASON_").to_owned();
    reasons.into_iter().map(|(number, name)| (number, short(name))).collect()
});

/// The names of the kernel's functions.
enum Functions {
    /// The kernel formats each name once. That needs no address to be shown (`kernel.kptr_restrict`, CAP_SYSLOG), and knows
    /// modules that were loaded a moment ago.
    Kernel(Box<Mutex<Formatted>>),
    /// Its table, read once, where the kernel does not.
    Table(KernelSymbols),
    /// Neither.
    Hidden,
}

struct Formatted {
    names: FunctionNames,
    known: BTreeMap<u64, String>,
}

impl Functions {
    fn find() -> Self {
        if let Ok(names) = FunctionNames::load() {
            return Self::Kernel(Box::new(Mutex::new(Formatted { names, known: BTreeMap::new() })));
        }
        KernelSymbols::read().ok().flatten().map_or(Self::Hidden, Self::Table)
    }

    /// The function that an address lies in; empty when unknown. An address itself is no name, and stays here.
    fn name(&self, address: u64) -> String {
        match self {
            Self::Table(table) => table.name(address).unwrap_or_default().to_owned(),
            Self::Kernel(formatted) => formatted.lock().expect("no holder panics").name(address),
            Self::Hidden => String::new(),
        }
    }
}

impl Formatted {
    fn name(&mut self, address: u64) -> String {
        let Self { names, known } = self;
        known.entry(address).or_insert_with(|| names.name(address).ok().flatten().unwrap_or_default()).clone()
    }
}

/// The kernel's functions, found once.
fn functions() -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(Functions::find)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(packets: u64) -> Dropped {
        let (reason, function) = ("NO_SOCKET".into(), "udp_queue".into());
        Dropped {
            namespace: 1,
            kind: DropKind::Reason(3),
            reason,
            function,
            buffers: packets,
            packets,
            sample: None,
        }
    }

    #[test]
    fn readings_are_subtracted_place_by_place() {
        let before = DropReading { places: vec![dropped(5)], events: 5, lost: 1, cost_ns: 100 };
        let other = Dropped { namespace: 0, ..dropped(2) };
        let after =
            DropReading { places: vec![other.clone(), dropped(12)], events: 14, lost: 1, cost_ns: 250 };
        let grown = after.since(&before);
        assert_eq!(grown.places, [dropped(7), other]);
        assert_eq!((grown.events, grown.lost, grown.cost_ns), (9, 0, 150));
        assert!(after.since(&after).places.is_empty());
    }

    #[test]
    fn what_was_sent_or_told_by_another_event_is_no_drop() {
        let all = |told: &[(u32, &str, &str)]| -> Vec<String> {
            let drop = |&(number, reason, function): &(u32, &str, &str)| Dropped {
                kind: DropKind::Reason(number),
                reason: reason.into(),
                function: function.into(),
                ..dropped(1)
            };
            Dropped::joined(told.iter().map(drop)).into_iter().map(|dropped| dropped.function).collect()
        };
        // Drivers free transmitted buffers like this; their own counters show real drops.
        let sent =
            ["vmxnet3_tq_tx_complete", "vmxnet3_unmap_pkt", "dev_kfree_skb_any_reason", "net_tx_action"];
        assert!(all(&sent.map(|function| (2, "NOT_SPECIFIED", function))).is_empty());
        // Drops of other code there, or without a reason elsewhere.
        let dropped_there = [(2, "NOT_SPECIFIED", "igb_xmit_frame"), (3, "QDISC_DROP", "net_tx_action")];
        assert_eq!(all(&dropped_there), ["igb_xmit_frame", "net_tx_action"]);
        // Pieces of a buffer that was counted.
        assert!(all(&[(4, "NO_SOCKET", "skb_release_data")]).is_empty());
        let redirect = Dropped { kind: DropKind::XdpRedirect(22), ..dropped(7) };
        let freed = Dropped { reason: "XDP".into(), function: "do_xdp_generic".into(), ..dropped(7) };
        assert_eq!(Dropped::joined([freed.clone(), redirect.clone()]), [redirect]);
        assert_eq!(Dropped::joined([freed.clone()]), [freed], "when XDP's events are not visible");
    }

    #[test]
    fn events_of_xdp_are_named_by_errno_and_verdict() {
        assert_eq!(reason_name(DropKind::XdpTransmit(6)), "xdp_devmap_xmit ENXIO");
        assert_eq!(reason_name(DropKind::XdpException(0)), "xdp_exception XDP_ABORTED");
        assert_eq!(reason_name(DropKind::Reason(3 << 16 | 7)), "reason 7 of subsystem 3");
        let place = |kind| Dropped { kind, ..dropped(1) }.place();
        assert_eq!(place(DropKind::XdpException(0)), Some(Place::XdpAborted));
        assert_eq!(place(DropKind::XdpException(3)), Some(Place::XdpTx));
        assert_eq!(place(DropKind::XdpRedirect(105)), Some(Place::XdpRedirect));
    }
}
