//! Which targets need no consent: addresses that cannot belong to a stranger.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// A target that must consent first.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{target} may belong to someone else: --no-handshake allows only loopback, private, link-local and benchmarking (198.18.0.0/15) addresses"
)]
pub struct ConsentError {
    /// The target.
    pub target: IpAddr,
}

/// Allows loopback, private, link-local and benchmarking addresses (RFC 1918, 3927, 2544, 4193, 4291, 5180).
///
/// # Errors
/// [`ConsentError`] for every other address, multicast and broadcast included.
pub fn may_send_without_handshake(target: IpAddr) -> Result<(), ConsentError> {
    if is_ours(target) { Ok(()) } else { Err(ConsentError { target }) }
}

/// Whether an address is a loopback, private, link-local or benchmarking one.
pub(crate) fn is_ours(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_ours_v4(v4),
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(|| is_ours_v6(v6), is_ours_v4),
    }
}

fn is_ours_v4(target: Ipv4Addr) -> bool {
    let [a, b, ..] = target.octets();
    target.is_loopback() || target.is_private() || target.is_link_local() || (a == 198 && b & 0xfe == 18)
}

fn is_ours_v6(target: Ipv6Addr) -> bool {
    let benchmarking = target.segments()[..3] == [0x2001, 2, 0];
    target.is_loopback() || target.is_unique_local() || target.is_unicast_link_local() || benchmarking
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_cannot_belong_to_strangers_need_no_handshake() {
        let allowed = [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.6.2",
            "169.254.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "::1",
            "fe80::1",
            "fd00::1",
            "2001:2::1",
            "::ffff:10.0.0.1",
        ];
        let refused = [
            "8.8.8.8",
            "172.32.0.1",
            "198.17.255.255",
            "198.20.0.0",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "2001:db8::1",
            "2001:2:1::1",
            "2606:4700::1111",
            "ff02::1",
            "::ffff:8.8.8.8",
        ];
        for target in allowed {
            assert_eq!(may_send_without_handshake(target.parse().unwrap()), Ok(()), "{target}");
        }
        for target in refused {
            let error = may_send_without_handshake(target.parse().unwrap()).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("{target} may belong to someone else")),
                "{error}"
            );
        }
    }
}
