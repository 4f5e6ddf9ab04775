//! The memory that packets lie in, and the right to access a piece of it.

use std::{
    io,
    ops::Range,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use super::mapping::Mapping;

/// The layout of a UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UmemConfig {
    /// Number of frames.
    pub frames: u32,
    /// Bytes of a frame: 2048 or 4096, the only sizes that all kernels accept.
    pub frame_size: u32,
    /// Bytes that the kernel leaves free before a received packet, besides its own 256.
    pub headroom: u32,
}

/// The pages below a UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages: fewer misses of the TLB.
    Huge,
    /// Normal ones, because no huge page is free; the kernel may have merged them into larger ones.
    Normal,
}

/// Memory shared with the kernel, cut into frames. Its frames are returned once, at creation.
pub struct Umem {
    memory: Mapping,
    config: UmemConfig,
    pages: Pages,
    /// Distinguishes this UMEM's frames from others'.
    number: u32,
}

/// The right to read and write one frame of a UMEM. One exists for each frame; it cannot be copied.
///
/// Dropping it loses the frame for good.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is dropped is lost"]
pub struct Frame {
    index: u32,
    umem: u32,
}

impl Umem {
    /// Bytes that the kernel reserves before each received packet (`XDP_PACKET_HEADROOM`).
    pub const KERNEL_HEADROOM: u32 = 256;

    /// Maps the memory, on huge pages if free ones exist, and returns its frames.
    ///
    /// # Errors
    /// `ENOMEM`.
    ///
    /// # Panics
    /// When there is no frame, the size of a frame is neither 2048 nor 4096, or the headroom leaves no room.
    pub fn new(config: UmemConfig) -> io::Result<(Arc<Self>, Vec<Frame>)> {
        let UmemConfig { frames, frame_size, headroom } = config;
        assert!(matches!(frame_size, 2048 | 4096), "a frame must have 2048 or 4096 bytes, not {frame_size}");
        assert!(headroom < frame_size - Self::KERNEL_HEADROOM, "a headroom of {headroom} leaves no room");
        assert!(frames > 0, "a UMEM without frames");
        const HUGE_PAGE: usize = 2 << 20;
        let len = frames as usize * frame_size as usize;
        let huge =
            Mapping::anonymous(len.next_multiple_of(HUGE_PAGE), true).map(|memory| (memory, Pages::Huge));
        let (memory, pages) = huge.or_else(|_| Mapping::joined(len).map(|memory| (memory, Pages::Normal)))?;
        memory.not_for_children()?;
        static MADE: AtomicU32 = AtomicU32::new(0);
        // A number is never reused: otherwise frames of one UMEM would be valid for another.
        let number = MADE.fetch_update(Relaxed, Relaxed, |made| made.checked_add(1)).expect("2^32 UMEMs");
        let frames = (0..frames).map(|index| Frame { index, umem: number }).collect();
        Ok((Arc::new(Self { memory, config, pages, number }), frames))
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.config.frames
    }

    /// Bytes of a frame.
    pub fn frame_size(&self) -> u32 {
        self.config.frame_size
    }

    /// The longest packet that fits a frame on its way in.
    pub fn longest_received(&self) -> u32 {
        self.config.frame_size - Self::KERNEL_HEADROOM - self.config.headroom
    }

    /// Its layout.
    pub fn config(&self) -> UmemConfig {
        self.config
    }

    /// The pages it lies on.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// A frame's bytes.
    ///
    /// # Panics
    /// When the frame is another UMEM's.
    #[inline]
    pub fn bytes<'f>(&'f self, frame: &'f Frame) -> &'f [u8] {
        // SAFETY: the frame lies within the mapping, whose bytes are initialised; the owner of the only right to it lends
        // that right out shared, and nothing else, including the kernel, has it.
        unsafe { self.pointer(frame).as_ref() }
    }

    /// A frame's bytes, to be written.
    ///
    /// # Panics
    /// When the frame is another UMEM's.
    #[inline]
    pub fn bytes_mut<'f>(&'f self, frame: &'f mut Frame) -> &'f mut [u8] {
        // SAFETY: the frame lies within the mapping, whose bytes are initialised; the owner of the only right to it lends
        // that right out exclusively, and nothing else, including the kernel, has it.
        unsafe { self.pointer(frame).as_mut() }
    }

    #[inline]
    fn pointer(&self, frame: &Frame) -> NonNull<[u8]> {
        assert!(frame.umem == self.number, "a frame of another UMEM");
        self.memory.slice(frame.index as usize * self.frame_size() as usize, self.frame_size() as usize)
    }

    /// Where a frame begins, in bytes from the UMEM's start.
    #[inline]
    pub(super) fn address(&self, frame: &Frame) -> u64 {
        u64::from(frame.index) * u64::from(self.frame_size())
    }

    /// The frame that an address lies in, and where in it; `None` beyond the last frame.
    #[inline]
    pub(super) fn locate(&self, address: u64) -> Option<(u32, u32)> {
        let (index, offset) = match self.frame_size() {
            2048 => (address / 2048, address % 2048),
            _ => (address / 4096, address % 4096),
        };
        (index < u64::from(self.frames())).then_some((index as u32, offset as u32))
    }

    /// Prefetches an address, if it is in the UMEM.
    #[inline]
    pub(super) fn prefetch(&self, address: u64) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if address < self.memory.len() as u64 {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the address lies within the mapping, as just compared.
            let line = unsafe { self.memory.start().add(address as usize) };
            // SAFETY: prefetching changes nothing, and every x86-64 CPU supports it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        let _ = address;
    }

    /// The bytes of a packet within its frame; `None` when they would reach beyond it.
    #[inline]
    pub(super) fn range(&self, start: u32, len: u32) -> Option<Range<usize>> {
        let end = start.checked_add(len).filter(|end| *end <= self.frame_size())?;
        Some(start as usize..end as usize)
    }

    /// Converts the right to a frame into its number.
    #[inline]
    pub(super) fn surrender(&self, frame: Frame) -> u32 {
        assert!(frame.umem == self.number, "a frame of another UMEM");
        frame.index
    }

    /// Converts a number back into the right to its frame; only for a number from [`Umem::surrender`], and once.
    #[inline]
    pub(super) fn restore(&self, index: u32) -> Frame {
        Frame { index, umem: self.number }
    }

    /// First byte and number of bytes, for the kernel.
    pub(super) fn region(&self) -> (NonNull<u8>, u64) {
        debug_assert!(self.memory.len() as u64 >= u64::from(self.frames()) * u64::from(self.frame_size()));
        (self.memory.start(), u64::from(self.frames()) * u64::from(self.frame_size()))
    }
}
