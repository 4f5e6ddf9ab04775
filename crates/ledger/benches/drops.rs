//! What naming the kernel's drops costs: the same packets with and without the program, in turns.
//!
//! `make bench-ledger` (root). Without drops: datagrams sent and read in one thread, 64 at a time. With drops: frames
//! made in the kernel, all of which one CPU drops, because nobody reads the socket or nobody listens.

use std::time::Instant;

use lab::{Lab, LabPlan};
use ledger::{DropScope, DropWatch};
use port::{RxPort, TxPort, UdpRx, UdpRxOptions, UdpTx, UdpTxOptions, Wait, XdpTx, XdpTxOptions};
use wire::{FrameSpec, MacAddr, Sizes, Template, Values};

/// Each is a run without and one with the program, the first of the two in turns.
const ROUNDS: usize = 120;
const DELIVERED: usize = 64 * 300;
const DROPPED: usize = 4096 * 8;
const BATCH: usize = 4096;

fn main() {
    let lab = Lab::create(&LabPlan { gro: true, ..LabPlan::default() }).expect("as root");
    let (mut rx, mut tx) = sockets(&lab);
    report("nothing dropped", DELIVERED, |packets| delivered(&mut rx, &mut tx, packets), &lab);
    let unread = full_socket(&lab);
    for (name, port) in [("receive buffer full", unread.local_address().unwrap().port()), ("no socket", 9)] {
        let template = Template::new(&frames(&lab, port)).unwrap();
        let side = lab.tx();
        let mut tx =
            side.run(|| XdpTx::open(template.recipe(), &XdpTxOptions::on(side.index()))).unwrap().unwrap();
        report(name, DROPPED, |packets| side.run(|| dropped(&mut tx, packets)).unwrap(), &lab);
    }
}

/// Runs both in turns and prints the medians, and the interval that holds the true change in 95 of 100 cases.
fn report(name: &str, packets: usize, mut nanos: impl FnMut(usize) -> f64, lab: &Lab) {
    let mut events = 0;
    // The first packets after a change of the kernel's code find cold caches.
    let mut run = |watch: Option<DropWatch>| {
        nanos(packets / 8);
        let nanos = nanos(packets) / packets as f64;
        events += watch.map_or(0, |watch| watch.read().unwrap().events);
        nanos
    };
    run(None);
    let rounds: Vec<[f64; 2]> = (0..ROUNDS)
        .map(|round| {
            if round % 2 == 0 {
                [run(None), run(Some(watch(lab)))]
            } else {
                let with = run(Some(watch(lab)));
                [run(None), with]
            }
        })
        .collect();
    let [without, with] = [0, 1].map(|side| middle(rounds.iter().map(|round| round[side]).collect())[1]);
    let rate = middle(rounds.iter().map(|[without, with]| (without / with - 1.0) * 100.0).collect());
    let each = middle(rounds.iter().map(|[without, with]| with - without).collect());
    println!(
        "{name:<20} {:>6.0} kpps without, {:>6.0} kpps with: rate {:+.2} % ({:+.2} to {:+.2}), \
         {:+.0} ns a packet ({:+.0} to {:+.0}); {events} drops counted",
        1e6 / without,
        1e6 / with,
        rate[1],
        rate[0],
        rate[2],
        each[1],
        each[0],
        each[2]
    );
}

/// The median between the two values that hold the true one in 95 of 100 cases, whatever the distribution (the sign
/// test's interval).
fn middle(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let low = ((count - 1.96 * count.sqrt()) / 2.0).floor().max(0.0) as usize;
    [values[low], values[values.len() / 2], values[values.len() - 1 - low]]
}

fn watch(lab: &Lab) -> DropWatch {
    let scope = DropScope { only_udp: true, ..DropScope::default() };
    DropWatch::over(&[lab.tx().namespace(), lab.rx().namespace()], &scope).unwrap()
}

fn sockets(lab: &Lab) -> (UdpRx, UdpTx) {
    let address = (lab.rx().ipv4()[0], 0).into();
    let options = UdpRxOptions { receive_buffer_bytes: Some(1 << 20), ..UdpRxOptions::at(address) };
    let rx = lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap();
    let to = UdpTxOptions::to(rx.local_address().unwrap(), 18);
    let tx = lab.tx().run(|| UdpTx::open(&to)).unwrap().unwrap();
    (rx, tx)
}

/// Nanoseconds to send and read so many.
fn delivered(rx: &mut UdpRx, tx: &mut UdpTx, packets: usize) -> f64 {
    let began = Instant::now();
    let (mut sent, mut read) = (0, 0);
    while read < packets {
        sent += tx.send(64.min(packets - sent).max(1), |_| 18).unwrap().taken;
        while read < sent.min(packets) {
            read += rx.recv(Wait::Spin, |_| ()).unwrap();
        }
    }
    began.elapsed().as_nanos() as f64
}

/// A socket that is never read and has no room left.
fn full_socket(lab: &Lab) -> UdpRx {
    let address = (lab.rx().ipv4()[0], 0).into();
    let options = UdpRxOptions { receive_buffer_bytes: Some(4096), ..UdpRxOptions::at(address) };
    let mut rx = lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap();
    let to = UdpTxOptions::to(rx.local_address().unwrap(), 18);
    let mut tx = lab.tx().run(|| UdpTx::open(&to)).unwrap().unwrap();
    while rx.lost().unwrap() == 0 {
        tx.send(64, |_| 18).unwrap();
    }
    rx
}

/// Nanoseconds to make and drop so many.
fn dropped(tx: &mut XdpTx, packets: usize) -> f64 {
    let began = Instant::now();
    for _ in 0..packets.div_ceil(BATCH) {
        tx.send(BATCH, 7).unwrap();
    }
    began.elapsed().as_nanos() as f64
}

fn frames(lab: &Lab, port: u16) -> FrameSpec {
    FrameSpec {
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        src_addr: Values::Fixed(lab.tx().ipv4()[0].into()),
        dst_addr: Values::Fixed(lab.rx().ipv4()[0].into()),
        dst_port: Values::Fixed(port),
        sizes: Sizes::Frame("64".parse().unwrap()),
        ..FrameSpec::default()
    }
}
