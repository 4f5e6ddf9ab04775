//! Generic netlink: finding a family by its name, and sending it requests. The families are [`crate::netdev`] and
//! [`crate::ethtool::EthtoolNetlink`].

use crate::netlink::{Attributes, NetlinkError, Refusal, Request, Socket};

/// A socket for one family, in the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Family {
    socket: Socket,
    number: u16,
}

/// `struct genlmsghdr` with a command of version 1.
pub(crate) fn command(command: u8) -> [u8; HEADER] {
    [command, 1, 0, 0]
}

/// Length of `struct genlmsghdr`.
pub(crate) const HEADER: usize = 4;

impl Family {
    /// Finds the family `name`, which kernels have from `since` on.
    pub(crate) fn open(name: &'static str, since: &'static str) -> Result<Self, NetlinkError> {
        let mut socket = Socket::open(libc::NETLINK_GENERIC)?;
        let mut request =
            Request::new(libc::GENL_ID_CTRL as u16, 0, &command(libc::CTRL_CMD_GETFAMILY as u8));
        request.string(libc::CTRL_ATTR_FAMILY_NAME as u16, name);
        let mut number = None;
        let asked = socket.ask(request, |body| number = number.or(family_number(body)));
        match (asked, number) {
            (Ok(()), Some(number)) => Ok(Self { socket, number }),
            (Err(refusal), _) if refusal.source.raw_os_error() != Some(libc::ENOENT) => {
                Err(refusal.of("find netlink family", name))
            }
            _ => Err(NetlinkError::Unsupported { family: name, since }),
        }
    }

    /// A request of this family, without attributes.
    pub(crate) fn request(&self, number: u8, flags: libc::c_int) -> Request {
        Request::new(self.number, flags, &command(number))
    }

    /// Sends a request; calls `each` with the attributes of each message of the answer.
    pub(crate) fn ask(
        &mut self,
        request: Request,
        mut each: impl FnMut(Attributes<'_>),
    ) -> Result<(), Refusal> {
        self.socket.ask(request, |body| {
            if let Some(attributes) = body.get(HEADER..) {
                each(Attributes(attributes));
            }
        })
    }
}

fn family_number(body: &[u8]) -> Option<u16> {
    let payload = Attributes(body.get(HEADER..)?).find(libc::CTRL_ATTR_FAMILY_ID as u16)?;
    payload.try_into().ok().map(u16::from_ne_bytes)
}
