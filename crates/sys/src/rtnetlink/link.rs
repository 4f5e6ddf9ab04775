//! A link as reported by the kernel.

use super::Attributes;
use crate::netlink::field;

/// A network interface as `RTM_GETLINK` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The interface's number in its namespace.
    pub index: u32,
    /// The interface's name.
    pub name: String,
    /// `IFF_*` of `linux/if.h`; some are in [`flag`](super::flag).
    pub flags: u32,
    /// Whether it is up and its carrier is detected (RFC 2863: `ifOperStatus` up).
    pub operational: bool,
    /// The hardware address; `None` if it is not an Ethernet one.
    pub mac: Option<[u8; 6]>,
    /// Largest packet in bytes, without the link's own header.
    pub mtu: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// `veth`, `vlan`, …; `None` for hardware.
    pub kind: Option<String>,
    /// The number of the underlying interface, for example of a VLAN, if it is in the same namespace.
    pub lower: Option<u32>,
    /// The number of the bond, bridge or team that it is a port of.
    pub master: Option<u32>,
    /// The tag of a VLAN's interface: protocol (0x8100 or 0x88a8) and identifier.
    pub vlan: Option<(u16, u16)>,
    /// The active port of an active-backup bond.
    pub active_port: Option<u32>,
    /// The interface's counters since it was created.
    pub stats: LinkStats,
}

impl Link {
    /// A link from the body of a message; `None` when it is too short to be one.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let attributes = Attributes(body.get(HEADER..)?);
        let is_here = attributes.find(libc::IFLA_LINK_NETNSID).is_none();
        let of_kind = attributes.find(libc::IFLA_LINKINFO).map(Attributes);
        let kind = of_kind.and_then(|info| info.text(libc::IFLA_INFO_KIND));
        let details = of_kind.and_then(|info| info.find(libc::IFLA_INFO_DATA)).map(Attributes);
        let details_of = |wanted: &str| details.filter(|_| kind.as_deref() == Some(wanted));
        Some(Self {
            index: u32::from_ne_bytes(field(body, 4)?),
            flags: u32::from_ne_bytes(field(body, 8)?),
            // The carrier is reported at once, the state derived from it some time later.
            operational: attributes.find(libc::IFLA_OPERSTATE) == Some(&[IF_OPER_UP])
                && attributes.find(libc::IFLA_CARRIER) != Some(&[0]),
            name: attributes.text(libc::IFLA_IFNAME)?,
            mac: attributes.find(libc::IFLA_ADDRESS).and_then(|mac| mac.try_into().ok()),
            mtu: attributes.u32(libc::IFLA_MTU)?,
            tx_queues: attributes.u32(libc::IFLA_NUM_TX_QUEUES).unwrap_or(1),
            rx_queues: attributes.u32(libc::IFLA_NUM_RX_QUEUES).unwrap_or(1),
            lower: attributes.u32(libc::IFLA_LINK).filter(|lower| *lower > 0 && is_here),
            master: attributes.u32(libc::IFLA_MASTER),
            vlan: details_of("vlan").and_then(vlan_tag),
            active_port: details_of("bond").and_then(|bond| bond.u32(IFLA_BOND_ACTIVE_SLAVE)),
            kind,
            stats: LinkStats::parse(attributes.find(libc::IFLA_STATS64)?),
        })
    }
}

/// `IFLA_BOND_ACTIVE_SLAVE` of `linux/if_link.h`.
const IFLA_BOND_ACTIVE_SLAVE: u16 = 2;

/// `IFLA_VLAN_PROTOCOL` (network order) and `IFLA_VLAN_ID` of `linux/if_link.h`.
fn vlan_tag(vlan: Attributes<'_>) -> Option<(u16, u16)> {
    const IFLA_VLAN_ID: u16 = 1;
    const IFLA_VLAN_PROTOCOL: u16 = 5;
    let id = u16::from_ne_bytes(field(vlan.find(IFLA_VLAN_ID)?, 0)?);
    let protocol = vlan.find(IFLA_VLAN_PROTOCOL).and_then(|bytes| field(bytes, 0));
    Some((protocol.map_or(0x8100, u16::from_be_bytes), id))
}

/// "Up" in `linux/if.h`; a state that is still unknown has another value.
const IF_OPER_UP: u8 = 6;

/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;

/// `struct ifinfomsg`: family, padding, type u16, index, flags, mask of the flags to change.
pub(super) fn link_header(index: u32, flags: u32, change: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..].copy_from_slice(&change.to_ne_bytes());
    header
}

macro_rules! link_stats {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A link's counters since it was created, with the kernel's names; what each driver counts in which
        /// is documented in `linux/if_link.h` (`struct rtnl_link_stats64`).
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct LinkStats {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl LinkStats {
            /// The counters with their names, in the kernel's order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// The difference to an earlier reading of the same link.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name),)+ }
            }

            /// Counters in the kernel's order; those that an older kernel lacks are 0.
            pub(super) fn parse(bytes: &[u8]) -> Self {
                let mut next = bytes.chunks_exact(8).map(|value| u64::from_ne_bytes(value.try_into().unwrap()));
                Self { $($name: next.next().unwrap_or(0),)+ }
            }
        }
    };
}

link_stats! {
    /// Good packets received.
    rx_packets,
    /// Packets sent.
    tx_packets,
    /// Good bytes received.
    rx_bytes,
    /// Bytes sent.
    tx_bytes,
    /// Bad packets received.
    rx_errors,
    /// Packets that could not be sent.
    tx_errors,
    /// Received but not processed: no room, no handler.
    rx_dropped,
    /// Dropped in transmission.
    tx_dropped,
    /// Multicast packets received.
    multicast,
    /// Collisions.
    collisions,
    /// Received with a wrong length.
    rx_length_errors,
    /// Received while the card's ring was overrun.
    rx_over_errors,
    /// Received with a wrong check sequence.
    rx_crc_errors,
    /// Received misaligned.
    rx_frame_errors,
    /// Lost in the receive FIFO.
    rx_fifo_errors,
    /// Missed by the host: no buffer.
    rx_missed_errors,
    /// Sending aborted.
    tx_aborted_errors,
    /// Sending failed without a carrier.
    tx_carrier_errors,
    /// Lost in the transmit FIFO.
    tx_fifo_errors,
    /// Heartbeat failures.
    tx_heartbeat_errors,
    /// Late collisions.
    tx_window_errors,
    /// Compressed packets received.
    rx_compressed,
    /// Compressed packets sent.
    tx_compressed,
    /// Dropped because the link is an inactive slave.
    rx_nohandler,
    /// Dropped because the destination MAC is another station's (since Linux 5.19).
    rx_otherhost_dropped,
}
