//! Which flow rules drivers accept, from their sources. Other drivers are sent every rule.

/// What a driver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Why it accepts no rules of addresses and ports, if so.
    pub(crate) none: Option<&'static str>,
    /// Rules for IPv6.
    pub(crate) v6: bool,
    /// Parts of addresses and blocks of ports, instead of whole ones.
    pub(crate) masks: bool,
    /// Rules that name a protocol without ports, such as ICMP.
    pub(crate) protocols: bool,
    /// How many masks its rules may have.
    pub(crate) one_mask: OneMask,
    /// Further tables of receive side scaling, to which rules can lead.
    pub(crate) contexts: bool,
    /// What enabling rules disables.
    pub(crate) switch_ends: Option<&'static str>,
}

/// For which rules there is one mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OneMask {
    /// Each may have its own.
    No,
    /// All rules of the card.
    OfCard,
    /// All rules of a kind of packet.
    OfKind,
}

/// For unknown drivers.
const UNKNOWN: Limits = Limits {
    none: None,
    v6: true,
    masks: true,
    protocols: true,
    one_mask: OneMask::No,
    contexts: true,
    switch_ends: None,
};

impl Limits {
    pub(crate) fn of(driver: &str) -> Self {
        match driver {
            "ixgbe" => Self {
                v6: false,
                protocols: false,
                one_mask: OneMask::OfCard,
                contexts: false,
                switch_ends: Some("the card's automatic flow director (ATR)"),
                ..UNKNOWN
            },
            "i40e" | "ice" | "iavf" => Self {
                masks: false,
                protocols: false,
                one_mask: OneMask::OfKind,
                contexts: driver == "ice",
                ..UNKNOWN
            },
            "igb" | "igc" => {
                Self { none: Some("takes rules of Ethernet types and MAC addresses only"), ..UNKNOWN }
            }
            "ena" | "gve" | "virtio_net" | "veth" | "e1000e" | "vmxnet3" => {
                Self { none: Some("takes no flow rules"), ..UNKNOWN }
            }
            _ => UNKNOWN,
        }
    }
}
