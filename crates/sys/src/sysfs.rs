//! sysfs as seen from a chosen network namespace, root or not, without touching the mount table.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use crate::netns::NetNs;

mod for_now;

pub use for_now::ForNow;

/// A sysfs instance that belongs to one network namespace. It is not attached to the mount tree, so no path leads to it and it
/// ends with its descriptor.
#[derive(Debug)]
pub struct Sysfs {
    root: OwnedFd,
}

impl Sysfs {
    /// Mounts sysfs for `namespace`. Needs CAP_SYS_ADMIN over it, and Linux 5.2.
    ///
    /// `PermissionDenied` in a user namespace means that the surrounding container hides parts of its own
    /// `/sys`: the kernel then refuses a new one inside.
    pub fn of(namespace: &NetNs) -> io::Result<Self> {
        namespace.run(|| {
            // Mounting needs a mount namespace owned by the caller's user namespace; it ends with this thread.
            // SAFETY: no pointers; only this short-lived thread moves.
            if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
                return Err(io::Error::last_os_error());
            }
            mount().map(|root| Self { root })
        })?
    }

    /// A path to its root, valid only in this process and while this value lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.root.as_raw_fd()).into()
    }

    /// Writes to the file at `path`, relative to `/sys`.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.open_with(path, libc::O_WRONLY)?.write_all(text.as_bytes())
    }

    /// The content of the file at `path`, relative to `/sys`, without the line end.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let text = io::read_to_string(self.open_with(path, libc::O_RDONLY)?)?;
        Ok(text.trim_end().into())
    }

    /// Opens the file at `path`, relative to `/sys`, for reading and writing.
    pub fn open(&self, path: &str) -> io::Result<File> {
        self.open_with(path, libc::O_RDWR)
    }

    fn open_with(&self, path: &str, access: libc::c_int) -> io::Result<File> {
        let path = std::ffi::CString::new(path)?;
        // SAFETY: the path ends with a zero byte and outlives the call.
        let fd = unsafe { libc::openat(self.root.as_raw_fd(), path.as_ptr(), access | libc::O_CLOEXEC) };
        Ok(File::from(owned(fd.into())?))
    }
}

fn mount() -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const KIND: &CStr = c"sysfs";
    // SAFETY: fsopen reads one string that ends with a zero byte.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, KIND.as_ptr(), FSOPEN_CLOEXEC) };
    let context = owned(context)?;
    let nothing = std::ptr::null::<libc::c_void>();
    let config = libc::SYS_fsconfig;
    // SAFETY: the create command takes no key and no value.
    let made =
        unsafe { libc::syscall(config, context.as_raw_fd(), FSCONFIG_CMD_CREATE, nothing, nothing, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    // SAFETY: no pointers.
    let root = unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) };
    owned(root)
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the caller's system call just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_namespaces_own_interfaces_are_there() {
        let Ok(namespace) = NetNs::create() else {
            return testing::skip("a namespace needs CAP_SYS_ADMIN");
        };
        let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = mounts();
        let sysfs = Sysfs::of(&namespace).unwrap();
        sysfs.write("class/net/lo/tx_queue_len", "7").unwrap();
        assert_eq!(mounts(), before);
        let here = crate::rtnetlink::RouteSocket::open().unwrap().links().unwrap();
        for elsewhere in here.iter().filter(|link| link.name != "lo" && link.kind.is_none()) {
            let error = sysfs.write(&format!("class/net/{}/tx_queue_len", elsewhere.name), "7").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
