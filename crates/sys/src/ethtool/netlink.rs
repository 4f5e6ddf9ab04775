//! The generic netlink family `ethtool`.

use std::io;

use super::parameters::{CHANNELS, Group, Values};
use crate::genl::Family;
use crate::netlink::{Attributes, NetlinkError, Refusal, Request, field};

/// A socket of the family in the namespace of the thread that opened it; from there any thread may use it.
#[derive(Debug)]
pub struct EthtoolNetlink {
    family: Family,
}

/// A command of the family (`linux/ethtool_netlink.h`, `ETHTOOL_MSG_*`).
mod message {
    pub(super) const LINKMODES_GET: u8 = 4;
    pub(super) const RSS_GET: u8 = 38;
}

/// An interface's receive side scaling, by netlink (since Linux 6.3).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rss {
    /// Which context; 0 is the interface's own.
    pub context: u32,
    /// The hash function's number: a bit of `ETH_RSS_HASH_*`.
    pub function: Option<u32>,
    /// The queue of each bucket.
    pub table: Vec<u32>,
    /// The hash key.
    pub key: Vec<u8>,
    /// The transformation of the fields before hashing (`RXH_XFRM_*`); 0 is nothing.
    pub transform: u32,
}

/// The mode of the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkMode {
    /// Millions of bits per second; `None` without a link.
    pub speed_mbps: Option<u32>,
    /// Whether the link is full duplex.
    pub full_duplex: Option<bool>,
    /// Whether speed and duplex are negotiated.
    pub autoneg: Option<bool>,
}

impl EthtoolNetlink {
    const FAMILY: &str = "ethtool";
    const SINCE: &str = "5.6";

    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Family::open(Self::FAMILY, Self::SINCE).map(|family| Self { family })
    }

    /// The values of a group on interface number `interface`.
    pub fn read(&mut self, group: &Group, interface: u32) -> Result<Values, NetlinkError> {
        let mut values = Values::new();
        self.get(group.get, interface, |attributes| values = group.parse(attributes.0))
            .map_err(|refusal| refusal.of("read", format!("the {}", group.name)))?;
        Ok(values)
    }

    /// Channels that receive; `None` if the driver does not report them.
    pub(super) fn rx_queues(&mut self, interface: u32) -> Option<u32> {
        let channels = self.read(&CHANNELS, interface).ok()?;
        let used = channels.iter().filter(|(name, _)| matches!(*name, "rx" | "combined"));
        Some(used.map(|(_, count)| count).sum()).filter(|count| *count > 0)
    }

    /// Sets some values of a group. Needs CAP_NET_ADMIN.
    ///
    /// The driver may adjust them: read them back.
    pub fn write(
        &mut self,
        group: &Group,
        interface: u32,
        values: &[(&str, u32)],
    ) -> Result<(), NetlinkError> {
        let mut request = self.family.request(group.set, 0);
        append_header(&mut request, interface);
        values.iter().for_each(|(name, value)| group.append(&mut request, name, *value));
        self.family.ask(request, |_| ()).map_err(|refusal| refusal.of("set", format!("the {}", group.name)))
    }

    /// Receive side scaling of the interface's own context. Needs Linux 6.3; for older kernels use the ioctl
    /// ([`super::EthtoolSocket::rss`]).
    pub fn rss(&mut self, interface: u32) -> Result<Rss, NetlinkError> {
        let mut rss = Rss::default();
        self.get(message::RSS_GET, interface, |attributes| rss = Rss::parse(attributes.0))
            .map_err(|refusal| refusal.of("read", "receive side scaling"))?;
        Ok(rss)
    }

    /// Every context of receive side scaling, the interface's own first. Needs Linux 6.12.
    pub fn rss_contexts(&mut self, interface: u32) -> Result<Vec<Rss>, NetlinkError> {
        let mut contexts = Vec::new();
        let mut request = self.family.request(message::RSS_GET, libc::NLM_F_DUMP);
        append_header(&mut request, interface);
        self.family
            .ask(request, |attributes| contexts.push(Rss::parse(attributes.0)))
            .map_err(|refusal| refusal.of("list", "the RSS contexts"))?;
        Ok(contexts)
    }

    /// The link's speed and duplex.
    pub fn link_mode(&mut self, interface: u32) -> Result<LinkMode, NetlinkError> {
        let mut mode = LinkMode::default();
        self.get(message::LINKMODES_GET, interface, |attributes| mode = LinkMode::parse(attributes.0))
            .map_err(|refusal| refusal.of("read", "the link's speed"))?;
        Ok(mode)
    }

    fn get(&mut self, command: u8, interface: u32, each: impl FnMut(Attributes<'_>)) -> Result<(), Refusal> {
        let mut request = self.family.request(command, 0);
        append_header(&mut request, interface);
        self.family.ask(request, each)
    }
}

/// The attribute that each request of the family begins with (`ETHTOOL_A_*_HEADER`).
fn append_header(request: &mut Request, interface: u32) {
    const HEADER: u16 = 1;
    const DEV_INDEX: u16 = 1;
    request.nested(HEADER | libc::NLA_F_NESTED as u16, |request| request.u32(DEV_INDEX, interface));
}

impl Rss {
    /// Parses an answer; absent or malformed fields stay empty.
    pub fn parse(body: &[u8]) -> Self {
        const CONTEXT: u16 = 2;
        const HFUNC: u16 = 3;
        const INDIR: u16 = 4;
        const HKEY: u16 = 5;
        const INPUT_XFRM: u16 = 6;
        let attributes = Attributes(body);
        let table = attributes.find(INDIR).unwrap_or_default().chunks_exact(4);
        Self {
            context: attributes.u32(CONTEXT).unwrap_or(0),
            function: attributes.u32(HFUNC).filter(|function| *function != 0),
            table: table.map(|queue| u32::from_ne_bytes(queue.try_into().unwrap())).collect(),
            key: attributes.find(HKEY).unwrap_or_default().to_vec(),
            transform: attributes.u32(INPUT_XFRM).unwrap_or(0),
        }
    }
}

impl LinkMode {
    /// Parses an answer.
    pub fn parse(body: &[u8]) -> Self {
        const AUTONEG: u16 = 2;
        const SPEED: u16 = 5;
        const DUPLEX: u16 = 6;
        let attributes = Attributes(body);
        let byte =
            |kind| attributes.find(kind).and_then(|payload| field(payload, 0)).map(|[byte]: [u8; 1]| byte);
        Self {
            // SPEED_UNKNOWN is all ones.
            speed_mbps: attributes.u32(SPEED).filter(|speed| !matches!(*speed, 0 | u32::MAX)),
            full_duplex: byte(DUPLEX).filter(|duplex| *duplex <= 1).map(|duplex| duplex == 1),
            autoneg: byte(AUTONEG).map(|autoneg| autoneg == 1),
        }
    }
}

/// Whether an error means that the driver does not support the setting at all.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}
