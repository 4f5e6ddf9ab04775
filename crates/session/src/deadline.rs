//! Reads and writes with one deadline in total: a peer that sends byte by byte gets no more time.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// A socket with timeouts.
pub(crate) trait Timed {
    fn time_reads(&self, at_most: Duration) -> io::Result<()>;
    fn time_writes(&self, at_most: Duration) -> io::Result<()>;
}

/// A socket with a deadline, after which every call fails with [`io::ErrorKind::TimedOut`].
pub(crate) struct Within<'s, S> {
    socket: &'s S,
    until: Instant,
}

impl<'s, S: Timed> Within<'s, S> {
    pub(crate) fn of(socket: &'s S, at_most: Duration) -> Self {
        Self { socket, until: Instant::now() + at_most }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl<'s, S: Timed> Read for Within<'s, S>
where
    &'s S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.time_reads(self.left()?)?;
        self.socket.read(buffer)
    }
}

impl<'s, S: Timed> Write for Within<'s, S>
where
    &'s S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.time_writes(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Timed for TcpStream {
    fn time_reads(&self, at_most: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(at_most))
    }

    fn time_writes(&self, at_most: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(at_most))
    }
}

impl Timed for UnixStream {
    fn time_reads(&self, at_most: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(at_most))
    }

    fn time_writes(&self, at_most: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(at_most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_MOST: Duration = Duration::from_millis(200);

    #[test]
    fn a_peer_that_sends_byte_by_byte_gets_no_more_time() {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || while peer.write_all(b"x").is_ok() {});
            let since = Instant::now();
            let error = Within::of(&ours, AT_MOST).read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!((AT_MOST..Duration::from_secs(10)).contains(&since.elapsed()));
            ours.shutdown(std::net::Shutdown::Both).unwrap();
        });
    }

    #[test]
    fn a_peer_that_does_not_read_gets_no_more_time() {
        let (ours, peer) = UnixStream::pair().unwrap();
        let error = Within::of(&ours, AT_MOST).write_all(&vec![0; 16 << 20]).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        drop(peer);
    }
}
