//! Polls of devices are counted for the whole machine.

use std::net::UdpSocket;

use bpf::{NapiCounts, SoftirqWatch};
use lab::LabPlan;

use crate::support::lab;

fn total(watch: &SoftirqWatch) -> NapiCounts {
    let cpus = watch.read().unwrap();
    cpus.into_iter().fold(NapiCounts::default(), |sum, cpu| NapiCounts {
        polls: sum.polls + cpu.polls,
        packets: sum.packets + cpu.packets,
        full: sum.full + cpu.full,
        empty: sum.empty + cpu.empty,
        net_rx_ns: sum.net_rx_ns + cpu.net_rx_ns,
    })
}

#[test]
fn every_packet_of_the_lab_is_polled_and_its_time_counted() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let watch = SoftirqWatch::start().unwrap();
    let before = total(&watch);
    let to = lab.rx().ipv4()[0];
    // No more than the queue of a CPU holds, should softirqs run late.
    const PACKETS: u64 = 500;
    lab.tx()
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..PACKETS {
                // Refused, because there is no listener.
                socket.send_to(&[0; 18], (to, 9)).ok();
            }
        })
        .unwrap();
    let mut counted = NapiCounts::default();
    testing::wait_for("the polls", || {
        counted = total(&watch).since(before);
        counted.packets >= PACKETS
    });
    assert!(counted.polls > 0 && counted.net_rx_ns > 0, "{counted:?}");
    assert!(counted.full + counted.empty <= counted.polls, "{counted:?}");
}
