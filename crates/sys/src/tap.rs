//! TAP interfaces: packets sent on the interface are read from a descriptor, one per queue.
//!
//! Formats: `linux/if_tun.h`, <https://docs.kernel.org/networking/tuntap.html>.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of an interface's name with the zero at its end (`IFNAMSIZ`).
const NAME: usize = 16;

/// `struct ifreq`: a name, then the flags in a union of 24 bytes.
#[repr(C)]
struct Request {
    name: [u8; NAME],
    flags: i16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<Request>() == 40);

/// Creates an interface with one descriptor for each queue, in the calling thread's namespace. Needs CAP_NET_ADMIN.
///
/// Each frame has `struct virtio_net_hdr` before it. The interface ends with its last descriptor; it has a carrier
/// while one is open.
pub fn create_tap(name: &str, queues: u32) -> io::Result<Vec<OwnedFd>> {
    const IFF_TAP: i16 = 0x2;
    const IFF_MULTI_QUEUE: i16 = 0x100;
    const IFF_NO_PI: i16 = 0x1000;
    const IFF_VNET_HDR: i16 = 0x4000;
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
    let mut request = Request {
        name: [0; NAME],
        flags: IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE | IFF_VNET_HDR,
        rest: [0; 22],
    };
    // The last byte stays zero: the kernel reads up to it.
    let place = request.name[..NAME - 1].get_mut(..name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    place.copy_from_slice(name.as_bytes());
    let queue = |_| {
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: the request is a live `struct ifreq`, which the kernel reads and writes only within its size.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
        if made < 0 { Err(io::Error::last_os_error()) } else { Ok(file.into()) }
    };
    (0..queues).map(queue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;
    use crate::rtnetlink::{RouteSocket, flag};

    #[test]
    fn a_tap_has_a_descriptor_for_each_queue_and_goes_with_the_last() {
        let Ok(namespace) = NetNs::create() else {
            return testing::skip("a namespace needs CAP_SYS_ADMIN");
        };
        let tap = namespace.run(|| create_tap("tap", 3)).unwrap();
        let tap = match tap {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return testing::skip("no /dev/net/tun");
            }
            tap => tap.unwrap(),
        };
        let mut route = namespace.run(RouteSocket::open).unwrap().unwrap();
        let link = route.link_by_name("tap").unwrap();
        assert_eq!((tap.len(), link.kind.as_deref()), (3, Some("tun")));
        route.create_bridge("bridge").unwrap();
        let bridge = route.link_by_name("bridge").unwrap();
        assert_eq!(bridge.kind.as_deref(), Some("bridge"));
        route.add_to_bridge(link.index, bridge.index).unwrap();
        route.change_flags(link.index, flag::UP, flag::UP).unwrap();
        assert!(route.link_by_index(link.index).unwrap().flags & flag::UP != 0);
        drop(tap);
        let error = route.link_by_name("tap").unwrap_err().to_string();
        assert_eq!(error, "cannot read interface tap");
    }

    #[test]
    fn a_name_too_long_is_refused() {
        assert_eq!(create_tap("sixteen-letters!", 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
