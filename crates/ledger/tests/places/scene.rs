//! A lab whose counters are watched, and ways to send a known number of packets.

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabPlan, Side};
use ledger::{
    Drivers, DropReading, DropScope, DropWatch, HostCounters, LabGrowth, Place, Received, lab_lines,
};
use measure::Ledger;
use port::{PacketTx, PacketTxOptions, RxPort, TxPort, UdpRx, Wait};
use sys::udp::{SendBatch, SocketOptions};
use wire::{FrameSpec, MacAddr, Sizes};

/// Where packets go.
pub(crate) const PORT: u16 = 4321;

pub(crate) struct Scene {
    pub(crate) lab: Lab,
    watch: Option<DropWatch>,
    before: (HostCounters, HostCounters, DropReading),
}

impl Scene {
    /// A lab as root, or `None` with a printed skip; a failure when everything is required.
    pub(crate) fn new(plan: &LabPlan) -> Option<Self> {
        let lab = testing::root_lab(plan, "the kernel's drop reasons need root")?;
        let scope = DropScope { only_udp: true, ..DropScope::default() };
        let watch = DropWatch::over(&[lab.tx().namespace(), lab.rx().namespace()], &scope).unwrap();
        let before = (read(lab.tx()), read(lab.rx()), watch.read().unwrap());
        Some(Self { lab, watch: Some(watch), before })
    }

    /// A scene without a ledger.
    pub(crate) fn unwatched(plan: &LabPlan) -> Option<Self> {
        let lab = testing::root_lab(plan, "the kernel's drop reasons need root")?;
        let before = (read(lab.tx()), read(lab.rx()), DropReading::default());
        Some(Self { lab, watch: None, before })
    }

    pub(crate) fn to(&self) -> SocketAddr {
        (self.lab.rx().ipv4()[0], PORT).into()
    }

    /// Sends datagrams of that many bytes.
    pub(crate) fn send(&self, packets: u32, bytes: usize) {
        self.send_payload(packets, &vec![0; bytes]);
    }

    /// Sends datagrams that carry a probe header.
    pub(crate) fn send_probes(&self, packets: u32) {
        let mut probe = [0; 18];
        probe[..4].copy_from_slice(&wire::PROBE_MAGIC.to_be_bytes());
        self.send_payload(packets, &probe);
    }

    fn send_payload(&self, packets: u32, payload: &[u8]) {
        self.lab
            .tx()
            .run(|| {
                // Not connected, so it gets no errors of earlier packets.
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                for _ in 0..packets {
                    socket.send_to(payload, self.to()).unwrap();
                }
            })
            .unwrap();
    }

    /// Sends buffers of `segments` segments of `bytes` bytes (`UDP_SEGMENT`).
    pub(crate) fn send_segmented(&self, buffers: u32, segments: usize, bytes: u16) {
        self.lab
            .tx()
            .run(|| {
                let options = SocketOptions { segment_bytes: Some(bytes), ..SocketOptions::default() };
                let socket = sys::udp::UdpSocket::bind("0.0.0.0:0".parse().unwrap(), &options).unwrap();
                socket.connect(self.to()).unwrap();
                let mut batch = SendBatch::new(1, segments, bytes.into());
                for _ in 0..buffers {
                    assert_eq!(batch.send(&socket, 0, segments).unwrap(), segments);
                }
            })
            .unwrap();
    }

    /// A datagram as a whole frame, whose IP checksum is computed after `change`.
    pub(crate) fn frame(&self, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let (from, to) = (self.lab.tx(), self.lab.rx());
        let mut frame = [&to.mac()[..], &from.mac(), &[0x08, 0x00]].concat();
        frame.extend([0x45, 0, 0, 48, 0, 1, 0, 0, 64, 17, 0, 0]);
        frame.extend(from.ipv4()[0].octets().iter().chain(&to.ipv4()[0].octets()));
        // Ports, length, no UDP checksum, payload.
        frame.extend([0x10, 0, PORT.to_be_bytes()[0], PORT.to_be_bytes()[1], 0, 28, 0, 0]);
        frame.resize(62, 0);
        change(&mut frame);
        let checksum = wire::Checksum::ZERO.add_bytes(&frame[14..34]).finish();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// Sends copies of a frame.
    pub(crate) fn send_frames(&self, packets: usize, frame: &[u8]) {
        let side = self.lab.tx();
        let options = PacketTxOptions::on(side.index(), frame.len());
        let mut tx = side.run(|| PacketTx::open(&options)).unwrap().unwrap();
        let mut left = packets;
        while left > 0 {
            let copy = |slot: &mut [u8]| {
                slot[..frame.len()].copy_from_slice(frame);
                frame.len()
            };
            left -= tx.send(left.min(16), copy).unwrap().taken;
        }
    }

    pub(crate) fn frames(&self, sizes: &str) -> FrameSpec {
        FrameSpec {
            src_mac: MacAddr(self.lab.tx().mac()),
            dst_mac: MacAddr(self.lab.rx().mac()),
            src_addr: wire::Values::Fixed(self.lab.tx().ipv4()[0].into()),
            dst_addr: wire::Values::Fixed(self.lab.rx().ipv4()[0].into()),
            dst_port: wire::Values::Fixed(PORT),
            sizes: Sizes::Frame(sizes.parse().unwrap()),
            ..FrameSpec::default()
        }
    }

    /// Waits until the receiving interface has seen that many packets, including lost ones.
    pub(crate) fn wait_for_rx(&self, packets: u64) {
        let seen = || {
            let now = read(self.lab.rx()).link.since(&self.before.1.link);
            now.rx_packets + now.rx_dropped
        };
        testing::wait_for("all packets to arrive", || seen() >= packets);
    }

    /// Asserts that these lines and no others explain everything.
    pub(crate) fn closes(&self, sent: u64, received: &Received, expected: &[(Place, u64)]) {
        let drivers = Drivers::built_in();
        let ledger = || {
            let (tx, rx, drops) = &self.before;
            let (tx, rx) = (read(self.lab.tx()).since(tx, &drivers), read(self.lab.rx()).since(rx, &drivers));
            let watch = self.watch.as_ref().expect("a scene with a watch");
            let drops = watch.read().unwrap().since(drops).places;
            let growth = LabGrowth { tx: &tx, rx: &rx, drops: Some(&drops), refused: 0, sent: Some(sent) };
            let ledger = Ledger::close(sent, received.delivered, lab_lines(&growth, received, &drivers));
            let drops: Vec<_> = drops.iter().map(|drop| (drop.source(), drop.packets)).collect();
            let seen = format!("{:#?}\n{drops:?}\n{:?}\n{:?}", ledger.lines, tx.link, rx.link);
            (ledger, seen)
        };
        let (ledger, seen) = until(ledger, |(ledger, _)| ledger.is_closed());
        let lines: Vec<(&str, u64)> =
            ledger.lines.iter().map(|line| (line.place.as_str(), line.packets)).collect();
        let mut expected: Vec<(Place, u64)> = expected.to_vec();
        expected.sort();
        let expected: Vec<(&str, u64)> =
            expected.iter().map(|(place, packets)| (place.name(), *packets)).collect();
        assert_eq!(lines, expected, "{seen}");
        assert_eq!(ledger.unexplained, 0, "{seen}");
    }
}

/// Reads until the result is as wanted, at most for ten seconds, and returns the last result.
pub(crate) fn until<T>(look: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let seen = look();
        if wanted(&seen) || Instant::now() > deadline {
            return seen;
        }
        thread::yield_now();
    }
}

/// Counts the packets of a port.
pub(crate) fn count(rx: &mut impl RxPort) -> u64 {
    let mut packets = 0;
    while rx.recv(Wait::Spin, |_| packets += 1).unwrap() > 0 {}
    packets
}

/// Counts what a socket delivers until deliveries and buffer losses add up to that many packets.
pub(crate) fn count_until(rx: &mut UdpRx, packets: u64) -> u64 {
    let mut delivered = 0;
    testing::wait_for("all packets at the socket", || {
        delivered += count(rx);
        delivered + rx.lost().unwrap() >= packets
    });
    delivered + count(rx)
}

/// Runs a program of the system in the calling thread's namespace.
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A setting of the machine, restored when dropped.
pub(crate) struct Sysctl {
    path: String,
    before: String,
}

impl Sysctl {
    pub(crate) fn set(name: &str, value: &str) -> Self {
        let path = format!("/proc/sys/{name}");
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, value).unwrap();
        Self { path, before }
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        fs::write(&self.path, &self.before).unwrap();
    }
}

fn read(side: &Side) -> HostCounters {
    side.run(|| HostCounters::read(Some(side.interface())).unwrap()).unwrap()
}
