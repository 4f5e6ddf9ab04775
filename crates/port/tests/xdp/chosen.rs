//! The frames that an AF_XDP socket gets.

use std::{
    fs::File,
    io::{ErrorKind, Write},
};

use port::{RxPort, Wait, XskRx, XskRxOptions};
use sys::{
    netns::NetNs,
    rtnetlink::{RouteSocket, flag},
    tap::create_tap,
};
use wire::{FrameSpec, Sizes, Template};

/// The header that a TAP needs before each frame: a `struct virtio_net_hdr` without requests.
const VIRTIO_HEADER: [u8; 10] = [0; 10];
const PORT: u16 = 4321;
/// Their offsets in a frame without tags.
const IP: usize = 14;
const UDP: usize = 34;

fn frame(spec: &FrameSpec) -> Vec<u8> {
    let template = Template::new(spec).unwrap();
    let mut frame = vec![0; template.max_frame_len()];
    template.prime_frame(&mut frame);
    template.restamp_frame(&mut frame, 7, 1);
    frame
}

/// Frames by name, and whether they are datagrams to the port, and probes besides.
fn frames() -> Vec<(&'static str, Vec<u8>, bool, bool)> {
    let sizes = Sizes::Frame("90".parse().unwrap());
    let spec = FrameSpec { dst_port: PORT.into(), sizes, ..FrameSpec::default() };
    let v6 = FrameSpec {
        src_addr: "2001:2::1".parse().unwrap(),
        dst_addr: "2001:2:0:1::1".parse().unwrap(),
        ..spec.clone()
    };
    let tagged = |spec: &FrameSpec| FrameSpec { vlan: vec!["100/5".parse().unwrap()], ..spec.clone() };
    let plain = frame(&spec);
    let with = |at: usize, bytes: &[u8]| {
        let mut other = plain.clone();
        other[at..at + bytes.len()].copy_from_slice(bytes);
        other
    };
    let mut optioned = with(IP, &[0x46]);
    optioned.splice(UDP..UDP, [1; 4]);
    let mut short = with(UDP + 4, &[0, 20]);
    short.truncate(UDP + 20);
    vec![
        ("a probe", plain.clone(), true, true),
        ("a probe, tagged", frame(&tagged(&spec)), true, true),
        ("a probe over IPv6", frame(&v6), true, true),
        ("a probe over IPv6, tagged", frame(&tagged(&v6)), true, true),
        ("a probe behind options", optioned, true, true),
        ("another magic number", with(UDP + 8, &[0]), true, false),
        ("a datagram too short for a probe, padded", with(UDP + 4, &[0, 23]), true, false),
        ("a frame too short for a probe", short, true, false),
        ("another port", with(UDP + 2, &[0, 9]), false, false),
        ("TCP", with(IP + 9, &[6]), false, false),
        ("a first fragment", with(IP + 6, &[0x20]), false, false),
        ("a later fragment", with(IP + 7, &[1]), false, false),
        ("another version", with(IP, &[0x65]), false, false),
        ("no IP", with(IP - 2, &[0x08, 0x06]), false, false),
        ("a frame that ends in its headers", plain[..UDP + 7].to_vec(), false, false),
    ]
}

#[test]
fn a_socket_gets_datagrams_of_its_port_or_probes_among_them() {
    if crate::support::lab(&lab::LabPlan::default()).is_none() {
        return;
    }
    let namespace = NetNs::create().unwrap();
    namespace.run(look).unwrap();
}

fn look() {
    let mut tap = match create_tap("tap", 1) {
        Err(error) if error.kind() == ErrorKind::NotFound => return testing::skip("no /dev/net/tun"),
        queues => File::from(queues.unwrap().pop().unwrap()),
    };
    let mut route = RouteSocket::open().unwrap();
    let link = route.link_by_name("tap").unwrap();
    route.change_flags(link.index, flag::UP, flag::UP).unwrap();
    for only_probes in [false, true] {
        let options = XskRxOptions { dst_port: PORT, only_probes, ..XskRxOptions::on("tap", 0) };
        let mut rx = XskRx::open(&options).unwrap().pop().unwrap();
        for (name, frame, is_of_port, is_probe) in frames() {
            tap.write_all(&[&VIRTIO_HEADER[..], &frame].concat()).unwrap();
            let mut got = Vec::new();
            // The program has run when the write returns.
            rx.recv(Wait::Spin, |received| got.push(received.bytes.to_vec())).unwrap();
            let is_taken = if only_probes { is_probe } else { is_of_port };
            let expected = if is_taken { vec![frame] } else { Vec::new() };
            assert_eq!(got, expected, "{name}; only probes: {only_probes}");
        }
    }
}
