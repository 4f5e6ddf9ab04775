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
    RxSnapshot,
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

/// A receiver's counters at some time.
#[derive(Debug)]
pub struct ReceptionMark {
    number: u64,
    packets: u64,
}

/// Whom a receiver serves, and with what.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Who may send.
    pub admission: Admission,
    /// The highest rate that a sender may ask for, in packets per second; `None` is any.
    pub most_pps: Option<f64>,
    /// Which engines a sender may ask for.
    pub engines: EngineChoice,
    /// The secret that senders must have.
    pub key: Option<Key>,
    /// The socket of linuxptp's daemon; `None` is the usual one, where that is there.
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
    /// Opens the port, starts the workers, and serves handshakes on TCP at the same address and port, of senders that are
    /// admitted. With a diagnosis the reports of trials have the polls of devices and a profile, too.
    ///
    /// # Errors
    /// [`ReceptionError`]; then nothing is left open.
    pub fn start(
        plan: &ReceiverPlan,
        cpus: &[u32],
        mut diagnosis: Option<Diagnosis>,
        policy: Policy,
    ) -> Result<Self, ReceptionError> {
        // A sender does not wait for its report as long as that takes.
        diagnosis.iter_mut().for_each(Diagnosis::read_names);
        let placement = Placement { enter: None, cpus: cpus.to_vec() };
        // From the kernel's random numbers, so that nobody guesses which packets count as a sender's.
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

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.as_ref().map(Host::address)
    }

    /// Reads the host's counters, from which [`Reception::report_since`] starts: of all senders together.
    pub fn mark(&self) -> ReceptionMark {
        let peer = self.address().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let number = self.counting.begin(&Joining { peer, tags: &[], witness: false });
        ReceptionMark { number, packets: self.counting.snapshot().packets }
    }

    /// What was received since the mark, and where this host lost packets: of all senders together.
    pub fn report_since(&self, mark: ReceptionMark) -> Report {
        let delivered = self.counting.snapshot().packets.saturating_sub(mark.packets);
        self.counting.report(mark.number, delivered, 1)
    }

    /// What happened on control connections since the last call.
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

    /// What each reader has measured so far, and what then; `None` when nothing is measured.
    pub fn readings(&self, then: AfterReading) -> Option<Vec<Readings>> {
        // Workers are waited for: sessions must get at their counters meanwhile.
        let statistics = self.counting.with(|receiver| receiver.statistics().clone());
        let readings = statistics.and_then(|statistics| statistics.read(then));
        if then == AfterReading::Reset {
            self.counting.forget_comparisons();
        }
        readings
    }

    /// What sessions found out about senders' clocks.
    pub fn comparisons(&self) -> Vec<ClockComparison> {
        self.counting.comparisons()
    }

    /// Takes samples of the CPUs out of the kernel's rings, where a diagnosis samples them; ten times a second at least.
    pub fn tick(&self) {
        self.counting.tick();
    }

    /// The whole profile of the last trial, once.
    pub fn take_profile(&self) -> Option<Profile> {
        self.counting.take_profile()
    }

    /// Senders whose probes are returned, and how many were; `None` for a receiver that returns none.
    pub fn returns(&self) -> Option<Arc<ReturnList>> {
        self.counting.with(|receiver| receiver.returns().cloned()).flatten()
    }

    /// Whether the path broke.
    pub fn is_broken(&self) -> bool {
        self.counting.is_broken()
    }

    /// Ends sessions, then counts what already arrived.
    pub fn stop(mut self) -> Option<ReceiverResult> {
        self.host = None;
        self.counting.stop()
    }
}

/// The workers, and a place for handshakes on TCP at the same address and port. Where the kernel chooses the port, one that
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
    fn a_port_that_the_kernel_chooses_is_free_for_handshakes_too() {
        let why = "the range of ports is root's to set";
        let Some(lab) = testing::root_lab(&LabPlan::default(), why) else { return };
        let address = IpAddr::from(lab.rx().ipv4()[0]);
        let plan = ReceiverPlan {
            engine: "udp".parse().unwrap(),
            traffic: RxTraffic { batch_size: 64, ..RxTraffic::at((address, 0).into()) },
        };
        let ports = lab.rx().run(|| {
            // Two ports to choose from, and one is taken, for TCP only.
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
