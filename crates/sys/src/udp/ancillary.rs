//! Ancillary data of a message: its sender's address, and control messages.

use std::{
    mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Room for a `sockaddr_in` or a `sockaddr_in6`.
pub(crate) const NAME_BYTES: usize = mem::size_of::<libc::sockaddr_in6>();
/// Room for every control message that our sockets request.
pub(crate) const CONTROL_BYTES: usize = 128;

/// When a message was received (`struct scm_timestamping`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveTimes {
    /// Nanoseconds of the kernel's wall clock when the driver passed it on.
    pub kernel_ns: u64,
    /// Nanoseconds of the card's own clock, if it stamped the packet.
    pub card_ns: Option<u64>,
}

/// The address in a `sockaddr_in` or a `sockaddr_in6`.
pub(crate) fn source(name: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    match i32::from(u16::from_ne_bytes(*name.first_chunk()?)) {
        libc::AF_INET => Some((Ipv4Addr::from(*name.get(4..)?.first_chunk::<4>()?), port).into()),
        libc::AF_INET6 => Some((Ipv6Addr::from(*name.get(8..)?.first_chunk::<16>()?), port).into()),
        _ => None,
    }
}

/// `struct scm_timestamping`: software, a relic, hardware; each as seconds and nanoseconds.
pub(crate) fn times(controls: &[u8]) -> Option<ReceiveTimes> {
    let content = control(controls, libc::SOL_SOCKET, libc::SO_TIMESTAMPING)?;
    let number = |at: usize| Some(u64::from_ne_bytes(*content.get(at..at + 8)?.first_chunk()?));
    let time = |at: usize| Some(number(at)?.wrapping_mul(1_000_000_000).wrapping_add(number(at + 8)?));
    Some(ReceiveTimes { kernel_ns: time(0)?, card_ns: time(32).filter(|ns| *ns > 0) })
}

/// The content of a control message.
pub(crate) fn control(controls: &[u8], level: libc::c_int, kind: libc::c_int) -> Option<&[u8]> {
    const HEADER: usize = mem::size_of::<libc::cmsghdr>();
    let mut rest = controls;
    while rest.len() >= HEADER {
        let word = |at: usize| i32::from_ne_bytes(rest[at..at + 4].try_into().expect("four bytes"));
        let total = usize::from_ne_bytes(rest[..8].try_into().expect("eight bytes"));
        if total < HEADER || total > rest.len() {
            return None;
        }
        if word(8) == level && word(12) == kind {
            return rest.get(HEADER..total);
        }
        rest = rest.get(total.next_multiple_of(8)..)?;
    }
    None
}

const _: () = assert!(mem::size_of::<libc::cmsghdr>() == 16, "control messages start with 8 + 4 + 4 bytes");

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: libc::c_int, kind: libc::c_int, content: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + content.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn a_control_message_is_found_behind_others() {
        let mut bytes = message(libc::SOL_UDP, libc::UDP_GRO, &7u32.to_ne_bytes());
        bytes.extend(message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &9u32.to_ne_bytes()));
        assert_eq!(control(&bytes, libc::SOL_SOCKET, libc::SO_RXQ_OVFL), Some(&9u32.to_ne_bytes()[..]));
        assert_eq!(control(&bytes, libc::SOL_SOCKET, libc::SO_TIMESTAMPING), None);
        for cut in 0..bytes.len() {
            control(&bytes[..cut], libc::SOL_SOCKET, libc::SO_RXQ_OVFL);
        }
        assert_eq!(control(&[0; 32], 0, 0), None, "a message shorter than its header");
    }

    #[test]
    fn an_address_is_read_whole_or_not_at_all() {
        let mut name = vec![0; NAME_BYTES];
        name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        name[2..8].copy_from_slice(&[0x10, 0xe1, 192, 0, 2, 1]);
        assert_eq!(source(&name), Some("192.0.2.1:4321".parse().unwrap()));
        assert_eq!((source(&name[..7]), source(&[])), (None, None));
    }
}
