//! XDP programs from their instructions: programs for one device, which may call its driver's functions and
//! which loaders do not support yet, and programs whose cost is measured.
//!
//! Formats: `union bpf_attr` of `linux/bpf.h`, <https://docs.kernel.org/networking/xdp-rx-metadata.html>.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// Bytes of a program's name with the zero at its end (`BPF_OBJ_NAME_LEN`).
const NAME: usize = 16;
/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_TYPE: u32 = 37;

/// `BPF_PROG_LOAD`, the fields used here.
#[repr(C)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; NAME],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// `BPF_LINK_CREATE`, the fields used here.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// `BPF_PROG_TEST_RUN`, the fields used here.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    /// The kernel wants what it does not know to be 0.
    padding: u32,
}

const _: () = assert!(
    size_of::<TestRun>() == 80 && size_of::<Load>() == 72 && size_of::<LinkCreate>() == 16,
    "union bpf_attr"
);

/// Loads an XDP program for the interface of this number (`BPF_F_XDP_DEV_BOUND_ONLY`, since Linux 6.3): instructions of
/// eight bytes, which may call the kernel's functions and therefore need a GPL-compatible licence.
///
/// # Errors
/// The kernel's error: `EOPNOTSUPP` if the driver has no functions for such programs.
pub fn load_for_device(name: &str, instructions: &[[u8; 8]], interface: u32) -> io::Result<OwnedFd> {
    const XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
    load_with(name, instructions, (interface, XDP_DEV_BOUND_ONLY))
}

/// Loads an XDP program for any device.
///
/// # Errors
/// What the kernel said.
pub fn load(name: &str, instructions: &[[u8; 8]]) -> io::Result<OwnedFd> {
    load_with(name, instructions, (0, 0))
}

/// Runs a program `times` times on a packet of zeros, which is not sent.
///
/// # Errors
/// What the kernel said.
pub fn run(program: BorrowedFd<'_>, times: u32) -> io::Result<()> {
    test_run(program, &[0; 64], TestRun { repeat: times, ..TestRun::default() })
}

/// Runs a program so often, each time on a frame of its own that the kernel takes from a page pool, `batch` of them at a
/// time; what the program lets pass arrives on this namespace's loopback interface (since Linux 5.18).
///
/// # Errors
/// What the kernel said.
pub fn run_live(program: BorrowedFd<'_>, frame: &[u8], (times, batch): (u32, u32)) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    test_run(
        program,
        frame,
        TestRun { repeat: times, batch_size: batch, flags: LIVE_FRAMES, ..TestRun::default() },
    )
}

fn test_run(program: BorrowedFd<'_>, packet: &[u8], run: TestRun) -> io::Result<()> {
    const PROG_TEST_RUN: libc::c_int = 10;
    let mut attributes = TestRun {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: packet.len() as u32,
        data_in: packet.as_ptr().addr() as u64,
        ..run
    };
    // SAFETY: the attributes belong to the command and have the given length, and their pointers outlive the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, &raw mut attributes, size_of::<TestRun>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn load_with(name: &str, instructions: &[[u8; 8]], (interface, flags): (u32, u32)) -> io::Result<OwnedFd> {
    const PROG_LOAD: libc::c_int = 5;
    const PROG_TYPE_XDP: u32 = 6;
    let mut prog_name = [0; NAME];
    prog_name.iter_mut().zip(name.bytes().take(NAME - 1)).for_each(|(to, from)| *to = from);
    let mut attributes = Load {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr().addr() as u64,
        license: c"Dual MIT/GPL".as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: flags,
        prog_name,
        prog_ifindex: interface,
        // Ignored for a program without a link.
        expected_attach_type: if interface == 0 { 0 } else { ATTACH_TYPE },
    };
    bpf(PROG_LOAD, &mut attributes)
}

/// Attaches a program to the driver of the interface of this number, or generically behind it, until the link is closed.
///
/// # Errors
/// The kernel's error: `EBUSY` if another program is attached, `EINVAL` if the program was loaded for another device, or for
/// any device and should run as generic.
pub fn attach(program: BorrowedFd<'_>, interface: u32, is_generic: bool) -> io::Result<OwnedFd> {
    const LINK_CREATE: libc::c_int = 28;
    const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    let mut attributes = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: interface,
        attach_type: ATTACH_TYPE,
        flags: if is_generic { XDP_FLAGS_SKB_MODE } else { XDP_FLAGS_DRV_MODE },
    };
    bpf(LINK_CREATE, &mut attributes)
}

/// A command that returns a descriptor.
fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes belong to the command and have the given length, and their pointers outlive the call.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(answer as libc::c_int) })
}
