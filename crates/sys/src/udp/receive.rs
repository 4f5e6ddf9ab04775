//! Many datagrams in one `recvmmsg`.

use std::{io, mem, net::SocketAddr, os::fd::AsRawFd, ptr};

use super::{
    ancillary::{self, CONTROL_BYTES, NAME_BYTES, ReceiveTimes},
    slab::Slab,
    socket::UdpSocket,
};

/// Slots that one `recvmmsg` fills.
pub struct RecvBatch {
    slab: Slab,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    wants: Wants,
}

/// What to request from the kernel besides the bytes; each item costs time per message.
#[derive(Debug, Clone, Copy, Default)]
struct Wants {
    sources: bool,
    segments: bool,
    times: bool,
}

/// A received message.
pub struct Message<'b> {
    /// The payload; several datagrams of one flow when `segment_bytes` is set.
    pub bytes: &'b [u8],
    /// The length of each datagram in `bytes` except the last (GRO); `None` for a single one.
    pub segment_bytes: Option<usize>,
    /// Whether the datagram was longer than the slot.
    pub truncated: bool,
    /// Its sender, if requested.
    pub source: Option<SocketAddr>,
    /// When it was received, if requested.
    pub times: Option<ReceiveTimes>,
}

/// Room for a `sockaddr_in` or a `sockaddr_in6`, as bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Name([u8; NAME_BYTES]);

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

// SAFETY: the raw pointers inside point only to memory that the batch itself owns.
unsafe impl Send for RecvBatch {}

impl RecvBatch {
    /// Room for `messages` messages of up to `slot_bytes`.
    pub fn new(messages: usize, slot_bytes: usize) -> Self {
        assert!(messages > 0 && slot_bytes > 0, "an empty batch receives nothing");
        let slab = Slab::new(messages, slot_bytes);
        let vectors: Box<[_]> = (0..messages)
            .map(|slot| libc::iovec { iov_base: slab.address(slot).cast(), iov_len: slot_bytes })
            .collect();
        // SAFETY: an all-zero mmsghdr is a valid value.
        let header: libc::mmsghdr = unsafe { mem::zeroed() };
        let mut batch = Self {
            slab,
            names: vec![Name([0; NAME_BYTES]); messages].into(),
            controls: vec![Control([0; CONTROL_BYTES]); messages].into(),
            vectors,
            headers: vec![header; messages].into(),
            wants: Wants::default(),
        };
        for (header, vector) in batch.headers.iter_mut().zip(&mut batch.vectors) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        // The first message always has room for the drop count (SO_RXQ_OVFL): one per batch is enough.
        batch.headers[0].msg_hdr.msg_control = batch.controls[0].0.as_mut_ptr().cast();
        batch
    }

    /// Also requests each message's sender.
    #[must_use]
    pub fn with_sources(mut self) -> Self {
        self.wants.sources = true;
        for (header, name) in self.headers.iter_mut().zip(&mut self.names) {
            header.msg_hdr.msg_name = name.0.as_mut_ptr().cast();
        }
        self
    }

    /// Also requests where the kernel merged datagrams (`UDP_GRO`).
    #[must_use]
    pub fn with_segments(mut self) -> Self {
        self.wants.segments = true;
        for (header, control) in self.headers.iter_mut().zip(&mut self.controls) {
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        }
        self
    }

    /// Also requests when each message was received; for sockets with [`SocketOptions::timestamps`](super::SocketOptions).
    #[must_use]
    pub fn with_times(mut self) -> Self {
        self.wants.times = true;
        for (header, control) in self.headers.iter_mut().zip(&mut self.controls) {
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        }
        self
    }

    /// Waits for one message (`wait`), takes all available ones, and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` when nothing arrived within the socket's timeout, `Interrupted` by a signal, or other errors of
    /// the kernel said.
    pub fn recv(&mut self, socket: &UdpSocket, wait: bool) -> io::Result<usize> {
        self.headers[0].msg_hdr.msg_controllen = CONTROL_BYTES as _;
        if self.wants.segments || self.wants.times {
            self.headers.iter_mut().for_each(|header| header.msg_hdr.msg_controllen = CONTROL_BYTES as _);
        }
        if self.wants.sources {
            let len = NAME_BYTES as libc::socklen_t;
            self.headers.iter_mut().for_each(|header| header.msg_hdr.msg_namelen = len);
        }
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: every pointer in the headers points to memory that `self` owns, with its length beside it.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                flags as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// A message of the last batch; `index` must be below what [`RecvBatch::recv`] returned.
    #[inline]
    pub fn message(&self, index: usize) -> Message<'_> {
        let header = &self.headers[index];
        let len = (header.msg_len as usize).min(self.slab.slot_bytes());
        let segment_bytes = if self.wants.segments {
            self.control(index, libc::SOL_UDP, libc::UDP_GRO).map(|value| value as usize)
        } else {
            None
        };
        Message {
            bytes: self.slab.filled(index, len),
            segment_bytes: segment_bytes.filter(|segment| (1..len).contains(segment)),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            source: if self.wants.sources { ancillary::source(&self.names[index].0) } else { None },
            times: if self.wants.times { ancillary::times(self.controls(index)) } else { None },
        }
    }

    /// Packets that the socket had dropped when the first message of the last batch was queued
    /// (`SO_RXQ_OVFL`), wrapping at 2^32.
    pub fn dropped(&self) -> Option<u32> {
        self.control(0, libc::SOL_SOCKET, libc::SO_RXQ_OVFL)
    }

    /// The first 32 bits of a control message.
    fn control(&self, index: usize, level: libc::c_int, kind: libc::c_int) -> Option<u32> {
        Some(u32::from_ne_bytes(*ancillary::control(self.controls(index), level, kind)?.first_chunk()?))
    }

    /// The ancillary data of a message.
    fn controls(&self, index: usize) -> &[u8] {
        #[cfg_attr(target_env = "gnu", expect(clippy::unnecessary_cast, reason = "musl has 32 bits here"))]
        let len = (self.headers[index].msg_hdr.msg_controllen as usize).min(CONTROL_BYTES);
        &self.controls[index].0[..len]
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use super::super::{SendBatch, SocketOptions, UdpSocket};
    use super::*;

    fn pair(options: &SocketOptions) -> (UdpSocket, UdpSocket) {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let rx = UdpSocket::bind(any, options).unwrap();
        rx.set_timeouts(Duration::from_secs(5)).unwrap();
        let tx = UdpSocket::bind(any, options).unwrap();
        tx.connect(rx.local_address().unwrap()).unwrap();
        (tx, rx)
    }

    fn numbered(batch: &mut SendBatch) {
        for slot in 0..batch.slots() {
            batch.slot_mut(slot)[0] = slot as u8;
        }
    }

    #[test]
    fn a_batch_arrives_in_order_with_its_lengths_and_sender() {
        let (tx, rx) = pair(&SocketOptions::default());
        let mut out = SendBatch::new(8, 1, 100);
        numbered(&mut out);
        (0..8).for_each(|slot| out.set_len(slot, 20 + slot));
        assert_eq!(out.send(&tx, 0, 8).unwrap(), 8);
        let mut into = RecvBatch::new(16, 2048).with_sources();
        assert_eq!(into.recv(&rx, true).unwrap(), 8);
        for index in 0..8 {
            let message = into.message(index);
            assert_eq!((message.bytes[0] as usize, message.bytes.len()), (index, 20 + index));
            assert_eq!(message.source, Some(tx.local_address().unwrap()));
            assert!(!message.truncated);
        }
    }

    #[test]
    fn segmented_messages_arrive_as_single_datagrams() {
        let (tx, rx) = pair(&SocketOptions { segment_bytes: Some(50), ..Default::default() });
        let mut out = SendBatch::new(2, 4, 50);
        numbered(&mut out);
        assert_eq!(out.send(&tx, 0, 7).unwrap(), 7);
        let mut into = RecvBatch::new(16, 2048);
        let mut seen = Vec::new();
        while seen.len() < 7 {
            let count = into.recv(&rx, true).unwrap();
            seen.extend(
                (0..count).map(|index| (into.message(index).bytes[0], into.message(index).bytes.len())),
            );
        }
        assert_eq!(seen, (0..7).map(|n| (n, 50)).collect::<Vec<_>>());
    }

    #[test]
    fn messages_say_when_they_were_received() {
        let (tx, rx) = pair(&SocketOptions { timestamps: true, ..SocketOptions::default() });
        let mut out = SendBatch::new(8, 1, 100);
        numbered(&mut out);
        let mut into = RecvBatch::new(16, 2048).with_sources().with_times();
        // The kernel starts to stamp a moment after the first socket requested it.
        let since = std::time::Instant::now();
        loop {
            assert_eq!((out.send(&tx, 0, 1).unwrap(), into.recv(&rx, true).unwrap()), (1, 1));
            if into.message(0).times.is_some() {
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(10), "no packet is stamped");
        }
        let before = crate::clock::realtime_ns();
        assert_eq!(out.send(&tx, 0, 8).unwrap(), 8);
        assert_eq!(into.recv(&rx, true).unwrap(), 8);
        let after = crate::clock::realtime_ns();
        let mut last = before;
        for index in 0..8 {
            let times = into.message(index).times.expect("the socket requested it");
            assert!((last..=after).contains(&times.kernel_ns), "{last} {times:?} {after}");
            assert_eq!(times.card_ns, None, "loopback has no card");
            last = times.kernel_ns;
        }
    }

    #[test]
    fn joined_datagrams_say_their_segment_size() {
        let options = SocketOptions { segment_bytes: Some(50), gro: true, ..Default::default() };
        let (tx, rx) = pair(&options);
        let mut out = SendBatch::new(1, 4, 50);
        numbered(&mut out);
        assert_eq!(out.send(&tx, 0, 4).unwrap(), 4);
        let mut into = RecvBatch::new(4, 65_536).with_segments();
        assert_eq!(into.recv(&rx, true).unwrap(), 1);
        let message = into.message(0);
        assert_eq!((message.bytes.len(), message.segment_bytes), (200, Some(50)));
        let firsts: Vec<u8> = message.bytes.chunks(50).map(|datagram| datagram[0]).collect();
        assert_eq!(firsts, [0, 1, 2, 3]);
    }

    #[test]
    fn both_drop_counts_see_a_full_receive_buffer() {
        let options =
            SocketOptions { receive_buffer_bytes: Some(4096), drop_counts: true, ..Default::default() };
        let (tx, rx) = pair(&options);
        let mut out = SendBatch::new(100, 1, 1000);
        out.send(&tx, 0, 100).unwrap();
        let mut into = RecvBatch::new(128, 2048);
        let received = into.recv(&rx, true).unwrap();
        assert!(received < 100);
        assert_eq!(rx.dropped().unwrap() as usize, 100 - received);
        out.send(&tx, 0, 1).unwrap();
        assert_eq!(into.recv(&rx, true).unwrap(), 1);
        assert_eq!(into.dropped().unwrap() as usize, 100 - received);
    }

    #[test]
    fn a_datagram_longer_than_its_slot_is_marked() {
        let (tx, rx) = pair(&SocketOptions::default());
        SendBatch::new(1, 1, 100).send(&tx, 0, 1).unwrap();
        let mut into = RecvBatch::new(1, 64);
        into.recv(&rx, true).unwrap();
        assert_eq!(into.message(0).bytes.len(), 64);
        assert!(into.message(0).truncated);
    }

    #[test]
    fn an_empty_socket_would_block() {
        let (_tx, rx) = pair(&SocketOptions::default());
        let error = RecvBatch::new(1, 64).recv(&rx, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
