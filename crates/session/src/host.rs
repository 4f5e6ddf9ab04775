//! The receiver's end: accepts senders, distinguishes them, and reports to each what arrived.

use std::{
    collections::VecDeque,
    io::{self, Read},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use measure::Trial;
use thiserror::Error;

use crate::{
    arrivals::await_arrivals,
    claim::{ClaimError, Known, checked},
    clock::Comparing,
    counts::{Counts, Joining},
    lines::{LineError, Lines, MOST_LINE_BYTES, Writer},
    message::{Message, Offer, PROTOCOL, Progress, Report, Request, Wanted},
    network::Admission,
    room::{Admitted, MOST_STREAMS, Room},
    secure::{Key, open},
};

/// Most bytes of each message of a sender, except its summary.
const MOST_WORDS_BYTES: usize = 4096;
/// The shortest payload that carries a stream tag.
const TAGGED_PAYLOAD_BYTES: u32 = 18;
/// How often each side sends a message.
const BEAT: Duration = Duration::from_millis(500);
/// Silent beats after which a peer counts as gone.
const MOST_SILENT_BEATS: u32 = 20;
/// Beats until a new connection must send its first message: on a busy machine it may be waiting for a CPU.
const FIRST_BEATS: u32 = 3;
/// Most time to wait for packets in flight.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);
/// How long a refused connection may take to read the reason, and how many may do so at once.
const FAREWELL: Duration = Duration::from_secs(1);
const MOST_FAREWELLS: usize = 256;
/// A sender of a number of packets must send at least this many per second, or its requested rate if lower.
const SLOWEST_PPS: f64 = 1000.0;

/// Serves senders until dropped.
pub struct Host {
    stop: Arc<AtomicBool>,
    address: SocketAddr,
    acceptor: Option<thread::JoinHandle<()>>,
}

/// Events for the receiver's user.
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
        /// The reason.
        reason: String,
    },
    /// A sender finished, with its own summary if it sent one.
    Finished {
        /// Its address.
        peer: SocketAddr,
        /// The trial as the sender shows it.
        trial: Option<Box<Trial>>,
    },
    /// This host was asked to send, and has sent.
    Sent {
        /// The address that requested it.
        peer: SocketAddr,
        /// The trial.
        trial: Box<Trial>,
    },
    /// A sender finished, but its summary contradicts itself or what was counted here.
    Disputed {
        /// Its address.
        peer: SocketAddr,
        /// The contradiction.
        error: ClaimError,
    },
    /// A sender's connection ended before its trial.
    Lost {
        /// Its address.
        peer: SocketAddr,
        /// The cause.
        error: LineError,
    },
}

/// The terms on which senders are served.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Which addresses may send.
    pub admission: Admission,
    /// How much longer than offered a sender may take.
    pub overtime: Duration,
    /// The secret that senders must have; with it, connections are encrypted.
    pub key: Option<Key>,
    /// The highest rate that senders may request, in packets per second; `None` for any.
    pub most_pps: Option<f64>,
}

impl Default for Terms {
    /// For senders from near addresses, with 15 s more than offered for a busy machine.
    fn default() -> Self {
        Self { admission: Admission::default(), overtime: Duration::from_secs(15), key: None, most_pps: None }
    }
}

/// The control connection cannot be offered.
#[derive(Debug, Error)]
#[error("cannot listen on TCP {address}")]
pub struct HostError {
    /// The address.
    pub address: SocketAddr,
    /// The kernel's reason.
    pub source: io::Error,
}

/// A bound address without a server yet.
#[derive(Debug)]
pub struct HostListener {
    listener: TcpListener,
    address: SocketAddr,
}

struct Shared {
    counts: Arc<dyn Counts>,
    events: mpsc::Sender<HostEvent>,
    terms: Terms,
    stop: Arc<AtomicBool>,
    room: Arc<Room>,
}

impl HostListener {
    /// Binds TCP `address`.
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
    /// Serves all connections.
    ///
    /// # Errors
    /// [`HostError`] if no thread can be started.
    pub fn serve(
        HostListener { listener, address }: HostListener,
        terms: Terms,
        counts: Arc<dyn Counts>,
        events: mpsc::Sender<HostEvent>,
    ) -> Result<Self, HostError> {
        let failed = |source| HostError { address, source };
        let stop = Arc::<AtomicBool>::default();
        let shared = Arc::new(Shared { counts, events, terms, stop: stop.clone(), room: Arc::default() });
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
    let mut farewells = Farewells::default();
    while !shared.stop.load(Relaxed) {
        sessions.retain(|session| !session.is_finished());
        farewells.look();
        match listener.accept() {
            Ok((stream, peer)) => {
                let enter = |()| shared.room.enter(peer.ip(), &stream);
                match shared.terms.admission.check(peer.ip()).and_then(enter) {
                    Ok(place) => {
                        let shared = shared.clone();
                        let session = thread::Builder::new().name("session".into());
                        sessions.extend(session.spawn(move || serve(stream, peer, &place, &shared)));
                    }
                    Err(reason) => {
                        farewells.refuse(stream, &reason);
                        shared.events.send(HostEvent::Refused { peer, reason }).ok();
                    }
                }
            }
            // Nobody connected, or no descriptor is free: both are temporary.
            Err(_) => thread::sleep(LOOK),
        }
    }
    for session in sessions {
        session.join().ok();
    }
}

/// Refused connections that may still read the reason: if they were closed before the peer's offer arrived, a reset would
/// discard the answer.
#[derive(Default)]
struct Farewells {
    waiting: VecDeque<(TcpStream, Instant)>,
}

impl Farewells {
    fn refuse(&mut self, stream: TcpStream, reason: &str) {
        let mut words = Writer::over(stream);
        let written = words.send(&Message::Refuse { reason: reason.into() });
        let stream = words.into_stream();
        if written.is_ok() && stream.set_nonblocking(true).is_ok() && stream.shutdown(Shutdown::Write).is_ok()
        {
            self.waiting.push_back((stream, Instant::now() + FAREWELL));
        }
        if self.waiting.len() > MOST_FAREWELLS {
            self.waiting.pop_front();
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        self.waiting.retain_mut(|(stream, until)| {
            let is_open = match stream.read(&mut [0; MOST_WORDS_BYTES]) {
                Ok(read) => read > 0,
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            };
            is_open && now < *until
        });
    }
}

fn serve(stream: TcpStream, peer: SocketAddr, place: &Admitted, shared: &Shared) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    let event = match converse(stream, peer, place, shared) {
        Ok(Finished::Received(trial)) => HostEvent::Finished { peer, trial },
        Ok(Finished::Sent(trial)) => HostEvent::Sent { peer, trial },
        Err(Ended::Refused(reason)) => HostEvent::Refused { peer, reason },
        Err(Ended::Disputed(error)) => HostEvent::Disputed { peer, error },
        Err(Ended::Lost(error)) => HostEvent::Lost { peer, error },
    };
    // A receiver that no longer listens to events is shutting down.
    shared.events.send(event).ok();
}

enum Finished {
    Received(Option<Box<Trial>>),
    Sent(Box<Trial>),
}

/// How a conversation begins.
enum First {
    Offer(Offer),
    Request(Box<Request>),
}

enum Ended {
    Refused(String),
    Disputed(ClaimError),
    Lost(LineError),
}

impl From<LineError> for Ended {
    fn from(error: LineError) -> Self {
        Self::Lost(error)
    }
}

fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    place: &Admitted,
    shared: &Shared,
) -> Result<Finished, Ended> {
    let mut lines = Lines::over(stream, BEAT)?;
    lines.limit(MOST_WORDS_BYTES);
    let first = first_words(&mut lines, shared);
    let refuse =
        |lines: &mut Lines, reason: String| match lines.send(&Message::Refuse { reason: reason.clone() }) {
            Ok(()) => Ended::Refused(reason),
            Err(error) => error.into(),
        };
    let offer = match first {
        Err(Ended::Refused(reason)) => return Err(refuse(&mut lines, reason)),
        Ok(First::Request(request)) => {
            return match send_back(&mut lines, peer, &request, shared)? {
                Ok(trial) => Ok(Finished::Sent(trial)),
                Err(reason) => Err(refuse(&mut lines, reason)),
            };
        }
        Ok(First::Offer(offer)) => offer,
        Err(ended) => return Err(ended),
    };
    let longest = match shared.judge(&offer) {
        Ok(longest) => longest,
        Err(reason) => return Err(refuse(&mut lines, reason)),
    };
    let seat = match place.seat(offer.streams, offer.payload_bytes >= TAGGED_PAYLOAD_BYTES) {
        Ok(seat) => seat,
        Err(reason) => return Err(refuse(&mut lines, reason)),
    };
    let _leased = match Leased::by(offer.receiver.as_ref(), peer, &*shared.counts) {
        Ok(leased) => leased,
        Err(reason) => return Err(refuse(&mut lines, reason)),
    };
    let reflects = offer.reflect;
    let returning = reflects.then(|| Returning::to(peer.ip(), &*shared.counts)).transpose();
    let _returning = match returning {
        Ok(returning) => returning,
        Err(reason) => return Err(refuse(&mut lines, reason)),
    };
    let tags: Vec<u16> = seat.streams.iter().map(|stream| shared.counts.tag(*stream)).collect();
    let before = shared.counts.progress(&tags);
    let begun = Begun::now(&*shared.counts, &Joining { peer, tags: &tags, witness: offer.witness });
    let begin = (begun.number.unwrap_or_default(), &tags[..]);
    let sender = (peer.ip().to_canonical().to_string(), offer.kept.as_ref());
    let mut comparing = Comparing::over(&*shared.counts, begin, sender);
    let since_consent = Instant::now();
    // One tag per thread; short payloads share tag 0.
    let streams = tags.iter().copied().cycle().take(offer.streams.into()).collect();
    shared.events.send(HostEvent::Joined { peer, offer }).ok();
    let times = comparing.is_some();
    lines.send(&Message::Accept { streams, reflects, times })?;
    let since = |now: Progress| Progress {
        packets: now.packets.saturating_sub(before.packets),
        payload_bytes: now.payload_bytes.saturating_sub(before.payload_bytes),
        dropped: now.dropped.saturating_sub(before.dropped),
    };
    let progress = || since(shared.counts.progress(&tags));
    let sent = match until_done(&mut lines, shared, longest, (progress, comparing.as_mut())) {
        Err(error @ LineError::Overtime(_)) => {
            lines.send(&Message::Refuse { reason: error.to_string() })?;
            return Err(error.into());
        }
        sent => sent?,
    };
    let lasted = since_consent.elapsed();
    let arrived = await_arrivals(sent, LONGEST_DRAIN, || since(shared.counts.progress(&tags)));
    let clocks = comparing.as_ref().map(Comparing::close);
    let report = Report { clocks, ..begun.report(arrived.packets, seat.company()) };
    lines.send(&Message::Report(Box::new(report.clone())))?;
    lines.limit(MOST_LINE_BYTES);
    let Some(claimed) = summary(&mut lines, shared) else { return Ok(Finished::Received(None)) };
    let trial = checked(*claimed, &Known { sent, report: &report, lasted, reflects });
    trial.map(|trial| Finished::Received(Some(Box::new(trial)))).map_err(Ended::Disputed)
}

/// The start of a trial; it ends with a report or abandoned.
struct Begun<'c> {
    counts: &'c dyn Counts,
    number: Option<u64>,
}

impl<'c> Begun<'c> {
    fn now(counts: &'c dyn Counts, joining: &Joining<'_>) -> Self {
        Self { number: Some(counts.begin(joining)), counts }
    }

    fn report(mut self, delivered: u64, senders: u32) -> Report {
        let number = self.number.take().expect("taken once, here or in drop");
        self.counts.report(number, delivered, senders)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.counts.abandon(number);
        }
    }
}

/// The offer; with a key, after the sender's proof that it has the secret.
fn first_words(lines: &mut Lines, shared: &Shared) -> Result<First, Ended> {
    let refused = |reason: &str| Err(Ended::Refused(reason.into()));
    let first = hear(lines, shared, FIRST_BEATS);
    let first = match (first, &shared.terms.key) {
        _ if shared.stop.load(Relaxed) => return Err(LineError::Stopped.into()),
        (Ok(Message::Handshake { noise }), Some(key)) => {
            let Some((noise, seal)) = open(key, &noise) else { return refused("it has another key") };
            lines.send(&Message::Handshake { noise })?;
            lines.seal(seal);
            hear(lines, shared, FIRST_BEATS)
        }
        (Ok(Message::OtherVersion { protocol, version }), _) => {
            return Err(Ended::Refused(other_protocol(protocol, &version)));
        }
        (Ok(Message::Handshake { .. }), None) => return refused("it has no key: start it with --key FILE"),
        (Ok(Message::Offer(_) | Message::Request(_)), Some(_)) => {
            return refused("it serves only senders with its key (--key FILE)");
        }
        (first, _) => first,
    };
    match first {
        Ok(Message::Offer(offer)) => Ok(First::Offer(offer)),
        Ok(Message::Request(request)) => Ok(First::Request(request)),
        Ok(Message::OtherVersion { protocol, version }) => {
            Err(Ended::Refused(other_protocol(protocol, &version)))
        }
        Ok(_) => Err(LineError::OutOfTurn.into()),
        Err(error) => Err(error.into()),
    }
}

/// Sends to the requesting address, which must consent as any receiver; reports from time to time that this continues.
fn send_back(
    lines: &mut Lines,
    peer: SocketAddr,
    request: &Request,
    shared: &Shared,
) -> Result<Result<Box<Trial>, String>, Ended> {
    let to = SocketAddr::new(peer.ip().to_canonical(), request.port);
    let is_over = AtomicBool::new(false);
    let go_on = || !is_over.load(Relaxed) && !shared.stop.load(Relaxed);
    let sent = thread::scope(|scope| {
        let sending = scope.spawn(|| shared.counts.send_back(to, &request.plan, &go_on));
        let mut told = Ok(());
        while !sending.is_finished() && told.is_ok() {
            told = match lines.receive() {
                Err(LineError::Silent(_)) => lines.send(&Message::Progress(Progress::default())),
                Ok(_) => Err(LineError::OutOfTurn),
                Err(error) => Err(error),
            };
        }
        is_over.store(told.is_err(), Relaxed);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        told.map(|()| sent)
    })?;
    if let Ok(trial) = &sent {
        lines.send(&Message::Done { sent: trial.sent })?;
    }
    Ok(sent)
}

fn other_protocol(theirs: u32, version: &str) -> String {
    let ours = env!("CARGO_PKG_VERSION");
    format!(
        "this receiver is linerate {ours} and speaks protocol {PROTOCOL}, the sender {version} and speaks {theirs}: use the same linerate on both ends"
    )
}

/// The sender's result of the trial; the sender may first wait for returned packets.
fn summary(lines: &mut Lines, shared: &Shared) -> Option<Box<Trial>> {
    match hear(lines, shared, MOST_SILENT_BEATS) {
        Ok(Message::Summary(trial)) => Some(trial),
        // A sender that sends no summary has finished, too.
        _ => None,
    }
}

/// The next message; fails after this many silent beats.
fn hear(lines: &mut Lines, shared: &Shared, mut beats: u32) -> Result<Message, LineError> {
    loop {
        match lines.receive() {
            Err(LineError::Silent(_)) if beats > 0 && !shared.stop.load(Relaxed) => beats -= 1,
            heard => return heard,
        }
    }
}

/// Reports progress to the sender until it has sent everything; returns how much that was. Sending may take at most
/// `longest`.
fn until_done(
    lines: &mut Lines,
    shared: &Shared,
    longest: Option<Duration>,
    (progress, mut comparing): (impl Fn() -> Progress, Option<&mut Comparing<'_>>),
) -> Result<u64, LineError> {
    let began = Instant::now();
    let mut silent_beats = 0;
    let mut told = Instant::now();
    loop {
        match lines.receive() {
            Ok(Message::Done { sent }) => return Ok(sent),
            Ok(Message::Progress(_)) => silent_beats = 0,
            Ok(Message::ClockQuestion(question)) => {
                let comparing = comparing.as_mut().ok_or(LineError::OutOfTurn)?;
                lines.send(&comparing.answer(&question))?;
            }
            Ok(_) => return Err(LineError::OutOfTurn),
            Err(LineError::Silent(_)) if silent_beats < MOST_SILENT_BEATS => silent_beats += 1,
            Err(error) => return Err(error),
        }
        if shared.stop.load(Relaxed) {
            return Err(LineError::Stopped);
        }
        if let Some(longest) = longest
            && began.elapsed() > longest.saturating_add(shared.terms.overtime)
        {
            return Err(LineError::Overtime(longest));
        }
        if told.elapsed() >= BEAT {
            lines.send(&Message::Progress(progress()))?;
            told = Instant::now();
        }
    }
}

/// Keeps the receiver's engine until dropped.
struct Leased<'c>(&'c dyn Counts);

impl<'c> Leased<'c> {
    fn by(wanted: Option<&Wanted>, peer: SocketAddr, counts: &'c dyn Counts) -> Result<Self, String> {
        counts.receive_by(wanted, peer)?;
        Ok(Self(counts))
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Returns packets to the sender until dropped.
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

impl Shared {
    /// Checks an offer; returns how long its sending may take, if known.
    fn judge(&self, offer: &Offer) -> Result<Option<Duration>, String> {
        if offer.streams == 0 || offer.streams > MOST_STREAMS {
            return Err(format!("{} sending threads: must be 1 to {MOST_STREAMS}", offer.streams));
        }
        if offer.profile && !self.counts.profiles() {
            return Err("it does not profile its CPUs: start it with --profile".into());
        }
        if let Some(pps) = offer.rate_pps.filter(|pps| pps.is_nan() || *pps <= 0.0) {
            return Err(format!("impossible rate of {pps} packets per second"));
        }
        if let Some(most) = self.terms.most_pps
            && offer.rate_pps.is_none_or(|pps| pps > most)
        {
            return Err(format!("this receiver allows at most {most} packets per second: lower --rate"));
        }
        let seconds = match (offer.duration_s, offer.count) {
            (Some(seconds), _) => seconds,
            (None, Some(count)) => {
                count as f64 / offer.rate_pps.map_or(SLOWEST_PPS, |pps| pps.min(SLOWEST_PPS))
            }
            (None, None) => return Err("the offer has neither a duration nor a number of packets".into()),
        };
        if seconds.is_nan() || seconds < 0.0 {
            return Err(format!("impossible duration of {seconds} seconds"));
        }
        // A `Duration` cannot hold more: sending never ends.
        Ok(Duration::try_from_secs_f64(seconds).ok())
    }
}
