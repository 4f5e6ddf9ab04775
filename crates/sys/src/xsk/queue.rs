//! Frame queues: out through TX and completion ring, in through fill and RX ring.

use std::{ops::Range, sync::Arc};

use super::{
    lent::Lent,
    ring::{AddressSlot, Consumer, Descriptor, DescriptorSlot, Producer},
    umem::{Frame, Umem},
};

/// Sends frames and gets them back.
pub struct TxQueue {
    tx: Producer<DescriptorSlot>,
    completion: Consumer<AddressSlot>,
    lent: Lent,
    misplaced: u64,
}

/// Receives into frames.
pub struct RxQueue {
    fill: Producer<AddressSlot>,
    rx: Consumer<DescriptorSlot>,
    lent: Lent,
    misplaced: u64,
}

/// A packet in the frame that it arrived in.
#[derive(Debug)]
pub struct Received {
    /// The frame.
    pub frame: Frame,
    /// Where in it the packet lies.
    pub range: Range<usize>,
}

impl TxQueue {
    pub(super) fn new(
        tx: Producer<DescriptorSlot>,
        completion: Consumer<AddressSlot>,
        umem: Arc<Umem>,
    ) -> Self {
        Self { tx, completion, lent: Lent::none_of(umem), misplaced: 0 }
    }

    /// The memory of the frames.
    pub fn umem(&self) -> &Arc<Umem> {
        self.lent.umem()
    }

    /// Frames that can be pushed, at least `wanted` if the kernel has left that much room.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        self.tx.room(wanted)
    }

    /// Queues the first `len` bytes of a frame; the kernel sees it after [`TxQueue::publish`].
    ///
    /// # Errors
    /// The frame itself, when the ring is full.
    ///
    /// # Panics
    /// When `len` is 0 or beyond the frame, or the frame is another UMEM's: the kernel would drop such a
    /// packet and never return the frame.
    #[inline]
    pub fn push(&mut self, frame: Frame, len: usize) -> Result<(), Frame> {
        self.push_range(frame, 0..len)
    }

    /// Queues some bytes of a frame, such as a packet where it was received; the kernel sees it after
    /// [`TxQueue::publish`].
    ///
    /// # Errors
    /// The frame itself, when the ring is full.
    ///
    /// # Panics
    /// When the range is empty or reaches beyond the frame, or the frame is another UMEM's.
    #[inline]
    pub fn push_range(&mut self, frame: Frame, range: Range<usize>) -> Result<(), Frame> {
        let (most, len) = (self.umem().frame_size() as usize, range.len());
        assert!(len > 0 && range.end <= most, "{range:?} is not a packet in a frame of {most} bytes");
        let address = self.umem().address(&frame) + range.start as u64;
        if !self.tx.push(Descriptor { address, len: len as u32 }) {
            return Err(frame);
        }
        self.lent.lend(frame);
        Ok(())
    }

    /// Publishes the pushed frames to the kernel.
    #[inline]
    pub fn publish(&mut self) {
        self.tx.publish();
    }

    /// Packets published that the kernel has not taken yet.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        self.tx.waiting()
    }

    /// Whether the kernel must be called to go on ([`XskSocket::kick_tx`](super::XskSocket::kick_tx)).
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.tx.needs_wakeup()
    }

    /// Frames pushed that have not come back.
    pub fn outstanding(&self) -> usize {
        self.lent.count()
    }

    /// Takes back every frame that the kernel has finished, and returns their number.
    #[inline]
    pub fn complete(&mut self, mut done: impl FnMut(Frame)) -> usize {
        let before = self.lent.count();
        while let Some(address) = self.completion.pop() {
            match self.lent.take_back(address) {
                Some((frame, _)) => done(frame),
                None => self.misplaced += 1,
            }
        }
        self.completion.release();
        before - self.lent.count()
    }

    /// Completions of frames that the kernel did not have: a broken driver.
    pub fn misplaced(&self) -> u64 {
        self.misplaced
    }

    /// Queues a packet that lies outside the UMEM, which the kernel must refuse and count as
    /// `tx_invalid_descs`: to test that it does. Returns whether there was room.
    pub fn push_invalid(&mut self) -> bool {
        self.tx.push(Descriptor { address: self.umem().region().1, len: 64 })
    }
}

impl RxQueue {
    /// How many packets ahead the next ones are prefetched; `cargo bench -p linerate-port --bench
    /// xsk` shows the cost of less.
    const FETCH_AHEAD: u32 = 12;

    pub(super) fn new(fill: Producer<AddressSlot>, rx: Consumer<DescriptorSlot>, umem: Arc<Umem>) -> Self {
        Self { fill, rx, lent: Lent::none_of(umem), misplaced: 0 }
    }

    /// The memory of the frames.
    pub fn umem(&self) -> &Arc<Umem> {
        self.lent.umem()
    }

    /// Passes the kernel an empty frame; it sees it after [`RxQueue::publish`].
    ///
    /// # Errors
    /// The frame itself, when the fill ring is full.
    ///
    /// # Panics
    /// When the frame is another UMEM's.
    #[inline]
    pub fn refill(&mut self, frame: Frame) -> Result<(), Frame> {
        if !self.fill.push(self.umem().address(&frame)) {
            return Err(frame);
        }
        self.lent.lend(frame);
        Ok(())
    }

    /// Packets that are there.
    #[inline]
    pub fn available(&mut self) -> u32 {
        self.rx.available()
    }

    /// Prefetches the next packets together; [`RxQueue::pop`] continues from there.
    #[inline]
    pub fn fetch(&mut self) {
        for packet in 0..=Self::FETCH_AHEAD {
            let Some(next) = self.rx.peek(packet) else { break };
            self.umem().prefetch(next.address);
        }
    }

    /// The next packet; `None` when there is none. A packet whose reported length exceeds its frame is empty;
    /// one in a frame that the kernel does not have is skipped.
    // Always inline: otherwise each packet is passed through memory. `make bench-workers` shows it.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Received> {
        loop {
            let Descriptor { address, len } = self.rx.pop()?;
            if let Some(later) = self.rx.peek(Self::FETCH_AHEAD) {
                self.umem().prefetch(later.address);
            }
            if let Some((frame, start)) = self.lent.take_back(address) {
                let range = self.umem().range(start, len);
                self.misplaced += u64::from(range.is_none());
                return Some(Received { frame, range: range.unwrap_or_default() });
            }
            self.misplaced += 1;
        }
    }

    /// Publishes the refilled frames and the read RX slots to the kernel.
    #[inline]
    pub fn publish(&mut self) {
        self.fill.publish();
        self.rx.release();
    }

    /// Frames in the fill ring that the kernel has not taken yet.
    #[inline]
    pub fn unused(&mut self) -> u32 {
        self.fill.waiting()
    }

    /// Whether the kernel must be called to go on ([`XskSocket::kick_rx`](super::XskSocket::kick_rx)).
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Frames given that have not come back.
    pub fn outstanding(&self) -> usize {
        self.lent.count()
    }

    /// Packets at addresses of frames that the kernel did not have, or longer than the frame: a broken driver.
    pub fn misplaced(&self) -> u64 {
        self.misplaced
    }
}

#[cfg(test)]
mod tests;
