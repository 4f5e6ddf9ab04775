//! Many packets in one `sendmmsg`.

use std::{
    io, mem,
    net::{Ipv4Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
};

use socket2::SockAddr;

use super::slab::Slab;

/// Slots for packets, passed in one call to a socket with a fixed destination (a connected UDP socket, or a packet
/// socket bound to an interface), or each with its own destination.
///
/// With more than one segment per message (GSO), adjacent slots form one message that the kernel
/// segments again; every slot then holds exactly `slot_bytes`.
pub struct SendBatch {
    slab: Slab,
    segments: usize,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    destinations: Box<[SockAddr]>,
}

// SAFETY: the raw pointers inside point only to memory that the batch itself owns.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Room for `messages × segments` datagrams of up to `slot_bytes` payload bytes.
    pub fn new(messages: usize, segments: usize, slot_bytes: usize) -> Self {
        assert!(messages > 0 && segments > 0 && slot_bytes > 0, "an empty batch sends nothing");
        let slab = Slab::new(messages * segments, slot_bytes);
        let vectors: Box<[_]> = (0..messages)
            .map(|message| libc::iovec {
                iov_base: slab.address(message * segments).cast(),
                iov_len: segments * slot_bytes,
            })
            .collect();
        let mut batch =
            Self { slab, segments, vectors, headers: Box::default(), destinations: Box::default() };
        batch.headers = batch
            .vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: an all-zero mmsghdr is a valid value.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        batch
    }

    /// Sends every message to its [`SendBatch::set_destination`], on a socket that is not connected.
    #[must_use]
    pub fn with_destinations(mut self) -> Self {
        let nowhere = SockAddr::from(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
        self.destinations = vec![nowhere; self.headers.len()].into();
        for (header, destination) in self.headers.iter_mut().zip(&self.destinations) {
            header.msg_hdr.msg_name = destination.as_ptr().cast_mut().cast();
        }
        self
    }

    /// Sets the destination of a message.
    ///
    /// # Panics
    /// When the batch is not [`SendBatch::with_destinations`].
    #[inline]
    pub fn set_destination(&mut self, message: usize, to: SocketAddr) {
        self.destinations[message] = SockAddr::from(to);
        self.headers[message].msg_hdr.msg_namelen = self.destinations[message].len();
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.vectors.len() * self.segments
    }

    /// A slot to write a datagram's payload to.
    #[inline]
    pub fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        self.slab.slot_mut(slot)
    }

    /// Sets the payload length of a slot; only for batches of one segment per message.
    ///
    /// # Panics
    /// When the length exceeds the slot, or adjacent slots form one message.
    #[inline]
    pub fn set_len(&mut self, slot: usize, len: usize) {
        assert!(self.segments == 1 && len <= self.slab.slot_bytes(), "{len} bytes do not fit the slot");
        self.vectors[slot].iov_len = len;
    }

    /// Hands slots `from..to` to the socket and returns how many the kernel accepted, at least one message's
    /// worth. `from` must be the first slot of a message.
    ///
    /// # Errors
    /// The kernel's error for the first message; later messages' errors show in the next call.
    pub fn send(&mut self, socket: &impl AsFd, from: usize, to: usize) -> io::Result<usize> {
        let socket = socket.as_fd().as_raw_fd();
        assert!(from.is_multiple_of(self.segments) && from < to && to <= self.slots(), "slots {from}..{to}");
        let (first, last) = (from / self.segments, to.div_ceil(self.segments));
        if self.segments > 1 {
            let whole = self.segments * self.slab.slot_bytes();
            let in_last = (to - (last - 1) * self.segments) * self.slab.slot_bytes();
            self.vectors[first..last].iter_mut().for_each(|vector| vector.iov_len = whole);
            self.vectors[last - 1].iov_len = in_last;
        }
        let headers = &mut self.headers[first..last];
        // SAFETY: the headers point to vectors, slots and addresses that live as long as `self`; the kernel reads them
        // and writes only `msg_len`.
        let sent = unsafe {
            libc::sendmmsg(socket, headers.as_mut_ptr(), headers.len() as u32, libc::MSG_NOSIGNAL as _)
        };
        match usize::try_from(sent) {
            Ok(messages) => Ok((messages * self.segments).min(to - from)),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}
