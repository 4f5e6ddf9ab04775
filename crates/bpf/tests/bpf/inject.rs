//! Re-injected frames arrive as if they had come from the wire.

use std::{net::UdpSocket, time::Duration};

use bpf::{Inject, Mode, Pass};
use lab::{Lab, LabPlan};
use wire::{FrameSpec, MacAddr, Sizes, Template, Values};

use crate::support::lab;

const PORT: u16 = 4321;

fn template(lab: &Lab, sizes: &str) -> Template {
    let spec = FrameSpec {
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        src_addr: Values::Fixed(lab.tx().ipv4()[0].into()),
        dst_addr: Values::Fixed(lab.rx().ipv4()[0].into()),
        dst_port: Values::Fixed(PORT),
        sizes: Sizes::Frame(sizes.parse().unwrap()),
        ..FrameSpec::default()
    };
    Template::new(&spec).unwrap()
}

#[test]
fn frames_of_all_sizes_come_to_a_socket_whole_and_in_order() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    let _pass = side.run(|| Pass::attach(side.index(), Mode::Native)).unwrap().unwrap();
    let socket = side.run(|| UdpSocket::bind(("0.0.0.0", PORT)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let template = template(&lab, "64-1500");
    let mut frame = vec![0; template.max_frame_len()];
    let mut inject = side.run(|| Inject::load(side.index())).unwrap().unwrap();
    let mut datagram = [0; 2048];
    // As many at a time as fit the socket's buffer, a page each.
    for first in (0..600).step_by(40) {
        let mut expected = Vec::new();
        for sequence in first..first + 40 {
            let len = template.stamp_frame(&mut frame, sequence, 0);
            expected.push(wire::UdpFrame::parse(&frame[..len]).unwrap().payload().to_vec());
            assert!(inject.push(&frame[..len]));
        }
        let given = side.run(|| (inject.flush().unwrap(), inject.flush().unwrap(), inject.waiting()));
        assert_eq!(given.unwrap(), (40, 0, 0));
        for payload in expected {
            let len = socket.recv(&mut datagram).unwrap();
            assert_eq!(datagram[..len], payload);
        }
    }
    assert_eq!(side.net_counters().unwrap().value("UdpInCsumErrors"), Some(0));
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    let template = template(&lab, "100");
    let mut frame = vec![0; template.max_frame_len()];
    let len = template.stamp_frame(&mut frame, 1, 0);
    frame[len - 1] ^= 1;
    let given = side.run(|| {
        let mut inject = Inject::load(side.index()).unwrap();
        assert!(inject.push(&frame[..len]));
        inject.flush().unwrap()
    });
    assert_eq!(given.unwrap(), 1);
    // Without a listener, only the checksum can be wrong.
    assert_eq!(side.net_counters().unwrap().value("UdpInCsumErrors"), Some(1));
}

#[test]
fn what_fits_no_slot_is_refused() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    let mut inject = side.run(|| Inject::load(side.index())).unwrap().unwrap();
    for len in [0, Inject::SHORTEST - 1, Inject::LONGEST + 1] {
        assert!(!inject.push(&vec![0; len]), "{len}");
    }
    for _ in 0..Inject::SLOTS {
        assert!(inject.push(&[0; Inject::LONGEST]));
    }
    assert!(!inject.push(&[0; 64]));
    assert_eq!(inject.waiting(), Inject::SLOTS);
}
