//! Network namespaces held by a descriptor: no name, no mount, ended by the last descriptor, socket or
//! thread that uses them, even after a kill.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

mod user;

pub use user::{UserNamespaceError, become_root_in_user_namespace};

/// A network namespace.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

impl NetNs {
    /// A new, empty namespace; the calling thread does not move. Needs CAP_SYS_ADMIN.
    ///
    /// `StorageFull` (ENOSPC) means that `/proc/sys/user/max_net_namespaces` is reached.
    pub fn create() -> io::Result<Self> {
        on_a_thread(|| {
            // SAFETY: no pointers; only this thread, which ends here, changes its namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
                return Err(io::Error::last_os_error());
            }
            Self::current()
        })
    }

    /// The calling thread's namespace.
    pub fn current() -> io::Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// The namespace at a path: `/proc/<pid>/ns/net`, or `/run/netns/<name>` as made by `ip netns`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { fd: File::open(path)?.into() })
    }

    /// Moves the calling thread here for good. Needs CAP_SYS_ADMIN, unless the thread is here already.
    ///
    /// Sockets opened before stay in the namespace they were opened in.
    pub fn enter(&self) -> io::Result<()> {
        let is_here = Self::current().and_then(|here| Ok(here.inode()? == self.inode()?));
        if is_here.unwrap_or(false) {
            return Ok(());
        }
        // SAFETY: no pointers; the descriptor is open as long as `self` lives.
        let entered = unsafe { libc::setns(self.fd.as_raw_fd(), libc::CLONE_NEWNET) };
        if entered < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// A second descriptor of the same namespace.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()? })
    }

    /// Runs `work` on a new thread in this namespace and returns its result.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| self.enter().map(|()| work()))
    }

    /// The number in `net:[<n>]` under `/proc/<pid>/ns`; a later namespace may get it again.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(File::from(self.fd.try_clone()?).metadata()?.ino())
    }

    /// A number that is unique among all namespaces until reboot. Since Linux 5.14.
    pub fn cookie(&self) -> io::Result<u64> {
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        // The thread's present namespace needs no capability.
        let is_here = Self::current()?.inode()? == self.inode()?;
        let socket = if is_here { bind() } else { self.run(bind)? }?;
        let mut cookie = 0u64;
        let mut length = size_of_val(&cookie) as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
        let value = (&raw mut cookie).cast();
        // SAFETY: the value is a live `u64` of the given length, and the kernel writes no more than that.
        let answer = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut length) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A namespace belongs to a thread: changing it on a new thread does not affect the caller.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work)?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace, or `None` with a printed skip if this process may not create one.
    fn namespace() -> Option<NetNs> {
        match NetNs::create() {
            Ok(namespace) => Some(namespace),
            Err(error) => {
                testing::skip(format_args!("no namespace: {error}"));
                None
            }
        }
    }

    #[test]
    fn a_new_namespace_is_empty_and_leaves_the_caller_where_it_was() {
        let here = NetNs::current().unwrap();
        let Some(new) = namespace() else { return };
        assert_eq!(here.inode().unwrap(), NetNs::current().unwrap().inode().unwrap());
        assert_ne!(here.inode().unwrap(), new.inode().unwrap());
        assert_ne!(here.cookie().unwrap(), new.cookie().unwrap());
        let links = new.run(|| crate::rtnetlink::RouteSocket::open().unwrap().links().unwrap()).unwrap();
        assert!(links.iter().all(|link| link.stats.rx_packets == 0 && !link.operational), "{links:?}");
        assert_eq!(links.iter().filter(|link| link.name == "lo").count(), 1);
    }

    #[test]
    fn a_thread_that_enters_stays() {
        let Some(new) = namespace() else { return };
        let inodes = thread::scope(|scope| {
            scope
                .spawn(|| {
                    new.enter().unwrap();
                    (NetNs::current().unwrap().inode().unwrap(), new.inode().unwrap())
                })
                .join()
                .unwrap()
        });
        assert_eq!(inodes.0, inodes.1);
    }

    #[test]
    fn a_panic_inside_reaches_the_caller() {
        let Some(new) = namespace() else { return };
        let panic = std::panic::catch_unwind(|| new.run(|| panic!("inside"))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"inside"));
    }

    #[test]
    fn what_is_not_a_namespace_cannot_be_entered() {
        assert!(NetNs::open("/dev/null").unwrap().enter().is_err());
    }
}
