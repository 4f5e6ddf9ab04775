//! Interfaces by name, in the calling thread's network namespace.

use port::{PortError, TimeSource};
use sys::rtnetlink::{Link, RouteSocket};

use crate::error::EngineError;

/// The interface of this name in the calling thread's namespace.
pub(crate) fn interface(name: Option<&str>) -> Result<Link, EngineError> {
    let interface = name.unwrap_or_default();
    let found = RouteSocket::open().and_then(|mut route| route.link_by_name(interface));
    Ok(found.map_err(|source| PortError::Link { interface: interface.into(), source })?)
}

pub(crate) fn interface_index(name: Option<&str>) -> Result<u32, EngineError> {
    Ok(interface(name)?.index)
}

/// The source of timestamps of an XDP program: one per NAPI poll, or one per packet on a TUN device, which has no poll.
pub(crate) fn program_time_source(link: &Link) -> TimeSource {
    if link.kind.as_deref() == Some("tun") { TimeSource::Program } else { TimeSource::Poll }
}
