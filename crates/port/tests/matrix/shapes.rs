//! The kinds of frames that pairs carry.

use std::net::IpAddr;

use lab::Lab;
use wire::{FrameSpec, MacAddr, Sizes, Values};

use crate::ends::{RxKind, TxKind};

/// Where the frames go.
pub(crate) const PORT: u16 = 4321;
/// Where they come from.
pub(crate) const SOURCE_PORT: u16 = 9000;

/// Frames of one kind.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Frame sizes with FCS, in the syntax of `wire::SizeMix`.
    sizes: &'static str,
    pub(crate) ipv6: bool,
    vlan: &'static [&'static str],
    pub(crate) mtu: u32,
    /// The number that a pair carries; the first shape takes the remainder.
    pub(crate) frames: u32,
}

const SMALL: Shape = Shape { name: "64 bytes", sizes: "64", ipv6: false, vlan: &[], mtu: 1500, frames: 0 };
const MIXED: Shape =
    Shape { name: "64 to 1518 bytes", sizes: "64-1518", ipv6: false, vlan: &[], mtu: 1500, frames: 8000 };
const LONGEST: Shape = Shape { name: "1518 bytes", sizes: "1518", frames: 4000, ..MIXED };
const IPV6: Shape =
    Shape { name: "IPv6, 84 to 1518 bytes", sizes: "84-1518", ipv6: true, frames: 8000, ..MIXED };
const IPV6_SMALL: Shape = Shape { name: "IPv6, 84 bytes", sizes: "84", frames: 4000, ..IPV6 };
const TAGGED: Shape = Shape { name: "a VLAN tag", sizes: "68-1522", vlan: &["100/5"], ..MIXED };
const TAGGED_IPV6: Shape =
    Shape { name: "IPv6, two VLAN tags", sizes: "92-1522", vlan: &["802.1ad:7", "8"], ipv6: true, ..MIXED };
const JUMBO: Shape = Shape { name: "9018 bytes", sizes: "9018", mtu: 9000, frames: 1000, ..MIXED };
/// Frames through AF_XDP and XDP must fit in a page.
const JUMBO_IN_A_PAGE: Shape = Shape { name: "3000 bytes", sizes: "3000", mtu: 3000, ..JUMBO };

/// What a pair can carry: kernel sockets cannot send or receive VLAN tags, and segments have one size.
pub(crate) fn shapes(sender: TxKind, receiver: RxKind) -> Vec<Shape> {
    let mut shapes = vec![SMALL];
    shapes.extend(match sender {
        TxKind::UdpGso => [LONGEST, IPV6_SMALL],
        _ => [MIXED, IPV6],
    });
    if sender.makes_frames() && !receiver.is_socket() {
        shapes.extend([TAGGED, TAGGED_IPV6]);
    }
    let in_a_page = matches!(sender, TxKind::Xsk | TxKind::Xdp) || receiver.has_program();
    shapes.push(if in_a_page { JUMBO_IN_A_PAGE } else { JUMBO });
    shapes
}

impl Shape {
    /// The frames from one side of the lab to the other.
    pub(crate) fn spec(&self, lab: &Lab) -> FrameSpec {
        let address = |side: &lab::Side| -> IpAddr {
            if self.ipv6 { side.ipv6()[0].into() } else { side.ipv4()[0].into() }
        };
        FrameSpec {
            src_mac: MacAddr(lab.tx().mac()),
            dst_mac: MacAddr(lab.rx().mac()),
            src_addr: Values::Fixed(address(lab.tx())),
            dst_addr: Values::Fixed(address(lab.rx())),
            src_port: Values::Fixed(SOURCE_PORT),
            dst_port: Values::Fixed(PORT),
            vlan: self.vlan.iter().map(|tag| tag.parse().unwrap()).collect(),
            sizes: Sizes::Frame(self.sizes.parse().unwrap()),
            ..FrameSpec::default()
        }
    }
}
