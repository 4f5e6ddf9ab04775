//! The cost of naming the kernel's drops: the same packets with and without the program, alternating.
//!
//! `make bench-ledger` (root; `ROUNDS=60` for fewer than 300). Delivered: datagrams sent and read in one thread, 64 at a time, without drops
//! and while another CPU drops a million packets a second. Dropped: frames made in the kernel, which one CPU drops
//! because the socket is never read or no socket is bound.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabPlan};
use ledger::{DropScope, DropWatch};
use port::{RxPort, TxPort, UdpRx, UdpRxOptions, UdpTx, UdpTxOptions, Wait, XdpTx, XdpTxOptions};
use sys::cpu;
use wire::{FrameSpec, MacAddr, Sizes, Template, Values};

/// Default number of rounds. Each round is a run without and one with the program, in alternating order.
const ROUNDS: usize = 300;
const DELIVERED: usize = 64 * 250;
const DROPPED: usize = BATCH * 6;
const BATCH: usize = 4096;
/// A million a second.
const BURST: usize = 128;
const BURST_EVERY: Duration = Duration::from_micros(128);

fn main() {
    let lab = Lab::create(&LabPlan { gro: true, ..LabPlan::default() }).expect("as root");
    let scope = DropScope { only_udp: true, ..DropScope::default() };
    let mut watch = DropWatch::over(&[lab.tx().namespace(), lab.rx().namespace()], &scope).unwrap();
    watch.pause();
    let cpus = cpu::allowed().unwrap();
    cpu::pin_to(cpus[0]).unwrap();
    let (mut rx, mut tx) = sockets(&lab);
    let mut deliver = |packets| delivered(&mut rx, &mut tx, packets);
    report("nothing dropped", DELIVERED, &mut watch, &mut deliver);
    let unread = full_socket(&lab);
    let port = unread.local_address().unwrap().port();
    if let [_, other, ..] = cpus[..] {
        let (over, dropped) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| a_million_a_second(&lab, port, other, &over, &dropped));
            let began = Instant::now();
            report("beside 1 Mpps dropped", DELIVERED, &mut watch, &mut deliver);
            let mpps = dropped.load(Relaxed) as f64 / began.elapsed().as_secs_f64() / 1e6;
            println!("{:<22} {mpps:.2} Mpps were dropped", "");
            over.store(true, Relaxed);
        });
    }
    for (name, port) in [("receive buffer full", port), ("no socket", 9)] {
        let mut tx = flood(&lab, port);
        let mut drop = |packets: usize| {
            let began = Instant::now();
            for _ in 0..packets.div_ceil(BATCH) {
                tx.send(BATCH, 7).unwrap();
            }
            began.elapsed().as_nanos() as f64
        };
        lab.tx().run(|| report(name, DROPPED, &mut watch, &mut drop)).unwrap();
    }
}

/// Runs both alternately and prints the medians and the 95 % confidence interval of the change.
fn report(name: &str, packets: usize, watch: &mut DropWatch, nanos: &mut impl FnMut(usize) -> f64) {
    let before = watch.read().unwrap();
    // The first packets after a change of the kernel's code find cold caches.
    let mut run = |with: bool| {
        if with {
            watch.resume().unwrap();
        }
        nanos(packets / 6);
        let nanos = nanos(packets) / packets as f64;
        watch.pause();
        nanos
    };
    run(true);
    let rounds = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(ROUNDS).max(5);
    let rounds: Vec<[f64; 2]> = (0..rounds)
        .map(|round| {
            if round % 2 == 0 {
                [run(false), run(true)]
            } else {
                let with = run(true);
                [run(false), with]
            }
        })
        .collect();
    let [without, with] = [0, 1].map(|side| middle(rounds.iter().map(|round| round[side]).collect())[1]);
    let rate = middle(rounds.iter().map(|[without, with]| (without / with - 1.0) * 100.0).collect());
    let each = middle(rounds.iter().map(|[without, with]| with - without).collect());
    let counted = watch.read().unwrap().since(&before);
    println!(
        "{name:<22} {:>6.0} kpps without, {:>6.0} kpps with: rate {:+.2} % ({:+.2} to {:+.2}), \
         {:+.1} ns a packet ({:+.1} to {:+.1}); {} drops counted, {} ns each by its own clock",
        1e6 / without,
        1e6 / with,
        rate[1],
        rate[0],
        rate[2],
        each[1],
        each[0],
        each[2],
        counted.events,
        counted.cost_ns / counted.events.max(1),
    );
}

/// The median and its 95 % confidence interval, for any distribution (the sign
/// test's interval).
fn middle(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let low = ((count - 1.96 * count.sqrt()) / 2.0).floor().max(0.0) as usize;
    [values[low], values[values.len() / 2], values[values.len() - 1 - low]]
}

fn flood(lab: &Lab, port: u16) -> XdpTx {
    let template = Template::new(&frames(lab, port)).unwrap();
    let side = lab.tx();
    side.run(|| XdpTx::open(template.recipe(), &XdpTxOptions::on(side.index()))).unwrap().unwrap()
}

/// Makes and drops packets on CPU `cpu` at that pace until `over` is set.
fn a_million_a_second(lab: &Lab, port: u16, cpu: u32, over: &AtomicBool, dropped: &AtomicU64) {
    cpu::pin_to(cpu).unwrap();
    let mut tx = flood(lab, port);
    let send = || {
        let mut due = Instant::now();
        while !over.load(Relaxed) {
            tx.send(BURST, 7).unwrap();
            dropped.fetch_add(BURST as u64, Relaxed);
            due = (due + BURST_EVERY).max(Instant::now() - BURST_EVERY);
            while Instant::now() < due {
                std::hint::spin_loop();
            }
        }
    };
    lab.tx().run(send).unwrap();
}

fn sockets(lab: &Lab) -> (UdpRx, UdpTx) {
    let address = (lab.rx().ipv4()[0], 0).into();
    let options = UdpRxOptions { receive_buffer_bytes: Some(1 << 20), ..UdpRxOptions::at(address) };
    let rx = lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap();
    let to = UdpTxOptions::to(rx.local_address().unwrap(), 18);
    let tx = lab.tx().run(|| UdpTx::open(&to)).unwrap().unwrap();
    (rx, tx)
}

/// Nanoseconds to send and read that many.
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

/// A socket that is never read and whose buffer is full.
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
