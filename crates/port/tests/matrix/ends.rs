//! Senders and receivers of every kind, with one way to use them.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Instant,
};

use lab::Lab;
use port::{
    CountOptions, PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, Sent, TxPort, UdpRx, UdpRxOptions,
    UdpTx, UdpTxOptions, UringRx, UringRxOptions, UringTx, UringTxOptions, XdpMode, XdpRx, XdpTx,
    XdpTxOptions, XskRx, XskRxOptions, XskShape, XskTx, XskTxOptions,
};
use wire::Template;

use crate::{
    carry::{PATIENCE, TIME_NS},
    shapes::{PORT, SOURCE_PORT, Shape},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxKind {
    Udp,
    UdpGso,
    Uring,
    UringSqpoll,
    Packet,
    Xsk,
    Xdp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RxKind {
    Udp,
    UdpGro,
    Uring,
    Packet,
    Xsk,
    Xdp,
}

pub(crate) enum TxEnd {
    Udp(UdpTx),
    Uring(UringTx),
    Packet(PacketTx),
    Xsk(XskTx),
    Xdp(XdpTx),
}

/// A sender, and the refusals of its interface.
pub(crate) struct Tx {
    end: TxEnd,
    turned_away: u64,
}

pub(crate) enum Rx {
    Udp(UdpRx),
    Uring(UringRx),
    Packet(PacketRx),
    Xsk(XskRx),
    Xdp(XdpRx),
}

/// AF_XDP frames large enough for jumbo packets, no more than a test needs.
const SHAPE: XskShape = XskShape { frame_size: 4096, frames: 1024, ring_slots: 1024 };

impl TxKind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Udp, Self::UdpGso, Self::Uring, Self::UringSqpoll, Self::Packet, Self::Xsk, Self::Xdp];

    /// Whether it builds whole frames; otherwise the kernel builds their headers.
    pub(crate) fn makes_frames(self) -> bool {
        !matches!(self, Self::Udp | Self::UdpGso | Self::Uring | Self::UringSqpoll)
    }
}

impl RxKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Udp, Self::UdpGro, Self::Uring, Self::Packet, Self::Xsk, Self::Xdp];

    /// Whether the kernel's UDP stack receives the packets, and verifies their checksums.
    pub(crate) fn is_socket(self) -> bool {
        matches!(self, Self::Udp | Self::UdpGro | Self::Uring)
    }

    /// Whether it attaches its own XDP program.
    pub(crate) fn has_program(self) -> bool {
        matches!(self, Self::Xsk | Self::Xdp)
    }
}

impl Tx {
    pub(crate) fn open(kind: TxKind, lab: &Lab, shape: &Shape, template: &Template) -> Self {
        let (side, frame_bytes) = (lab.tx(), template.max_frame_len());
        let address = |side: &lab::Side| -> IpAddr {
            if shape.ipv6 { side.ipv6()[0].into() } else { side.ipv4()[0].into() }
        };
        let end = side.run(|| match kind {
            TxKind::Udp | TxKind::UdpGso | TxKind::Uring | TxKind::UringSqpoll => {
                let peer = SocketAddr::new(address(lab.rx()), PORT);
                let options = UdpTxOptions {
                    local: (address(side), SOURCE_PORT).into(),
                    gso: kind == TxKind::UdpGso,
                    batch_size: 256,
                    ..UdpTxOptions::to(peer, template.max_payload_len())
                };
                if matches!(kind, TxKind::Udp | TxKind::UdpGso) {
                    UdpTx::open(&options).map(TxEnd::Udp)
                } else {
                    let sqpoll = kind == TxKind::UringSqpoll;
                    UringTx::open(&UringTxOptions { sockets: options, sqpoll }).map(TxEnd::Uring)
                }
            }
            TxKind::Packet => {
                let options = PacketTxOptions::on(side.index(), frame_bytes);
                PacketTx::open(&options).map(TxEnd::Packet)
            }
            TxKind::Xsk => {
                let options = XskTxOptions {
                    shape: SHAPE,
                    longest_frame: frame_bytes,
                    ..XskTxOptions::on(side.interface(), 0)
                };
                XskTx::open(&options).map(TxEnd::Xsk)
            }
            TxKind::Xdp => XdpTx::open(template.recipe(), &XdpTxOptions::on(side.index())).map(TxEnd::Xdp),
        });
        let mut end = end.unwrap().unwrap();
        match &mut end {
            TxEnd::Udp(port) => port.prime(|slot| template.prime_payload(slot)),
            TxEnd::Uring(port) => port.prime(|slot| template.prime_payload(slot)),
            TxEnd::Packet(port) => port.prime(|slot| template.prime_frame(slot)),
            TxEnd::Xsk(port) => port.prime(|slot| template.prime_frame(slot)),
            TxEnd::Xdp(_) => {}
        }
        Self { end, turned_away: 0 }
    }

    pub(crate) fn makes_frames(&self) -> bool {
        !matches!(self.end, TxEnd::Udp(_) | TxEnd::Uring(_))
    }

    /// Frames that the interface refused, which were sent later.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Sends frames `from..to`, in as many calls as needed.
    pub(crate) fn send(&mut self, lab: &Lab, template: &Template, from: u32, to: u32) {
        let (mut next, mut taken, since) = (from, 0, Instant::now());
        while taken < to - from {
            let wanted = (to - next) as usize;
            let payload = |slot: &mut [u8]| {
                next += 1;
                template.restamp_payload(slot, next - 1, TIME_NS)
            };
            let sent: Sent = match &mut self.end {
                TxEnd::Udp(port) => port.send(wanted, payload),
                TxEnd::Uring(port) => port.send(wanted, payload),
                TxEnd::Packet(port) => port.send(wanted, frame(template, &mut next)),
                TxEnd::Xsk(port) => port.send(wanted, frame(template, &mut next)),
                TxEnd::Xdp(port) => {
                    assert_eq!(port.next_sequence(), next);
                    let sent = lab.tx().run(|| port.send(wanted, TIME_NS)).unwrap();
                    next = port.next_sequence();
                    sent
                }
            }
            .unwrap();
            taken += sent.taken as u32;
            self.turned_away += sent.turned_away as u64;
            assert!(since.elapsed() < PATIENCE, "{taken} of {} frames in {PATIENCE:?}", to - from);
        }
        assert_eq!((next, taken), (to, to - from));
    }
}

/// Completes the next frame in a slot.
fn frame<'a>(template: &'a Template, next: &'a mut u32) -> impl FnMut(&mut [u8]) -> usize + 'a {
    move |slot| {
        *next += 1;
        template.restamp_frame(slot, *next - 1, TIME_NS)
    }
}

impl Rx {
    pub(crate) fn open(kind: RxKind, lab: &Lab, shape: &Shape) -> Self {
        let side = lab.rx();
        let options = |gro| UdpRxOptions {
            gro,
            receive_buffer_bytes: Some(32 << 20),
            ..UdpRxOptions::at((Ipv6Addr::UNSPECIFIED, PORT).into())
        };
        let socket = |gro| UdpRx::open(&options(gro)).map(Self::Udp);
        let opened = side.run(|| match kind {
            // A slot of a merging socket holds the longest buffers.
            RxKind::Udp => socket(shape.mtu > 1500),
            RxKind::UdpGro => socket(true),
            RxKind::Uring => {
                let options =
                    UringRxOptions { socket: options(false), datagram_bytes: 2048.max(shape.mtu as usize) };
                UringRx::open(&options).map(Self::Uring)
            }
            RxKind::Packet => PacketRx::open(&PacketRxOptions::on(side.index())).map(Self::Packet),
            RxKind::Xsk => {
                let options =
                    XskRxOptions { dst_port: PORT, shape: SHAPE, ..XskRxOptions::on(side.interface(), 0) };
                XskRx::open(&options).map(|mut ports| Self::Xsk(ports.remove(0)))
            }
            RxKind::Xdp => {
                let options = CountOptions { streams: 1, ..CountOptions::default() };
                XdpRx::open(side.index(), XdpMode::Native, &options).map(Self::Xdp)
            }
        });
        opened.unwrap().unwrap()
    }
}
