//! Helpers of this crate's tests.

use std::{
    net::{IpAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use divert::{BEAT, Diversion, DivertPlan, FilterAt, Status, Verdicts};
use lab::{Lab, LabPlan};

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Flooded, and taken by a rule.
pub(crate) const FLOODED: u16 = 9;
/// Flooded too, and passed.
pub(crate) const VALID: u16 = 10;

/// A lab as root, or `None` with a message; a failure where everything is required.
pub(crate) fn lab() -> Option<Lab> {
    lab_with(LabPlan::default().queues)
}

pub(crate) fn lab_with(queues: u32) -> Option<Lab> {
    // With GRO a veth has its receive rings all the time, as a card has.
    testing::root_lab(&LabPlan { queues, gro: true, ..LabPlan::default() }, "diverting needs root")
}

pub(crate) fn plan(lab: &Lab, place: FilterAt, rules: &[&str]) -> DivertPlan {
    DivertPlan {
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        ..DivertPlan::bare(lab.rx().interface(), [0, 1], place)
    }
}

pub(crate) fn start(lab: &Lab, plan: &DivertPlan) -> Diversion {
    lab.rx().run(|| Diversion::start(plan)).unwrap().unwrap()
}

/// Sends datagrams of 18 bytes to a port, a few at a time so that no ring overflows.
pub(crate) fn send<V: Verdicts>(lab: &Lab, diversion: &mut Diversion<V>, port: u16, count: usize) {
    let target = (IpAddr::from(lab.rx().ipv4()[0]), port);
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        (0..count).for_each(|_| assert_eq!(socket.send_to(&[0; 18], target).unwrap(), 18));
    };
    thread::scope(|scope| {
        let sending = scope.spawn(|| lab.tx().run(send).unwrap());
        while !sending.is_finished() {
            diversion.beat().unwrap();
            thread::sleep(BEAT / 20);
        }
    });
}

/// Datagrams that reached the other side's stack; it has no listener.
pub(crate) fn delivered(lab: &Lab) -> u64 {
    lab.rx().net_counters().unwrap().value("UdpNoPorts").unwrap()
}

/// Beats until what was sent has arrived and is explained.
pub(crate) fn settle<V: Verdicts>(diversion: &mut Diversion<V>, arrived: u64) -> Status {
    let deadline = Instant::now() + PATIENCE;
    loop {
        diversion.beat().unwrap();
        let status = diversion.status().unwrap();
        if status.ledger.arrived == arrived && status.ledger.unexplained == 0 {
            return status;
        }
        assert!(Instant::now() < deadline, "{:#?}", status.ledger);
        thread::sleep(BEAT / 10);
    }
}
