//! The sender's end: requests consent, follows progress, and fetches the receiver's report.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, mpsc},
    thread,
    time::Duration,
};

use measure::{ClockStage, Trial};
use thiserror::Error;

use crate::{
    clock::Asking,
    host_clock::HostClock,
    lines::{LineError, Lines, Writer},
    message::{ClockQuestion, Message, Offer, Progress, Report, Request},
    secure::{Key, Knock},
};

/// A receiver that is silent for longer counts as gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// Additional time for the answer to an offer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(15);
/// Time for a report, which waits for packets in flight.
const REPORT_PATIENCE: Duration = Duration::from_secs(15);
/// Time for an answer about the clock.
const CLOCK_PATIENCE: Duration = Duration::from_millis(500);
/// Time to read the receiver's last message after a write failed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A session with a consenting receiver.
pub struct Guest {
    peer: SocketAddr,
    writer: Writer,
    heard: Arc<Ears>,
    report: mpsc::Receiver<Report>,
    /// Present if the receiver times packets.
    clock: Option<Arc<dyn HostClock>>,
    /// When the last question left, until its answer arrives.
    asked_ns: Option<u64>,
}

/// What the listening thread received.
#[derive(Default)]
struct Ears {
    heard: Mutex<Heard>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    progress: Progress,
    gone: Option<Arc<LineError>>,
    /// The last answered question about the clock: when it left, and when its answer arrived.
    answer: Option<(u64, u64)>,
}

/// A receiver's consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Stream tags, one per sending thread.
    pub streams: Vec<u16>,
    /// Where to send.
    pub data: SocketAddr,
}

/// Why there is no session, or why it ended.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No receiver accepts the control connection.
    #[error("no receiver answers at {peer}")]
    Unreachable {
        /// The receiver's address.
        peer: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The receiver refused.
    #[error("the receiver at {peer} refused: {reason}")]
    Refused {
        /// The receiver's address.
        peer: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// The receiver consented, but returns no packets.
    #[error("the receiver at {peer} sends no packets back")]
    NoReflector {
        /// The receiver's address.
        peer: SocketAddr,
    },
    /// The receiver has another secret, or none.
    #[error("the receiver at {peer} does not have this key")]
    OtherKey {
        /// The receiver's address.
        peer: SocketAddr,
    },
    /// The connection broke.
    #[error("lost the receiver at {peer}")]
    Lost {
        /// The receiver's address.
        peer: SocketAddr,
        /// The cause.
        source: LineError,
    },
    /// Not a linerate receiver, or another version.
    #[error("{peer} is not a linerate receiver")]
    NotAReceiver {
        /// The address.
        peer: SocketAddr,
    },
    /// The receiver ended the session during the trial.
    #[error("the receiver at {peer} went away")]
    Gone {
        /// The receiver's address.
        peer: SocketAddr,
        /// The cause.
        source: Arc<LineError>,
    },
}

impl Guest {
    /// Requests consent to `offer` from the receiver at `peer`.
    ///
    /// # Errors
    /// Every [`SessionError`] but [`SessionError::Gone`].
    pub fn join(peer: SocketAddr, offer: &Offer) -> Result<(Self, Accepted), SessionError> {
        Self::join_with(peer, offer, None)
    }

    /// Like [`Guest::join_with`], for packets with timestamps of this clock: a receiver that times them compares it with
    /// its own.
    ///
    /// # Errors
    /// As [`Guest::join_with`].
    pub fn join_by(
        peer: SocketAddr,
        offer: &Offer,
        key: Option<&Key>,
        clock: &Arc<dyn HostClock>,
    ) -> Result<(Self, Accepted), SessionError> {
        let (mut guest, accepted) = Self::joined(peer, offer, (key, Some(clock)))?;
        guest.compare_clocks(ClockStage::Before)?;
        Ok((guest, accepted))
    }

    /// Like [`Guest::join`], with a secret shared with the receiver: both prove it before anything else, and the
    /// connection is encrypted.
    ///
    /// # Errors
    /// As [`Guest::join`], and [`SessionError::OtherKey`].
    pub fn join_with(
        peer: SocketAddr,
        offer: &Offer,
        key: Option<&Key>,
    ) -> Result<(Self, Accepted), SessionError> {
        Self::joined(peer, offer, (key, None))
    }

    fn joined(
        peer: SocketAddr,
        offer: &Offer,
        (key, clock): (Option<&Key>, Option<&Arc<dyn HostClock>>),
    ) -> Result<(Self, Accepted), SessionError> {
        let unreachable = |source| SessionError::Unreachable { peer, source };
        let lost = |source| SessionError::Lost { peer, source };
        let stream = TcpStream::connect_timeout(&peer, PATIENCE).map_err(unreachable)?;
        let mut lines = Lines::over(stream, PATIENCE).map_err(lost)?;
        if let Some(key) = key {
            prove(&mut lines, key, peer)?;
        }
        lines.send(&Message::Offer(offer.clone())).map_err(lost)?;
        // A receiver may first change its engine and load programs, which takes seconds on a busy machine.
        let mut answer = lines.receive();
        let mut patience = ANSWER_PATIENCE;
        while matches!(answer, Err(LineError::Silent(_))) && patience > Duration::ZERO {
            patience = patience.saturating_sub(PATIENCE);
            answer = lines.receive();
        }
        let is_timed;
        let accepted = match answer {
            Ok(Message::Accept { reflects: false, .. }) if offer.reflect => {
                return Err(SessionError::NoReflector { peer });
            }
            // Packets go to the peer of the handshake: no receiver can name another port or host.
            Ok(Message::Accept { streams, times, .. }) if streams.len() == usize::from(offer.streams) => {
                is_timed = times;
                Accepted { streams, data: peer }
            }
            Ok(Message::Refuse { reason }) => return Err(SessionError::Refused { peer, reason }),
            Ok(_) | Err(LineError::Malformed { .. } | LineError::TooLong(_)) => {
                return Err(SessionError::NotAReceiver { peer });
            }
            Err(source) => return Err(lost(source)),
        };
        let writer = lines.writer().map_err(lost)?;
        let heard = Arc::<Ears>::default();
        let clock = clock.filter(|_| is_timed).cloned();
        let (reports, report) = mpsc::sync_channel(1);
        let listener = heard.clone();
        thread::Builder::new()
            .name("session".into())
            .spawn({
                let clock = clock.clone();
                move || listen(lines, (&listener, clock.as_deref()), &reports)
            })
            .map_err(unreachable)?;
        Ok((Self { peer, writer, heard, report, clock, asked_ns: None }, accepted))
    }

    /// This end's address as the receiver sees it, to which it returns packets.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn local_ip(&self) -> io::Result<IpAddr> {
        self.writer.stream().local_addr().map(|address| address.ip().to_canonical())
    }

    /// The receiver's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The packets that the receiver last reported.
    pub fn progress(&self) -> Progress {
        self.heard().progress
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.heard.lock().expect("the listener does not panic")
    }

    /// Sends a clock question during the trial, if the receiver times packets; does not wait for the answer.
    ///
    /// # Errors
    /// [`SessionError::Gone`] if the receiver has gone.
    pub fn look_at_clocks(&mut self) -> Result<(), SessionError> {
        self.ask_clock(ClockStage::During)
    }

    /// The next question, with the arrival time of the last answer.
    fn ask_clock(&mut self, stage: ClockStage) -> Result<(), SessionError> {
        let Some(clock) = self.clock.clone() else { return Ok(()) };
        let answer = self.heard().answer.take();
        let returned_ns = answer.filter(|(asked_ns, _)| Some(*asked_ns) == self.asked_ns);
        let wall_ahead_ns = clock.wall_ahead_ns();
        let asked_ns = clock.now_ns();
        self.asked_ns = Some(asked_ns);
        let returned_ns = returned_ns.map(|(_, returned_ns)| returned_ns);
        let question = ClockQuestion { stage, asked_ns, wall_ahead_ns, returned_ns };
        self.writer.send(&Message::ClockQuestion(question)).map_err(|error| self.reason(error))
    }

    /// Exchanges questions and answers; the next stage's first question carries the last answer's arrival time.
    fn compare_clocks(&mut self, stage: ClockStage) -> Result<(), SessionError> {
        let mut asking = Asking::begin();
        while self.clock.is_some() && asking.goes_on() {
            self.ask_clock(stage)?;
            if !self.await_answer() {
                return self.check();
            }
        }
        if stage == ClockStage::Before {
            self.ask_clock(ClockStage::During)?
        } else {
            self.ask_clock(stage)?
        }
        // The receiver then knows its result before the first packet arrives.
        self.await_answer();
        Ok(())
    }

    fn await_answer(&self) -> bool {
        let awaited = |heard: &mut Heard| {
            heard.gone.is_none() && heard.answer.map(|(asked_ns, _)| asked_ns) != self.asked_ns
        };
        if self.clock.is_none() {
            return false;
        }
        let waited = self.heard.answered.wait_timeout_while(self.heard(), CLOCK_PATIENCE, awaited);
        let (heard, timeout) = waited.expect("the listener does not panic");
        !timeout.timed_out() && heard.gone.is_none()
    }

    /// Reports to the receiver how much was sent; it expects a message every few seconds.
    ///
    /// # Errors
    /// [`SessionError::Gone`] if the receiver has gone.
    pub fn tell(&mut self, progress: Progress) -> Result<(), SessionError> {
        self.check()?;
        self.writer.send(&Message::Progress(progress)).map_err(|error| self.reason(error))
    }

    /// Checks that the receiver is still there.
    ///
    /// # Errors
    /// [`SessionError::Gone`] if it is not.
    pub fn check(&self) -> Result<(), SessionError> {
        match &self.heard().gone {
            Some(source) => Err(SessionError::Gone { peer: self.peer, source: source.clone() }),
            None => Ok(()),
        }
    }

    /// Reports that everything is sent, and waits for the receiver's report.
    ///
    /// # Errors
    /// [`SessionError::Gone`] if the receiver goes away first.
    pub fn finish(&mut self, sent: u64) -> Result<Report, SessionError> {
        self.compare_clocks(ClockStage::After)?;
        self.writer.send(&Message::Done { sent }).map_err(|error| self.reason(error))?;
        self.report.recv_timeout(REPORT_PATIENCE).map_err(|_| match self.check() {
            Err(gone) => gone,
            Ok(()) => self.gone(LineError::Silent(REPORT_PATIENCE)),
        })
    }

    /// Sends the receiver the finished trial to show. A receiver that has gone only misses it.
    pub fn summarise(mut self, trial: &Trial) {
        self.writer.send(&Message::Summary(Box::new(trial.clone()))).ok();
    }

    /// Why writing failed: the receiver's last message before it closed the connection, or else `error`.
    fn reason(&self, error: LineError) -> SessionError {
        // Returns at once when the listener has read to the end.
        self.report.recv_timeout(LAST_WORDS).ok();
        self.check().err().unwrap_or_else(|| self.gone(error))
    }

    fn gone(&self, error: LineError) -> SessionError {
        SessionError::Gone { peer: self.peer, source: Arc::new(error) }
    }
}

/// Requests that the host at `peer` sends to a receiver at this end's address, waits until it has, and returns how much it
/// sent. Calls `go_on` from time to time.
///
/// # Errors
/// Every [`SessionError`] that [`Guest::join_with`] has.
pub fn request(
    peer: SocketAddr,
    request: &Request,
    key: Option<&Key>,
    go_on: impl Fn() -> bool,
) -> Result<u64, SessionError> {
    let unreachable = |source| SessionError::Unreachable { peer, source };
    let lost = |source| SessionError::Lost { peer, source };
    let stream = TcpStream::connect_timeout(&peer, PATIENCE).map_err(unreachable)?;
    let mut lines = Lines::over(stream, PATIENCE).map_err(lost)?;
    if let Some(key) = key {
        prove(&mut lines, key, peer)?;
    }
    lines.send(&Message::Request(Box::new(request.clone()))).map_err(lost)?;
    loop {
        match lines.receive() {
            Ok(Message::Progress(_)) if go_on() => {}
            Ok(Message::Progress(_)) => return Err(lost(LineError::Stopped)),
            Ok(Message::Done { sent }) => return Ok(sent),
            Ok(Message::Refuse { reason }) => return Err(SessionError::Refused { peer, reason }),
            Ok(_) | Err(LineError::Malformed { .. } | LineError::TooLong(_)) => {
                return Err(SessionError::NotAReceiver { peer });
            }
            Err(source) => return Err(lost(source)),
        }
    }
}

/// Proves to the receiver that this end has the secret, and checks the receiver's proof.
fn prove(lines: &mut Lines, key: &Key, peer: SocketAddr) -> Result<(), SessionError> {
    let lost = |source| SessionError::Lost { peer, source };
    let other = || SessionError::OtherKey { peer };
    let (noise, knock) = Knock::with(key).ok_or_else(other)?;
    lines.send(&Message::Handshake { noise }).map_err(lost)?;
    match lines.receive() {
        Ok(Message::Handshake { noise }) => {
            lines.seal(knock.opened(&noise).ok_or_else(other)?);
            Ok(())
        }
        Ok(Message::Refuse { reason }) => Err(SessionError::Refused { peer, reason }),
        Ok(_) | Err(LineError::Malformed { .. } | LineError::TooLong(_)) => {
            Err(SessionError::NotAReceiver { peer })
        }
        Err(source) => Err(lost(source)),
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Only the writing half: the other end can still read what was written, and the listener its last message.
        self.writer.stream().shutdown(std::net::Shutdown::Write).ok();
    }
}

fn listen(
    mut lines: Lines,
    (ears, clock): (&Ears, Option<&dyn HostClock>),
    reports: &mpsc::SyncSender<Report>,
) {
    let heard = || ears.heard.lock().expect("no holder panics");
    let how = loop {
        match lines.receive() {
            Ok(Message::Progress(progress)) => {
                heard().progress = progress;
            }
            Ok(Message::ClockAnswer { asked_ns, .. }) => {
                let Some(clock) = clock else { break LineError::OutOfTurn };
                let returned_ns = clock.now_ns();
                heard().answer = Some((asked_ns, returned_ns));
                ears.answered.notify_all();
            }
            Ok(Message::Report(report)) => {
                // Without a waiting thread the listener still has to notice the end.
                reports.try_send(*report).ok();
            }
            Ok(Message::Refuse { reason }) => break LineError::Ended { reason },
            Ok(_) => break LineError::OutOfTurn,
            Err(error) => break error,
        }
    };
    heard().gone = Some(Arc::new(how));
    ears.answered.notify_all();
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("peer", &self.peer).finish_non_exhaustive()
    }
}
