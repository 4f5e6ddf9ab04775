//! How a card is reached, as requested.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sys::pci::{Card, Way};

/// How a card is reached without its kernel driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardAccess {
    /// VFIO where the card has an IOMMU group, otherwise sysfs.
    #[default]
    Auto,
    /// Sysfs: DMA to physical addresses, no interrupts.
    Sysfs,
    /// VFIO: DMA through the IOMMU, interrupts.
    Vfio,
}

impl CardAccess {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Sysfs, Self::Vfio];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sysfs => "sysfs",
            Self::Vfio => "vfio",
        }
    }

    pub(super) fn way(self, card: &Card) -> Way {
        match self {
            Self::Auto => card.best_way(),
            Self::Sysfs => Way::Sysfs,
            Self::Vfio => Way::Vfio,
        }
    }
}

impl FromStr for CardAccess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|access| access.name() == text);
        known.ok_or_else(|| "expected auto, sysfs or vfio".into())
    }
}
