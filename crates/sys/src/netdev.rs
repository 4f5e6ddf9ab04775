//! The generic netlink family `netdev`: which NAPI instances an interface has and which threads run them.
//!
//! Format: `linux/netdev.h`, <https://docs.kernel.org/networking/netlink_spec/netdev.html>.

use std::io;

use crate::netlink::{Attributes, NetlinkError, Request, Socket};

/// A socket of the family in the namespace of the thread that opened it; from there any thread may use it.
#[derive(Debug)]
pub struct NetdevSocket {
    socket: Socket,
    family: u16,
}

/// One NAPI instance: what polls a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Napi {
    /// Its number, unique on this machine.
    pub id: u32,
    /// The kernel thread that runs it, when it is threaded.
    pub thread: Option<u32>,
}

/// `struct genlmsghdr` with a command of version 1.
fn command(command: u8) -> [u8; 4] {
    [command, 1, 0, 0]
}

impl NetdevSocket {
    const FAMILY: &str = "netdev";
    /// The first kernel that lists NAPI instances.
    const SINCE: &str = "6.8";

    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        let mut socket = Socket::open(libc::NETLINK_GENERIC)?;
        let mut request =
            Request::new(libc::GENL_ID_CTRL as u16, 0, &command(libc::CTRL_CMD_GETFAMILY as u8));
        request.string(libc::CTRL_ATTR_FAMILY_NAME as u16, Self::FAMILY);
        let mut family = None;
        let asked = socket.ask(request, |body| family = family.or(family_number(body)));
        match (asked, family) {
            (Ok(()), Some(family)) => Ok(Self { socket, family }),
            (Err(refusal), _) if refusal.source.raw_os_error() != Some(libc::ENOENT) => {
                Err(refusal.of("find netlink family", Self::FAMILY))
            }
            _ => Err(Self::unsupported()),
        }
    }

    /// The NAPI instances of an interface in the order of their creation, which is that of the queues.
    pub fn napis(&mut self, interface: u32) -> Result<Vec<Napi>, NetlinkError> {
        const NAPI_GET: u8 = 11;
        const IFINDEX: u16 = 1;
        let mut request = Request::new(self.family, libc::NLM_F_DUMP, &command(NAPI_GET));
        request.u32(IFINDEX, interface);
        let mut napis = Vec::new();
        match self.socket.ask(request, |body| napis.extend(Napi::parse(body))) {
            Ok(()) => {}
            Err(refusal) if refusal.source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return Err(Self::unsupported());
            }
            Err(refusal) => {
                return Err(refusal.of("list the NAPI instances of", format!("interface number {interface}")));
            }
        }
        napis.sort_by_key(|napi| napi.id);
        Ok(napis)
    }

    fn unsupported() -> NetlinkError {
        NetlinkError::Unsupported { family: Self::FAMILY, since: Self::SINCE }
    }
}

fn family_number(body: &[u8]) -> Option<u16> {
    let payload = Attributes(body.get(4..)?).find(libc::CTRL_ATTR_FAMILY_ID as u16)?;
    payload.try_into().ok().map(u16::from_ne_bytes)
}

impl Napi {
    fn parse(body: &[u8]) -> Option<Self> {
        const ID: u16 = 2;
        const PID: u16 = 4;
        let attributes = Attributes(body.get(4..)?);
        Some(Self { id: attributes.u32(ID)?, thread: attributes.u32(PID) })
    }

    /// Keeps the thread of this instance on one CPU. Needs CAP_SYS_NICE over the whole machine, which root in a
    /// user namespace does not have.
    ///
    /// `NotFound` when the instance is not threaded, or its thread is hidden by a PID namespace.
    pub fn pin(&self, cpu: u32) -> io::Result<()> {
        let thread = self.thread.ok_or(io::ErrorKind::NotFound)?;
        let set = one_cpu(cpu)?;
        // SAFETY: the set is live and as large as the length says; the kernel only reads it.
        let pinned =
            unsafe { libc::sched_setaffinity(thread as i32, size_of_val(&set), (&raw const set).cast()) };
        if pinned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A CPU set as the kernel reads it: bit n of the array is CPU n.
fn one_cpu(cpu: u32) -> io::Result<[usize; 16]> {
    let mut set = [0; 16];
    let bits = usize::BITS;
    *set.get_mut((cpu / bits) as usize).ok_or(io::ErrorKind::InvalidInput)? = 1 << (cpu % bits);
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_one_bit_of_the_set() {
        assert_eq!(one_cpu(0).unwrap()[0], 1);
        assert_eq!(one_cpu(65).unwrap()[..2], [0, 2]);
        assert_eq!(one_cpu(1023).unwrap()[15], 1 << 63);
        assert_eq!(one_cpu(1024).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_napi_is_read_with_and_without_thread() {
        let header = command(11);
        let attribute = |kind: u16, value: u32| {
            let mut bytes = 8u16.to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value.to_ne_bytes());
            bytes
        };
        let softirq = [header.to_vec(), attribute(1, 7), attribute(2, 8193)].concat();
        assert_eq!(Napi::parse(&softirq), Some(Napi { id: 8193, thread: None }));
        let threaded = [softirq, attribute(4, 1234)].concat();
        assert_eq!(Napi::parse(&threaded), Some(Napi { id: 8193, thread: Some(1234) }));
        assert_eq!(Napi::parse(&header), None);
        assert_eq!(Napi::parse(&[]), None);
    }

    #[test]
    fn the_kernel_is_asked_for_the_family_by_name() {
        match NetdevSocket::open() {
            Ok(socket) => assert!(socket.family > libc::GENL_ID_CTRL as u16),
            Err(error) => assert!(matches!(error, NetlinkError::Unsupported { .. }), "{error}"),
        }
    }
}
