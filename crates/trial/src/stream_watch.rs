//! One host's observations of a sender's streams, separate from all other traffic: a program at tc counts their packets, and
//! another one names the kernel's drops of them. If a program cannot be attached, the reason is kept as text.

use std::net::SocketAddr;

use bpf::{Streams, Way, Witness, Witnessed};
use ledger::{Drivers, DropReading, DropScope, DropWatch, Dropped, HostCounters};
use measure::{HostSide, LedgerLine, Place};
use sys::{
    netns::NetNs,
    rtnetlink::{RouteKind, RouteQuestion, RouteSocket},
};
use traffic::RxLayer;
use wire::{FrameSpec, Template, Values};

use crate::{drivers_below::drivers_below, engines::ignored_reason};

/// The subject of a watch.
#[derive(Debug, Clone)]
pub(crate) struct StreamScope {
    /// The interface through which packets leave or arrive.
    pub(crate) interface: String,
    /// The streams.
    pub(crate) streams: Streams,
    /// The host of this watch.
    pub(crate) host: HostSide,
    /// Whether packets pass tc here; engines at the driver bypass it.
    pub(crate) passes_tc: bool,
    /// Whether the kernel's drops are named; packets of some engines look dropped when they were sent.
    pub(crate) names_drops: bool,
    /// Where the receiving engine reads: its own drops are not losses.
    pub(crate) reads: Option<RxLayer>,
}

/// A watch over streams until it is dropped.
pub(crate) struct StreamWatch {
    scope: StreamScope,
    witness: Option<(Witness, Witnessed)>,
    drops: Option<(DropWatch, DropReading)>,
    counters: Option<HostCounters>,
    /// Those of the drivers below: the interface may be a VLAN or a bond.
    drivers: Vec<(String, HostCounters)>,
    cost_ns: Option<f64>,
    doubts: Vec<String>,
}

/// The observations of streams.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct StreamSeen {
    /// Packets at tc; `None` without the program.
    pub(crate) packets: Option<u64>,
    /// The source of `packets`.
    pub(crate) source: String,
    /// The kernel's drops of the streams, one line per place.
    pub(crate) named: Vec<LedgerLine>,
    /// Whether the kernel names its drops here.
    pub(crate) names_drops: bool,
    /// Losses before tc by counters of the interface, for all traffic.
    pub(crate) of_all_traffic: Vec<LedgerLine>,
    /// CPU time of the counting program per packet.
    pub(crate) cost_ns: Option<f64>,
    /// Uncertainties, with their causes.
    pub(crate) doubts: Vec<String>,
}

/// The interface by which packets leave to a host, in the calling thread's namespace; `None` for this host's own addresses and
/// without a route.
pub(crate) fn interface_towards(host: SocketAddr) -> Option<String> {
    let mut kernel = RouteSocket::open().ok()?;
    let scope = if let SocketAddr::V6(v6) = host { Some(v6.scope_id()) } else { None };
    let interface = scope.filter(|scope| *scope > 0);
    let question = RouteQuestion { to: host.ip().to_canonical(), from: None, interface };
    let route = kernel.route(&question).ok()?.filter(|route| route.kind == RouteKind::Unicast)?;
    Some(kernel.link_by_index(route.interface).ok()?.name)
}

impl StreamWatch {
    /// Watches from now on, in the calling thread's namespace.
    pub(crate) fn start(scope: StreamScope) -> Self {
        let mut doubts = Vec::new();
        let host = scope.host.as_str();
        let mut doubt = |what: &str, error: &dyn std::error::Error| {
            doubts.push(format!("the {host} cannot {what}: {}", with_causes(error)));
        };
        let witness = if scope.passes_tc {
            attach(&scope).map_err(|error| doubt("count only these packets", &error)).ok()
        } else {
            None
        };
        let (witness, cost_ns) = witness.map_or((None, None), |(witness, cost)| (Some(witness), cost));
        let drops = if scope.names_drops {
            watch_drops(&scope).map_err(|error| doubt("name its drops", &error)).ok()
        } else {
            None
        };
        let counters = HostCounters::read(Some(&scope.interface)).ok();
        let drivers = match scope.host {
            HostSide::Sender => Vec::new(),
            HostSide::Receiver => drivers_below(&scope.interface),
        };
        let drivers = drivers.into_iter().filter_map(|name| {
            let counters = HostCounters::read(Some(&name)).ok()?;
            Some((name, counters))
        });
        Self { scope, witness, drops, counters, drivers: drivers.collect(), cost_ns, doubts }
    }

    /// The observations since.
    pub(crate) fn seen(&self) -> StreamSeen {
        let mut doubts = self.doubts.clone();
        let host = self.scope.host.as_str();
        let interface = &self.scope.interface;
        let counted = self.witness.as_ref().and_then(|(witness, before)| {
            let now = witness.read().ok()?;
            Some((now.packets - before.packets, now.unread - before.unread))
        });
        if let Some((_, unread)) = counted.filter(|(_, unread)| *unread > 0) {
            doubts.push(format!("the {host} could not read {unread} packets at tc of {interface}"));
        }
        let growth = self.growth();
        if self.scope.passes_tc && self.witness.is_none() {
            let link = growth.as_ref().map(|growth| growth.link).unwrap_or_default();
            let (packets, way) = match self.scope.host {
                HostSide::Sender => (link.tx_packets, "out"),
                HostSide::Receiver => (link.rx_packets, "in"),
            };
            doubts.push(format!(
                "{interface} of the {host} counted {packets} packets {way}, for all traffic: losses between the hosts stay unexplained"
            ));
        }
        let drops = self.drops.as_ref().and_then(|(watch, before)| Some(watch.read().ok()?.since(before)));
        if let Some(lost) = drops.as_ref().map(|drops| drops.lost).filter(|lost| *lost > 0) {
            doubts.push(format!("the {host} ran out of space for {lost} drop reasons"));
        }
        let hook = match self.scope.host {
            HostSide::Sender => "egress",
            HostSide::Receiver => "ingress",
        };
        StreamSeen {
            packets: counted.map(|(packets, _)| packets),
            source: format!("tc {hook} of {interface}, by stream tag"),
            named: drops.as_ref().map(|drops| self.named(&drops.places)).unwrap_or_default(),
            names_drops: drops.is_some(),
            of_all_traffic: self.in_front(),
            cost_ns: self.cost_ns,
            doubts,
        }
    }

    fn growth(&self) -> Option<HostCounters> {
        let now = HostCounters::read(Some(&self.scope.interface)).ok()?;
        Some(now.since(self.counters.as_ref()?, &Drivers::built_in()))
    }

    /// The receiving drivers' own losses, before tc.
    fn in_front(&self) -> Vec<LedgerLine> {
        let in_front = Place::NicMissed..Place::Backlog;
        let own = match self.scope.reads {
            // The program drops the packets that it counted.
            Some(RxLayer::XdpProgram) => Place::XdpDrop..Place::XdpAborted,
            // The socket counts the packets that did not fit.
            Some(RxLayer::XdpSocket) => Place::XdpRedirect..Place::Backlog,
            _ => Place::NicMissed..Place::NicMissed,
        };
        let is_in_front = |place: Place| in_front.contains(&place) && !own.contains(&place);
        let built_in = Drivers::built_in();
        let lines = self.drivers.iter().flat_map(|(name, before)| {
            let now = HostCounters::read(Some(name)).ok();
            let growth = now.map(|now| now.since(before, &built_in));
            growth.map(|growth| ledger::interface_lines(name, &growth, &built_in)).unwrap_or_default()
        });
        lines.filter(|line| line.place.known().is_some_and(is_in_front)).collect()
    }

    /// One line per place and reason. Below a packet socket or a program in XDP the kernel drops originals of delivered packets.
    fn named(&self, drops: &[Dropped]) -> Vec<LedgerLine> {
        let takes_all = matches!(self.scope.reads, None | Some(RxLayer::Socket));
        let mut lines: Vec<LedgerLine> = Vec::new();
        for drop in drops {
            let place = drop.place();
            let is_past = place.is_none_or(|place| place >= Place::TcIngress);
            if self.scope.host == HostSide::Receiver && !takes_all && is_past {
                continue;
            }
            // The program drops the packets that it counted.
            if self.scope.reads == Some(RxLayer::XdpProgram) && place == Some(Place::XdpDrop) {
                continue;
            }
            let line = ledger::drop_line(drop).on(self.scope.host);
            match lines.iter_mut().find(|same| same.place == line.place && place.is_some()) {
                Some(same) => {
                    same.packets += line.packets;
                    same.source = format!("{} + {}", same.source, line.source);
                }
                None => lines.push(line),
            }
        }
        lines.sort_by_key(|line| line.place.known());
        lines
    }
}

fn attach(scope: &StreamScope) -> Result<((Witness, Witnessed), Option<f64>), bpf::BpfError> {
    let way = match scope.host {
        HostSide::Sender => Way::Out,
        HostSide::Receiver => Way::In,
    };
    let index = RouteSocket::open().and_then(|mut route| route.link_by_name(&scope.interface));
    let index = index.map_or(0, |link| link.index);
    let witness = Witness::attach(index, way, &scope.streams)?;
    // Frames of these streams take the longest way through the program.
    let cost = sample(&scope.streams).and_then(|frame| witness.cost(&frame).ok());
    let before = witness.read()?;
    Ok(((witness, before), cost.map(|cost| cost.as_nanos() as f64)))
}

/// A frame of the streams.
fn sample(streams: &Streams) -> Option<Vec<u8>> {
    let spec = FrameSpec {
        dst_port: Values::Fixed(streams.port),
        stream: streams.tags.first().copied().unwrap_or(0),
        ..FrameSpec::default()
    };
    let template = Template::new(&spec).ok()?;
    let mut frame = vec![0; template.max_frame_len()];
    template.stamp_frame(&mut frame, 0, 0);
    Some(frame)
}

fn watch_drops(scope: &StreamScope) -> Result<(DropWatch, DropReading), ledger::DropError> {
    let here = NetNs::current().map_err(ledger::DropError::Namespace)?;
    let ignored = match scope.host {
        // Programs in XDP drop what a host receives. Where the receiver is on the same kernel, each of its packets would
        // otherwise be looked at here, too.
        HostSide::Sender => ignored_reason(RxLayer::XdpProgram),
        HostSide::Receiver => scope.reads.and_then(ignored_reason),
    };
    let drops = DropWatch::over(
        &[&here],
        &DropScope { ignored, streams: Some(scope.streams.clone()), ..DropScope::default() },
    )?;
    let before = drops.read()?;
    Ok((drops, before))
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}
