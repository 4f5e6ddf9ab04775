//! The interface for filters in Rust: one function from a frame to a verdict.

/// A packet taken from a queue, in memory shared with the kernel.
pub struct Frame<'f> {
    bytes: &'f mut [u8],
    len: usize,
}

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Dropped: its memory takes the next packet.
    Drop,
    /// The kernel gets it, as if it had come from the wire just now. A checksum that its sender left to a card is completed.
    Reinject,
    /// Consumed by the program: counted separately from dropped packets.
    Keep,
    /// It leaves on the queue that it came from, as it is now; a checksum that its sender left to a card is completed.
    Send,
}

/// Decides about packets, one queue's on one thread, in the order of their arrival. The crate's documentation has the
/// guarantees on lifetimes and order.
///
/// ```
/// use divert::{Frame, Verdict, Verdicts};
///
/// /// Accepts ARP and drops the rest.
/// struct OnlyArp;
///
/// impl Verdicts for OnlyArp {
///     fn verdict(&mut self, frame: &mut Frame<'_>) -> Verdict {
///         match frame.bytes().get(12..14) {
///             Some([0x08, 0x06]) => Verdict::Reinject,
///             _ => Verdict::Drop,
///         }
///     }
/// }
/// ```
pub trait Verdicts: Send {
    /// Decides about one packet. Called for each packet of a batch in turn; it must not block.
    fn verdict(&mut self, frame: &mut Frame<'_>) -> Verdict;

    /// Called after each batch, and about 50 times a second while no packet comes, with the time of the monotonic
    /// clock in nanoseconds.
    fn batch_done(&mut self, _packets: usize, _now_ns: u64) {}

    /// The comment for the packet of the last verdict, such as the rule that dropped it. Called only for packets that are
    /// sampled.
    fn comment(&self) -> String {
        String::new()
    }
}

impl<'f> Frame<'f> {
    /// A packet of `len` bytes at the start of `bytes`.
    ///
    /// # Panics
    /// When it is longer than they are.
    pub fn new(bytes: &'f mut [u8], len: usize) -> Self {
        assert!(len <= bytes.len(), "a packet of {len} bytes in {}", bytes.len());
        Self { bytes, len }
    }

    /// The packet from its Ethernet header on, without FCS.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The packet, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Makes the packet longer or shorter; what is new are bytes of earlier packets. Says whether there is room.
    pub fn resize(&mut self, len: usize) -> bool {
        let fits = len <= self.bytes.len();
        if fits {
            self.len = len;
        }
        fits
    }
}

impl<V: Verdicts + ?Sized> Verdicts for Box<V> {
    fn verdict(&mut self, frame: &mut Frame<'_>) -> Verdict {
        (**self).verdict(frame)
    }

    fn batch_done(&mut self, packets: usize, now_ns: u64) {
        (**self).batch_done(packets, now_ns);
    }

    fn comment(&self) -> String {
        (**self).comment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_grows_within_its_memory_only() {
        let mut bytes = [7; 10];
        let mut frame = Frame::new(&mut bytes, 4);
        assert_eq!(frame.bytes().len(), 4);
        assert!(frame.resize(10));
        frame.bytes_mut()[9] = 1;
        assert!(!frame.resize(11));
        assert_eq!(frame.bytes(), [7, 7, 7, 7, 7, 7, 7, 7, 7, 1]);
    }
}
