//! What the kernel drops, counted by reason.

use std::{net::UdpSocket, os::unix::fs::MetadataExt};

use bpf::{DropCount, DropKind, DropOptions, Drops};
use lab::LabPlan;
use sys::btf::KernelTypes;

use crate::support::lab;

fn reason(name: &str) -> DropKind {
    let reasons = KernelTypes::read().unwrap().enumeration("skb_drop_reason");
    let full = format!("SKB_DROP_REASON_{name}");
    DropKind::Reason(reasons.into_iter().find(|(_, known)| *known == full).unwrap().0)
}

fn watched(sides: &[&lab::Side]) -> [u64; Drops::MOST_NAMESPACES] {
    let mut cookies = [0; Drops::MOST_NAMESPACES];
    for (cookie, side) in cookies.iter_mut().zip(sides) {
        *cookie = side.namespace().cookie().unwrap();
    }
    cookies
}

fn total(places: &[DropCount], kind: DropKind) -> u64 {
    places.iter().filter(|count| count.kind == kind).map(|count| count.packets).sum()
}

#[test]
fn packets_to_nobody_are_counted_exactly_in_their_namespace_and_only_there() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let namespaces = watched(&[lab.tx(), lab.rx()]);
    let drops = Drops::attach(&DropOptions { namespaces, only_udp: true, ..DropOptions::default() }).unwrap();
    // Not watched.
    let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
    outside.send_to(b"x", "127.0.0.1:9").unwrap();
    let to = (lab.rx().ipv4()[0], 9);
    lab.tx()
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            // Not connected: refusals of earlier packets are not reported.
            for _ in 0..100 {
                socket.send_to(b"x", to).unwrap();
            }
        })
        .unwrap();
    // TCP drops for the same reason at another place.
    for _ in 0..3 {
        lab.tx().run(|| std::net::TcpStream::connect(to).unwrap_err()).unwrap();
    }
    let counts = drops.read().unwrap();
    let no_socket = reason("NO_SOCKET");
    assert_eq!(total(&counts.places, no_socket), 100, "{counts:?}");
    assert_eq!((counts.events, counts.lost, counts.places.len()), (100, 0, 1));
    assert_eq!(counts.places[0].namespace, 1);
    assert!(drops.sees_xdp());
}

#[test]
fn a_full_receive_buffer_names_the_socket() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let namespaces = watched(&[lab.rx()]);
    let drops = Drops::attach(&DropOptions { namespaces, ..DropOptions::default() }).unwrap();
    let to = lab.rx().ipv4()[0];
    let receiver = lab.rx().run(|| UdpSocket::bind((to, 0)).unwrap()).unwrap();
    let address = receiver.local_addr().unwrap();
    lab.tx()
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..5000 {
                socket.send_to(&[0; 1000], address).unwrap();
            }
        })
        .unwrap();
    receiver.set_nonblocking(true).unwrap();
    let got = std::iter::from_fn(|| receiver.recv(&mut [0; 2000]).ok()).count() as u64;
    let counts = drops.read().unwrap();
    let full = counts.places.iter().find(|count| count.kind == reason("SOCKET_RCVBUFF")).unwrap();
    assert_eq!(got + full.packets, 5000);
    let sample = full.sample.as_ref().unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&receiver);
    let inode = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).unwrap().ino();
    assert_eq!((sample.inode, sample.port), (inode, address.port()));
    assert_eq!(sample.bytes[9], 17, "UDP's number in the IPv4 header");
}

#[test]
fn headers_of_dropped_packets_are_copied_when_asked_for() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let namespaces = watched(&[lab.rx()]);
    let options = DropOptions { namespaces, only_udp: true, headers: true, ..DropOptions::default() };
    let mut drops = Drops::attach(&options).unwrap();
    let to = (lab.rx().ipv4()[0], 9);
    lab.tx()
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..10 {
                socket.send_to(b"x", to).unwrap();
            }
        })
        .unwrap();
    let mut seen = 0;
    drops.headers(100, |headers| {
        assert!(headers.has_mac && headers.protocol == 0x0800);
        assert_eq!(headers.bytes[12..14], [8, 0], "ethertype");
        assert_eq!(headers.bytes[14 + 20 + 2..][..2], [0, 9], "destination port");
        seen += 1;
    });
    assert_eq!(seen, 10);
}
