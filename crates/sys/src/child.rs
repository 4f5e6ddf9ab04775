//! Child processes that end with their parent, in a network namespace of choice, with chosen descriptors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use crate::netns::NetNs;

/// The environment of a child process besides its arguments.
#[derive(Debug, Default)]
pub struct Ties {
    /// The network namespace it starts in; the caller's when `None`. Needs CAP_SYS_ADMIN.
    pub namespace: Option<NetNs>,
    /// Descriptors that it inherits with the same numbers. They stay open here while the command exists.
    pub descriptors: Vec<OwnedFd>,
}

/// Ties the child that `command` will start to the thread that starts it: the kernel kills the child when that
/// thread ends in any way. The thread must therefore outlive the child's work.
pub fn tie(command: &mut Command, ties: Ties) {
    let parent = std::process::id();
    let prepare = move || {
        die_with_parent(parent)?;
        if let Some(namespace) = &ties.namespace {
            namespace.enter()?;
        }
        ties.descriptors.iter().try_for_each(keep_across_exec)
    };
    // SAFETY: between fork and exec the closure makes system calls only: prctl, getppid, setns and fcntl are
    // async-signal-safe, and errors from errno values allocate nothing.
    unsafe { command.pre_exec(prepare) };
}

/// What a child is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// SIGHUP: read its files again.
    Reload,
    /// SIGTERM: end.
    End,
}

/// A service's answer to [`Request::Reload`], as a state of `sd_notify(3)`: it has read its files again.
pub const RELOADED: &str = "X_LINERATE_RELOAD=taken";
/// Its other answer: it goes on with what it read before, for the reason that is its status.
pub const RELOAD_REFUSED: &str = "X_LINERATE_RELOAD=refused";

/// Sends a signal to a child that was not waited for: until then its process id is not used again.
///
/// # Errors
/// The kernel's reason.
pub fn request(child: &Child, request: Request) -> io::Result<()> {
    let number = match request {
        Request::Reload => libc::SIGHUP,
        Request::End => libc::SIGTERM,
    };
    // SAFETY: no pointers.
    let sent = unsafe { libc::kill(child.id().cast_signed(), number) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel does not notice a parent that ended before the call above.
    let orphaned = std::os::unix::process::parent_id() != parent;
    if orphaned { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
}

fn keep_across_exec(descriptor: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers; the descriptor is open.
    let kept = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) };
    if kept < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_child_keeps_the_descriptors_it_is_given() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let number = theirs.as_raw_fd();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo hello >&{number}")]);
        tie(&mut command, Ties { descriptors: vec![theirs.into()], ..Ties::default() });
        assert!(command.spawn().unwrap().wait().unwrap().success());
        drop(command);
        let mut said = String::new();
        ours.read_to_string(&mut said).unwrap();
        assert_eq!(said, "hello\n");
    }

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            tie(&mut command, Ties::default());
            let mut child = command.spawn().unwrap();
            // It runs while its input is open.
            child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            child
        })
        .join()
        .unwrap();
        let killed = std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap());
        assert_eq!(killed, Some(libc::SIGKILL));
    }

    #[test]
    fn a_child_starts_in_the_namespace_it_is_given() {
        let Ok(namespace) = NetNs::create() else {
            return testing::skip("a namespace needs CAP_SYS_ADMIN");
        };
        let inode = namespace.inode().unwrap();
        let mut command = Command::new("readlink");
        command.arg("/proc/self/ns/net");
        tie(&mut command, Ties { namespace: Some(namespace), ..Ties::default() });
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("net:[{inode}]\n"));
    }
}
