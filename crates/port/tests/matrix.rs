//! Every sending path against every receiving one: the same numbered frames arrive byte for byte, none duplicated, none
//! altered, none lost. As root; otherwise skipped loudly.

#[path = "matrix/carry.rs"]
mod carry;
#[path = "matrix/ends.rs"]
mod ends;
#[path = "matrix/shapes.rs"]
mod shapes;

use std::{io::Write, process::Command};

use bpf::{Mode, Pass};
use lab::{Lab, LabPlan};
use port::{PacketRx, PacketRxOptions, RxPort, Wait};
use wire::{PcapWriter, Template, UdpFrame};

use crate::{
    carry::{PATIENCE, TIME_NS, carry},
    ends::{Rx, RxKind, Tx, TxKind},
    shapes::{Shape, shapes},
};

/// Frames that each pair carries, over all shapes.
const FRAMES: u32 = 100_000;

/// A lab as root, or `None` with a printed skip; a failure when everything is required.
fn lab(plan: &LabPlan) -> Option<Lab> {
    testing::root_lab(plan, "the matrix needs root")
}

/// Carries all frames from one kind of sender to every kind of receiver.
fn to_all_receivers(sender: TxKind) {
    for receiver in RxKind::ALL {
        let shapes = shapes(sender, receiver);
        let mut left = FRAMES;
        for (index, shape) in shapes.iter().enumerate().rev() {
            // The first shape, which runs last, takes the remainder.
            let frames = if index == 0 { left } else { shape.frames };
            left -= frames;
            let Some(lab) = lab(&LabPlan { queues: 1, mtu: shape.mtu, ..LabPlan::default() }) else { return };
            pair(&lab, sender, receiver, shape, frames);
        }
    }
}

fn pair(lab: &Lab, sender: TxKind, receiver: RxKind, shape: &Shape, frames: u32) {
    let name = format!("{sender:?} to {receiver:?}, {}", shape.name);
    let template = Template::new(&shape.spec(lab)).unwrap();
    let mut rx = Rx::open(receiver, lab, shape);
    // An open socket, if the receiver is not one: else the kernel would answer with ICMP errors.
    let _listens = (!receiver.is_socket()).then(|| Rx::open(RxKind::Udp, lab, shape));
    // Frames made in XDP reach a veth only if it has receive rings, which a program provides.
    let needs_rings = sender == TxKind::Xdp && !receiver.has_program();
    let _rings =
        needs_rings.then(|| lab.rx().run(|| Pass::attach(lab.rx().index(), Mode::Native)).unwrap().unwrap());
    let mut tx = Tx::open(sender, lab, shape, &template);
    carry(lab, &mut tx, &mut rx, &template, frames, &name);
    let counted = lab.rx().net_counters().unwrap();
    for counter in ["UdpInCsumErrors", "Udp6InCsumErrors", "IpInHdrErrors", "Ip6InHdrErrors"] {
        assert_eq!(counted.value(counter), Some(0), "{name}: {counter}");
    }
    if receiver.is_socket() {
        let datagrams = if shape.ipv6 { "Udp6InDatagrams" } else { "UdpInDatagrams" };
        let taken = counted.value(datagrams).unwrap();
        // A buffer of merged datagrams counts once.
        let is_right = if shape.mtu > 1500 || receiver == RxKind::UdpGro {
            taken > 0
        } else {
            taken == u64::from(frames)
        };
        assert!(is_right, "{name}: the kernel's receiver took {taken} of {frames} datagrams");
    }
    let dropped = lab.tx().link().unwrap().stats.tx_dropped;
    assert!(dropped <= tx.turned_away(), "{name}: {dropped} dropped, {} turned away", tx.turned_away());
}

#[test]
fn udp_sockets_to_every_receiver() {
    to_all_receivers(TxKind::Udp);
}

#[test]
fn udp_segments_to_every_receiver() {
    to_all_receivers(TxKind::UdpGso);
}

#[test]
fn io_uring_to_every_receiver() {
    to_all_receivers(TxKind::Uring);
}

#[test]
fn io_uring_by_the_kernel_s_thread_to_every_receiver() {
    to_all_receivers(TxKind::UringSqpoll);
}

#[test]
fn packet_rings_to_every_receiver() {
    to_all_receivers(TxKind::Packet);
}

#[test]
fn af_xdp_to_every_receiver() {
    to_all_receivers(TxKind::Xsk);
}

#[test]
fn xdp_live_frames_to_every_receiver() {
    to_all_receivers(TxKind::Xdp);
}

/// tcpdump does not share our checksum code: it reads a capture of each sender's frames and finds no wrong checksum.
#[test]
fn tcpdump_finds_every_checksum_of_a_capture_right() {
    const EACH: u32 = 200;
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return testing::skip("needs tcpdump");
    }
    let mut captured = PcapWriter::new(tempfile::NamedTempFile::new().unwrap()).unwrap();
    let mut frames = 0;
    for sender in TxKind::ALL {
        for shape in shapes(sender, RxKind::Packet) {
            let Some(lab) = lab(&LabPlan { queues: 1, mtu: shape.mtu, ..LabPlan::default() }) else { return };
            let template = Template::new(&shape.spec(&lab)).unwrap();
            let mut rx =
                lab.rx().run(|| PacketRx::open(&PacketRxOptions::on(lab.rx().index()))).unwrap().unwrap();
            let _listens = Rx::open(RxKind::Udp, &lab, &shape);
            let _rings = lab.rx().run(|| Pass::attach(lab.rx().index(), Mode::Native)).unwrap().unwrap();
            let mut tx = Tx::open(sender, &lab, &shape, &template);
            tx.send(&lab, &template, 0, EACH);
            let (mut seen, since) = (0, std::time::Instant::now());
            while seen < EACH {
                let look = |received: port::Received<'_>| {
                    UdpFrame::parse(received.bytes).unwrap().verify_checksums().unwrap();
                    captured.write(TIME_NS, received.bytes).unwrap();
                    seen += 1;
                };
                rx.recv(Wait::Block, look).unwrap();
                assert!(since.elapsed() < PATIENCE, "{seen} of {EACH} frames of {sender:?}, {}", shape.name);
            }
            frames += EACH;
        }
    }
    let mut file = captured.finish().unwrap();
    file.flush().unwrap();
    let output = Command::new("tcpdump").args(["-nn", "-vvv", "-r"]).arg(file.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let right = text.lines().filter(|line| line.contains("[udp sum ok]")).count();
    assert_eq!(right, frames as usize, "{}", text.lines().take(20).collect::<Vec<_>>().join("\n"));
    assert!(!text.contains("bad") && !text.contains("incorrect"), "tcpdump finds a wrong checksum");
}
