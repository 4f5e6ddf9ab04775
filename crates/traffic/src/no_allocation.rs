//! No packet costs a worker an allocation, on any path: ten times as many packets cost the same number of allocations.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use lab::{Lab, LabPlan};
use measure::StatisticsLevel;
use port::{
    CountOptions, MeasureOptions, PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, ProbeAction,
    ProbeTime, RxPort, TcpRx, TcpRxOptions, TcpSend, TcpTx, TcpTxOptions, TimeSource, TxPort, UdpRx,
    UdpRxOptions, UdpTx, UdpTxOptions, UringRx, UringRxOptions, UringTx, UringTxOptions, Wait, XdpMeter,
    XdpMode, XdpRx, XdpTx, XdpTxOptions, XskRx, XskRxOptions, XskTx, XskTxOptions,
};
use sys::clock;
use wire::{FrameSpec, MacAddr, ProbeClock, StreamTags, Template, Values};

use crate::{
    collect::ReaderPlace,
    emit::{Emit, Stamped},
    engines::{LiveFrames, Messages, take_streams},
    generate::generate,
    observe::Observer,
    pace::{Departures, Limit, Schedule},
    plan::StatisticsPlan,
    publish::{RxPublished, TxPublished},
    reader::{RxOutput, receive},
    tally::Probes,
    worker::WorkerContext,
};

const PORT: u16 = 4321;
const FEW: u64 = 4096;
const MANY: u64 = 10 * FEW;

fn lab() -> Option<Lab> {
    testing::root_lab(&LabPlan { queues: 1, ..LabPlan::default() }, "raw sockets and XDP need root")
}

fn addresses(lab: &Lab) -> (IpAddr, SocketAddr) {
    (lab.tx().ipv4()[0].into(), (lab.rx().ipv4()[0], PORT).into())
}

fn template(lab: &Lab) -> Template {
    let (from, to) = addresses(lab);
    let spec = FrameSpec {
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        src_addr: Values::Fixed(from),
        dst_addr: Values::Fixed(to.ip()),
        dst_port: Values::Fixed(PORT),
        ..FrameSpec::default()
    };
    Template::new(&spec).unwrap()
}

/// Runs a worker's loop that sends packets on the lab's sending side, and counts its allocations.
fn allocations_of(lab: &Lab, emitter: &mut (impl Emit + Send), packets: u64) -> u64 {
    let limit = Limit { count: Some(packets), duration_ns: None };
    let cost = lab.tx().run(|| {
        allocation_counter::measure(|| {
            let context = WorkerContext::until(Arc::default());
            let schedule = Schedule::new(None, Departures::Constant, limit, context.start_ns, 1);
            let published = TxPublished::default();
            let result = generate(emitter, schedule, ProbeClock::Nanos, &context, &published);
            assert!(result.error.is_none(), "{:?}", result.error);
            assert_eq!(result.tally.packets, packets);
        })
    });
    cost.unwrap().count_total
}

fn sending_costs_none(name: &str, lab: &Lab, emitter: &mut (impl Emit + Send)) {
    assert_eq!(allocations_for_more(lab, emitter), 0, "{name}: {MANY} packets instead of {FEW}");
}

fn allocations_for_more(lab: &Lab, emitter: &mut (impl Emit + Send)) -> u64 {
    allocations_of(lab, emitter, 1); // one-time work
    let [few, many] = [FEW, MANY].map(|packets| allocations_of(lab, emitter, packets));
    many - few
}

fn stamped<P: TxPort>(lab: &Lab, port: P) -> Stamped<P> {
    Stamped::new(port, template(lab))
}

#[test]
fn no_sending_worker_allocates_for_a_packet() {
    let Some(lab) = lab() else { return };
    let side = lab.tx();
    let (from, to) = addresses(&lab);
    let template = template(&lab);
    // A program that drops, so that XDP frames and datagrams have a receiver.
    let open = || XdpRx::open(lab.rx().index(), XdpMode::Native, &CountOptions::default());
    let sink = lab.rx().run(open).unwrap().unwrap();
    for gso in [false, true] {
        let options =
            UdpTxOptions { local: (from, 0).into(), gso, ..UdpTxOptions::to(to, template.max_payload_len()) };
        let port = side.run(|| UdpTx::open(&options)).unwrap().unwrap();
        sending_costs_none("udp", &lab, &mut stamped(&lab, port));
    }
    for sqpoll in [false, true] {
        let sockets =
            UdpTxOptions { local: (from, 0).into(), ..UdpTxOptions::to(to, template.max_payload_len()) };
        let open = || UringTx::open(&UringTxOptions { sockets, sqpoll });
        sending_costs_none("uring", &lab, &mut stamped(&lab, side.run(open).unwrap().unwrap()));
    }
    let options = PacketTxOptions::on(side.index(), template.max_frame_len());
    let port = side.run(|| PacketTx::open(&options)).unwrap().unwrap();
    sending_costs_none("packet", &lab, &mut stamped(&lab, port));
    let port = side.run(|| XskTx::open(&XskTxOptions::on(side.interface(), 0))).unwrap().unwrap();
    sending_costs_none("xsk", &lab, &mut stamped(&lab, port));
    let open = || XdpTx::open(template.recipe(), &XdpTxOptions::on(side.index()));
    let port = side.run(open).unwrap().unwrap();
    let least_a_call = port.worthwhile_packets() as u64;
    // The library that runs the program makes two per call of thousands of packets.
    let more = allocations_for_more(&lab, &mut LiveFrames::new(port, template.clone()));
    assert!(more <= 2 * (MANY - FEW) / least_a_call, "{more}");
    drop(sink);

    let listen = TcpRxOptions { local: to, truncate: true, message_bytes: 1000, receive_buffer_bytes: None };
    let mut rx = lab.rx().run(|| TcpRx::open(&listen)).unwrap().unwrap();
    let options = TcpTxOptions {
        peer: to,
        local: (from, 0).into(),
        send: TcpSend::Copy,
        source: port::FileChoice::default(),
        message_bytes: 1000,
        send_buffer_bytes: None,
    };
    let port = side.run(|| TcpTx::open(&options)).unwrap().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                rx.receive(std::time::Duration::from_millis(20)).unwrap();
            }
        });
        sending_costs_none("tcp", &lab, &mut Messages::new(port, 1000));
        is_over.store(true, Relaxed);
    });
}

/// Runs a worker's loop that receives live frames, and counts its allocations.
fn allocations_for<P: RxPort + Send>(
    lab: &Lab,
    port: &mut P,
    sender: &mut XdpTx,
    packets: u64,
    statistics: Option<StatisticsPlan>,
) -> u64 {
    let stop: Arc<AtomicBool> = Arc::default();
    let before = port.lost().unwrap();
    let output = RxOutput::default();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut tally = Default::default();
            let cost = allocation_counter::measure(|| {
                let observer = statistics.map(|plan| {
                    Observer::new(plan, ReaderPlace::default(), port.time_source(), addresses(lab).1.ip())
                });
                let context = WorkerContext::until(stop.clone());
                let result = receive(
                    port,
                    Wait::Block,
                    (Probes::Sent(StreamTags::NUMBERED), observer),
                    &context,
                    (&output, 0),
                );
                assert!(result.error.is_none(), "{:?}", result.error);
                tally = result.tally;
            });
            (cost.count_total, tally)
        });
        let send = || {
            let mut left = packets as usize;
            while left > 0 {
                left -= sender.send(left.min(256), clock::monotonic_ns()).unwrap().taken;
            }
        };
        lab.tx().run(send).unwrap();
        // The kernel shows a block of packets when it is full, or some time after the first of them.
        testing::wait_for("a packet to be received", || output.published.load().packets > 0);
        stop.store(true, Relaxed);
        let (allocations, tally) = worker.join().unwrap();
        // Some may be lost on the way: sender and receiver may share a CPU.
        assert!(
            tally.packets > 0 && tally.packets + tally.lost - before <= packets,
            "{tally:?} of {packets}"
        );
        allocations
    })
}

fn receiving_costs_none<P: RxPort + Send>(
    name: &str,
    lab: &Lab,
    mut port: P,
    statistics: Option<StatisticsPlan>,
) {
    let open = || XdpTx::open(template(lab).recipe(), &XdpTxOptions::on(lab.tx().index()));
    let mut sender = lab.tx().run(open).unwrap().unwrap();
    let mut measure = |packets| allocations_for(lab, &mut port, &mut sender, packets, statistics);
    measure(1); // one-time work
    let [few, many] = [FEW, MANY].map(measure);
    assert_eq!(few, many, "{name} with {statistics:?}: {FEW} and {MANY} packets");
}

#[test]
fn no_receiving_worker_allocates_for_a_packet() {
    let Some(lab) = lab() else { return };
    let side = lab.rx();
    let counting = StatisticsPlan { level: StatisticsLevel::Counter, ..StatisticsPlan::default() };
    let timing = StatisticsPlan { level: StatisticsLevel::Time, ..StatisticsPlan::default() };
    for statistics in [None, Some(counting), Some(timing)] {
        {
            // XDP frames reach a veth with receive rings, which a program provides.
            let attach = || bpf::Pass::attach(side.index(), XdpMode::Native);
            let _rings = side.run(attach).unwrap().unwrap();
            for gro in [false, true] {
                let options = UdpRxOptions {
                    gro,
                    receive_buffer_bytes: Some(32 << 20),
                    ..UdpRxOptions::at(addresses(&lab).1)
                };
                let port = side.run(|| UdpRx::open(&options)).unwrap().unwrap();
                receiving_costs_none("udp", &lab, port, statistics);
            }
            let port = side.run(|| PacketRx::open(&PacketRxOptions::on(side.index()))).unwrap().unwrap();
            receiving_costs_none("packet", &lab, port, statistics);
        }
        let options = XskRxOptions { dst_port: PORT, ..XskRxOptions::on(side.interface(), 0) };
        let port = side.run(|| XskRx::open(&options)).unwrap().unwrap().remove(0);
        receiving_costs_none("xsk", &lab, port, statistics);
    }
}

/// Each in its own lab: a ring's port is free a moment after a thread other than its worker dropped it.
#[test]
fn no_receiving_worker_over_a_ring_allocates_for_a_packet() {
    let level = |level| StatisticsPlan { level, ..StatisticsPlan::default() };
    for (times, statistics) in [
        (None, None),
        (None, Some(level(StatisticsLevel::Counter))),
        (Some(TimeSource::Kernel), Some(level(StatisticsLevel::Time))),
    ] {
        let Some(lab) = lab() else { return };
        let side = lab.rx();
        let attach = || bpf::Pass::attach(side.index(), XdpMode::Native);
        let _rings = side.run(attach).unwrap().unwrap();
        let mut options = UringRxOptions::at(addresses(&lab).1);
        options.socket.times = times;
        options.socket.receive_buffer_bytes = Some(32 << 20);
        let port = side.run(|| UringRx::open(&options)).unwrap().unwrap();
        receiving_costs_none("uring", &lab, port, statistics);
    }
}

/// Runs a worker that reads messages of a stream, each sent when the previous one was read, and counts its allocations.
fn allocations_for_messages(rx: &mut TcpRx, tx: &mut TcpTx, messages: u64) -> u64 {
    let stop: Arc<AtomicBool> = Arc::default();
    let (published, before) = (RxPublished::default(), rx.received_messages());
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let cost = allocation_counter::measure(|| {
                let result = take_streams(rx, &WorkerContext::until(stop.clone()), &published);
                assert!(result.error.is_none(), "{:?}", result.error);
            });
            cost.count_total
        });
        for sent in 1..=messages {
            assert_eq!(tx.send(1).unwrap().taken, 1);
            while published.load().packets < before + sent && !worker.is_finished() {
                thread::yield_now();
            }
        }
        stop.store(true, Relaxed);
        worker.join().unwrap()
    })
}

#[test]
fn no_reader_of_streams_allocates_for_a_message() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    for truncate in [false, true] {
        let listen = TcpRxOptions { local: any, truncate, message_bytes: 1000, receive_buffer_bytes: None };
        let mut rx = TcpRx::open(&listen).unwrap();
        let mut tx = TcpTx::open(&TcpTxOptions {
            peer: rx.local_address().unwrap(),
            local: any,
            send: TcpSend::Copy,
            source: port::FileChoice::default(),
            message_bytes: 1000,
            send_buffer_bytes: None,
        })
        .unwrap();
        allocations_for_messages(&mut rx, &mut tx, 1); // one-time work
        let [few, many] = [100, 1000].map(|messages| allocations_for_messages(&mut rx, &mut tx, messages));
        assert_eq!(few, many, "truncate {truncate}: 100 and 1000 messages");
    }
}

/// Packets are counted in the kernel: the data that a worker reads hardly grows (times spread over more buckets).
#[test]
fn no_reader_of_a_program_allocates_for_a_packet() {
    let Some(lab) = lab() else { return };
    let (side, template) = (lab.rx(), template(&lab));
    let open = || XdpTx::open(template.recipe(), &XdpTxOptions::on(lab.tx().index()));
    let mut sender = lab.tx().run(open).unwrap().unwrap();
    let mut send = |packets| {
        assert_eq!(lab.tx().run(|| sender.send(packets, 0)).unwrap().unwrap().taken, packets);
    };
    let mut compare = |name: &str, read: &mut dyn FnMut() -> u64| {
        let cost = |read: &mut dyn FnMut() -> u64| {
            let mut packets = 0;
            (allocation_counter::measure(|| packets = read()).count_total, packets)
        };
        send(1);
        read(); // one-time work
        let (few, packets) = cost(&mut *read);
        send(MANY as usize);
        let (many, more) = cost(&mut *read);
        assert!(packets > 0 && more > packets, "{name}: {packets} and {more} packets");
        assert!(many <= few + MANY / 100, "{name}: {few} for {packets} and {many} for {more} packets");
    };
    {
        let open = || XdpRx::open(side.index(), XdpMode::Native, &CountOptions::default());
        let rx = side.run(open).unwrap().unwrap();
        compare("counts", &mut || rx.read().unwrap().packets());
    }
    let options = MeasureOptions {
        verdict: ProbeAction::Drop,
        streams: 1 << 16,
        tag_inverse: 1,
        queues: 1,
        times: true,
        probe_time: ProbeTime::Nanos,
        returns: None,
        by_poll: false,
        is_scripted: false,
        work_ns: 0,
    };
    let mut meter = side.run(|| XdpMeter::open(side.index(), XdpMode::Native, &options)).unwrap().unwrap();
    compare("measurements", &mut || {
        meter.read().unwrap();
        meter.read_counts().unwrap()[0]
    });
}
