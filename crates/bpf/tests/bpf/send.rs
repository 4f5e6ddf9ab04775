//! Packets that a program makes.

use std::{net::UdpSocket, time::Duration};

use bpf::{FieldDraw, Mode, Pass, SendPath, SendPlan, Sender};
use lab::LabPlan;
use wire::{FrameSpec, MacAddr, ProbeHeader, Template, Values};

use crate::support::lab;

const PORT: u16 = 4321;

#[test]
fn a_run_goes_on_behind_the_last_number_and_every_cycle_starts_again_there() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let (tx, rx) = (lab.tx(), lab.rx());
    let _pass = rx.run(|| Pass::attach(rx.index(), Mode::Native)).unwrap().unwrap();
    let socket = rx.run(|| UdpSocket::bind(("0.0.0.0", PORT)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let spec = FrameSpec {
        src_mac: MacAddr(tx.mac()),
        dst_mac: MacAddr(rx.mac()),
        src_addr: Values::Fixed(tx.ipv4()[0].into()),
        dst_addr: Values::Fixed(rx.ipv4()[0].into()),
        src_port: "inc:1000-1007,step=3".parse().unwrap(),
        dst_port: Values::Fixed(PORT),
        ..FrameSpec::default()
    };
    let template = Template::new(&spec).unwrap();
    let recipe = template.recipe();
    let mut fields = [const { FieldDraw::Fixed }; 5];
    fields[2] = FieldDraw::Increment { first: 1000, step: 3, count: 3 };
    let plan = SendPlan {
        base: recipe.base.clone(),
        ipv6: false,
        payload_at: recipe.payload_at,
        fields,
        ipv4_sum: None,
        udp_sum: recipe.udp_sum.fold(),
    };
    let mut sender = tx.run(|| Sender::load(&plan, tx.index(), SendPath::Tx)).unwrap().unwrap();

    let first = u32::MAX - 3;
    assert_eq!(tx.run(|| sender.send(first, 9, 2, 0)).unwrap().unwrap(), 9);
    let mut payload = [0; 64];
    for sequence in (0..9).map(|n| first.wrapping_add(n)) {
        let (len, from) = socket.recv_from(&mut payload).unwrap();
        assert_eq!(ProbeHeader::read(&payload[..len]).unwrap().sequence, sequence);
        assert_eq!(u32::from(from.port()), 1000 + 3 * (sequence % 3), "packet {sequence}");
    }
    // None after the last number, and all of them.
    assert_eq!(tx.run(|| sender.send(u32::MAX, 1, 2, 0)).unwrap().unwrap(), 1);
    assert_eq!(tx.run(|| sender.send(0, 0, 2, 0)).unwrap().unwrap(), 0);
}
