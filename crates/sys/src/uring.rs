//! io_uring for datagrams: batches of sends from slots, and a multishot receive into provided buffers.
//!
//! A [`SendRing`] returns from each call with nothing in flight, so its slots are this process's again. A [`ReceiveRing`]
//! belongs to the thread that first receives with it: only there does the kernel write into its buffers
//! (`IORING_SETUP_DEFER_TASKRUN`); a ring is created again when another thread receives with it.
//!
//! Missing features are found by creating the ring. Formats: `linux/io_uring.h`, io_uring(7).

use std::{
    fs, io, mem,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use io_uring::{
    IoUring, Probe, cqueue, opcode,
    types::{BufRingEntry, CancelBuilder, Fd, Fixed, RecvMsgOut, SubmitArgs, Timespec},
};

use crate::{
    udp::{
        ReceiveTimes,
        ancillary::{self, CONTROL_BYTES, NAME_BYTES},
    },
    xsk::mapping::Mapping,
};

/// Slots of a [`SendRing`], at most: half of a ring's entries (`IORING_MAX_ENTRIES`).
pub const MOST_SLOTS: usize = 16_384;
/// The only group of provided buffers of a ring.
const GROUP: u16 = 0;
/// How long to wait for a cancelled receive.
const CANCEL_AT_MOST: Duration = Duration::from_millis(100);
/// How long the kernel's thread of a ring polls while nothing is submitted.
const SQPOLL_IDLE_MS: u32 = 50;

/// Optional features of this kernel's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Sends that do not copy (`IORING_OP_SEND_ZC`).
    pub zero_copy: bool,
    /// One request for several provided buffers (`IORING_FEAT_RECVSEND_BUNDLE`).
    pub bundles: bool,
}

impl Features {
    /// Creates a ring to find out.
    ///
    /// # Errors
    /// `ENOSYS` without io_uring, `EPERM` if it is disabled ([`disabled`]).
    pub fn of_kernel() -> io::Result<Self> {
        let ring = IoUring::new(1)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        Ok(Self {
            zero_copy: probe.is_supported(opcode::SendZc::CODE),
            bundles: ring.params().is_feature_recvsend_bundle(),
        })
    }
}

/// The sysctl `kernel.io_uring_disabled` if it forbids rings: 1 to unprivileged processes, 2 to all.
pub fn disabled() -> Option<u32> {
    let text = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok().filter(|level| *level > 0)
}

/// Slots for datagrams, sent through connected sockets in batches of one system call.
pub struct SendRing {
    // Dropped before the memory, which the kernel may read while the ring exists.
    ring: IoUring,
    memory: Mapping,
    slot_bytes: usize,
    lens: Box<[u32]>,
    sockets: usize,
    is_broken: bool,
}

impl SendRing {
    /// Room for `slots` datagrams of up to `slot_bytes` payload bytes. With `sqpoll` a kernel thread submits them.
    ///
    /// # Errors
    /// As [`Features::of_kernel`]; `ENOMEM`.
    ///
    /// # Panics
    /// Without slots, with more than [`MOST_SLOTS`], or without sockets.
    pub fn new(sockets: &[impl AsFd], (slots, slot_bytes): (usize, usize), sqpoll: bool) -> io::Result<Self> {
        assert!((1..=MOST_SLOTS).contains(&slots) && slot_bytes > 0, "{slots} slots of {slot_bytes} bytes");
        assert!(!sockets.is_empty(), "a ring without sockets sends nothing");
        let mut builder = IoUring::builder();
        builder.dontfork().setup_submit_all();
        if sqpoll {
            builder.setup_sqpoll(SQPOLL_IDLE_MS);
        } else {
            builder.setup_coop_taskrun();
        }
        // Two batches: the kernel's thread reports an entry as taken a moment after its completion.
        let ring = builder.build(2 * slots.next_power_of_two() as u32)?;
        let descriptors: Vec<_> = sockets.iter().map(|socket| socket.as_fd().as_raw_fd()).collect();
        ring.submitter().register_files(&descriptors)?;
        let memory = Mapping::anonymous(slots * slot_bytes, false)?;
        memory.not_for_children()?;
        let lens = vec![slot_bytes as u32; slots].into();
        Ok(Self { ring, memory, slot_bytes, lens, sockets: sockets.len(), is_broken: false })
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.lens.len()
    }

    /// A slot to write a datagram's payload to.
    ///
    /// # Panics
    /// When there is no such slot.
    #[inline]
    pub fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        let mut bytes = self.memory.slice::<u8>(slot * self.slot_bytes, self.slot_bytes);
        // SAFETY: these initialised bytes lie within the mapping and are borrowed as long as `self` is; the kernel, which
        // reads them during `send` alone, writes to none.
        unsafe { bytes.as_mut() }
    }

    /// Sets the payload length of a slot.
    ///
    /// # Panics
    /// When the length exceeds the slot.
    #[inline]
    pub fn set_len(&mut self, slot: usize, len: usize) {
        assert!(len <= self.slot_bytes, "{len} bytes do not fit the slot");
        self.lens[slot] = len as u32;
    }

    /// Hands slots to a socket and reports the outcome of each; none waits for room in the socket's buffer.
    ///
    /// # Errors
    /// When the kernel did not accept the batch; the ring is then unusable.
    ///
    /// # Panics
    /// When there is no such socket or slot, or more slots are named than exist.
    pub fn send(
        &mut self,
        socket: usize,
        slots: &[u32],
        mut outcome: impl FnMut(u32, io::Result<()>),
    ) -> io::Result<()> {
        assert!(socket < self.sockets && slots.len() <= self.slots(), "{} slots", slots.len());
        if self.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let mut queue = self.ring.submission();
        for &slot in slots {
            let bytes = self.memory.slice::<u8>(slot as usize * self.slot_bytes, self.slot_bytes);
            let address = bytes.cast::<u8>().as_ptr().cast_const();
            let entry = opcode::Send::new(Fixed(socket as u32), address, self.lens[slot as usize])
                .flags(flags)
                .build()
                .user_data(slot.into());
            // SAFETY: the slot's bytes outlive the ring, and `len` of them are valid, as `set_len` ensures.
            unsafe { queue.push(&entry) }.expect("the queue has an entry for each slot");
        }
        drop(queue);
        let mut left = slots.len();
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    self.is_broken = true;
                    return Err(error);
                }
                _ => {}
            }
            for completion in self.ring.completion() {
                left -= 1;
                outcome(completion.user_data() as u32, result_of(&completion).map(drop));
            }
        }
        Ok(())
    }
}

impl Drop for SendRing {
    /// The kernel tears a ring down after its descriptor is closed; the sockets' ports are free at once.
    fn drop(&mut self) {
        self.ring.submitter().unregister_files().ok();
    }
}

/// A length, or the kernel's error.
fn result_of(completion: &cqueue::Entry) -> io::Result<usize> {
    let result = completion.result();
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// The layout of a [`ReceiveRing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Buffers, a power of two.
    pub buffers: u16,
    /// The longest datagram that is not truncated.
    pub datagram_bytes: usize,
    /// Whether each datagram carries its sender and, if the socket stamps packets, its receive time.
    pub details: bool,
}

/// A datagram, lent until the next one.
pub struct Datagram<'b> {
    /// The payload.
    pub bytes: &'b [u8],
    /// Whether it was longer than `bytes`.
    pub truncated: bool,
    /// Its sender, if requested.
    pub source: Option<SocketAddr>,
    /// When it was received, if requested.
    pub times: Option<ReceiveTimes>,
}

/// A multishot receive on a socket into buffers that are provided again after each call.
pub struct ReceiveRing {
    // Dropped before the buffers, into which the kernel writes while the ring exists.
    ring: IoUring,
    pool: Pool,
    socket: OwnedFd,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has no thread yet.
    New,
    /// The kernel does not receive: not yet, or for lack of buffers.
    Idle,
    /// The kernel receives.
    Armed,
}

impl ReceiveRing {
    /// Over a socket; nothing is received before the first [`ReceiveRing::recv`].
    ///
    /// # Errors
    /// As [`Features::of_kernel`]; `EINVAL` on kernels before 6.1.
    ///
    /// # Panics
    /// When the number of buffers is not a power of two.
    pub fn new(socket: BorrowedFd<'_>, options: &ReceiveOptions) -> io::Result<Self> {
        let mut pool = Pool::new(options)?;
        let socket = socket.try_clone_to_owned()?;
        let ring = Self::ring(&mut pool)?;
        Ok(Self { ring, pool, socket, state: State::New })
    }

    fn ring(pool: &mut Pool) -> io::Result<IoUring> {
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            // The first receiving thread becomes its thread.
            .setup_r_disabled()
            // Each completion holds a buffer, so there is always room for another.
            .setup_cqsize(2 * u32::from(pool.buffers))
            .build(1)?;
        let entries = pool.entries.start().as_ptr() as u64;
        // SAFETY: the entries are in a mapping that is dropped after the ring, like the buffers that they name.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries, pool.buffers, GROUP, 0) }?;
        pool.tail = 0;
        (0..pool.buffers).for_each(|buffer| pool.provide(buffer));
        pool.publish();
        Ok(ring)
    }

    /// Lends each available datagram, at most `most`, and returns their number; waits for the first one as long
    /// as `wait` says.
    ///
    /// # Errors
    /// The kernel's error of the socket or the ring.
    pub fn recv(
        &mut self,
        wait: Option<Duration>,
        most: usize,
        mut sink: impl FnMut(Datagram<'_>),
    ) -> io::Result<usize> {
        if self.ring.completion().is_empty() {
            match self.enter(wait) {
                // A different thread than before. Everything the old one received was lent; it receives no more.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    self.ring = Self::ring(&mut self.pool)?;
                    self.state = State::New;
                    self.enter(wait)?;
                }
                entered => entered?,
            }
        }
        let (mut datagrams, mut broken) = (0, None);
        for completion in self.ring.completion() {
            if !cqueue::more(completion.flags()) {
                self.state = State::Idle;
            }
            let buffer = cqueue::buffer_select(completion.flags());
            match (result_of(&completion), buffer) {
                (Ok(len), Some(buffer)) => {
                    datagrams += 1;
                    sink(self.pool.datagram(buffer, len));
                }
                (Ok(_), None) => {}
                (Err(error), _) => match error.raw_os_error() {
                    Some(
                        libc::ENOBUFS | libc::ECANCELED | libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED,
                    ) => {}
                    _ => broken = Some(error),
                },
            }
            if let Some(buffer) = buffer {
                self.pool.provide(buffer);
            }
            if datagrams == most {
                break;
            }
        }
        self.pool.publish();
        broken.map_or(Ok(datagrams), Err)
    }

    /// Makes the kernel receive, and waits for a completion as long as `wait` says.
    fn enter(&mut self, wait: Option<Duration>) -> io::Result<()> {
        if self.state == State::New {
            self.ring.submitter().register_enable_rings()?;
            self.state = State::Idle;
        }
        let is_idle = self.state == State::Idle;
        if is_idle && self.ring.submission().is_empty() {
            let entry = self.pool.receive(self.socket.as_fd());
            // SAFETY: the header that the entry may point to and the buffers are dropped after the ring.
            unsafe { self.ring.submission().push(&entry) }.expect("the queue is empty");
        }
        let entered = match wait {
            Some(at_most) => {
                let time = Timespec::from(at_most);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            // No work in the kernel waits for this thread.
            None if !is_idle && !self.ring.submission().taskrun() => Ok(0),
            None => self.ring.submit(),
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR), _)) => {}
            Err((_, error)) => return Err(error),
        }
        // It may have been submitted although the wait failed; an entry that was not is still in the queue.
        if self.ring.submission().is_empty() {
            self.state = State::Armed;
        }
        Ok(())
    }
}

impl Drop for ReceiveRing {
    /// The kernel tears a ring down after its descriptor is closed. The socket's port is free at once if the ring's own
    /// thread drops it; for other threads the kernel refuses to cancel, and the port is free a moment later.
    fn drop(&mut self) {
        if self.state == State::Armed
            && self.ring.submitter().register_sync_cancel(None, CancelBuilder::any()).is_ok()
        {
            // The request ends here, in its thread, and lets go of the socket.
            let time = Timespec::from(CANCEL_AT_MOST);
            self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time)).ok();
        }
    }
}

/// Buffers; each is either owned by the kernel or holds a datagram of an unread completion.
struct Pool {
    entries: Mapping,
    memory: Mapping,
    buffers: u16,
    /// Bytes from one buffer to the next.
    stride: usize,
    /// Bytes that the kernel may write to a buffer.
    room: usize,
    /// What to receive besides the payload.
    header: Option<Header>,
    /// Buffers provided so far; wraps.
    tail: u16,
}

/// The lengths of the name and the control messages that the kernel writes before a payload.
struct Header(Box<libc::msghdr>);

// SAFETY: the pointers inside are null.
unsafe impl Send for Header {}

/// The tail of `struct io_uring_buf_ring`: in the unused word of its first entry.
const TAIL_AT: usize = 14;
/// `struct io_uring_recvmsg_out`.
const OUT_BYTES: usize = 16;
/// Room for a name, so that control messages begin aligned.
const NAME_ROOM: usize = NAME_BYTES.next_multiple_of(16);
/// The kernel's header before a payload with details.
const BEFORE_PAYLOAD: usize = OUT_BYTES + NAME_ROOM + CONTROL_BYTES;

const _: () = assert!(mem::size_of::<BufRingEntry>() == 16, "struct io_uring_buf");

impl Pool {
    fn new(options: &ReceiveOptions) -> io::Result<Self> {
        let &ReceiveOptions { buffers, datagram_bytes, details } = options;
        assert!(buffers.is_power_of_two(), "{buffers} buffers");
        let header = details.then(|| {
            // SAFETY: an all-zero msghdr is a valid value.
            let mut header: libc::msghdr = unsafe { mem::zeroed() };
            header.msg_namelen = NAME_ROOM as libc::socklen_t;
            header.msg_controllen = CONTROL_BYTES as _;
            Header(Box::new(header))
        });
        let before = if details { BEFORE_PAYLOAD } else { 0 };
        let room = before + datagram_bytes;
        let stride = room.next_multiple_of(64);
        let entries = Mapping::anonymous(usize::from(buffers) * mem::size_of::<BufRingEntry>(), false)?;
        let memory = Mapping::anonymous(usize::from(buffers) * stride, false)?;
        entries.not_for_children()?;
        memory.not_for_children()?;
        Ok(Self { entries, memory, buffers, stride, room, header, tail: 0 })
    }

    /// The request that receives into these buffers until they run out.
    fn receive(&self, socket: BorrowedFd<'_>) -> io_uring::squeue::Entry {
        // Not registered: a request references the socket once for all its datagrams.
        let socket = Fd(socket.as_raw_fd());
        match &self.header {
            // The result includes the truncated length.
            None => opcode::RecvMulti::new(socket, GROUP).flags(libc::MSG_TRUNC).build(),
            Some(Header(header)) => opcode::RecvMsgMulti::new(socket, &raw const **header, GROUP).build(),
        }
    }

    /// Gives the kernel a buffer, once it is published.
    #[inline]
    fn provide(&mut self, buffer: u16) {
        let slot = self.tail & (self.buffers - 1);
        let mut entry = self.entries.pointer::<BufRingEntry>(usize::from(slot) * 16);
        let start = self.memory.slice::<u8>(usize::from(buffer) * self.stride, self.room);
        // SAFETY: the entry lies within the mapping, and the kernel reads it only after the tail passed it.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(start.cast::<u8>().as_ptr() as u64);
        entry.set_len(self.room as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the provided buffers to the kernel.
    #[inline]
    fn publish(&self) {
        let tail = self.entries.pointer::<AtomicU16>(TAIL_AT);
        // SAFETY: the word lies within the mapping, and nothing else writes it.
        unsafe { tail.as_ref() }.store(self.tail, Ordering::Release);
    }

    /// The contents of a buffer after its completion, before it is provided again.
    #[inline]
    fn datagram(&self, buffer: u16, len: usize) -> Datagram<'_> {
        let bytes = self.memory.slice::<u8>(usize::from(buffer) * self.stride, len.min(self.room));
        // SAFETY: these bytes are initialised and lie within the mapping; the kernel has written them and leaves them alone
        // until they are provided again, which requires a new borrow of `self`.
        let bytes = unsafe { bytes.as_ref() };
        let Some(Header(header)) = &self.header else {
            return Datagram { bytes, truncated: len > self.room, source: None, times: None };
        };
        let Ok(parts) = RecvMsgOut::parse(bytes, header) else {
            return Datagram { bytes: &[], truncated: true, source: None, times: None };
        };
        Datagram {
            bytes: &bytes[BEFORE_PAYLOAD..][..parts.payload_data().len()],
            truncated: parts.is_payload_truncated(),
            source: ancillary::source(parts.name_data()),
            times: ancillary::times(parts.control_data()),
        }
    }
}

#[cfg(test)]
mod tests;
