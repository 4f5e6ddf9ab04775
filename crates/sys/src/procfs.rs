//! Counters in text files below `/proc`: a pure parser and a thin reader for each file.
//!
//! Parsers accept any text; unreadable text is an error that names the line, never a panic.

use std::fs;
use std::io;

mod cpu;
mod interrupts;
mod line;
mod net;
mod owners;
mod process;
mod sockets;
mod softnet;
mod threads;

pub use cpu::{CpuTimes, Stat, parse_stat};
pub use interrupts::{Interrupt, Softirqs, parse_interrupts, parse_softirqs};
pub use line::ParseError;
pub use net::{NetCounters, parse_snmp, parse_snmp6};
pub use owners::{Owner, socket_owners};
pub use process::Process;
pub use sockets::{UdpSocketState, parse_udp_sockets};
pub use softnet::{SoftnetStat, parse_softnet_stat};
pub use threads::SoftirqThreads;

/// Why counters could not be read from `/proc`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The file has an unexpected format.
    #[error("cannot parse {path}")]
    Parse {
        /// The file.
        path: &'static str,
        /// The cause.
        source: ParseError,
    },
}

/// Time spent by each CPU, from `/proc/stat`.
pub fn stat() -> Result<Stat, ProcError> {
    read("/proc/stat", parse_stat)
}

/// Counters of each CPU's network softirq, from `/proc/net/softnet_stat`; for the whole machine, regardless of the
/// calling thread's namespace.
pub fn softnet_stat() -> Result<Vec<SoftnetStat>, ProcError> {
    read("/proc/thread-self/net/softnet_stat", parse_softnet_stat)
}

/// Interrupts of each CPU, by source, from `/proc/interrupts`.
pub fn interrupts() -> Result<Vec<Interrupt>, ProcError> {
    read("/proc/interrupts", parse_interrupts)
}

/// Runs of the receiving softirq on each CPU, from `/proc/softirqs`.
pub fn softirqs() -> Result<Softirqs, ProcError> {
    read("/proc/softirqs", parse_softirqs)
}

/// The protocol counters of the calling thread's namespace: `snmp`, `netstat`, `snmp6` and `xfrm_stat` together.
///
/// Names are those of `nstat`, and the kernel's of `xfrm_stat`: `UdpRcvbufErrors`, `IpExtInNoRoutes`, `Udp6InDatagrams`,
/// `XfrmOutPolBlock`, ….
pub fn net_counters() -> Result<NetCounters, ProcError> {
    let mut counters = read("/proc/thread-self/net/snmp", parse_snmp)?;
    counters.extend(read("/proc/thread-self/net/netstat", parse_snmp)?);
    // A kernel without IPv6 or without IPsec lacks one of the files.
    for path in ["/proc/thread-self/net/snmp6", "/proc/thread-self/net/xfrm_stat"] {
        match read(path, parse_snmp6) {
            Ok(more) => counters.extend(more),
            Err(ProcError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(counters)
}

/// The UDP sockets of the calling thread's namespace, of both versions of IP.
///
/// # Errors
/// [`ProcError`].
pub fn udp_sockets() -> Result<Vec<UdpSocketState>, ProcError> {
    let mut sockets = read("/proc/thread-self/net/udp", parse_udp_sockets)?;
    match read("/proc/thread-self/net/udp6", parse_udp_sockets) {
        Ok(six) => sockets.extend(six),
        Err(ProcError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(sockets)
}

fn read<T>(path: &'static str, parse: impl Fn(&str) -> Result<T, ParseError>) -> Result<T, ProcError> {
    let text = fs::read_to_string(path).map_err(|source| ProcError::Read { path, source })?;
    parse(&text).map_err(|source| ProcError::Parse { path, source })
}

#[cfg(test)]
mod tests;
