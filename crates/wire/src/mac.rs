//! MAC addresses.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::{Text, text_form};

/// An Ethernet address; `02:00:00:00:00:01` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub struct MacAddr(pub [u8; 6]);

/// A text that is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{text}' is not a MAC address: write six pairs of hex digits, for example 02:00:00:00:00:01")]
pub struct MacError {
    /// What was written.
    pub text: String,
}

impl MacAddr {
    /// Every station on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for a group of stations, broadcast included; never a source address.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// True for a locally administered address.
    pub fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }
}

impl FromStr for MacAddr {
    type Err = MacError;

    /// Reads pairs separated by `:` or by `-`.
    fn from_str(text: &str) -> Result<Self, MacError> {
        let wrong = || MacError { text: text.into() };
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut pairs = text.split(separator);
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let pair = pairs.next().filter(|pair| pair.len() == 2 && !pair.starts_with('+'));
            *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or_else(wrong)?;
        }
        if pairs.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

text_form!(MacAddr);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_one_address() {
        let address = MacAddr([0x02, 0, 0x5e, 0x10, 0xab, 0xff]);
        assert_eq!("02:00:5e:10:ab:ff".parse(), Ok(address));
        assert_eq!("02-00-5E-10-AB-FF".parse(), Ok(address));
        assert_eq!(address.to_string(), "02:00:5e:10:ab:ff");
    }

    #[test]
    fn the_two_low_bits_of_the_first_byte_tell_the_kind() {
        assert!(MacAddr::BROADCAST.is_multicast());
        assert!(!MacAddr([2, 0, 0, 0, 0, 1]).is_multicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_local());
        assert!(!MacAddr([0, 0x1b, 0x21, 0, 0, 1]).is_local());
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for wrong in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02:00:00:00:00:+1",
            "gg:00:00:00:00:01",
        ] {
            let message = wrong.parse::<MacAddr>().unwrap_err().to_string();
            assert!(message.contains("for example 02:00:00:00:00:01"), "{message}");
        }
    }
}
