//! A receiver that serves senders: counts packets, answers handshakes, and tells intervals apart.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, mpsc},
};

use bpf::SoftirqWatch;
use engine::{
    EngineError, Placement, Readings, Receiver, ReceiverPlan, ReceiverResult, ReturnList, RxEngine,
    RxSnapshot, StreamCount, Then,
};
use ledger::{Drivers, HostCounters, Received, host_rx_lines};
use measure::{Cost, Endpoint, Interval, LedgerLine, Profile};
use serde_json::json;
use session::{Counts, Host, HostError, HostEvent, HostListener, Progress, Report};
use sys::{clock, udp::UdpSink};
use thiserror::Error;

use crate::{cpu_time::CpuWatch, profile::Diagnosis, spec::RxSpec};

/// A running receiver.
pub struct Reception {
    counting: Arc<Counting>,
    host: Option<Host>,
    events: mpsc::Receiver<HostEvent>,
    last: (u64, RxSnapshot),
    start_ns: u64,
    _sink: Option<UdpSink>,
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
    /// Opens the port, starts the workers, and serves handshakes on TCP at the same address and port. With a diagnosis
    /// the reports of trials have the polls of devices and a profile, too.
    ///
    /// # Errors
    /// [`ReceptionError`]; then nothing is left open.
    pub fn start(
        plan: &ReceiverPlan,
        cpus: &[u32],
        mut diagnosis: Option<Diagnosis>,
    ) -> Result<Self, ReceptionError> {
        // A sender does not wait for its report as long as that takes.
        diagnosis.iter_mut().for_each(Diagnosis::read_names);
        let placement = Placement { enter: None, cpus: cpus.to_vec() };
        // Whoever only listens along leaves packets to the kernel, which would say that nobody wants them.
        let sink =
            matches!(plan.engine, RxEngine::Packet(_)).then(|| UdpSink::open(plan.local).ok()).flatten();
        let (receiver, listener) = open(plan, &placement)?;
        let data_port = receiver.local_address().port();
        let endpoint = endpoint(plan, cpus);
        let gro = matches!(&plan.engine, RxEngine::Udp(udp) if udp.gro);
        let counting = Arc::new(Counting {
            receiver: Mutex::new(Some(receiver)),
            endpoint,
            gro,
            napi: diagnosis.as_ref().and_then(Diagnosis::napi),
            diagnosis: diagnosis.map(Mutex::new),
            profile: Mutex::default(),
            is_udp: matches!(plan.engine, RxEngine::Udp(_)),
            begun: Mutex::default(),
        });
        let (sender, events) = mpsc::channel();
        let host = Host::serve(listener, data_port, counting.clone(), sender)?;
        let start_ns = clock::monotonic_ns();
        let last = (start_ns, RxSnapshot::default());
        Ok(Self { counting, host: Some(host), events, last, start_ns, _sink: sink })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.as_ref().map(Host::address)
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
    pub fn readings(&self, then: Then) -> Option<Vec<Readings>> {
        self.counting.with(|receiver| receiver.readings(then)).flatten()
    }

    /// Takes samples of the CPUs out of the kernel's rings, where somebody looks at them; ten times a second at least.
    pub fn tick(&self) {
        self.counting.diagnosis().into_iter().for_each(|mut diagnosis| diagnosis.tick());
    }

    /// The whole profile of the last trial, once.
    pub fn take_profile(&self) -> Option<Profile> {
        self.counting.profile.lock().expect("no holder panics").take()
    }

    /// Whose packets go back, and how many did; `None` for a receiver that sends none back.
    pub fn returns(&self) -> Option<Arc<ReturnList>> {
        self.counting.with(|receiver| receiver.returns().cloned()).flatten()
    }

    /// Whether the path broke.
    pub fn is_broken(&self) -> bool {
        self.counting.with(Receiver::is_finished).unwrap_or(true)
    }

    /// Ends sessions, then counts what already arrived.
    pub fn stop(mut self) -> Option<ReceiverResult> {
        self.host = None;
        let receiver = self.counting.receiver.lock().expect("no holder panics").take();
        receiver.map(Receiver::stop)
    }
}

/// What sessions need of the receiver.
struct Counting {
    receiver: Mutex<Option<Receiver>>,
    endpoint: Endpoint,
    gro: bool,
    napi: Option<Arc<SoftirqWatch>>,
    diagnosis: Option<Mutex<Diagnosis>>,
    /// Of the last trial.
    profile: Mutex<Option<Profile>>,
    is_udp: bool,
    begun: Mutex<BTreeMap<u64, Begun>>,
}

/// Readings when a trial began.
struct Begun {
    snapshot: RxSnapshot,
    counters: HostCounters,
    cpus: Option<CpuWatch>,
}

impl Counting {
    fn with<T>(&self, look: impl FnOnce(&Receiver) -> T) -> Option<T> {
        self.receiver.lock().expect("no holder panics").as_ref().map(look)
    }

    fn diagnosis(&self) -> Option<MutexGuard<'_, Diagnosis>> {
        self.diagnosis.as_ref().map(|diagnosis| diagnosis.lock().expect("no holder panics"))
    }

    fn snapshot(&self) -> RxSnapshot {
        self.with(Receiver::snapshot).unwrap_or_default()
    }
}

impl Counts for Counting {
    fn progress(&self, streams: &[u16]) -> Progress {
        let count = |receiver: &Receiver| {
            let each = streams.iter().map(|stream| receiver.stream(*stream));
            (each.fold(StreamCount::default(), StreamCount::plus), receiver.snapshot().lost)
        };
        let (streams, dropped) = self.with(count).unwrap_or_default();
        Progress { packets: streams.packets, payload_bytes: streams.payload_bytes, dropped }
    }

    fn begin(&self) -> u64 {
        let mut begun = self.begun.lock().expect("no holder panics");
        // Trials whose senders were lost never ask for their report; the oldest give way.
        const MOST_BEGUN: usize = 256;
        if begun.len() >= MOST_BEGUN {
            begun.pop_first();
        }
        let number = begun.last_key_value().map_or(0, |(last, _)| last + 1);
        begun.insert(
            number,
            Begun {
                snapshot: self.snapshot(),
                counters: HostCounters::read(None).unwrap_or_default(),
                cpus: CpuWatch::start(self.napi.clone()).ok(),
            },
        );
        number
    }

    fn allow_returns(&self, sender: IpAddr) -> Result<(), String> {
        let returns = self.with(|receiver| receiver.returns().cloned()).flatten();
        let returns = returns.ok_or("this receiver sends no packets back: start it with --reflect")?;
        returns.allow(sender).map_err(|error| error.to_string())
    }

    fn end_returns(&self, sender: IpAddr) {
        // A receiver that is stopping has nothing left that could send back.
        if let Some(returns) = self.with(|receiver| receiver.returns().cloned()).flatten() {
            returns.forget(sender).ok();
        }
    }

    fn profiles(&self) -> bool {
        self.diagnosis.is_some()
    }

    /// A trial's profile is of the receiving since the trial before.
    fn report(&self, begun: u64, delivered: u64, senders: u32) -> Report {
        let whole = self.diagnosis().map(|mut diagnosis| diagnosis.take(delivered));
        let profile = whole.clone().map(|whole| Profile { stacks: Vec::new(), ..whole });
        *self.profile.lock().expect("no holder panics") = whole;
        let began = self.begun.lock().expect("no holder panics").remove(&begun);
        let mut lines = Vec::new();
        let mut cpus = Vec::new();
        if let Some(began) = began {
            let lost = self.snapshot().lost.saturating_sub(began.snapshot.lost);
            // Counters of the host and its sockets are one sender's only while it is alone.
            if senders == 1 {
                let now = HostCounters::read(None);
                let since = |now: HostCounters| now.since(&began.counters, &Drivers::built_in());
                let counters = now.map(since).unwrap_or_default();
                let gro = self.gro;
                let received = Received { delivered, lost, gro, is_udp: true, ..Received::default() };
                lines = if self.is_udp {
                    host_rx_lines(&counters, &received)
                } else {
                    vec![lost_at_port(&self.endpoint, lost)]
                };
            }
            cpus = began.cpus.and_then(|watch| watch.shares().ok()).unwrap_or_default();
        }
        lines.retain(|line: &LedgerLine| line.packets > 0);
        Report { delivered, lines, rx: self.endpoint.clone(), cost: Cost::default(), cpus, senders, profile }
    }
}

/// What a receiver below the sockets lost itself.
fn lost_at_port(endpoint: &Endpoint, lost: u64) -> LedgerLine {
    let source = match endpoint.engine.as_str() {
        "xsk" => "XDP_STATISTICS rx_ring_full + rx_dropped",
        _ => "PACKET_STATISTICS tp_drops",
    };
    LedgerLine::new(&format!("{} ring full", endpoint.engine), lost, source)
        .with_remedy("the reader does not keep up: more threads, or --spin")
}

/// The workers, and a place for handshakes on TCP at the same address and port. Where the kernel chooses the port, one that
/// is free for both.
fn open(plan: &ReceiverPlan, placement: &Placement) -> Result<(Receiver, HostListener), ReceptionError> {
    const MOST_PORTS: usize = 100;
    let mut tries = 0;
    loop {
        tries += 1;
        let receiver = Receiver::start(plan, placement)?;
        let may_choose = plan.local.port() == 0 && tries < MOST_PORTS;
        match HostListener::bind(receiver.local_address()) {
            Err(error) if may_choose && error.source.kind() == io::ErrorKind::AddrInUse => {}
            listener => return Ok((receiver, listener?)),
        }
    }
}

fn endpoint(plan: &ReceiverPlan, cpus: &[u32]) -> Endpoint {
    let spec = RxSpec(plan.engine.clone());
    Endpoint {
        engine: spec.engine().into(),
        label: spec.to_string(),
        threads: plan.workers as u32,
        cpus: cpus.to_vec(),
        options: BTreeMap::from([
            ("batch_size".into(), json!(plan.batch_size)),
            ("engine".into(), json!(plan.engine)),
            ("spin".into(), json!(plan.spin)),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use engine::UdpRxPlan;
    use lab::LabPlan;

    use super::*;

    #[test]
    fn a_port_that_the_kernel_chooses_is_free_for_handshakes_too() {
        let why = "the range of ports is root's to set";
        let Some(lab) = testing::root_lab(&LabPlan::default(), why) else { return };
        let address = IpAddr::from(lab.rx().ipv4()[0]);
        let plan = ReceiverPlan {
            engine: RxEngine::Udp(UdpRxPlan::default()),
            local: (address, 0).into(),
            interface: None,
            workers: 1,
            spin: false,
            batch_size: 64,
            statistics: None,
            reflect: false,
            work_ns: 0,
        };
        let ports = lab.rx().run(|| {
            // Two ports to choose from, and somebody has one of them, for TCP only.
            std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40001").unwrap();
            let _somebody = TcpListener::bind((address, 40_000)).unwrap();
            (0..8)
                .map(|_| Reception::start(&plan, &[], None).unwrap().address().unwrap().port())
                .collect::<Vec<_>>()
        });
        assert_eq!(ports.unwrap(), [40_001; 8]);
    }
}
