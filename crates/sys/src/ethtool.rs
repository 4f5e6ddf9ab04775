//! ethtool: an interface's features (offloads), its driver, the driver's own counters, and its changeable
//! settings: by netlink ([`EthtoolNetlink`]) if possible, otherwise by ioctl ([`EthtoolSocket`]).
//!
//! Formats: `linux/ethtool.h`, <https://docs.kernel.org/networking/statistics.html>.

use std::{
    fmt, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
};

use crate::rtnetlink::Link;

mod buffer;
mod layout;
mod netlink;
mod parameters;
mod reply;
mod rxfh;
mod rxnfc;

use buffer::Buffer;
pub use netlink::{EthtoolNetlink, LinkMode, Rss, is_unsupported};
pub use parameters::{CHANNELS, COALESCING, Group, PAUSE, Parameter, RINGS, Values};
pub use reply::{Driver, Feature, parse_driver, parse_features, parse_names, parse_places, parse_statistics};
pub use rxfh::{FlowType, RssChange, field_letters, fields_from_letters, parse_rss};
pub use rxnfc::{FlowAction, FlowKind, FlowMatch, FlowRule};

/// Receive queues in use on an interface of the calling thread's namespace, which may be fewer than its driver allocated: its
/// channels, else the rings that its driver reports, else all that it allocated.
pub fn rx_queues(link: &Link) -> u32 {
    let channels = || EthtoolNetlink::open().ok()?.rx_queues(link.index);
    let rings = || EthtoolSocket::open().ok()?.rx_rings(&link.name).ok()?;
    channels().or_else(rings).map_or(link.rx_queues, |used| used.clamp(1, link.rx_queues.max(1)))
}

/// Errors of ethtool requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EthtoolError {
    /// No socket.
    #[error("cannot open a socket for ethtool")]
    Open {
        /// The cause.
        source: io::Error,
    },
    /// The kernel or the driver refused.
    #[error("cannot {action} of {interface}")]
    Refused {
        /// What was tried, as a verb with its object.
        action: &'static str,
        /// The interface's name.
        interface: String,
        /// The cause.
        source: io::Error,
    },
    /// The kernel has no feature of this name.
    #[error("this kernel has no interface feature {feature}")]
    NoSuchFeature {
        /// The feature's name.
        feature: String,
    },
    /// The driver keeps the feature unchanged, or another feature forces it.
    #[error("{interface} keeps feature {feature} {}", on_or_off(!.asked))]
    FeatureFixed {
        /// The interface's name.
        interface: String,
        /// The feature's name.
        feature: String,
        /// The requested state.
        asked: bool,
    },
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// A socket in the namespace of the thread that opened it; from there any thread may use it.
#[derive(Debug)]
pub struct EthtoolSocket {
    end: End,
}

/// The end that answers requests.
#[derive(Debug)]
enum End {
    Kernel(OwnedFd),
    Other(Arc<dyn EthtoolEnd>),
}

/// Answers ethtool requests in place of the kernel: a fake card for tests.
pub trait EthtoolEnd: fmt::Debug + Send + Sync {
    /// Answers one request in place, as the ioctl `SIOCETHTOOL` does: its command is the first word.
    ///
    /// # Errors
    /// The error that a driver would return, with its number.
    fn answer(&self, interface: &str, request: &mut [u8]) -> io::Result<()>;
}

/// `enum ethtool_stringset`.
mod strings {
    pub(super) const STATISTICS: u32 = 1;
    pub(super) const FEATURES: u32 = 4;
}

/// More names than any driver has counters: a larger claim is invalid.
const MOST_STRINGS: usize = 1 << 20;

impl EthtoolSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, EthtoolError> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(EthtoolError::Open { source: io::Error::last_os_error() });
        }
        // SAFETY: `socket` just created this descriptor, and nothing else owns it.
        Ok(Self { end: End::Kernel(unsafe { OwnedFd::from_raw_fd(fd) }) })
    }

    /// A socket whose requests are answered by something other than the kernel.
    pub fn over(end: Arc<dyn EthtoolEnd>) -> Self {
        Self { end: End::Other(end) }
    }

    /// Every feature that this kernel knows, with its state on `interface`.
    pub fn features(&self, interface: &str) -> Result<Vec<Feature>, EthtoolError> {
        let names = self.names(interface, strings::FEATURES)?;
        let answer = self.feature_words(interface, names.len())?;
        Ok(parse_features(&names, answer.bytes()))
    }

    /// Turns features on or off by name. Needs CAP_NET_ADMIN.
    ///
    /// If the kernel does not have one of the names, nothing changes. If one feature did not take the requested state,
    /// the others still did.
    pub fn set_features(&self, interface: &str, wanted: &[(&str, bool)]) -> Result<(), EthtoolError> {
        const ETHTOOL_SFEATURES: u32 = 0x3b;
        let names = self.names(interface, strings::FEATURES)?;
        let blocks = names.len().div_ceil(32);
        let mut request = Buffer::new(&[ETHTOOL_SFEATURES, blocks as u32], blocks * 8);
        for (name, on) in wanted {
            let bit = names.iter().position(|known| known == name);
            let bit = bit.ok_or_else(|| EthtoolError::NoSuchFeature { feature: (*name).to_owned() })?;
            let (valid, requested, mask) = (2 + bit / 32 * 2, 3 + bit / 32 * 2, 1 << (bit % 32));
            request.set_u32(valid, request.u32(valid) | mask);
            request.set_u32(requested, request.u32(requested) | if *on { mask } else { 0 });
        }
        self.ask(interface, &mut request, "set the features")?;
        let now = parse_features(&names, self.feature_words(interface, blocks * 32)?.bytes());
        let refused =
            wanted.iter().find(|(name, on)| !now.iter().any(|f| f.name == *name && f.active == *on));
        refused.map_or(Ok(()), |&(name, asked)| {
            Err(EthtoolError::FeatureFixed {
                interface: interface.to_owned(),
                feature: name.to_owned(),
                asked,
            })
        })
    }

    /// The interface's driver.
    pub fn driver(&self, interface: &str) -> Result<Driver, EthtoolError> {
        const ETHTOOL_GDRVINFO: u32 = 0x3;
        let mut answer = Buffer::new(&[ETHTOOL_GDRVINFO], 192);
        self.ask(interface, &mut answer, "read the driver")?;
        Ok(parse_driver(answer.bytes()))
    }

    /// How many receive rings are in use; `None` if the driver does not report it, like drivers with one ring.
    fn rx_rings(&self, interface: &str) -> Result<Option<u32>, EthtoolError> {
        const ETHTOOL_GRXRINGS: u32 = 0x2d;
        // struct ethtool_rxnfc: command, flow type, then the answer, and 176 more bytes.
        let mut answer = Buffer::new(&[ETHTOOL_GRXRINGS, 0, 0, 0], 176);
        match self.ask(interface, &mut answer, "count the receive rings") {
            Ok(()) => Ok(Some(answer.u32(2))),
            Err(EthtoolError::Refused { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The driver's own counters (`ethtool -S`) in the driver's order; empty if it has none.
    pub fn statistics(&self, interface: &str) -> Result<Vec<(String, u64)>, EthtoolError> {
        const ETHTOOL_GSTATS: u32 = 0x1d;
        let names = self.names(interface, strings::STATISTICS)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut answer = Buffer::new(&[ETHTOOL_GSTATS, names.len() as u32], names.len() * 8);
        self.ask(interface, &mut answer, "read the counters")?;
        // If the driver's queues changed in between, its answer belongs to another list of names.
        parse_statistics(&names, answer.bytes()).ok_or_else(|| EthtoolError::Refused {
            action: "read the counters",
            interface: interface.to_owned(),
            source: io::ErrorKind::Interrupted.into(),
        })
    }

    /// The answer that [`parse_features`] reads.
    fn feature_words(&self, interface: &str, features: usize) -> Result<Buffer, EthtoolError> {
        const ETHTOOL_GFEATURES: u32 = 0x3a;
        let blocks = features.div_ceil(32);
        let mut answer = Buffer::new(&[ETHTOOL_GFEATURES, blocks as u32], blocks * 16);
        self.ask(interface, &mut answer, "read the features")?;
        Ok(answer)
    }

    /// The names in a set of strings; none if the driver has no such set.
    fn names(&self, interface: &str, set: u32) -> Result<Vec<String>, EthtoolError> {
        const ETHTOOL_GSSET_INFO: u32 = 0x37;
        const ETHTOOL_GSTRINGS: u32 = 0x1b;
        // struct ethtool_sset_info: command, padding, mask of sets u64, then one length for each set that exists.
        let mut lengths = Buffer::new(&[ETHTOOL_GSSET_INFO, 0, 1 << set, 0], 4);
        self.ask(interface, &mut lengths, "count the strings")?;
        let count = if lengths.u32(2) == 0 { 0 } else { lengths.u32(4) as usize };
        if count == 0 {
            return Ok(Vec::new());
        }
        if count > MOST_STRINGS {
            return Err(self.odd(interface, "count the strings"));
        }
        let mut names = Buffer::new(&[ETHTOOL_GSTRINGS, set, count as u32], count * reply::NAME);
        self.ask(interface, &mut names, "read the names")?;
        Ok(parse_names(names.bytes()))
    }

    /// An impossible answer.
    fn odd(&self, interface: &str, action: &'static str) -> EthtoolError {
        let source = io::Error::new(io::ErrorKind::InvalidData, "the driver's answer is invalid");
        EthtoolError::Refused { action, interface: interface.to_owned(), source }
    }

    fn ask(&self, interface: &str, request: &mut Buffer, action: &'static str) -> Result<(), EthtoolError> {
        let answered = match &self.end {
            End::Kernel(fd) => buffer::ioctl(fd.as_raw_fd(), interface, request),
            End::Other(end) => request.answered_by(|bytes| end.answer(interface, bytes)),
        };
        answered.map_err(|source| EthtoolError::Refused { action, interface: interface.to_owned(), source })
    }
}

#[cfg(test)]
mod record;
#[cfg(test)]
mod replies;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_interface_and_the_cause() {
        let socket = EthtoolSocket::open().unwrap();
        let error = socket.driver("no-such-if").unwrap_err();
        assert_eq!(error.to_string(), "cannot read the driver of no-such-if");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("os error 19"), "{cause}");
    }

    #[test]
    fn a_name_too_long_for_an_interface_is_refused() {
        let socket = EthtoolSocket::open().unwrap();
        let error = socket.features("sixteen-letters!").unwrap_err();
        assert!(matches!(error, EthtoolError::Refused { .. }), "{error}");
    }

    #[test]
    fn the_loopback_has_features_and_knows_what_cannot_be_changed() {
        let socket = EthtoolSocket::open().unwrap();
        let features = socket.features("lo").unwrap();
        let loopback = features.iter().find(|feature| feature.name == "loopback").unwrap();
        assert!(loopback.active && !loopback.changeable);
        assert_eq!(socket.statistics("lo").unwrap(), []);
    }

    #[test]
    fn a_feature_that_does_not_exist_or_does_not_move_is_named() {
        let socket = EthtoolSocket::open().unwrap();
        let error = socket.set_features("lo", &[("tx-magic", true)]).unwrap_err();
        assert_eq!(error.to_string(), "this kernel has no interface feature tx-magic");

        let Ok(namespace) = crate::netns::NetNs::create() else {
            return testing::skip("a namespace needs CAP_SYS_ADMIN");
        };
        let socket = namespace.run(EthtoolSocket::open).unwrap().unwrap();
        let error = socket.set_features("lo", &[("loopback", false), ("rx-gro", false)]).unwrap_err();
        assert_eq!(error.to_string(), "lo keeps feature loopback on");
        let features = socket.features("lo").unwrap();
        assert!(features.iter().any(|feature| feature.name == "rx-gro" && !feature.active));
    }
}
