//! VFIO: a card behind an IOMMU, which reaches only memory that was mapped for it, and whose interrupts arrive as events.
//!
//! Layouts and numbers: `linux/vfio.h`. The kernel disables a card whose last descriptor is closed, so nothing outlives its
//! owner.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    card::Card,
    command::{COMMAND, command_for_dma},
    error::PciError,
    group::DRIVER,
    memory::DmaMemory,
    registers::Registers,
};

/// How long an IOMMU group may stay busy: its last user may still be ending.
const BUSY_AT_MOST: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(10);

const API_VERSION: i32 = 0;
const TYPE1_V2: libc::c_ulong = 3;

/// `_IO(';', 100 + number)`.
const fn request(number: libc::Ioctl) -> libc::Ioctl {
    (b';' as libc::Ioctl) << 8 | (100 + number)
}

const GET_API_VERSION: libc::Ioctl = request(0);
const SET_IOMMU: libc::Ioctl = request(2);
const GROUP_GET_STATUS: libc::Ioctl = request(3);
const GROUP_SET_CONTAINER: libc::Ioctl = request(4);
const GROUP_GET_DEVICE_FD: libc::Ioctl = request(6);
const GET_REGION_INFO: libc::Ioctl = request(8);
const GET_IRQ_INFO: libc::Ioctl = request(9);
const SET_IRQS: libc::Ioctl = request(10);
const MAP_DMA: libc::Ioctl = request(13);

/// `struct vfio_group_status`.
#[repr(C)]
struct GroupStatus {
    bytes: u32,
    flags: u32,
}
const VIABLE: u32 = 1;

/// `struct vfio_region_info`.
#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    bytes: u32,
    flags: u32,
    index: u32,
    capabilities: u32,
    size: u64,
    offset: u64,
}
const FIRST_BASE_ADDRESS: u32 = 0;
const CONFIGURATION: u32 = 7;

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
struct MapDma {
    bytes: u32,
    flags: u32,
    address: u64,
    card_address: u64,
    size: u64,
}
const READ_AND_WRITE: u32 = 1 | 2;

/// `struct vfio_irq_info`.
#[repr(C)]
#[derive(Default)]
struct IrqInfo {
    bytes: u32,
    flags: u32,
    index: u32,
    count: u32,
}

/// `struct vfio_irq_set` with one event descriptor.
#[repr(C)]
struct IrqSet {
    bytes: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    event: i32,
}
const NO_DATA: u32 = 1 << 0;
const WITH_EVENT: u32 = 1 << 2;
const UNMASK: u32 = 1 << 4;
const TRIGGER: u32 = 1 << 5;
const INTX: u32 = 0;
const MSI: u32 = 1;

const _: () = {
    assert!(size_of::<GroupStatus>() == 8 && size_of::<IrqInfo>() == 16 && size_of::<IrqSet>() == 24);
    assert!(size_of::<RegionInfo>() == 32 && size_of::<MapDma>() == 32);
};

/// Calls with a number, or with nothing.
fn call(file: impl AsFd, what: libc::Ioctl, value: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: these requests take a number and touch no memory of this process.
    let answer = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), what, value) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Calls with a structure of that request, whose first field has its size.
fn ask<T>(file: impl AsFd, what: libc::Ioctl, with: &mut T) -> io::Result<i32> {
    // SAFETY: the structure is live, and the kernel reads and writes only as many bytes as its first field says.
    let answer = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), what, std::ptr::from_mut(with)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Loads the kernel's driver, if it is a module that this machine can load.
///
/// # Errors
/// [`PciError::NoVfio`].
pub(super) fn load_driver(card: &Card) -> Result<(), PciError> {
    let is_there = || Path::new("/sys/bus/pci/drivers").join(DRIVER).exists();
    if !is_there() {
        let mut modprobe = Command::new("modprobe");
        modprobe.arg(DRIVER).stdout(Stdio::null()).stderr(Stdio::null());
        // Without modprobe the driver stays absent.
        modprobe.status().ok();
    }
    if is_there() { Ok(()) } else { Err(PciError::NoVfio { interface: card.interface.clone() }) }
}

/// A card that VFIO lent to this process.
pub(super) struct Vfio {
    // Closed in this order.
    device: OwnedFd,
    interrupts: Option<Interrupts>,
    _group: File,
    _container: File,
}

/// The card's interrupts as events.
struct Interrupts {
    event: File,
    index: u32,
}

impl Vfio {
    /// Opens a card that [`DRIVER`] owns, maps the memory for its DMA, and lets it access that.
    pub(super) fn open(card: &Card, group: u32, memory: &DmaMemory) -> Result<Self, PciError> {
        let at = |path: &str| File::options().read(true).write(true).open(path);
        let path = "/dev/vfio/vfio";
        let container = at(path).map_err(PciError::step("open", path))?;
        if call(&container, GET_API_VERSION, 0).map_err(PciError::step("use", path))? != API_VERSION {
            return Err(PciError::step("use", path)(io::ErrorKind::Unsupported.into()));
        }
        let path = format!("/dev/vfio/{group}");
        let group = when_free(|| {
            let group = at(&path)?;
            let mut status = GroupStatus { bytes: size_of::<GroupStatus>() as u32, flags: 0 };
            ask(&group, GROUP_GET_STATUS, &mut status)?;
            if status.flags & VIABLE == 0 {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            let mut descriptor = container.as_raw_fd();
            ask(&group, GROUP_SET_CONTAINER, &mut descriptor)?;
            Ok(group)
        });
        let group = group.map_err(PciError::step("open", path))?;
        let no_iommu = |source| PciError::NoVfioIommu { interface: card.interface.clone(), source };
        call(&container, SET_IOMMU, TYPE1_V2).map_err(no_iommu)?;
        let map = |first_page: u64| {
            let (address, size) = memory.place();
            let bytes = size_of::<MapDma>() as u32;
            let mut order = MapDma { bytes, flags: READ_AND_WRITE, address, card_address: first_page, size };
            ask(&container, MAP_DMA, &mut order)
        };
        map(memory.first_page()).map_err(PciError::step("map memory for the DMA of", &*card.interface))?;
        let device = device_of(&group, card).map_err(PciError::step("open by VFIO", &*card.address))?;
        let vfio = Self { device, interrupts: None, _group: group, _container: container };
        vfio.start_dma().map_err(PciError::step("enable the DMA of", &*card.address))?;
        Ok(vfio)
    }

    fn region(&self, index: u32) -> io::Result<RegionInfo> {
        let mut region = RegionInfo { bytes: size_of::<RegionInfo>() as u32, index, ..RegionInfo::default() };
        ask(&self.device, GET_REGION_INFO, &mut region)?;
        Ok(region)
    }

    fn start_dma(&self) -> io::Result<()> {
        let at = self.region(CONFIGURATION)?.offset + COMMAND;
        let device = File::from(self.device.try_clone()?);
        let mut bytes = [0; 2];
        device.read_exact_at(&mut bytes, at)?;
        device.write_all_at(&command_for_dma(u16::from_le_bytes(bytes)).to_le_bytes(), at)
    }

    /// The card's registers.
    pub(super) fn registers(&self) -> io::Result<Registers> {
        let region = self.region(FIRST_BASE_ADDRESS)?;
        if region.size < Registers::BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Registers::of(&self.device, region.offset)
    }

    /// Turns the card's interrupts into events: one message, or the interrupt line.
    pub(super) fn use_interrupts(&mut self) -> io::Result<()> {
        let count = |index| {
            let mut info = IrqInfo { bytes: size_of::<IrqInfo>() as u32, index, ..IrqInfo::default() };
            ask(&self.device, GET_IRQ_INFO, &mut info).map(|_| info.count)
        };
        let index = if count(MSI)? > 0 { MSI } else { INTX };
        // SAFETY: this call touches no memory.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just created the descriptor, and nothing else owns it.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        self.set_interrupts(index, WITH_EVENT | TRIGGER, Some(event.as_raw_fd()))?;
        self.interrupts = Some(Interrupts { event: event.into(), index });
        Ok(())
    }

    fn set_interrupts(&self, index: u32, flags: u32, event: Option<i32>) -> io::Result<()> {
        let unused = if event.is_none() { size_of::<i32>() } else { 0 };
        let bytes = (size_of::<IrqSet>() - unused) as u32;
        let mut set = IrqSet { bytes, flags, index, start: 0, count: 1, event: event.unwrap_or(-1) };
        ask(&self.device, SET_IRQS, &mut set).map(|_| ())
    }

    /// Waits for an interrupt; returns whether one came.
    ///
    /// # Panics
    /// Without [`Vfio::use_interrupts`].
    pub(super) fn wait_for_interrupt(&self, at_most: Duration) -> io::Result<bool> {
        let Interrupts { event, .. } = self.interrupts.as_ref().expect("interrupts were requested");
        let mut poll = libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let millis = at_most.as_millis().try_into().unwrap_or(libc::c_int::MAX);
        // SAFETY: `poll` is one live structure, as the count says.
        let ready = unsafe { libc::poll(&raw mut poll, 1, millis) };
        match ready {
            0 => Ok(false),
            1.. => io::Read::read(&mut &*event, &mut [0; 8]).map(|_| true),
            _ => match io::Error::last_os_error() {
                source if source.kind() == io::ErrorKind::Interrupted => Ok(false),
                source => Err(source),
            },
        }
    }

    /// Allows the next interrupt: the kernel masks the interrupt line at each one, until the cause was cleared.
    pub(super) fn allow_interrupt(&self) -> io::Result<()> {
        match &self.interrupts {
            Some(Interrupts { index: INTX, .. }) => self.set_interrupts(INTX, NO_DATA | UNMASK, None),
            _ => Ok(()),
        }
    }
}

/// Tries until the group's last user has ended.
fn when_free<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + BUSY_AT_MOST;
    loop {
        match open() {
            Err(source)
                if matches!(source.raw_os_error(), Some(libc::EBUSY | libc::ENOENT))
                    && Instant::now() < deadline =>
            {
                thread::sleep(RETRY);
            }
            opened => return opened,
        }
    }
}

fn device_of(group: &File, card: &Card) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(&*card.address).map_err(io::Error::other)?;
    // SAFETY: the name is a live string that ends with a zero byte; the kernel only reads it.
    let device = unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD, name.as_ptr()) };
    if device < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(device) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_group_is_tried_again_and_another_fault_is_not() {
        let tries = std::cell::Cell::new(0);
        let opened = when_free(|| {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(io::Error::from_raw_os_error(libc::EBUSY)) } else { Ok(tries.get()) }
        });
        assert_eq!(opened.unwrap(), 3);
        tries.set(0);
        let refused: io::Result<()> = when_free(|| {
            tries.set(tries.get() + 1);
            Err(io::Error::from_raw_os_error(libc::EACCES))
        });
        assert_eq!((refused.unwrap_err().raw_os_error(), tries.get()), (Some(libc::EACCES), 1));
    }
}
