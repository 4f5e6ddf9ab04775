//! Memory for a card's DMA: huge pages whose addresses for the card are known, divided into descriptor tables and packet
//! buffers.
//!
//! A [`Buffer`] has one owner at a time: while a ring owns it, the card may write there and this process does not read it.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    ptr::NonNull,
    sync::Arc,
};

use super::error::PciError;
use crate::xsk::mapping::Mapping;

/// Bytes of a packet buffer: the card's `RCTL.BSIZE`.
pub const BUFFER_BYTES: usize = 2048;
/// Bytes of a huge page, which is contiguous for the card.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = 16;

/// The addresses by which a card reaches memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmaAddresses {
    /// Those of the memory controller.
    Physical,
    /// From this one on, which an IOMMU translates.
    From(u64),
}

/// Memory for a card's DMA.
pub struct DmaMemory {
    mapping: Mapping,
    /// The card's address of each huge page.
    pages: Vec<u64>,
    /// Keeps the pages while any process, such as the guard, has it open.
    file: Option<OwnedFd>,
}

/// The parts of the memory.
pub struct DmaParts {
    /// A table of descriptors for each ring.
    pub tables: Vec<Table>,
    /// All packet buffers.
    pub buffers: Vec<Buffer>,
}

/// A contiguous table of descriptors.
pub struct Table {
    memory: Arc<DmaMemory>,
    offset: usize,
    slots: u32,
}

/// A packet buffer of [`BUFFER_BYTES`].
pub struct Buffer {
    memory: Arc<DmaMemory>,
    offset: u32,
}

impl DmaMemory {
    /// Huge pages for these descriptors and buffers. They are locked, and exist until the last user of
    /// the file behind them has closed it.
    ///
    /// # Errors
    /// [`PciError::NoHugePages`]; [`PciError::NoPhysicalAddresses`] without CAP_SYS_ADMIN.
    pub fn huge((descriptors, buffers): (usize, usize), addresses: DmaAddresses) -> Result<Self, PciError> {
        let pages = Self::pages_for(descriptors, buffers);
        let no_pages = |source| PciError::NoHugePages { pages, source };
        // SAFETY: the name ends with a zero byte.
        let descriptor = unsafe {
            libc::memfd_create(
                c"linerate-dma".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
            )
        };
        if descriptor < 0 {
            return Err(no_pages(io::Error::last_os_error()));
        }
        // SAFETY: the kernel just created the descriptor, and nothing else owns it.
        let file = fs::File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let len = pages * HUGE_PAGE_BYTES;
        file.set_len(len as u64).map_err(no_pages)?;
        let mapping = Mapping::of_descriptor(file.as_fd(), len, 0).map_err(no_pages)?;
        // SAFETY: these bytes are mapped; locking changes none.
        if unsafe { libc::mlock(mapping.start().as_ptr().cast(), len) } < 0 {
            return Err(no_pages(io::Error::last_os_error()));
        }
        let first = mapping.start().as_ptr() as usize;
        let address = |page: usize| match addresses {
            DmaAddresses::Physical => physical_address(first + page * HUGE_PAGE_BYTES),
            DmaAddresses::From(address) => Ok(address + (page * HUGE_PAGE_BYTES) as u64),
        };
        let pages = (0..pages).map(address).collect::<Result<_, _>>()?;
        Ok(Self { mapping, pages, file: Some(file.into()) })
    }

    /// The same on normal memory, for a fake card: its address of a byte is the byte's offset.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn pretended(descriptors: usize, buffers: usize) -> io::Result<Self> {
        let pages = Self::pages_for(descriptors, buffers);
        let mapping = Mapping::anonymous(pages * HUGE_PAGE_BYTES, false)?;
        let pages = (0..pages).map(|page| (page * HUGE_PAGE_BYTES) as u64).collect();
        Ok(Self { mapping, pages, file: None })
    }

    /// The huge pages that these descriptors (in tables of at most 4096) and buffers need.
    pub fn pages_for(descriptors: usize, buffers: usize) -> usize {
        let bytes = (descriptors * DESCRIPTOR_BYTES).next_multiple_of(BUFFER_BYTES) + buffers * BUFFER_BYTES;
        bytes.div_ceil(HUGE_PAGE_BYTES).max(1)
    }

    /// The file behind the pages.
    pub(super) fn file(&self) -> Option<i32> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The card's address of the first page.
    pub(super) fn first_page(&self) -> u64 {
        self.pages[0]
    }

    /// This process's address, and the size.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.mapping.start().as_ptr() as u64, self.mapping.len() as u64)
    }

    /// The card's address of a byte.
    fn device_address(&self, offset: usize) -> u64 {
        self.pages[offset / HUGE_PAGE_BYTES] + (offset % HUGE_PAGE_BYTES) as u64
    }

    /// Divides the memory into tables of `slots` descriptors each, and buffers.
    ///
    /// # Panics
    /// When it has too few pages, or the tables do not fit the first one.
    pub fn into_parts(self, slots: &[u32], buffers: usize) -> DmaParts {
        let memory = Arc::new(self);
        let mut offset = 0;
        let tables = slots.iter().map(|&slots| {
            let table = Table { memory: Arc::clone(&memory), offset, slots };
            // The card requires tables at multiples of 128 bytes.
            offset += (slots as usize * DESCRIPTOR_BYTES).next_multiple_of(128);
            table
        });
        let tables: Vec<_> = tables.collect();
        assert!(offset <= HUGE_PAGE_BYTES, "tables of {offset} bytes");
        let first = offset.next_multiple_of(BUFFER_BYTES);
        assert!(first + buffers * BUFFER_BYTES <= memory.mapping.len(), "{buffers} buffers");
        let buffers = (0..buffers).map(|buffer| Buffer {
            memory: Arc::clone(&memory),
            offset: (first + buffer * BUFFER_BYTES) as u32,
        });
        DmaParts { tables, buffers: buffers.collect() }
    }
}

impl Table {
    /// Number of descriptors.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The card's address of the first.
    pub fn device_address(&self) -> u64 {
        self.memory.device_address(self.offset)
    }

    /// Whether no real card uses it.
    pub(super) fn is_pretended(&self) -> bool {
        self.memory.file.is_none()
    }

    /// One of the two halves of a descriptor.
    ///
    /// # Panics
    /// When there is no such descriptor.
    #[inline]
    pub(super) fn half(&self, slot: u32, half: usize) -> NonNull<u64> {
        assert!(slot < self.slots && half < 2, "descriptor {slot} of {}", self.slots);
        self.memory.mapping.pointer(self.offset + slot as usize * DESCRIPTOR_BYTES + half * 8)
    }
}

impl Buffer {
    /// The card's address of the first byte.
    #[inline]
    pub(super) fn device_address(&self) -> u64 {
        self.memory.device_address(self.offset as usize)
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.all().cast()
    }

    #[inline]
    fn all(&self) -> NonNull<[u8]> {
        self.memory.mapping.slice(self.offset as usize, BUFFER_BYTES)
    }

    /// The first `len` bytes.
    ///
    /// # Panics
    /// When the buffer is shorter.
    #[inline]
    pub fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: the bytes are mapped and initialised as long as the memory is, and this buffer alone is of them; its
        // owner has taken it back from the card.
        unsafe { &self.all().as_ref()[..len] }
    }

    /// All bytes.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the borrow is exclusive.
        unsafe { self.all().as_mut() }
    }
}

/// The physical address of a page of this process, which is populated and locked.
fn physical_address(address: usize) -> Result<u64, PciError> {
    const PAGE_BYTES: usize = 4096;
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let path = "/proc/self/pagemap";
    let mut entry = [0; 8];
    let read = fs::File::open(path)
        .and_then(|file| file.read_exact_at(&mut entry, (address / PAGE_BYTES * 8) as u64));
    read.map_err(PciError::step("read", path))?;
    let entry = u64::from_ne_bytes(entry);
    // Without CAP_SYS_ADMIN the number of the frame is 0.
    if entry & PRESENT == 0 || entry & FRAME == 0 {
        return Err(PciError::NoPhysicalAddresses);
    }
    Ok((entry & FRAME) * PAGE_BYTES as u64)
}
