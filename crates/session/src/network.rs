//! Which senders a receiver serves, by their addresses.

use std::{fmt, net::IpAddr, str::FromStr};

use thiserror::Error;

use crate::consent::is_ours;

/// A network: `192.0.2.0/24`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_len: u8,
}

/// A text that is not a network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{text}' is not a network: expected for example 192.0.2.0/24 or 2001:db8::/32")]
pub struct NetworkError {
    /// The text.
    pub text: String,
}

/// The senders that a receiver serves: by default loopback, private, link-local and benchmarking addresses; if networks are
/// named, only those and loopback.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission {
    named: Vec<Network>,
}

impl Admission {
    /// Only these networks and loopback; the default if there are none.
    #[must_use]
    pub fn of(named: Vec<Network>) -> Self {
        Self { named }
    }

    /// Checks whether a sender is served; the error is the reason, for both ends.
    ///
    /// # Errors
    /// The sender is not in the allowed networks.
    pub fn check(&self, sender: IpAddr) -> Result<(), String> {
        let sender = sender.to_canonical();
        if sender.is_loopback() || self.named.iter().any(|network| network.contains(sender)) {
            return Ok(());
        }
        if !self.named.is_empty() {
            return Err(format!("it does not allow the network of {sender}: start it with --allow {sender}"));
        }
        if is_ours(sender) {
            return Ok(());
        }
        Err(format!(
            "{sender} is not a private, link-local, loopback or benchmarking address: start it with --allow {sender}"
        ))
    }
}

impl Network {
    /// Whether it contains an address; IPv4 in IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let shift = u32::from(self.width() - self.prefix_len);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    fn width(self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError { text: text.into() };
        let (address, prefix_len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
        let network = Self { address: address.parse().map_err(|_| wrong())?, prefix_len: 0 };
        let width = network.width();
        let prefix_len = prefix_len.map_or(Ok(width), |len| len.parse().map_err(|_| wrong()))?;
        if prefix_len > width { Err(wrong()) } else { Ok(Self { prefix_len, ..network }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_contains_the_addresses_that_share_its_prefix() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "8.8.8.8", "::8"),
            ("::/0", "2001:db8::1", "8.8.8.8"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
        ] {
            assert!(network(text).contains(ip(inside)), "{text} {inside}");
            assert!(!network(text).contains(ip(outside)), "{text} {outside}");
        }
        assert_eq!(network("192.0.2.7").to_string(), "192.0.2.7/32");
    }

    #[test]
    fn an_invalid_network_is_refused_with_an_example() {
        for text in ["", "lan", "192.0.2.0/33", "::/129", "192.0.2.0/", "192.0.2.0/-1", "/8"] {
            let error = text.parse::<Network>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("'{text}' is not a network: expected for example 192.0.2.0/24 or 2001:db8::/32")
            );
        }
    }

    #[test]
    fn strangers_are_refused_unless_their_network_is_named() {
        let usual = Admission::default();
        for near in
            ["127.0.0.1", "10.0.0.1", "169.254.0.1", "198.18.0.1", "::1", "fe80::1", "fd00::1", "2001:2::1"]
        {
            assert_eq!(usual.check(ip(near)), Ok(()), "{near}");
        }
        assert_eq!(
            usual.check(ip("::ffff:203.0.113.5")).unwrap_err(),
            "203.0.113.5 is not a private, link-local, loopback or benchmarking address: start it with --allow 203.0.113.5"
        );
        let named = Admission::of(vec![network("203.0.113.0/24")]);
        assert_eq!(named.check(ip("203.0.113.5")), Ok(()));
        assert_eq!(named.check(ip("::1")), Ok(()));
        assert_eq!(
            named.check(ip("10.0.0.1")).unwrap_err(),
            "it does not allow the network of 10.0.0.1: start it with --allow 10.0.0.1"
        );
    }
}
