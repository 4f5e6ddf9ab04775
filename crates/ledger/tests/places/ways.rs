//! A way to lose a packet, and its live ledgers, with and without a chosen interface: they show the place, the number, and
//! nothing else.

use std::{
    cell::Cell,
    fs::File,
    net::{SocketAddr, TcpListener, UdpSocket},
    process::Command,
};

use lab::{LabPlan, Side};
use ledger::{Drivers, DropScope, DropWatch, MachineReading, Place};
use measure::Ledger;
use socket2::Socket;
use sys::{rtnetlink::RouteSocket, tap::create_tap, udp::UdpSink};

use crate::scene::{PORT, Scene, run, until};

pub(crate) const SENT: u64 = 100;
/// Everything that was not delivered.
pub(crate) const REST: u64 = u64::MAX;

/// A row. Scripts run in the namespace they are named after; the interfaces are `lab-tx` and `lab-rx`.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    /// The side whose ledger is read.
    pub(crate) at: At,
    pub(crate) tx: &'static str,
    pub(crate) rx: &'static str,
    pub(crate) listener: Listener,
    pub(crate) traffic: Traffic,
    pub(crate) lost: &'static [(Place, u64)],
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum At {
    Sender,
    Receiver,
}

/// The receiver at an address of the receiving side.
pub(crate) enum Listener {
    Nobody,
    Udp(&'static str),
    /// With the smallest receive buffer, read only at the end.
    Full(&'static str),
    /// With a filter that rejects everything.
    Filtered(&'static str),
    Tcp(&'static str),
}

pub(crate) enum Traffic {
    /// Datagrams of that many bytes from the sending side to an address.
    Udp(&'static str, usize),
    /// A frame with a datagram from 198.18.0.1 to 198.19.0.1, changed before its IP checksum is computed, unless the change
    /// sets one.
    Four(fn(&mut Vec<u8>)),
    /// The same from 2001:2::1 to 2001:2:0:1::1; the UDP checksum is computed after the change.
    Six(fn(&mut Vec<u8>)),
    /// The same number of datagrams of that many bytes in two messages, which the sending side segments.
    Segmented(u16),
}

macro_rules! way {
    ($name:literal, $at:ident, tx $tx:expr, rx $rx:expr, $listener:expr, $traffic:expr, $($place:ident $number:expr),*) => {
        $crate::ways::Way { name: $name, at: $at, tx: $tx, rx: $rx, listener: $listener, traffic: $traffic,
              lost: &[$((ledger::Place::$place, $number)),*] }
    };
}
pub(crate) use way;

/// A ledger of a namespace, of one interface or of all.
struct Watched<'s> {
    side: &'s Side,
    interfaces: Vec<String>,
    watch: DropWatch,
    before: MachineReading,
}

impl<'s> Watched<'s> {
    fn over(side: &'s Side, named: Option<&str>) -> Self {
        let index = |name: &str| RouteSocket::open().unwrap().link_by_name(name).unwrap().index;
        let interface = named.map_or(0, |name| side.run(|| index(name)).unwrap());
        let scope = DropScope { interface, ..DropScope::default() };
        let watch = DropWatch::over(&[side.namespace()], &scope).unwrap();
        let all = || RouteSocket::open().unwrap().links().unwrap();
        let interfaces = match named {
            Some(name) => vec![name.to_owned()],
            None => side.run(all).unwrap().into_iter().map(|link| link.name).collect(),
        };
        let before = take(side, &interfaces, &watch);
        Self { side, interfaces, watch, before }
    }

    /// The first error in its lines, after they explain everything or a timeout of seconds.
    fn fault(&self, sent: u64, delivered: &impl Fn() -> u64, expected: &[(Place, u64)]) -> Option<String> {
        let drivers = Drivers::built_in();
        let close = || {
            let growth = take(self.side, &self.interfaces, &self.watch).since(&self.before, &drivers);
            (Ledger::close(sent, delivered(), growth.lines(&drivers)), growth)
        };
        let (ledger, growth) = until(close, |(ledger, _)| ledger.is_closed());
        let lines: Vec<(&str, u64)> =
            ledger.lines.iter().map(|line| (line.place.as_str(), line.packets)).collect();
        let rest = |number: u64| if number == REST { sent - delivered() } else { number };
        let expected: Vec<(&str, u64)> =
            expected.iter().map(|(place, packets)| (place.name(), rest(*packets))).collect();
        let drops: Vec<_> = growth.drops.iter().flat_map(|drops| &drops.places).collect();
        let drops: Vec<_> = drops.iter().map(|drop| (drop.source(), drop.packets)).collect();
        let sources: Vec<_> = ledger.lines.iter().map(|line| &line.source).collect();
        let is_right = lines == expected && lines.iter().all(|(_, packets)| *packets > 0);
        (!is_right).then(|| format!("{lines:?}, not {expected:?}; {sources:?}; drops {drops:?}"))
    }
}

fn take(side: &Side, interfaces: &[String], watch: &DropWatch) -> MachineReading {
    let drops = watch.read().unwrap();
    side.run(|| MachineReading::take(interfaces, false, Some(drops)).unwrap()).unwrap()
}

impl Way {
    pub(crate) fn faults(&self) -> Vec<String> {
        let Some(scene) = Scene::unwatched(&LabPlan::default()) else { return Vec::new() };
        let (tx, rx) = (scene.lab.tx(), scene.lab.rx());
        let is_router = self.rx.contains("tap");
        let tap = || File::from(rx.run(|| create_tap("tap", 1).unwrap().remove(0)).unwrap());
        let _tap = is_router.then(tap);
        for (side, script) in [(tx, self.tx), (rx, self.rx)] {
            if !script.is_empty() {
                side.run(|| run(Command::new("sh").args(["-ec", script]))).unwrap();
            }
        }
        let socket = self.listener.open(rx);
        let side = if self.at == At::Sender { tx } else { rx };
        let interface = if self.tx.contains("add name v ") { "v" } else { side.interface() };
        let ledgers = [(interface, Watched::over(side, Some(interface))), ("all", Watched::over(side, None))];
        self.traffic.send(&scene);
        let delivered = || socket.delivered();
        let sent = match self.at {
            // Packets within the limit go on to the other side's ledger.
            At::Sender => self.lost.iter().map(|(_, packets)| packets).sum(),
            At::Receiver => SENT,
        };
        let fault = |(of, ledger): &(&str, Watched<'_>)| {
            let fault = ledger.fault(sent, &delivered, self.lost)?;
            Some(format!("{} ({of}): {fault}", self.name))
        };
        ledgers.iter().filter_map(fault).collect()
    }
}

/// What listens, kept open.
enum Open {
    Nothing,
    Udp { socket: UdpSocket, read: Cell<u64> },
    Sink(#[expect(dead_code, reason = "it only has to stay open")] UdpSink),
    Tcp(#[expect(dead_code, reason = "it only has to stay open")] TcpListener),
}

impl Listener {
    fn open(&self, side: &Side) -> Open {
        let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let udp = |at: &str| {
            let socket = UdpSocket::bind(address(at)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let open = || match self {
            Self::Nobody => Open::Nothing,
            Self::Udp(at) => Open::Udp { socket: udp(at), read: Cell::new(0) },
            Self::Full(at) => {
                let socket = Socket::from(udp(at));
                socket.set_recv_buffer_size(1).unwrap();
                Open::Udp { socket: socket.into(), read: Cell::new(0) }
            }
            Self::Filtered(at) => Open::Sink(UdpSink::open(address(at)).unwrap()),
            Self::Tcp(at) => Open::Tcp(TcpListener::bind(address(at)).unwrap()),
        };
        side.run(open).unwrap()
    }
}

impl Open {
    /// Datagrams delivered so far.
    fn delivered(&self) -> u64 {
        let Self::Udp { socket, read } = self else { return 0 };
        while socket.recv(&mut [0; 64]).is_ok() {
            read.set(read.get() + 1);
        }
        read.get()
    }
}

impl Traffic {
    fn send(&self, scene: &Scene) {
        match self {
            Self::Udp(to, bytes) => {
                let to: SocketAddr = to.parse().unwrap();
                let send = || {
                    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
                    // An immediate error is one of the losses, and counted as such.
                    (0..SENT).for_each(|_| _ = socket.send_to(&vec![0; *bytes], to));
                };
                scene.lab.tx().run(send).unwrap();
            }
            Self::Segmented(bytes) => scene.send_segmented(2, SENT as usize / 2, *bytes),
            Self::Four(change) => {
                let mut frame = scene.frame(|frame| frame[24..26].fill(0));
                frame[24..26].fill(0);
                change(&mut frame);
                if frame[24..26] == [0, 0] {
                    let length = 4 * usize::from(frame[14] & 15);
                    let checksum = wire::Checksum::ZERO.add_bytes(&frame[14..14 + length]).finish();
                    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
                }
                scene.send_frames(SENT as usize, &frame);
            }
            Self::Six(change) => {
                let (tx, rx) = (scene.lab.tx(), scene.lab.rx());
                let mut frame =
                    [&rx.mac()[..], &tx.mac(), &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 28, 17, 64]].concat();
                frame.extend(tx.ipv6()[0].octets().iter().chain(&rx.ipv6()[0].octets()));
                frame.extend([0x10, 0, PORT.to_be_bytes()[0], PORT.to_be_bytes()[1], 0, 28, 0, 0]);
                frame.resize(54 + 28, 0);
                change(&mut frame);
                if frame[20] == 17 && frame[60..62] == [0, 0] {
                    let length = (frame.len() - 54) as u16;
                    let pseudo = [&frame[22..54], &length.to_be_bytes(), &[0, 17]].concat();
                    let sum = wire::Checksum::ZERO.add_bytes(&pseudo).add_bytes(&frame[54..]).finish();
                    frame[60..62].copy_from_slice(&sum.to_be_bytes());
                }
                scene.send_frames(SENT as usize, &frame);
            }
        }
    }
}
