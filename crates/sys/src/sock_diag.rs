//! AF_XDP sockets of other processes and their losses, by netlink.
//!
//! Formats: `linux/sock_diag.h`, `linux/xdp_diag.h`. Kernels may lack it (`CONFIG_XDP_SOCKETS_DIAG`).

use crate::{
    netlink::{Attributes, NetlinkError, Request, Socket, field},
    xsk::XskStatistics,
};

/// An AF_XDP socket of this network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpSocket {
    /// `socket:[<n>]` under `/proc/<pid>/fd`.
    pub inode: u32,
    /// The interface's number; 0 before it is bound.
    pub interface: u32,
    /// The queue.
    pub queue: u32,
    /// The kernel's counts since it was opened.
    pub statistics: XskStatistics,
}

/// `SOCK_DIAG_BY_FAMILY`
const BY_FAMILY: u16 = 20;
const XDP_SHOW_INFO: u32 = 1;
const XDP_SHOW_STATS: u32 = 1 << 4;
const XDP_DIAG_INFO: u16 = 1;
const XDP_DIAG_STATS: u16 = 9;
/// Length of `struct xdp_diag_msg`: family, type, padding, inode, cookie.
const HEADER: usize = 16;

/// All AF_XDP sockets of the calling thread's network namespace; `None` if the kernel does not support it.
///
/// # Errors
/// [`NetlinkError`]: no netlink, or another error of the kernel.
pub fn xdp_sockets() -> Result<Option<Vec<XdpSocket>>, NetlinkError> {
    let mut socket = Socket::open(libc::NETLINK_SOCK_DIAG)?;
    let mut sockets = Vec::new();
    match socket.ask(request(), |body| sockets.extend(XdpSocket::parse(body))) {
        Ok(()) => Ok(Some(sockets)),
        Err(refusal) if matches!(refusal.source.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            Ok(None)
        }
        Err(refusal) => Err(refusal.of("list", "the AF_XDP sockets")),
    }
}

/// `struct xdp_diag_req`: family, protocol, padding, inode, what to show, cookie.
fn request() -> Request {
    let mut header = vec![libc::AF_XDP as u8, 0, 0, 0, 0, 0, 0, 0];
    header.extend((XDP_SHOW_INFO | XDP_SHOW_STATS).to_ne_bytes());
    header.extend([0; 8]);
    Request::new(BY_FAMILY, libc::NLM_F_DUMP, &header)
}

impl XdpSocket {
    fn parse(body: &[u8]) -> Option<Self> {
        if i32::from(*body.first()?) != libc::AF_XDP {
            return None;
        }
        let attributes = Attributes(body.get(HEADER..)?);
        // An unbound socket has neither.
        let info = attributes.find(XDP_DIAG_INFO);
        let counted = attributes.find(XDP_DIAG_STATS);
        let number = |at| info.and_then(|info| field(info, at)).map_or(0, u32::from_ne_bytes);
        let count = |index: usize| {
            counted.and_then(|counted| field(counted, index * 8)).map_or(0, u64::from_ne_bytes)
        };
        Some(Self {
            inode: u32::from_ne_bytes(field(body, 4)?),
            interface: number(0),
            queue: number(4),
            statistics: XskStatistics {
                rx_dropped: count(0),
                rx_invalid_descs: count(1),
                rx_ring_full: count(2),
                rx_fill_ring_empty_descs: count(3),
                tx_invalid_descs: count(4),
                tx_ring_empty_descs: count(5),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_asked_for_and_read_as_the_kernel_writes_it() {
        assert_eq!(request().body().len(), 20, "struct xdp_diag_req");
        assert_eq!(request().body()[8], 0b1_0001);
        let mut body = vec![libc::AF_XDP as u8, 3, 0, 0];
        body.extend(77u32.to_ne_bytes());
        body.extend([0; 8]);
        for (kind, words) in [(XDP_DIAG_INFO, vec![4u32, 1]), (7, vec![9])] {
            body.extend((4 + 4 * words.len() as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            words.iter().for_each(|word| body.extend(word.to_ne_bytes()));
        }
        body.extend([52, 0]);
        body.extend(XDP_DIAG_STATS.to_ne_bytes());
        (1..=6u64).for_each(|count| body.extend(count.to_ne_bytes()));
        let socket = XdpSocket::parse(&body).unwrap();
        assert_eq!((socket.inode, socket.interface, socket.queue), (77, 4, 1));
        let counted = socket.statistics;
        assert_eq!((counted.rx_dropped, counted.rx_invalid_descs, counted.rx_ring_full), (1, 2, 3));
        assert_eq!(counted.rx_fill_ring_empty_descs, 4);
        assert_eq!((counted.tx_invalid_descs, counted.tx_ring_empty_descs), (5, 6));
        assert!(XdpSocket::parse(&body[..15]).is_none());
    }

    #[test]
    fn a_kernel_that_cannot_tell_is_no_error() {
        // This thread's namespace may hold sockets of other tests: only the answer's form is checked.
        xdp_sockets().unwrap();
    }
}
