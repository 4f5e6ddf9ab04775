//! JSON objects, one per line, over a connection that nobody trusts.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::{
    deadline::Within,
    foreign::harmless,
    message::Message,
    secure::{Seal, longest_sealed},
};

/// The longest line to read: a report or a summary.
pub const MOST_LINE_BYTES: usize = 64 * 1024;
/// Time limit for writing a message.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);

/// Messages over a TCP connection.
pub struct Lines {
    reader: BufReader<TcpStream>,
    writer: Writer,
    unseal: Option<Seal>,
    line: Vec<u8>,
    longest: usize,
    patience: Duration,
}

/// The writing half of a connection. Only one may be in use: sealed lines are numbered.
pub(crate) struct Writer {
    stream: TcpStream,
    seal: Option<Seal>,
}

/// Why a message could not be read or written.
#[derive(Debug, Error)]
pub enum LineError {
    /// The peer closed the connection.
    #[error("the peer closed the control connection")]
    Closed,
    /// Nothing arrived in time.
    #[error("the peer was silent for {0:?}")]
    Silent(Duration),
    /// A line without an end.
    #[error("the peer sent a line of more than {0} bytes")]
    TooLong(usize),
    /// A line that is not a message.
    #[error("the peer sent a line that is not a message of this protocol")]
    Malformed {
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A line that was not sealed with the connection's keys.
    #[error("the peer sent a line that is not sealed with this connection's keys")]
    Forged,
    /// A message that is not expected here.
    #[error("the peer sent an unexpected message")]
    OutOfTurn,
    /// The other end's user ended it.
    #[error("the receiver was stopped")]
    Stopped,
    /// A sender that does not end at the offered time.
    #[error("it offered to send for {0:?} but continued")]
    Overtime(Duration),
    /// The receiver ended it.
    #[error("the receiver ended the session: {reason}")]
    Ended {
        /// Its reason.
        reason: String,
    },
    /// The connection broke.
    #[error("the control connection broke")]
    Broken {
        /// The kernel's reason.
        source: io::Error,
    },
}

impl Lines {
    /// Messages over `stream`; the peer may be silent for at most `patience`.
    ///
    /// # Errors
    /// [`LineError::Broken`] if timeouts cannot be set.
    pub fn over(stream: TcpStream, patience: Duration) -> Result<Self, LineError> {
        let broken = |source| LineError::Broken { source };
        stream.set_read_timeout(Some(patience)).map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        let writer = Writer { stream: stream.try_clone().map_err(broken)?, seal: None };
        let reader = BufReader::new(stream);
        Ok(Self { reader, writer, unseal: None, line: Vec::new(), longest: MOST_LINE_BYTES, patience })
    }

    /// Seals every line from now on, and accepts only sealed ones.
    pub(crate) fn seal(&mut self, seal: Seal) {
        self.writer.seal = Some(seal.clone());
        self.unseal = Some(seal);
    }

    /// Limits the length of a line from now on.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.longest = bytes;
    }

    /// The writing half, for another thread; the reading half then writes no more.
    ///
    /// # Errors
    /// [`LineError::Broken`] if no descriptor is free.
    pub(crate) fn writer(&self) -> Result<Writer, LineError> {
        let stream = self.writer.stream.try_clone().map_err(|source| LineError::Broken { source })?;
        Ok(Writer { stream, seal: self.writer.seal.clone() })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`LineError::Broken`].
    pub fn send(&mut self, message: &Message) -> Result<(), LineError> {
        self.writer.send(message)
    }

    /// Waits for a whole line: a peer that sends it byte by byte gets no more time. After a timeout the incomplete line is
    /// kept for the next call.
    ///
    /// # Errors
    /// Every [`LineError`]; all except [`LineError::Silent`] end the conversation.
    pub fn receive(&mut self) -> Result<Message, LineError> {
        let since = Instant::now();
        loop {
            if since.elapsed() > self.patience {
                return Err(LineError::Silent(self.patience));
            }
            let buffered = match self.reader.fill_buf() {
                Ok([]) => return Err(LineError::Closed),
                Ok(buffered) => buffered,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(LineError::Silent(self.patience));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(LineError::Closed);
                }
                Err(source) => return Err(LineError::Broken { source }),
            };
            let end = buffered.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(buffered.len(), |at| at + 1);
            let longest = if self.unseal.is_some() { longest_sealed(self.longest) } else { self.longest };
            if self.line.len() + taken > longest {
                return Err(LineError::TooLong(longest));
            }
            self.line.extend_from_slice(&buffered[..taken]);
            self.reader.consume(taken);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return match &mut self.unseal {
                    Some(seal) => Message::parse(&seal.unseal(&line).ok_or(LineError::Forged)?),
                    None => Message::parse(&line),
                };
            }
        }
    }
}

impl Writer {
    /// For messages before a connection has keys.
    pub(crate) fn over(stream: TcpStream) -> Self {
        Self { stream, seal: None }
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes one message as a line.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), LineError> {
        let mut line = serde_json::to_vec(message).map_err(|source| LineError::Malformed { source })?;
        if let Some(seal) = &mut self.seal {
            line = seal.seal(&line).ok_or(LineError::Forged)?;
        }
        line.push(b'\n');
        let written = Within::of(&self.stream, WRITE_PATIENCE).write_all(&line);
        written.map_err(|source| match source.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LineError::Closed,
            _ => LineError::Broken { source },
        })
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Message {
    /// Parses one line. Neither its texts nor the error's can control a terminal.
    ///
    /// # Errors
    /// [`LineError::Malformed`].
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let malformed = |source| LineError::Malformed { source };
        let value = harmless(serde_json::from_slice(line).map_err(malformed)?);
        match Self::of_other_version(&value) {
            Some(other) => Ok(other),
            None => serde_json::from_value(value).map_err(malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, Lines) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        (peer, Lines::over(ours, Duration::from_millis(200)).unwrap())
    }

    #[test]
    fn a_message_in_pieces_is_read_whole() {
        let (mut peer, mut lines) = pair();
        peer.write_all(br#"{"type":"done","#).unwrap();
        assert!(matches!(lines.receive(), Err(LineError::Silent(_))));
        peer.write_all(b"\"sent\":3}\n{\"type\":\"done\",\"sent\":4}\n").unwrap();
        assert_eq!(lines.receive().unwrap(), Message::Done { sent: 3 });
        assert_eq!(lines.receive().unwrap(), Message::Done { sent: 4 });
    }

    #[test]
    fn a_line_without_end_costs_the_connection_not_the_memory() {
        let (mut peer, mut lines) = pair();
        let flood = std::thread::spawn(move || while peer.write_all(&[b'x'; 4096]).is_ok() {});
        assert!(matches!(lines.receive(), Err(LineError::TooLong(MOST_LINE_BYTES))));
        assert!(lines.line.capacity() <= 2 * MOST_LINE_BYTES);
        drop(lines);
        flood.join().unwrap();
    }

    #[test]
    fn rubbish_is_refused_with_the_reason() {
        for rubbish in
            ["\n", "{}\n", "[1]\n", "GET / HTTP/1.1\n", "{\"type\":\"done\",\"sent\":-1}\n", "\u{0}\n"]
        {
            let (mut peer, mut lines) = pair();
            peer.write_all(rubbish.as_bytes()).unwrap();
            let error = lines.receive().unwrap_err();
            assert!(error.to_string().contains("not a message of this protocol"), "{rubbish:?}: {error}");
        }
    }

    #[test]
    fn a_closed_connection_is_reported_as_closed() {
        let (peer, mut lines) = pair();
        drop(peer);
        assert!(matches!(lines.receive(), Err(LineError::Closed)));
    }
}
