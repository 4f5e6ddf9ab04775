//! A receiver that serves senders: counts packets, answers handshakes, and reports intervals and trials.

mod choice;
mod counting;

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc},
};

use measure::{ClockComparison, Interval, Profile};
use session::{Admission, Counts, Host, HostError, HostEvent, HostListener, Joining, Key, Report, Terms};
use sys::clock;
use thiserror::Error;
use traffic::{
    AfterReading, EngineError, Placement, Readings, Receiver, ReceiverPlan, ReceiverResult, ReturnList,
    RxSnapshot, StatisticsPlan,
};
use wire::StreamTags;

use crate::{back::SendingTerms, profile::Diagnosis};
pub use choice::EngineChoice;
use counting::Counting;

/// A running receiver.
pub struct Reception {
    counting: Arc<Counting>,
    host: Option<Host>,
    events: mpsc::Receiver<HostEvent>,
    last: (u64, RxSnapshot),
    start_ns: u64,
}

/// A receiver's counters at a moment.
#[derive(Debug)]
pub struct ReceptionMark {
    number: u64,
    packets: u64,
}

/// The senders that a receiver serves, and what they may request.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The admitted senders.
    pub admission: Admission,
    /// The highest rate that a sender may request, in packets per second; `None` is any.
    pub most_pps: Option<f64>,
    /// The engines that a sender may request.
    pub engines: EngineChoice,
    /// The secret that senders must have.
    pub key: Option<Key>,
    /// The socket of linuxptp's daemon; `None` is the default one, if that exists.
    pub ptp4l: Option<PathBuf>,
}

/// Why a receiver could not start.
#[derive(Debug, Error)]
pub enum ReceptionError {
    /// A worker or its port.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The control connection.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Reception {
    /// Opens the port, starts the workers, and serves handshakes of admitted senders on TCP at the same address and port.
    /// With a diagnosis the reports of trials also have the polls of devices and a profile.
    ///
    /// # Errors
    /// [`ReceptionError`]; then everything is closed.
    pub fn start(
        plan: &ReceiverPlan,
        cpus: &[u32],
        mut diagnosis: Option<Diagnosis>,
        policy: Policy,
    ) -> Result<Self, ReceptionError> {
        // Reading them takes longer than a sender waits for its report.
        diagnosis.iter_mut().for_each(Diagnosis::read_names);
        let placement = Placement { enter: None, cpus: cpus.to_vec() };
        // Unpredictable, so that no other host can guess the tag of a sender's packets.
        let tags = StreamTags::drawn(RandomState::new().hash_one(plan.traffic.local));
        let (receiver, listener) = open(plan, &placement, tags)?;
        let Policy { admission, most_pps, key, engines, ptp4l } = policy;
        let sending = SendingTerms {
            most_pps,
            allowed: engines.allowed.clone(),
            interface: plan.traffic.interface.clone(),
            cpus: cpus.to_vec(),
            key: key.clone(),
        };
        let counting = Arc::new(Counting::over(
            plan,
            cpus,
            (receiver, tags),
            diagnosis,
            (engines, sending, ptp4l.as_deref()),
        ));
        let (sender, events) = mpsc::channel();
        let terms = Terms { admission, most_pps, key, ..Terms::default() };
        let host = Host::serve(listener, terms, counting.clone(), sender)?;
        let start_ns = clock::monotonic_ns();
        let last = (start_ns, RxSnapshot::default());
        Ok(Self { counting, host: Some(host), events, last, start_ns })
    }

    /// Its address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.as_ref().map(Host::address)
    }

    /// Reads the host's counters, from which [`Reception::report_since`] starts: of all senders together.
    pub fn mark(&self) -> ReceptionMark {
        let peer = self.address().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let number = self.counting.begin(&Joining { peer, tags: &[], witness: false });
        ReceptionMark { number, packets: self.counting.snapshot().packets }
    }

    /// The packets received since the mark, and this host's losses: of all senders together.
    pub fn report_since(&self, mark: ReceptionMark) -> Report {
        let delivered = self.counting.snapshot().packets.saturating_sub(mark.packets);
        self.counting.report(mark.number, delivered, 1)
    }

    /// The events of control connections since the last call.
    pub fn events(&self) -> Vec<HostEvent> {
        self.events.try_iter().collect()
    }

    /// Counters since the last call, with the measured time between.
    pub fn interval(&mut self) -> Interval {
        let now = (clock::monotonic_ns(), self.counting.snapshot());
        let before = std::mem::replace(&mut self.last, now);
        Interval {
            trial: 0,
            end_s: (now.0 - self.start_ns) as f64 / 1e9,
            length_s: (now.0 - before.0) as f64 / 1e9,
            sent: None,
            delivered: Some(now.1.packets + now.1.foreign - before.1.packets - before.1.foreign),
            payload_bytes: now.1.payload_bytes - before.1.payload_bytes,
            rx_dropped: Some(now.1.lost - before.1.lost),
        }
    }

    /// All workers' counters so far.
    pub fn tally(&self) -> RxSnapshot {
        self.counting.snapshot()
    }

    /// The measurements of each reader so far, with their time; `None` when nothing is measured.
    pub fn readings(&self, then: AfterReading) -> Option<Vec<Readings>> {
        // This waits for the workers: sessions must have access to the counters meanwhile.
        let statistics = self.counting.with(|receiver| receiver.statistics().clone());
        let readings = statistics.and_then(|statistics| statistics.read(then));
        if then == AfterReading::Reset {
            self.counting.forget_comparisons();
        }
        readings
    }

    /// Measures this from now on, from zero. The receiver is opened anew: packets that arrive meanwhile are not counted.
    ///
    /// # Errors
    /// A sender is being served, or the engine cannot measure this; then nothing has changed.
    pub fn measure(&self, statistics: Option<StatisticsPlan>) -> Result<(), String> {
        self.counting.measure(statistics)
    }

    /// The comparisons of senders' clocks in their sessions.
    pub fn comparisons(&self) -> Vec<ClockComparison> {
        self.counting.comparisons()
    }

    /// Takes samples of the CPUs out of the kernel's rings, if a diagnosis samples them; ten times a second at least.
    pub fn tick(&self) {
        self.counting.tick();
    }

    /// The whole profile of the last trial; `None` when called again.
    pub fn take_profile(&self) -> Option<Profile> {
        self.counting.take_profile()
    }

    /// The senders whose probes are returned, with their numbers; `None` for a receiver that returns none.
    pub fn returns(&self) -> Option<Arc<ReturnList>> {
        self.counting.with(|receiver| receiver.returns().cloned()).flatten()
    }

    /// Whether the path broke.
    pub fn is_broken(&self) -> bool {
        self.counting.is_broken()
    }

    /// Ends sessions, then counts the packets that already arrived.
    pub fn stop(mut self) -> Option<ReceiverResult> {
        self.host = None;
        self.counting.stop()
    }
}

/// The workers, and a listener for handshakes on TCP at the same address and port. If the kernel chooses the port, one that
/// is free for both.
fn open(
    plan: &ReceiverPlan,
    placement: &Placement,
    tags: StreamTags,
) -> Result<(Receiver, HostListener), ReceptionError> {
    const MOST_PORTS: usize = 100;
    let mut tries = 0;
    loop {
        tries += 1;
        let receiver = plan.start_tagged(placement, tags)?;
        let may_choose = plan.traffic.local.port() == 0 && tries < MOST_PORTS;
        match HostListener::bind(receiver.local_address()) {
            Err(error) if may_choose && error.source.kind() == io::ErrorKind::AddrInUse => {}
            listener => return Ok((receiver, listener?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener};

    use lab::LabPlan;
    use traffic::RxTraffic;

    use super::*;

    #[test]
    fn a_port_that_the_kernel_chooses_is_also_free_for_handshakes() {
        let why = "only root may set the range of ports";
        let Some(lab) = testing::root_lab(&LabPlan::default(), why) else { return };
        let address = IpAddr::from(lab.rx().ipv4()[0]);
        let plan = ReceiverPlan {
            engine: "udp".parse().unwrap(),
            traffic: RxTraffic { batch_size: 64, ..RxTraffic::at((address, 0).into()) },
        };
        let ports = lab.rx().run(|| {
            // Two ports to choose from, of which one is taken, for TCP only.
            std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40001").unwrap();
            let _taken = TcpListener::bind((address, 40_000)).unwrap();
            (0..8)
                .map(|_| {
                    Reception::start(&plan, &[], None, Policy::default()).unwrap().address().unwrap().port()
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(ports.unwrap(), [40_001; 8]);
    }
}
