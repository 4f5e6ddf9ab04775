//! What naming the kernel's drops costs: the same packets with and without the program, in turns.
//!
//! `make bench-ledger` (root). Without drops: datagrams sent and read in one thread, 64 at a time. With drops: frames
//! made in the kernel for a port where nobody listens, so that each is dropped.

use std::time::Instant;

use lab::{Lab, LabPlan};
use ledger::{DropScope, DropWatch};
use port::{RxPort, TxPort, UdpRx, UdpRxOptions, UdpTx, UdpTxOptions, Wait, XdpTx, XdpTxOptions};
use wire::{FrameSpec, MacAddr, Sizes, Template, Values};

const ROUNDS: usize = 15;
const DELIVERED: usize = 64 * 2000;
const DROPPED: usize = 4096 * 60;

fn main() {
    let lab = Lab::create(&LabPlan { gro: true, ..LabPlan::default() }).expect("as root");
    report("no drops", DELIVERED, || lab.tx().run(|| delivered(&lab)).unwrap(), &lab);
    let template = Template::new(&frames(&lab)).unwrap();
    let side = lab.tx();
    let mut tx =
        side.run(|| XdpTx::open(template.recipe(), &XdpTxOptions::on(side.index()))).unwrap().unwrap();
    let dropped = || {
        side.run(|| {
            let began = Instant::now();
            for _ in 0..DROPPED / 4096 {
                tx.send(4096, 7).unwrap();
            }
            began.elapsed().as_nanos() as f64
        })
        .unwrap()
    };
    report("every packet dropped", DROPPED, dropped, &lab);
}

/// Runs both in turns and prints the medians and their ratio.
fn report(name: &str, packets: usize, mut run: impl FnMut() -> f64, lab: &Lab) {
    let (mut without, mut with, mut events) = (Vec::new(), Vec::new(), 0);
    run();
    for _ in 0..ROUNDS {
        without.push(run());
        let watch = watch(lab);
        with.push(run());
        events += watch.read().unwrap().events;
    }
    let (without, with) = (median(without), median(with));
    println!(
        "{name:<22} {:>8.0} kpps without, {:>8.0} kpps with: rate {:+.2} %; {events} drops counted",
        packets as f64 / without * 1e6,
        packets as f64 / with * 1e6,
        (without / with - 1.0) * 100.0
    );
}

fn watch(lab: &Lab) -> DropWatch {
    let scope = DropScope { only_udp: true, ..DropScope::default() };
    DropWatch::over(&[lab.tx().namespace(), lab.rx().namespace()], &scope).unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds to send and read all.
fn delivered(lab: &Lab) -> f64 {
    let address = (lab.rx().ipv4()[0], 0).into();
    let options = UdpRxOptions { receive_buffer_bytes: Some(1 << 20), ..UdpRxOptions::at(address) };
    let mut rx = lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap();
    let mut tx = UdpTx::open(&UdpTxOptions::to(rx.local_address().unwrap(), 18)).unwrap();
    let began = Instant::now();
    let (mut sent, mut read) = (0, 0);
    while read < DELIVERED {
        sent += tx.send(64.min(DELIVERED - sent).max(1), |_| 18).unwrap().taken;
        while read < sent.min(DELIVERED) {
            read += rx.recv(Wait::Spin, |_| ()).unwrap();
        }
    }
    began.elapsed().as_nanos() as f64
}

fn frames(lab: &Lab) -> FrameSpec {
    FrameSpec {
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        src_addr: Values::Fixed(lab.tx().ipv4()[0].into()),
        dst_addr: Values::Fixed(lab.rx().ipv4()[0].into()),
        dst_port: Values::Fixed(9),
        sizes: Sizes::Frame("64".parse().unwrap()),
        ..FrameSpec::default()
    }
}
