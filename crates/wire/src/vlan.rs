//! 802.1Q tags.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::{Text, text_form};

/// Which of the two tag types the frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VlanProtocol {
    /// A customer tag, EtherType 0x8100.
    Customer,
    /// A service tag (802.1ad), EtherType 0x88a8, usually the outer one of two.
    Service,
}

/// An 802.1Q tag; `[802.1ad:]id[/priority[/dei]]` as text: `100`, `100/5`, `802.1ad:7/0/dei`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub struct VlanTag {
    protocol: VlanProtocol,
    tci: u16,
}

/// Why a tag cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VlanError {
    /// 12 bits, and the last value is reserved.
    #[error("VLAN id {id} is out of range: from 0 (priority only) to 4094")]
    Id {
        /// The requested id.
        id: u16,
    },
    /// 3 bits.
    #[error("VLAN priority {priority} is out of range: from 0 to 7")]
    Priority {
        /// The requested priority.
        priority: u8,
    },
    /// Not a tag at all.
    #[error("'{text}' is not a VLAN tag: write 100, 100/5 with a priority, or 802.1ad:100 for a service tag")]
    NotATag {
        /// What was written.
        text: String,
    },
}

const DROP_ELIGIBLE: u16 = 1 << 12;
const SERVICE_PREFIX: &str = "802.1ad:";

impl VlanProtocol {
    /// The EtherType that announces the tag.
    #[inline]
    pub fn ethertype(self) -> u16 {
        match self {
            Self::Customer => 0x8100,
            Self::Service => 0x88a8,
        }
    }

    /// The tag type that an EtherType announces.
    #[inline]
    pub fn from_ethertype(ethertype: u16) -> Option<Self> {
        match ethertype {
            0x8100 => Some(Self::Customer),
            0x88a8 => Some(Self::Service),
            _ => None,
        }
    }
}

impl VlanTag {
    /// Bytes a tag adds to a frame.
    pub const LEN: usize = 4;

    /// A customer tag of priority 0.
    ///
    /// # Errors
    /// [`VlanError::Id`] above 4094.
    pub fn new(id: u16) -> Result<Self, VlanError> {
        if id > 4094 { Err(VlanError::Id { id }) } else { Ok(Self::from_wire(VlanProtocol::Customer, id)) }
    }

    /// The same tag with another priority (802.1p).
    ///
    /// # Errors
    /// [`VlanError::Priority`] above 7.
    pub fn with_priority(self, priority: u8) -> Result<Self, VlanError> {
        if priority > 7 {
            return Err(VlanError::Priority { priority });
        }
        Ok(Self { tci: self.tci & 0x1fff | u16::from(priority) << 13, ..self })
    }

    /// The same tag with another type.
    pub fn with_protocol(self, protocol: VlanProtocol) -> Self {
        Self { protocol, ..self }
    }

    /// The tag that a frame holds: its type and its 16 bits of control information.
    #[inline]
    pub fn from_wire(protocol: VlanProtocol, tci: u16) -> Self {
        Self { protocol, tci }
    }

    /// The 16 bits of control information: priority, drop eligible, id.
    #[inline]
    pub fn tci(self) -> u16 {
        self.tci
    }

    /// Which tag type it is.
    #[inline]
    pub fn protocol(self) -> VlanProtocol {
        self.protocol
    }

    /// The VLAN, 12 bits.
    #[inline]
    pub fn id(self) -> u16 {
        self.tci & 0xfff
    }

    /// The priority, 0..=7.
    #[inline]
    pub fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }

    /// True when congested switches may drop the frame first.
    #[inline]
    pub fn drop_eligible(self) -> bool {
        self.tci & DROP_ELIGIBLE != 0
    }
}

impl FromStr for VlanTag {
    type Err = VlanError;

    fn from_str(text: &str) -> Result<Self, VlanError> {
        let wrong = || VlanError::NotATag { text: text.into() };
        let (protocol, rest) = match text.strip_prefix(SERVICE_PREFIX) {
            Some(rest) => (VlanProtocol::Service, rest),
            None => (VlanProtocol::Customer, text),
        };
        let mut parts = rest.split('/');
        let id = parts.next().and_then(|id| id.parse().ok()).ok_or_else(wrong)?;
        let mut tag = Self::new(id)?.with_protocol(protocol);
        if let Some(priority) = parts.next() {
            tag = tag.with_priority(priority.parse().map_err(|_| wrong())?)?;
        }
        match parts.next() {
            Some("dei") => tag.tci |= DROP_ELIGIBLE,
            Some(_) => return Err(wrong()),
            None => {}
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(tag) }
    }
}

impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.protocol == VlanProtocol::Service {
            f.write_str(SERVICE_PREFIX)?;
        }
        write!(f, "{}", self.id())?;
        match (self.drop_eligible(), self.priority()) {
            (true, priority) => write!(f, "/{priority}/dei"),
            (false, 0) => Ok(()),
            (false, priority) => write!(f, "/{priority}"),
        }
    }
}

text_form!(VlanTag);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in ["0", "100", "100/5", "4094/7/dei", "802.1ad:7", "802.1ad:7/0/dei"] {
            assert_eq!(text.parse::<VlanTag>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_control_bits_are_priority_drop_eligible_id() {
        let tag: VlanTag = "802.1ad:291/5/dei".parse().unwrap();
        assert_eq!(tag.tci(), 5 << 13 | 1 << 12 | 0x123);
        assert_eq!((tag.id(), tag.priority(), tag.drop_eligible()), (291, 5, true));
        assert_eq!(tag.protocol().ethertype(), 0x88a8);
    }

    #[test]
    fn refusals_name_the_range() {
        let message = |text: &str| text.parse::<VlanTag>().unwrap_err().to_string();
        assert_eq!(message("4095"), "VLAN id 4095 is out of range: from 0 (priority only) to 4094");
        assert_eq!(message("1/8"), "VLAN priority 8 is out of range: from 0 to 7");
        for wrong in ["", "x", "1/", "1/2/3", "1/2/dei/", "802.1q:1"] {
            assert!(message(wrong).contains("is not a VLAN tag: write 100"), "{wrong}");
        }
    }
}
