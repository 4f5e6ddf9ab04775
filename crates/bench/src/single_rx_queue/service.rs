//! The target of the flood, and the unrelated transfer.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use lab::{Lab, Side};
use sys::{
    cpu,
    tcp::{self, StreamOptions},
    udp::{RecvBatch, SocketOptions, UdpSocket},
};

use super::{
    error::{SingleRxQueueError, socket_error},
    load::FloodFilter,
    plan::{BESIDE_PORT, BESIDE_STREAM, PORT, SingleRxQueuePlan, VALID_STREAM, hold, service_address},
    spread::Spread,
};

/// The longest time for a thread to notice that it must end.
const PATIENCE: Duration = Duration::from_millis(50);
/// Datagrams per call, as in udpreceiver.
const BATCH: usize = 512;
/// The longest delay of the transfer behind its rate.
const MADE_UP: Duration = Duration::from_millis(100);
/// A send buffer with which the transfer has fewer packets in flight than the 256 slots of a veth's ring: a full-sized
/// packet takes 2,304 bytes of it, and the kernel doubles it.
const FEWER_THAN_A_RING_BYTES: usize = 200 << 10;
/// Bytes per write of the transfer.
const BLOCK_BYTES: usize = 16 << 10;
/// The stream tag follows the probe header.
const TAG_AT: usize = 16;

/// A service that inspects every datagram of its socket.
pub(super) struct Service {
    counts: Arc<Counts>,
    _thread: Joined,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    valid: AtomicU64,
    flood: AtomicU64,
    /// The cause of an early end of the thread.
    error: Mutex<Option<io::Error>>,
}

impl Service {
    /// Opens the port and starts to read.
    pub(super) fn start(
        side: &Side,
        plan: &SingleRxQueuePlan,
        filter: FloodFilter,
        flooder: Ipv4Addr,
    ) -> Result<Self, SingleRxQueueError> {
        let refused = (filter == FloodFilter::SocketFilter).then_some(flooder);
        let is_filter = filter == FloodFilter::Service;
        Self::read((side, PORT), VALID_STREAM, (plan.service_cpu(filter), !is_filter), refused)
    }

    /// Opens the port of the flow beside, with the other receiving work.
    pub(super) fn start_beside(side: &Side, plan: &SingleRxQueuePlan) -> Result<Self, SingleRxQueueError> {
        Self::read((side, BESIDE_PORT), BESIDE_STREAM, (plan.other_cpu(), true), None)
    }

    /// Counts packets with the stream tag as valid, on a CPU where the thread may go first; refuses those of an address.
    fn read(
        (side, port): (&Side, u16),
        stream: u16,
        (cpu, may_go_first): (Option<u32>, bool),
        refused: Option<Ipv4Addr>,
    ) -> Result<Self, SingleRxQueueError> {
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(service_address(port), &SocketOptions::default())?;
            if let Some(address) = refused {
                socket.drop_source(address)?;
            }
            socket.set_timeouts(PATIENCE)?;
            Ok(socket)
        };
        let socket = side.run(open)?.map_err(socket_error("open the service's socket"))?;
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let thread = thread::spawn(move || {
            pin(cpu);
            if may_go_first {
                goes_first();
            }
            let mut batch = RecvBatch::new(BATCH, 128);
            while !shared.stop.load(Relaxed) {
                let received = match batch.recv(&socket, true) {
                    Ok(received) => received,
                    Err(error) if is_late(&error) => 0,
                    Err(error) => {
                        *shared.error.lock().expect("no holder panics") = Some(error);
                        return;
                    }
                };
                let tagged = |index: &usize| {
                    let tag = batch.message(*index).bytes.get(TAG_AT..TAG_AT + 2);
                    tag == Some(&stream.to_be_bytes())
                };
                let valid = (0..received).filter(tagged).count();
                shared.valid.fetch_add(valid as u64, Relaxed);
                shared.flood.fetch_add((received - valid) as u64, Relaxed);
            }
        });
        let stopping = Arc::clone(&counts);
        let thread = Joined::new(thread, move || stopping.stop.store(true, Relaxed));
        Ok(Self { counts, _thread: thread })
    }

    /// Valid packets received so far.
    pub(super) fn valid(&self) -> u64 {
        self.counts.valid.load(Relaxed)
    }

    /// Whether its socket failed.
    pub(super) fn is_finished(&self) -> bool {
        self.counts.error.lock().expect("no holder panics").is_some()
    }

    /// The failure of its socket, once.
    pub(super) fn error(&self) -> Option<SingleRxQueueError> {
        let error = self.counts.error.lock().expect("no holder panics").take();
        error.map(socket_error("read the service's socket"))
    }

    /// Flood packets received so far.
    pub(super) fn flood(&self) -> u64 {
        self.counts.flood.load(Relaxed)
    }
}

/// A TCP transfer from the sending side to the receiving one, at a given rate or close to it.
pub(super) struct Transfer {
    received: Arc<AtomicU64>,
    /// Its queue, where a card's hash was used to choose it.
    queue: Option<u32>,
    // The writer first: its end makes the reader end.
    _writer: Joined,
    _reader: Joined,
}

impl Transfer {
    /// `spread` chooses its queue.
    pub(super) fn start(
        lab: &Lab,
        plan: &SingleRxQueuePlan,
        spread: Option<&Spread>,
    ) -> Result<Self, SingleRxQueueError> {
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let listener =
            lab.rx().run(|| TcpListener::bind(any))?.map_err(socket_error("listen for the transfer"))?;
        let port = listener.local_addr().map_err(socket_error("listen for the transfer"))?.port();
        let target = SocketAddrV4::new(lab.rx().ipv4()[0], port);
        let near = lab.tx().ipv4()[0];
        let open = || -> io::Result<(TcpStream, TcpStream, Option<u32>)> {
            let options = StreamOptions {
                send_buffer_bytes: plan.interfaces.is_none().then_some(FEWER_THAN_A_RING_BYTES),
                ..StreamOptions::default()
            };
            let connect = |local: SocketAddrV4| tcp::connect(local.into(), target.into(), &options, PATIENCE);
            let (near, queue) = match spread {
                None => (connect(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?, None),
                Some(spread) => {
                    // A port of the row before may be waiting for late packets still.
                    let mut tried = spread.transfer_ports(near, target).map(|(port, queue)| {
                        connect(SocketAddrV4::new(near, port)).map(|stream| (stream, Some(queue)))
                    });
                    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
                    tried
                        .find(|tried| !tried.as_ref().is_err_and(is_taken))
                        .unwrap_or_else(|| Err(io::ErrorKind::AddrNotAvailable.into()))?
                }
            };
            let (far, _) = listener.accept()?;
            far.set_read_timeout(Some(PATIENCE))?;
            Ok((near, far, queue))
        };
        // The thread that connects does not matter, its namespace does.
        let namespace = hold(lab.tx().namespace())?;
        let connected = namespace.run(open).map_err(socket_error("enter the lab"))?;
        let (mut near, mut far, queue) = connected.map_err(socket_error("connect the transfer"))?;
        let (received, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (tx_cpu, rx_cpu) = (plan.cpus.tx.first().copied(), plan.other_cpu());
        let block_time = Duration::from_secs_f64(BLOCK_BYTES as f64 * 8.0 / plan.transfer_bps);
        let (shared, stopped) = (Arc::clone(&received), Arc::clone(&stop));
        let reader = thread::spawn(move || {
            pin(rx_cpu);
            goes_first();
            let mut bytes = vec![0; 256 << 10];
            while !stopped.load(Relaxed) {
                match far.read(&mut bytes) {
                    Ok(read) if read > 0 => drop(shared.fetch_add(read as u64, Relaxed)),
                    Err(error) if is_late(&error) => {}
                    _ => break,
                }
            }
        });
        let stopped = Arc::clone(&stop);
        let writer = thread::spawn(move || {
            pin(tx_cpu);
            goes_first();
            let bytes = vec![7; BLOCK_BYTES];
            let mut due = Instant::now();
            while !stopped.load(Relaxed) {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                match near.write(&bytes) {
                    // A transfer kept from its CPU by the flood catches up; one that stalled does not.
                    Ok(written) => {
                        due = due.max(Instant::now() - MADE_UP)
                            + block_time.mul_f64(written as f64 / BLOCK_BYTES as f64);
                    }
                    Err(error) if is_late(&error) => {}
                    Err(_) => break,
                }
            }
        });
        let stops = || {
            let stop = Arc::clone(&stop);
            move || stop.store(true, Relaxed)
        };
        Ok(Self {
            received,
            queue,
            _writer: Joined::new(writer, stops()),
            _reader: Joined::new(reader, stops()),
        })
    }

    /// Its queue, if it was chosen.
    pub(super) fn queue(&self) -> Option<u32> {
        self.queue
    }

    /// Bytes that the reader received so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received.load(Relaxed)
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// With too few CPUs, the scheduler decides.
fn pin(cpu: Option<u32>) {
    cpu.map(cpu::pin_to);
}

/// Without the right to do this, the thread keeps its normal priority.
fn goes_first() {
    cpu::go_first(0).ok();
}

/// A thread that is stopped and joined when this value is dropped.
struct Joined {
    stop: Box<dyn Fn() + Send>,
    thread: Option<JoinHandle<()>>,
}

impl Joined {
    fn new(thread: JoinHandle<()>, stop: impl Fn() + Send + 'static) -> Self {
        Self { stop: Box::new(stop), thread: Some(thread) }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        (self.stop)();
        self.thread.take().map(JoinHandle::join);
    }
}
