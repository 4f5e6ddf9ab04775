//! The receiver's end: accepts senders, tells them apart, and reports to each what arrived.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use measure::Trial;
use thiserror::Error;

use crate::{
    arrivals::await_arrivals,
    lines::{LineError, Lines},
    message::{Message, Offer, PROTOCOL, Progress, Report},
};

/// Connections served at once; more wait in the kernel's queue.
const MOST_CONNECTIONS: u32 = 64;
/// Stream tags: 1 to this. Tag 0 is for payloads too short to carry one.
const MOST_STREAMS: u16 = 255;
/// The shortest payload that carries a stream tag.
const TAGGED_PAYLOAD_BYTES: u32 = 18;
/// How often each side says something.
const BEAT: Duration = Duration::from_millis(500);
/// Beats without a word until a peer counts as gone.
const MOST_SILENT_BEATS: u32 = 20;
/// Beats that whoever connects may take for the first word: on a busy machine it waits for a CPU.
const FIRST_BEATS: u32 = 3;
/// Packets in flight are waited for no longer than this.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);

/// The receiver's counters, as the host needs them.
pub trait Counts: Send + Sync + 'static {
    /// Packets of these streams so far, and all that the sockets dropped so far.
    fn progress(&self, streams: &[u16]) -> Progress;

    /// Called when a trial begins; what it returns comes back to [`Counts::report`].
    fn begin(&self) -> u64;

    /// Sends packets of this address back until [`Counts::end_returns`] was called as often.
    ///
    /// # Errors
    /// Why it cannot, for the sender's user.
    fn allow_returns(&self, _sender: IpAddr) -> Result<(), String> {
        Err("this receiver sends no packets back: start it with --reflect".into())
    }

    /// Sends them back no more.
    fn end_returns(&self, _sender: IpAddr) {}

    /// Whether reports tell where receiving took its time.
    fn profiles(&self) -> bool {
        false
    }

    /// The receiver's half of a trial that began at `begun`, with `delivered` packets.
    fn report(&self, begun: u64, delivered: u64, senders: u32) -> Report;
}

/// Serves senders until it is dropped.
pub struct Host {
    stop: Arc<AtomicBool>,
    address: SocketAddr,
    acceptor: Option<thread::JoinHandle<()>>,
}

/// What the receiver's user may want to see.
#[derive(Debug)]
pub enum HostEvent {
    /// A sender was accepted.
    Joined {
        /// Its address.
        peer: SocketAddr,
        /// What it will send.
        offer: Offer,
    },
    /// A sender was refused.
    Refused {
        /// Its address.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A sender finished; its own summary when it sent one.
    Finished {
        /// Its address.
        peer: SocketAddr,
        /// The trial as the sender shows it.
        trial: Option<Box<Trial>>,
    },
    /// A sender's connection ended before its trial did.
    Lost {
        /// Its address.
        peer: SocketAddr,
        /// How.
        error: LineError,
    },
}

/// The control connection could not be offered.
#[derive(Debug, Error)]
#[error("cannot listen on TCP {address}")]
pub struct HostError {
    /// The address.
    pub address: SocketAddr,
    /// The kernel's reason.
    pub source: io::Error,
}

/// A place to connect to, which nobody serves yet.
#[derive(Debug)]
pub struct HostListener {
    listener: TcpListener,
    address: SocketAddr,
}

struct Shared {
    counts: Arc<dyn Counts>,
    events: mpsc::Sender<HostEvent>,
    data_port: u16,
    stop: Arc<AtomicBool>,
    connections: AtomicU32,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    taken: BTreeSet<u16>,
    senders: u32,
    /// Grows with every sender that joins; a trial that saw it grow was not alone.
    joined: u32,
}

impl HostListener {
    /// Takes TCP `address`.
    ///
    /// # Errors
    /// [`HostError`] when the address is taken or not ours.
    pub fn bind(address: SocketAddr) -> Result<Self, HostError> {
        let failed = |source| HostError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }
}

impl Host {
    /// Serves who connects, and sends accepted senders to UDP `data_port` of the same host.
    ///
    /// # Errors
    /// [`HostError`]: there is no room for another thread.
    pub fn serve(
        HostListener { listener, address }: HostListener,
        data_port: u16,
        counts: Arc<dyn Counts>,
        events: mpsc::Sender<HostEvent>,
    ) -> Result<Self, HostError> {
        let failed = |source| HostError { address, source };
        let stop = Arc::<AtomicBool>::default();
        let shared = Arc::new(Shared {
            counts,
            events,
            data_port,
            stop: stop.clone(),
            connections: AtomicU32::new(0),
            seats: Mutex::default(),
        });
        let acceptor = thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &shared))
            .map_err(failed)?;
        Ok(Self { stop, address, acceptor: Some(acceptor) })
    }

    /// The address listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().ok();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    const LOOK: Duration = Duration::from_millis(20);
    let mut sessions: Vec<thread::JoinHandle<()>> = Vec::new();
    while !shared.stop.load(Relaxed) {
        sessions.retain(|session| !session.is_finished());
        if shared.connections.load(Relaxed) >= MOST_CONNECTIONS {
            thread::sleep(LOOK);
            continue;
        }
        match listener.accept() {
            Ok((stream, peer)) => {
                shared.connections.fetch_add(1, Relaxed);
                let shared = shared.clone();
                let session = thread::Builder::new().name("session".into()).spawn(move || {
                    serve(stream, peer, &shared);
                    shared.connections.fetch_sub(1, Relaxed);
                });
                sessions.extend(session);
            }
            // Nobody there, or out of descriptors: both pass.
            Err(_) => thread::sleep(LOOK),
        }
    }
    for session in sessions {
        session.join().ok();
    }
}

fn serve(stream: TcpStream, peer: SocketAddr, shared: &Shared) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    let event = match converse(stream, peer, shared) {
        Ok(trial) => HostEvent::Finished { peer, trial },
        Err(Ended::Refused(reason)) => HostEvent::Refused { peer, reason },
        Err(Ended::Lost(error)) => HostEvent::Lost { peer, error },
    };
    // A receiver that no longer listens to events is on its way out.
    shared.events.send(event).ok();
}

enum Ended {
    Refused(String),
    Lost(LineError),
}

impl From<LineError> for Ended {
    fn from(error: LineError) -> Self {
        Self::Lost(error)
    }
}

fn converse(stream: TcpStream, peer: SocketAddr, shared: &Shared) -> Result<Option<Box<Trial>>, Ended> {
    let mut lines = Lines::over(stream, BEAT)?;
    let offer = first_offer(&mut lines, shared)?;
    let seat = match shared.admit(&offer) {
        Ok(seat) => seat,
        Err(reason) => {
            lines.send(&Message::Refuse { reason: reason.clone() })?;
            return Err(Ended::Refused(reason));
        }
    };
    let reflects = offer.reflect;
    let returning = reflects.then(|| Returning::to(peer.ip(), &*shared.counts)).transpose();
    let _returning = match returning {
        Ok(returning) => returning,
        Err(reason) => {
            lines.send(&Message::Refuse { reason: reason.clone() })?;
            return Err(Ended::Refused(reason));
        }
    };
    let before = shared.counts.progress(&seat.streams);
    let begun = shared.counts.begin();
    shared.events.send(HostEvent::Joined { peer, offer }).ok();
    lines.send(&Message::Accept { streams: seat.tags(), data_port: shared.data_port, reflects })?;
    let since = |now: Progress| Progress {
        packets: now.packets - before.packets,
        payload_bytes: now.payload_bytes - before.payload_bytes,
        dropped: now.dropped.saturating_sub(before.dropped),
    };
    let sent = until_done(&mut lines, shared, || since(shared.counts.progress(&seat.streams)))?;
    let arrived = await_arrivals(sent, LONGEST_DRAIN, || since(shared.counts.progress(&seat.streams)));
    let report = shared.counts.report(begun, arrived.packets, seat.company());
    lines.send(&Message::Report(Box::new(report)))?;
    Ok(summary(&mut lines, shared))
}

fn first_offer(lines: &mut Lines, shared: &Shared) -> Result<Offer, Ended> {
    match hear(lines, shared, FIRST_BEATS) {
        _ if shared.stop.load(Relaxed) => Err(LineError::Stopped.into()),
        Ok(Message::Offer(offer)) => Ok(offer),
        Ok(_) => Err(LineError::OutOfTurn.into()),
        Err(error) => Err(error.into()),
    }
}

/// What the sender makes of the trial, for which it may first wait for packets that come back.
fn summary(lines: &mut Lines, shared: &Shared) -> Option<Box<Trial>> {
    match hear(lines, shared, MOST_SILENT_BEATS) {
        Ok(Message::Summary(trial)) => Some(trial),
        // A sender that keeps its summary to itself has finished all the same.
        _ => None,
    }
}

/// The next message, which comes after no more than so many beats without a word.
fn hear(lines: &mut Lines, shared: &Shared, mut beats: u32) -> Result<Message, LineError> {
    loop {
        match lines.receive() {
            Err(LineError::Silent(_)) if beats > 0 && !shared.stop.load(Relaxed) => beats -= 1,
            heard => return heard,
        }
    }
}

/// Tells the sender of progress until it says that all is sent; returns how much that was.
fn until_done(lines: &mut Lines, shared: &Shared, progress: impl Fn() -> Progress) -> Result<u64, Ended> {
    let mut silent_beats = 0;
    let mut told = Instant::now();
    loop {
        match lines.receive() {
            Ok(Message::Done { sent }) => return Ok(sent),
            Ok(Message::Progress(_)) => silent_beats = 0,
            Ok(_) => return Err(LineError::OutOfTurn.into()),
            Err(LineError::Silent(_)) if silent_beats < MOST_SILENT_BEATS => silent_beats += 1,
            Err(error) => return Err(error.into()),
        }
        if shared.stop.load(Relaxed) {
            return Err(LineError::Stopped.into());
        }
        if told.elapsed() >= BEAT {
            lines.send(&Message::Progress(progress()))?;
            told = Instant::now();
        }
    }
}

/// While it lives, packets go back to the sender.
struct Returning<'c> {
    sender: IpAddr,
    counts: &'c dyn Counts,
}

impl<'c> Returning<'c> {
    fn to(sender: IpAddr, counts: &'c dyn Counts) -> Result<Self, String> {
        counts.allow_returns(sender)?;
        Ok(Self { sender, counts })
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.counts.end_returns(self.sender);
    }
}

/// A sender's place among the others; given back when dropped.
struct Seat<'s> {
    seats: &'s Mutex<Seats>,
    streams: Vec<u16>,
    threads: usize,
    joined_at: u32,
    met: u32,
}

impl Shared {
    fn admit(&self, offer: &Offer) -> Result<Seat<'_>, String> {
        if offer.protocol != PROTOCOL {
            let theirs = offer.protocol;
            return Err(format!(
                "this receiver speaks protocol {PROTOCOL}, the sender {theirs}: use the same linerate on both ends"
            ));
        }
        if offer.streams == 0 || offer.streams > MOST_STREAMS {
            return Err(format!("{} sending threads: from 1 to {MOST_STREAMS} are possible", offer.streams));
        }
        if offer.profile && !self.counts.profiles() {
            return Err("it does not look at its CPUs: start it with --profile".into());
        }
        let mut seats = self.seats.lock().expect("no holder panics");
        let wanted = usize::from(offer.streams);
        let streams: Vec<u16> = if offer.payload_bytes < TAGGED_PAYLOAD_BYTES {
            (!seats.taken.contains(&0)).then_some(0).into_iter().collect()
        } else {
            (1..=MOST_STREAMS).filter(|tag| !seats.taken.contains(tag)).take(wanted).collect()
        };
        if streams.is_empty() {
            return Err(format!(
                "another sender uses payloads below {TAGGED_PAYLOAD_BYTES} bytes, which cannot be told apart: use a larger payload"
            ));
        }
        if streams[0] != 0 && streams.len() < wanted {
            return Err(format!("all {MOST_STREAMS} streams are in use by other senders"));
        }
        seats.taken.extend(&streams);
        seats.senders += 1;
        seats.joined += 1;
        let (joined_at, met) = (seats.joined, seats.senders);
        drop(seats);
        Ok(Seat { seats: &self.seats, streams, threads: wanted, joined_at, met })
    }
}

impl Seat<'_> {
    /// One tag a thread; short payloads share tag 0.
    fn tags(&self) -> Vec<u16> {
        self.streams.iter().copied().cycle().take(self.threads).collect()
    }

    /// Senders that were there at some time since this one joined, itself included.
    fn company(&self) -> u32 {
        let joined_since = self.seats.lock().expect("no holder panics").joined - self.joined_at;
        self.met + joined_since
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut seats = self.seats.lock().expect("no holder panics");
        for stream in &self.streams {
            seats.taken.remove(stream);
        }
        seats.senders -= 1;
    }
}
