//! AF_XDP in the lab: every frame arrives as it was sent, every loss is counted, nothing remains.

use std::{
    error::Error,
    os::unix::process::CommandExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use bpf::{BpfError, Mode, Pass};
use lab::{Lab, LabPlan, Side};
use port::{
    Layer, PortError, RxPort, TxPort, UdpRx, UdpRxOptions, Wait, XskRx, XskRxOptions, XskShape, XskTx,
    XskTxOptions,
};
use sys::{
    capability::Capability,
    rtnetlink::{RouteSocket, flag},
    sysfs::{ForNow, Sysfs},
    xsk::{BusyPoll, CopyMode, Pages, Umem, UmemConfig, XskConfig, XskSocket, XskStatistics},
};
use wire::{FrameSpec, MacAddr, ProbeHeader, Sizes, Template, UdpFrame, Values, VlanTag};

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the frames go.
const PORT: u16 = 4321;

/// A lab, or `None` with a printed skip if this process may not create one.
fn lab(plan: &LabPlan) -> Option<Lab> {
    use Capability::{Bpf, NetAdmin, NetRaw, SysAdmin};
    match [Bpf, NetAdmin, NetRaw, SysAdmin].into_iter().find(|capability| !capability.held()) {
        None => Some(Lab::create(plan).unwrap()),
        Some(missing) => {
            testing::skip(format_args!("needs {missing:?}"));
            None
        }
    }
}

fn tx_options(lab: &Lab) -> XskTxOptions {
    XskTxOptions::on(lab.tx().interface(), 0)
}

fn sender(lab: &Lab, options: XskTxOptions) -> XskTx {
    lab.tx().run(|| XskTx::open(&options)).unwrap().unwrap()
}

fn rx_options(lab: &Lab) -> XskRxOptions {
    XskRxOptions { dst_port: PORT, ..XskRxOptions::on(lab.rx().interface(), 0) }
}

fn receivers(lab: &Lab, options: XskRxOptions) -> Vec<XskRx> {
    lab.rx().run(|| XskRx::open(&options)).unwrap().unwrap()
}

fn receiver(lab: &Lab, options: XskRxOptions) -> XskRx {
    receivers(lab, options).remove(0)
}

fn udp_socket(lab: &Lab) -> UdpRx {
    let any = std::net::Ipv6Addr::UNSPECIFIED;
    let options =
        UdpRxOptions { receive_buffer_bytes: Some(32 << 20), ..UdpRxOptions::at((any, PORT).into()) };
    lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap()
}

/// Frames from one side to the other, of the sizes given (with FCS).
fn frames(lab: &Lab, sizes: &str) -> FrameSpec {
    FrameSpec {
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        src_addr: Values::Fixed(lab.tx().ipv4()[0].into()),
        dst_addr: Values::Fixed(lab.rx().ipv4()[0].into()),
        dst_port: Values::Fixed(PORT),
        sizes: Sizes::Frame(sizes.parse().unwrap()),
        ..FrameSpec::default()
    }
}

fn template(lab: &Lab, sizes: &str) -> Template {
    Template::new(&frames(lab, sizes)).unwrap()
}

fn prime(tx: &mut XskTx, template: &Template) {
    tx.prime(|slot| template.prime_frame(slot));
}

/// Sends frames `from..to`, in as many calls as needed.
fn send(tx: &mut XskTx, template: &Template, from: u32, to: u32) {
    let mut next = from;
    let mut taken = 0;
    let deadline = Instant::now() + PATIENCE;
    while taken < to - from {
        let sent = tx
            .send((to - next) as usize, |slot| {
                let len = template.restamp_frame(slot, next, u64::from(next));
                next += 1;
                len
            })
            .unwrap();
        taken += sent.taken as u32;
        assert!(Instant::now() < deadline, "{taken} of {} frames in {PATIENCE:?}", to - from);
    }
    assert_eq!((next, taken), (to, to - from));
}

/// Sends `count` numbered frames, at most `ahead` ones before they are received, and compares what arrives.
/// Returns the losses that the port reported.
fn carry<R: RxPort>(tx: &mut XskTx, rx: &mut R, template: &Template, count: u32, ahead: u32) -> u64 {
    prime(tx, template);
    let mut seen = vec![false; count as usize];
    let (mut sent, mut arrived) = (0, 0);
    let mut expected = vec![0; template.max_frame_len()];
    let deadline = Instant::now() + PATIENCE;
    while arrived < count {
        let until = count.min(arrived + ahead);
        send(tx, template, sent, until);
        sent = until;
        let received = rx.recv(Wait::Block, |received| {
            assert!(!received.truncated);
            let payload = match R::LAYER {
                Layer::Payload => received.bytes,
                Layer::Frame => UdpFrame::parse(received.bytes).unwrap().payload(),
            };
            let sequence = ProbeHeader::read(payload).unwrap().sequence;
            let len = template.stamp_frame(&mut expected, sequence, u64::from(sequence));
            let whole = UdpFrame::parse(&expected[..len]).unwrap();
            match R::LAYER {
                Layer::Payload => assert_eq!(received.bytes, whole.payload(), "frame {sequence}"),
                Layer::Frame => assert_eq!(received.bytes, whole.bytes(), "frame {sequence}"),
            }
            assert!(!std::mem::replace(&mut seen[sequence as usize], true), "frame {sequence} came twice");
        });
        arrived += received.unwrap() as u32;
        assert!(Instant::now() < deadline, "{arrived} of {count} frames arrived in {PATIENCE:?}");
    }
    assert_eq!(rx.recv(Wait::Spin, |_| ()).unwrap(), 0, "more frames than were sent");
    rx.lost().unwrap()
}

/// Reads counters until they are as expected, at most as long as any wait, and returns the last reading.
fn eventually(rx: &XskRx, met: impl Fn(&XskStatistics) -> bool) -> XskStatistics {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counted = rx.statistics().unwrap();
        if met(&counted) || Instant::now() > deadline {
            return counted;
        }
        thread::yield_now();
    }
}

fn chain(error: &dyn Error) -> String {
    let cause = error.source().map_or(String::new(), |source| format!(": {}", chain(source)));
    format!("{error}{cause}")
}

fn programs(side: &Side) -> Vec<u32> {
    side.run(|| RouteSocket::open().unwrap().xdp_programs(side.index()).unwrap()).unwrap()
}

#[test]
fn a_hundred_thousand_frames_reach_a_socket_of_the_kernel_unaltered() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut rx = udp_socket(&lab);
    let mut tx = sender(&lab, tx_options(&lab));
    assert_eq!(carry(&mut tx, &mut rx, &template(&lab, "64"), 100_000, 256), 0);
    // The kernel's receiver verifies every checksum.
    assert_eq!(lab.rx().net_counters().unwrap().value("UdpInCsumErrors"), Some(0));
    assert_eq!(tx.got().copy_mode, CopyMode::Copy);
}

#[test]
fn a_hundred_thousand_frames_arrive_byte_for_byte_and_none_twice() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut rx = receiver(&lab, rx_options(&lab));
    let mut tx = sender(&lab, tx_options(&lab));
    assert_eq!(carry(&mut tx, &mut rx, &template(&lab, "64"), 100_000, 256), 0);
    assert_eq!((rx.recycling().refilled, rx.recycling().misplaced), (100_000, 0));
    assert_eq!((rx.mode(), rx.got().copy_mode), (Mode::Native, CopyMode::Copy));
}

#[test]
fn a_generic_program_does_it_too() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut rx = receiver(&lab, XskRxOptions { mode: Some(Mode::Generic), ..rx_options(&lab) });
    let mut tx = sender(&lab, tx_options(&lab));
    assert_eq!(carry(&mut tx, &mut rx, &template(&lab, "64"), 5000, 256), 0);
    assert_eq!(rx.mode(), Mode::Generic);
}

#[test]
fn ipv6_vlan_and_every_size_arrive_unaltered() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut rx = receiver(&lab, rx_options(&lab));
    let mut tx = sender(&lab, XskTxOptions { longest_frame: 1518, ..tx_options(&lab) });
    let ipv4 = frames(&lab, "64-1518");
    let vlan = FrameSpec { vlan: vec![VlanTag::new(7).unwrap()], ..frames(&lab, "68-1522") };
    let ipv6 = FrameSpec {
        src_addr: Values::Fixed(lab.tx().ipv6()[0].into()),
        dst_addr: Values::Fixed(lab.rx().ipv6()[0].into()),
        ..frames(&lab, "84-1518")
    };
    for spec in [ipv4, vlan, ipv6] {
        assert_eq!(carry(&mut tx, &mut rx, &Template::new(&spec).unwrap(), 4000, 256), 0);
    }
}

#[test]
fn each_queue_has_its_own_port_and_the_sender_chooses_the_queue() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut ports = receivers(&lab, XskRxOptions { queues: vec![0, 1], ..rx_options(&lab) });
    for queue in [0, 1] {
        let mut tx = sender(&lab, XskTxOptions { queue, ..tx_options(&lab) });
        let (mut one, mut other) = (ports.remove(0), ports.remove(0));
        assert_eq!(one.queue(), queue);
        assert_eq!(carry(&mut tx, &mut one, &template(&lab, "64"), 1000, 256), 0);
        assert_eq!(other.recv(Wait::Spin, |_| ()).unwrap(), 0);
        ports = vec![other, one];
    }
}

#[test]
fn what_is_not_for_the_port_goes_to_the_kernel() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut socket = udp_socket(&lab);
    let mut rx = receiver(&lab, XskRxOptions { dst_port: PORT + 1, ..rx_options(&lab) });
    let mut tx = sender(&lab, tx_options(&lab));
    assert_eq!(carry(&mut tx, &mut socket, &template(&lab, "64"), 1000, 256), 0);
    assert_eq!(rx.recv(Wait::Spin, |_| ()).unwrap(), 0);
}

#[test]
fn frames_that_the_kernel_has_are_all_given_back() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let shape = XskShape { frame_size: 2048, frames: 64, ring_slots: 64 };
    let mut tx = sender(&lab, XskTxOptions { shape, batch_size: 1000, ..tx_options(&lab) });
    assert_eq!(tx.batch_size(), 64, "bounded by the ring");
    let template = template(&lab, "64");
    prime(&mut tx, &template);
    send(&mut tx, &template, 0, 10_000);
    let deadline = Instant::now() + PATIENCE;
    while tx.outstanding() > 0 && Instant::now() < deadline {
        tx.send(0, |_| unreachable!()).unwrap();
    }
    assert_eq!(tx.outstanding(), 0);
    assert_eq!(tx.statistics().unwrap().tx_invalid_descs, 0);
}

#[test]
fn a_frame_that_is_too_long_is_refused_in_words() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let options = XskTxOptions { longest_frame: 2049, ..tx_options(&lab) };
    let error = lab.tx().run(|| XskTx::open(&options)).unwrap().err().unwrap();
    assert_eq!(chain(&error), "a frame of 2049 bytes does not fit the port's 2048");
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let refusal = |options: XskTxOptions| {
        let error = lab.tx().run(|| XskTx::open(&options)).unwrap().err().unwrap();
        chain(&error)
    };
    let told = refusal(XskTxOptions { queue: 2, ..tx_options(&lab) });
    assert_eq!(told, "lab-tx has no queue 2: it has 2, numbered from 0");
    assert!(refusal(XskTxOptions::on("nowhere", 0)).starts_with("cannot use nowhere: "));
    let told = refusal(XskTxOptions { copy_mode: CopyMode::ZeroCopy, ..tx_options(&lab) });
    assert!(told.starts_with("cannot open an AF_XDP socket on queue 0 of lab-tx: "), "{told}");
    assert!(told.contains("refuses zero-copy on queue 0; copy mode works everywhere: "), "{told}");
    let _first = sender(&lab, tx_options(&lab));
    let told = refusal(tx_options(&lab));
    assert!(told.contains("already has an AF_XDP socket"), "{told}");
}

#[test]
fn a_full_rx_ring_loses_what_comes_next_and_counts_it_exactly() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let counted = overflow(&lab, XskShape { frame_size: 2048, frames: 256, ring_slots: 64 });
    assert_eq!(counted, XskStatistics { rx_ring_full: 136, ..XskStatistics::default() });
}

#[test]
fn an_empty_fill_ring_loses_what_comes_next_and_counts_it_exactly() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let counted = overflow(&lab, XskShape { frame_size: 2048, frames: 64, ring_slots: 256 });
    // The kernel counts the same packet in both.
    let both = XskStatistics { rx_fill_ring_empty_descs: 136, rx_dropped: 136, ..XskStatistics::default() };
    assert_eq!(counted, both);
}

/// Sends 200 frames to a port that does not read, then lets it read: 64 are present, the others are lost and reported
/// once.
fn overflow(lab: &Lab, shape: XskShape) -> XskStatistics {
    let mut rx = receiver(lab, XskRxOptions { shape, ..rx_options(lab) });
    let mut tx = sender(lab, tx_options(lab));
    let template = template(lab, "64");
    prime(&mut tx, &template);
    send(&mut tx, &template, 0, 200);
    let counted = eventually(&rx, |counted| counted.rx_lost() == 136);
    let mut arrived = 0;
    while rx.recv(Wait::Spin, |_| arrived += 1).unwrap() > 0 {}
    assert_eq!(arrived, 64);
    assert_eq!(rx.lost_seen(), 0, "not read yet");
    assert_eq!(rx.lost().unwrap(), 136);
    assert_eq!(rx.lost_seen(), 136);
    assert_eq!(lab.rx().link().unwrap().stats.rx_dropped, 136, "a veth counts them again");
    assert_eq!(rx.losses().unwrap().iter().map(|loss| loss.packets).sum::<u64>(), 136);
    assert_eq!(rx.recycling().found_empty, u64::from(shape.frames == 64));
    // Returned frames are reused, and no more packets are lost.
    assert_eq!(carry(&mut tx, &mut rx, &template, 1000, 32), 136);
    counted
}

#[test]
fn what_a_slow_receiver_loses_at_full_speed_is_known_to_the_packet() {
    const COUNT: u32 = 200_000;
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let shape = XskShape { frame_size: 2048, frames: 64, ring_slots: 64 };
    let mut rx = receiver(&lab, XskRxOptions { shape, batch_size: 16, ..rx_options(&lab) });
    let mut tx = sender(&lab, tx_options(&lab));
    let template = template(&lab, "64");
    prime(&mut tx, &template);
    let mut arrived = 0;
    thread::scope(|scope| {
        let sending = scope.spawn(|| send(&mut tx, &template, 0, COUNT));
        while !sending.is_finished() {
            arrived += rx.recv(Wait::Block, |_| ()).unwrap();
        }
    });
    let deadline = Instant::now() + PATIENCE;
    let lost = loop {
        arrived += rx.recv(Wait::Spin, |_| ()).unwrap();
        // Frames that found the veth's ring full never reached the socket.
        let lost = rx.lost().unwrap() + lab.tx().link().unwrap().stats.tx_dropped;
        if arrived as u64 + lost == u64::from(COUNT) || Instant::now() > deadline {
            break lost;
        }
    };
    assert_eq!(arrived as u64 + lost, u64::from(COUNT), "{arrived} arrived, {lost} lost");
    assert!(lost > 0, "nothing was lost: the test shows nothing");
    assert_eq!(rx.recycling().refilled, arrived as u64);
}

#[test]
fn a_packet_longer_than_a_frame_is_dropped_and_counted_exactly() {
    let Some(lab) = lab(&LabPlan { mtu: 3000, ..LabPlan::default() }) else { return };
    let mut rx = receiver(&lab, rx_options(&lab));
    let shape = XskShape { frame_size: 4096, frames: 256, ring_slots: 256 };
    let mut tx = sender(&lab, XskTxOptions { shape, longest_frame: 3000, ..tx_options(&lab) });
    let template = template(&lab, "2500");
    prime(&mut tx, &template);
    send(&mut tx, &template, 0, 77);
    let counted = eventually(&rx, |counted| counted.rx_dropped == 77);
    assert_eq!(counted, XskStatistics { rx_dropped: 77, ..XskStatistics::default() });
    let told = rx.losses().unwrap()[1];
    assert_eq!((told.place, told.packets), (measure::Place::XskFrameSmall, 77));
    assert_eq!(rx.recv(Wait::Spin, |_| ()).unwrap(), 0);
}

#[test]
fn a_large_frame_fits_a_large_slot() {
    let Some(lab) = lab(&LabPlan { mtu: 3000, ..LabPlan::default() }) else { return };
    let shape = XskShape { frame_size: 4096, frames: 1024, ring_slots: 1024 };
    let mut rx = receiver(&lab, XskRxOptions { shape, ..rx_options(&lab) });
    let mut tx = sender(&lab, XskTxOptions { shape, longest_frame: 3000, ..tx_options(&lab) });
    assert_eq!(carry(&mut tx, &mut rx, &template(&lab, "2500"), 2000, 256), 0);
}

#[test]
fn an_invalid_descriptor_is_counted_exactly_and_the_port_goes_on() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut rx = receiver(&lab, rx_options(&lab));
    let mut tx = sender(&lab, tx_options(&lab));
    for _ in 0..5 {
        tx.send_invalid().unwrap();
    }
    assert_eq!(tx.statistics().unwrap().tx_invalid_descs, 5);
    assert_eq!(carry(&mut tx, &mut rx, &template(&lab, "64"), 1000, 256), 0);
    assert_eq!(tx.statistics().unwrap().tx_invalid_descs, 5);
}

#[test]
fn closing_leaves_no_program_behind() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut ports = receivers(&lab, XskRxOptions { queues: vec![0, 1], ..rx_options(&lab) });
    assert_eq!(programs(lab.rx()).len(), 1);
    ports.pop();
    assert_eq!(programs(lab.rx()).len(), 1, "the other port still needs it");
    ports.pop();
    assert!(programs(lab.rx()).is_empty());
    // And the queue can be opened again at once.
    for _ in 0..5 {
        receiver(&lab, rx_options(&lab));
    }
}

#[test]
fn a_foreign_program_is_refused_by_name_and_stays() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let _foreign = lab.rx().run(|| Pass::attach(lab.rx().index(), Mode::Native)).unwrap().unwrap();
    let before = programs(lab.rx());
    let error = lab.rx().run(|| XskRx::open(&rx_options(&lab))).unwrap().err().unwrap();
    let PortError::Bpf(BpfError::InUse { program, id, .. }) = &error else {
        panic!("{}", chain(&error));
    };
    assert_eq!((program.as_str(), &[*id][..]), ("pass", &before[..]));
    let told = chain(&error);
    let expected = format!("cannot attach to lab-rx: the XDP program 'pass' (id {id}) is already there");
    assert!(told.starts_with(&expected), "{told}");
    assert_eq!(programs(lab.rx()), before);
}

#[test]
fn two_sockets_share_one_umem() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let (umem, mut frames) = Umem::new(UmemConfig { frames: 64, frame_size: 2048, headroom: 0 }).unwrap();
    let config = |queue| XskConfig {
        interface: lab.tx().index(),
        queue,
        copy_mode: CopyMode::Copy,
        rx_slots: 0,
        tx_slots: 64,
        frames: 64,
        busy_poll: None,
    };
    let open = |queue, share: Option<&XskSocket>| {
        lab.tx().run(|| XskSocket::open(&config(queue), &umem, share)).unwrap().unwrap()
    };
    let first = open(0, None);
    let second = open(1, Some(&first.socket));
    let mut ports = receivers(&lab, XskRxOptions { queues: vec![0, 1], ..rx_options(&lab) });
    let template = template(&lab, "64");
    for (opened, rx) in [first, second].into_iter().zip(&mut ports) {
        let mut queue = opened.tx.unwrap();
        for sequence in 0..64 {
            let mut frame = frames.pop().unwrap();
            let len = template.stamp_frame(umem.bytes_mut(&mut frame), sequence, 0);
            queue.push(frame, len).unwrap();
        }
        queue.publish();
        let mut arrived = 0;
        let deadline = Instant::now() + PATIENCE;
        while arrived < 64 || frames.len() < 64 {
            // Not everything is sent at once: the count shows the rest.
            drop(opened.socket.kick_tx());
            queue.complete(|frame| frames.push(frame));
            arrived += rx.recv(Wait::Spin, |_| ()).unwrap();
            assert!(Instant::now() < deadline, "{arrived} arrived, {} frames returned", frames.len());
        }
    }
}

#[test]
fn all_queues_of_a_receiver_may_share_one_memory() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let shape = XskShape { frame_size: 2048, frames: 512, ring_slots: 512 };
    let options = XskRxOptions { queues: vec![0, 1], shared_umem: true, shape, ..rx_options(&lab) };
    let mut ports = receivers(&lab, options);
    for (queue, rx) in ports.iter_mut().enumerate() {
        let mut tx = sender(&lab, XskTxOptions { queue: queue as u32, ..tx_options(&lab) });
        assert_eq!(carry(&mut tx, rx, &template(&lab, "64"), 20_000, 256), 0);
        // Every frame returned to its own queue's fill ring.
        assert_eq!((rx.recycling().refilled, rx.recycling().misplaced), (20_000, 0));
    }
    // Whichever is dropped first, the other keeps the memory.
    let mut last = ports.remove(1);
    drop(ports);
    let mut tx = sender(&lab, XskTxOptions { queue: 1, ..tx_options(&lab) });
    assert_eq!(carry(&mut tx, &mut last, &template(&lab, "64"), 1000, 256), 0);
}

#[test]
fn frames_lie_on_huge_pages_when_there_are_any() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    const SETTING: &str = "/proc/sys/vm/nr_hugepages";
    let number = |path: &str| std::fs::read_to_string(path).unwrap().trim().parse::<u32>().unwrap();
    // Two senders of 8 MiB, and some for concurrent tests.
    let wanted = number(SETTING) + 64;
    let file = std::fs::File::options().read(true).write(true).open(SETTING).unwrap();
    let _pages = match ForNow::set(vec![(file, wanted.to_string())]) {
        Ok(pages) if number(SETTING) == wanted => pages,
        _ => return eprintln!("skipped: this machine has no memory left in pieces of 2 MiB"),
    };
    let mut rx = receiver(&lab, rx_options(&lab));
    let mut tx = sender(&lab, tx_options(&lab));
    assert_eq!((rx.got().pages, tx.got().pages), (Pages::Huge, Pages::Huge));
    assert_eq!(carry(&mut tx, &mut rx, &template(&lab, "64"), 10_000, 256), 0);
}

#[test]
fn busy_polling_carries_the_same_frames() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let busy_poll = Some(BusyPoll::USUAL);
    let mut rx = receiver(&lab, XskRxOptions { busy_poll, ..rx_options(&lab) });
    let mut tx = sender(&lab, XskTxOptions { busy_poll, ..tx_options(&lab) });
    let sysfs = Sysfs::of(lab.rx().namespace()).unwrap();
    let setting = |name: &str| sysfs.read(&format!("class/net/{}/{name}", lab.rx().interface())).unwrap();
    assert_eq!([setting("napi_defer_hard_irqs"), setting("gro_flush_timeout")], ["2", "200000"]);
    // Packets cause no wakeup while the poll is deferred, and a veth's ring of 256 has no room for 16 of them while
    // its reader is among the sleepers.
    assert_eq!(carry(&mut tx, &mut rx, &template(&lab, "64"), 10_000, 128), 0);
    drop((rx, tx));
    assert_eq!([setting("napi_defer_hard_irqs"), setting("gro_flush_timeout")], ["0", "0"]);
}

#[test]
fn an_interface_that_goes_down_is_told() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut tx = sender(&lab, tx_options(&lab));
    let index = lab.tx().index();
    let down = || RouteSocket::open().unwrap().change_flags(index, 0, flag::UP).unwrap();
    lab.tx().run(down).unwrap();
    let error = tx.send(1, |_| 60).unwrap_err();
    let told = "cannot send on the AF_XDP socket on queue 0 of lab-tx: Network is down (os error 100)";
    assert_eq!(chain(&error), told);
}

/// The test below again, as a user without privileges.
const NOBODY: &str = "LINERATE_XSK_NOBODY";

#[test]
fn who_may_not_open_a_socket_learns_which_capability_is_missing() {
    if std::env::var_os(NOBODY).is_some() {
        let error = XskTx::open(&XskTxOptions::on("lo", 0)).err().unwrap();
        let told =
            "cannot open an AF_XDP socket on queue 0 of lo: cannot open an AF_XDP socket: needs CAP_NET_RAW";
        return assert!(chain(&error).starts_with(told), "{}", chain(&error));
    }
    if !Capability::NetRaw.held() {
        return eprintln!("skipped: only root can become nobody");
    }
    let test = thread::current().name().unwrap().to_owned();
    let child = Command::new("/proc/self/exe").args([&test, "--exact"]).env(NOBODY, "1").uid(65534).output();
    let child = child.unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn no_packet_costs_an_allocation() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let mut rx = receiver(&lab, rx_options(&lab));
    let mut tx = sender(&lab, tx_options(&lab));
    let template = template(&lab, "64");
    prime(&mut tx, &template);
    let mut arrived = 0;
    let cost = allocation_counter::measure(|| {
        let deadline = Instant::now() + PATIENCE;
        for batch in 0..100 {
            send(&mut tx, &template, batch * 100, batch * 100 + 100);
            while rx.recv(Wait::Spin, |_| arrived += 1).unwrap() > 0 {}
            // No more are on their way than the veth's own ring holds.
            while arrived < batch * 100 && Instant::now() < deadline {
                rx.recv(Wait::Block, |_| arrived += 1).unwrap();
            }
        }
        while arrived < 10_000 && Instant::now() < deadline {
            rx.recv(Wait::Block, |_| arrived += 1).unwrap();
        }
    });
    assert_eq!(arrived, 10_000);
    assert_eq!(cost.count_total, 0);
}
