//! TCP streams as a path: equal messages, copied, from a file, or without copying.

mod file;

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sys::tcp::{self, SplicePipe, StreamOptions, Waiter};

pub use file::{FileCache, FileChoice, MessageFile};

use crate::{Sent, error::PortError};

/// How messages are written to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpSend {
    /// `write` from one buffer.
    #[default]
    Copy,
    /// `sendfile` from a file.
    SendFile,
    /// `splice` from that file into a pipe, and from the pipe to the stream.
    Splice,
    /// `read` from that file, then `write`.
    ReadWrite,
    /// `send` with `MSG_ZEROCOPY` from one buffer.
    ZeroCopy,
}

/// Settings of a sending stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpTxOptions {
    /// Where it leads.
    pub peer: SocketAddr,
    /// Its local address; port 0 chooses any.
    pub local: SocketAddr,
    /// How messages are passed to the kernel.
    pub send: TcpSend,
    /// The file that messages come from, unless they are copied or sent from one buffer.
    pub source: FileChoice,
    /// Bytes a message.
    pub message_bytes: usize,
    /// `SO_SNDBUF` in bytes, `None` for the system's own tuning.
    pub send_buffer_bytes: Option<usize>,
}

/// A stream that sends messages of one size.
pub struct TcpTx {
    stream: TcpStream,
    options: TcpTxOptions,
    buffer: Vec<u8>,
    file: Option<MessageFile>,
    pipe: Option<SplicePipe>,
    /// Unsent bytes of the current message.
    left: usize,
    /// Unfinished zero-copy sends.
    unfinished: u64,
}

/// A call returns after this long without progress, so that a stop request is noticed.
const PATIENCE: Duration = Duration::from_millis(50);
/// The most zero-copy sends in flight.
const MOST_UNFINISHED: u64 = 256;

impl TcpTx {
    /// Connects.
    ///
    /// # Errors
    /// [`PortError::Stream`].
    pub fn open(options: &TcpTxOptions) -> Result<Self, PortError> {
        let refused = |tried| move |source| PortError::Stream { tried, address: options.peer, source };
        let socket = StreamOptions {
            send_buffer_bytes: options.send_buffer_bytes,
            zero_copy: options.send == TcpSend::ZeroCopy,
            ..StreamOptions::default()
        };
        let stream =
            tcp::connect(options.local, options.peer, &socket, PATIENCE).map_err(refused("connect to"))?;
        let buffer = vec![0x5a; options.message_bytes];
        let unopened = refused("open the file to send to");
        let (file, pipe) = match options.send {
            TcpSend::Copy | TcpSend::ZeroCopy => (None, None),
            send => {
                let file = MessageFile::open(&options.source, options.message_bytes);
                let pipe = (send == TcpSend::Splice).then(SplicePipe::new).transpose();
                let both = file.and_then(|file| Ok((Some(file), pipe?)));
                both.map_err(unopened)?
            }
        };
        Ok(Self { stream, options: options.clone(), buffer, file, pipe, left: 0, unfinished: 0 })
    }

    /// Sends the rest of a message and then up to `messages` new ones; see [`Sent`].
    ///
    /// # Errors
    /// [`PortError::Stream`].
    pub fn send(&mut self, messages: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        loop {
            if self.left == 0 {
                if sent.filled == messages {
                    return Ok(sent);
                }
                sent.filled += 1;
                self.left = self.options.message_bytes;
            }
            match self.step() {
                Ok(0) => return Err(self.broken(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => {
                    self.left -= bytes;
                    sent.taken += usize::from(self.left == 0);
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    sent.turned_away += 1;
                    return Ok(sent);
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// One call for the rest of the message.
    fn step(&mut self) -> io::Result<usize> {
        let done = self.options.message_bytes - self.left;
        match (self.options.send, &mut self.file) {
            (TcpSend::SendFile, Some(file)) => {
                let bytes = tcp::send_file(&self.stream, file.file(), file.offset(), self.left)?;
                file.advance(bytes)?;
                Ok(bytes)
            }
            (TcpSend::Splice, Some(file)) => {
                let pipe = self.pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
                if pipe.inside() == 0 {
                    let bytes = pipe.fill(file.file(), file.offset(), self.left)?;
                    file.advance(bytes)?;
                }
                pipe.empty(&self.stream)
            }
            (TcpSend::ReadWrite, Some(file)) => {
                if done == 0 {
                    file.read()?;
                }
                self.stream.write(&file.message()[done..])
            }
            (TcpSend::ZeroCopy, _) => {
                self.unfinished = self.unfinished.saturating_sub(tcp::completions(&self.stream)?.done);
                if self.unfinished >= MOST_UNFINISHED {
                    std::thread::yield_now();
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let bytes = tcp::send_zero_copy(&self.stream, &self.buffer[done..]).map_err(|error| {
                    // Too much memory is pinned for sends in flight: treated like a full socket.
                    let is_full = error.raw_os_error() == Some(libc::ENOBUFS);
                    if is_full { io::ErrorKind::WouldBlock.into() } else { error }
                })?;
                self.unfinished += 1;
                Ok(bytes)
            }
            _ => self.stream.write(&self.buffer[done..]),
        }
    }

    fn broken(&self, source: io::Error) -> PortError {
        PortError::Stream { tried: "send to", address: self.options.peer, source }
    }
}

/// Settings of a receiver of streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpRxOptions {
    /// The local address.
    pub local: SocketAddr,
    /// Take bytes out of the stream without copying them (`MSG_TRUNC`).
    pub truncate: bool,
    /// Bytes per message, for counting messages.
    pub message_bytes: usize,
    /// `SO_RCVBUF` in bytes, `None` for the system's own tuning.
    pub receive_buffer_bytes: Option<usize>,
}

/// Accepts streams and counts their data.
pub struct TcpRx {
    listener: TcpListener,
    options: TcpRxOptions,
    streams: Vec<Incoming>,
    buffer: Vec<u8>,
    waiter: Waiter,
    /// Totals of ended streams.
    ended_messages: u64,
    received_bytes: u64,
}

struct Incoming {
    stream: TcpStream,
    bytes: u64,
}

/// The most bytes per receive call.
const RECEIVE_BYTES: usize = 256 << 10;

impl TcpRx {
    /// Listens.
    ///
    /// # Errors
    /// [`PortError::Stream`].
    pub fn open(options: &TcpRxOptions) -> Result<Self, PortError> {
        let socket =
            StreamOptions { receive_buffer_bytes: options.receive_buffer_bytes, ..StreamOptions::default() };
        let refused = |source| PortError::Stream { tried: "listen on", address: options.local, source };
        let listener = tcp::listen(options.local, &socket).map_err(refused)?;
        Ok(Self::over(listener, options.clone()))
    }

    /// Another receiver of the same listener: each takes the streams that it accepts first.
    ///
    /// # Errors
    /// [`PortError::Stream`].
    pub fn share(&self) -> Result<Self, PortError> {
        let listener = self.listener.try_clone().map_err(|source| self.broken(source))?;
        Ok(Self::over(listener, self.options.clone()))
    }

    fn over(listener: TcpListener, options: TcpRxOptions) -> Self {
        let buffer = if options.truncate { Vec::new() } else { vec![0; RECEIVE_BYTES] };
        Self {
            listener,
            options,
            streams: Vec::new(),
            buffer,
            waiter: Waiter::default(),
            ended_messages: 0,
            received_bytes: 0,
        }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// [`PortError::Stream`].
    pub fn local_address(&self) -> Result<SocketAddr, PortError> {
        self.listener.local_addr().map_err(|source| self.broken(source))
    }

    /// Accepts pending connections, and reads once from every stream; returns the bytes. Without data, waits no longer
    /// than `at_most`.
    ///
    /// # Errors
    /// [`PortError::Stream`].
    pub fn receive(&mut self, at_most: Duration) -> Result<u64, PortError> {
        while let Some(stream) = self.accept()? {
            self.streams.push(Incoming { stream, bytes: 0 });
        }
        let mut bytes = 0;
        let mut at = 0;
        while at < self.streams.len() {
            match read(&mut self.streams[at].stream, &mut self.buffer, self.options.truncate) {
                // The peer closed it and everything was read.
                Ok(0) => self.end(at),
                Ok(read) => {
                    bytes += read as u64;
                    self.streams[at].bytes += read as u64;
                    at += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => at += 1,
                // A peer that is killed resets its streams; their data counts.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.end(at),
                Err(error) => return Err(self.broken(error)),
            }
        }
        self.received_bytes += bytes;
        if bytes == 0 && !at_most.is_zero() {
            let streams = self.streams.iter().map(|incoming| incoming.stream.as_fd());
            let sockets = std::iter::once(self.listener.as_fd()).chain(streams);
            let waited = self.waiter.wait_readable(sockets, at_most);
            waited.map_err(|source| self.broken(source))?;
        }
        Ok(bytes)
    }

    /// Whole messages so far, counted per stream.
    pub fn received_messages(&self) -> u64 {
        let messages = |bytes: u64| bytes / self.options.message_bytes.max(1) as u64;
        self.ended_messages + self.streams.iter().map(|incoming| messages(incoming.bytes)).sum::<u64>()
    }

    fn end(&mut self, at: usize) {
        let ended = self.streams.swap_remove(at);
        self.ended_messages += ended.bytes / self.options.message_bytes.max(1) as u64;
    }

    /// All bytes so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    fn accept(&self) -> Result<Option<TcpStream>, PortError> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true).map_err(|source| self.broken(source))?;
                Ok(Some(stream))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(self.broken(error)),
        }
    }

    fn broken(&self, source: io::Error) -> PortError {
        PortError::Stream { tried: "receive on", address: self.options.local, source }
    }
}

fn read(stream: &mut TcpStream, buffer: &mut [u8], truncate: bool) -> io::Result<usize> {
    if truncate { tcp::discard(stream, RECEIVE_BYTES) } else { stream.read(buffer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_sending_conserves_bytes_and_both_ways_of_receiving_count_them() {
        for send in [TcpSend::Copy, TcpSend::SendFile, TcpSend::Splice, TcpSend::ReadWrite, TcpSend::ZeroCopy]
        {
            for (truncate, message_bytes) in [(false, 100_000), (true, 1), (true, 7_000_001)] {
                let local = SocketAddr::from(([127, 0, 0, 1], 0));
                let mut rx =
                    TcpRx::open(&TcpRxOptions { local, truncate, message_bytes, receive_buffer_bytes: None })
                        .unwrap();
                let peer = rx.local_address().unwrap();
                let source = FileChoice::default();
                let options =
                    TcpTxOptions { peer, local, send, source, message_bytes, send_buffer_bytes: None };
                let reader = std::thread::spawn(move || {
                    let until = std::time::Instant::now() + Duration::from_secs(30);
                    let (mut seen, mut ended) = (false, false);
                    while !ended && std::time::Instant::now() < until {
                        rx.receive(Duration::from_millis(20)).unwrap();
                        seen |= !rx.streams.is_empty();
                        ended = seen && rx.streams.is_empty();
                    }
                    (rx.received_bytes(), rx.received_messages())
                });
                let mut tx = TcpTx::open(&options).unwrap();
                let (mut filled, mut taken) = (0, 0);
                while taken < 20 {
                    let sent = tx.send(20 - filled).unwrap();
                    filled += sent.filled;
                    taken += sent.taken;
                }
                drop(tx);
                let (bytes, messages) = reader.join().unwrap();
                assert_eq!(bytes, 20 * message_bytes as u64, "{send:?} {truncate} {message_bytes}");
                assert_eq!(messages, 20);
            }
        }
    }
}
