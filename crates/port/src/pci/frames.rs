//! Frames from receive descriptors, whose contents may be wrong.

use sys::pci::{BUFFER_BYTES, Done, rx};

/// The longest frame that is assembled from several buffers.
const LONGEST_FRAME: usize = 16_384;

/// Dropped frames with invalid descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Dropped {
    /// Errors reported by the card: corrupt on the wire.
    pub(super) broken: u64,
    /// No length, a length above the buffer's, or no end.
    pub(super) nonsense: u64,
}

impl Dropped {
    pub(super) fn all(self) -> u64 {
        self.broken + self.nonsense
    }
}

/// What a descriptor's bytes contain.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'b> {
    /// A whole frame.
    Frame(&'b [u8]),
    /// The last part of a frame, of which [`Assembler::frame`] has all.
    Last,
    /// Part of a frame that continues in the next descriptor, or of a dropped one.
    Nothing,
}

/// Assembles frames.
pub(super) struct Assembler {
    parts: Vec<u8>,
    /// The rest of the frame is dropped, too.
    is_skipping: bool,
    pub(super) dropped: Dropped,
}

impl Assembler {
    pub(super) fn new() -> Self {
        Self { parts: Vec::with_capacity(LONGEST_FRAME), is_skipping: false, dropped: Dropped::default() }
    }

    /// Takes the next descriptor; `bytes` is its whole buffer.
    #[inline]
    pub(super) fn take<'b>(&mut self, done: Done, bytes: &'b [u8]) -> Part<'b> {
        let is_end = done.status & rx::END_OF_PACKET != 0;
        let is_sane = done.length > 0 && usize::from(done.length) <= BUFFER_BYTES;
        // Errors are valid only in a frame's last descriptor.
        let is_good = !is_end || done.errors & rx::FRAME_ERRORS == 0;
        if is_end && is_sane && is_good && self.parts.is_empty() && !self.is_skipping {
            return Part::Frame(bytes);
        }
        self.take_part(is_end, is_sane, is_good, bytes)
    }

    #[cold]
    fn take_part<'b>(&mut self, is_end: bool, is_sane: bool, is_good: bool, bytes: &'b [u8]) -> Part<'b> {
        let fits = self.parts.len() + bytes.len() <= LONGEST_FRAME;
        let is_kept = is_sane && is_good && fits && !self.is_skipping;
        if !self.is_skipping && !is_kept {
            let count = if is_good { &mut self.dropped.nonsense } else { &mut self.dropped.broken };
            *count += 1;
        }
        self.is_skipping = !is_kept && !is_end;
        if !is_kept {
            self.parts.clear();
            return Part::Nothing;
        }
        self.parts.extend_from_slice(bytes);
        if is_end { Part::Last } else { Part::Nothing }
    }

    /// The frame whose last part was just taken.
    pub(super) fn frame(&self) -> &[u8] {
        &self.parts
    }

    /// The caller has read that frame.
    pub(super) fn done(&mut self) {
        self.parts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u8 = rx::DONE | rx::END_OF_PACKET;
    const BUFFER: [u8; BUFFER_BYTES] = [7; BUFFER_BYTES];

    fn take(assembler: &mut Assembler, length: u16, status: u8, errors: u8) -> Option<usize> {
        let bytes = &BUFFER[..usize::from(length).min(BUFFER_BYTES)];
        match assembler.take(Done { length, status, errors }, bytes) {
            Part::Frame(frame) => Some(frame.len()),
            Part::Last => {
                let len = assembler.frame().len();
                assembler.done();
                Some(len)
            }
            Part::Nothing => None,
        }
    }

    #[test]
    fn one_descriptor_is_a_frame_and_several_are_one() {
        let mut assembler = Assembler::new();
        assert_eq!(take(&mut assembler, 60, END, 0), Some(60));
        assert_eq!(take(&mut assembler, 2048, rx::DONE, 0), None);
        assert_eq!(take(&mut assembler, 2048, rx::DONE, 0), None);
        assert_eq!(take(&mut assembler, 900, END, 0), Some(4996));
        assert_eq!(take(&mut assembler, 2048, END, 0), Some(2048));
        assert_eq!(assembler.dropped, Dropped::default());
    }

    #[test]
    fn what_a_descriptor_gets_wrong_costs_one_frame_and_is_counted() {
        for (length, errors, expected) in [
            (0, 0, Dropped { nonsense: 1, broken: 0 }),
            (2049, 0, Dropped { nonsense: 1, broken: 0 }),
            (65_535, 0, Dropped { nonsense: 1, broken: 0 }),
            (60, 0x01, Dropped { nonsense: 0, broken: 1 }),
            (60, 0x80, Dropped { nonsense: 0, broken: 1 }),
        ] {
            let mut assembler = Assembler::new();
            assert_eq!(take(&mut assembler, length, END, errors), None, "{length}");
            assert_eq!(take(&mut assembler, 64, END, 0), Some(64), "{length}");
            assert_eq!(assembler.dropped, expected, "{length}");
        }
        // Wrong IP or TCP checksums are left to the protocols.
        assert_eq!(take(&mut Assembler::new(), 60, END, 0x60), Some(60));
    }

    #[test]
    fn a_frame_without_end_is_dropped_once_and_the_next_one_is_whole() {
        let mut assembler = Assembler::new();
        for _ in 0..100 {
            assert_eq!(take(&mut assembler, 2048, rx::DONE, 0), None);
        }
        assert_eq!(take(&mut assembler, 100, END, 0), None);
        assert_eq!(take(&mut assembler, 100, END, 0), Some(100));
        assert_eq!(assembler.dropped, Dropped { nonsense: 1, broken: 0 });
        // One invalid descriptor drops its whole frame.
        assert_eq!(take(&mut assembler, 2048, rx::DONE, 0), None);
        assert_eq!(take(&mut assembler, 0, rx::DONE, 0), None);
        assert_eq!(take(&mut assembler, 2048, rx::DONE, 0), None);
        assert_eq!(take(&mut assembler, 5, END, 0), None);
        assert_eq!(take(&mut assembler, 60, END, 0), Some(60));
        assert_eq!(assembler.dropped, Dropped { nonsense: 2, broken: 0 });
    }
}
