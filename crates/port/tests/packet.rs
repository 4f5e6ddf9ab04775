//! The guarantees of packet ports, on a lab, as root and as a user without privileges.
//!
//! Not under the usual harness: becoming root of a user namespace needs a single-threaded process. Arguments that
//! are not options choose rules by parts of their names.

use std::{
    env,
    error::Error,
    io, iter,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::unix::process::CommandExt,
    panic,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use lab::{Access, Lab, LabPlan};
use port::{
    Fanout, FanoutMode, PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, PortError, RxPort, TxPort, Wait,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use sys::rtnetlink::{RouteSocket, flag};
use wire::{FrameSpec, Sizes, Template, UdpFrame, Values};

type Rule = (&'static str, fn());

macro_rules! rules {
    ($($name:ident,)+) => { &[$((stringify!($name), $name as fn()),)+] };
}

const RULES: &[Rule] = rules![
    every_frame_arrives_once_and_unaltered,
    frames_of_every_size_arrive_and_longer_ones_are_refused,
    jumbo_frames_arrive_and_are_cut_to_a_small_block,
    the_kernels_receiver_finds_no_wrong_checksum,
    what_a_socket_sends_is_received_as_a_frame,
    only_what_comes_in_is_received,
    sockets_of_a_group_share_all_packets,
    what_a_full_ring_loses_is_counted,
    the_next_packets_tell_what_was_lost,
    a_refused_frame_goes_later_and_is_counted_by_the_interface,
    slots_keep_what_they_were_primed_with,
    a_single_packet_is_not_kept_waiting,
    no_packet_allocates,
    an_interface_that_is_not_there_is_told,
    an_interface_that_goes_down_is_told,
];

const DEADLINE: Duration = Duration::from_secs(60);
/// The user without any rights.
const NOBODY: u32 = 65534;
const ROLE: &str = "PACKET_TEST";

fn main() -> ExitCode {
    let as_user = env::var_os(ROLE).is_some();
    if as_user {
        without_the_capability_the_message_names_it();
    }
    let access = match lab::gain_access() {
        Ok(access) => access,
        Err(error) => {
            let cause = error.source().map_or(String::new(), ToString::to_string);
            testing::skip(format_args!("{error}: {cause}"));
            return ExitCode::SUCCESS;
        }
    };
    // A sender that changes its CPU changes its queue, and frames of two queues may be reordered.
    sys::cpu::pin_to(sys::cpu::allowed().unwrap()[0]).unwrap();
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let (mut passed, mut failed) = (0, 0);
    for (name, rule) in RULES.iter().filter(|(name, _)| is_wanted(name)) {
        let kept = panic::catch_unwind(rule).is_ok();
        println!("test {name} ({access:?}) ... {}", if kept { "ok" } else { "FAILED" });
        *(if kept { &mut passed } else { &mut failed }) += 1;
    }
    println!("test result: {passed} passed; {failed} failed;");
    if access == Access::Privileged {
        // By `/proc`, because another user may not be able to walk the path to it.
        let mut again = Command::new("/proc/self/exe");
        let status = again.args(&wanted).env(ROLE, "nobody").uid(NOBODY).gid(NOBODY).status().unwrap();
        failed += u32::from(!status.success());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Before this process becomes root of a user namespace.
fn without_the_capability_the_message_names_it() {
    for error in [
        PacketTx::open(&PacketTxOptions::on(1, 60)).err().unwrap(),
        PacketRx::open(&PacketRxOptions::on(1)).err().unwrap(),
    ] {
        assert_eq!(error.to_string(), "the packet path needs CAP_NET_RAW");
        assert!(matches!(error, PortError::Capability { capability: "CAP_NET_RAW", .. }));
        assert_eq!(error.source().unwrap().to_string(), "Operation not permitted (os error 1)");
    }
}

fn every_frame_arrives_once_and_unaltered() {
    let v6 = |lab: &Lab| FrameSpec {
        src_addr: Values::Fixed(lab.tx().ipv6()[0].into()),
        dst_addr: Values::Fixed(lab.rx().ipv6()[0].into()),
        sizes: Sizes::Frame("84".parse().unwrap()),
        ..FrameSpec::default()
    };
    let varied = FrameSpec {
        src_port: "inc:1000-1999".parse().unwrap(),
        sizes: Sizes::Frame("64-1518".parse().unwrap()),
        ..FrameSpec::default()
    };
    let tagged = FrameSpec {
        vlan: vec!["100/5".parse().unwrap()],
        sizes: Sizes::Frame("68".parse().unwrap()),
        ..FrameSpec::default()
    };
    let twice = FrameSpec {
        vlan: vec!["802.1ad:7".parse().unwrap(), "8".parse().unwrap()],
        sizes: Sizes::Frame("72".parse().unwrap()),
        ..FrameSpec::default()
    };
    for qdisc_bypass in [true, false] {
        let lab = lab();
        carry(&lab, &FrameSpec::default(), qdisc_bypass, 100_000);
        for spec in [&v6(&lab), &varied, &tagged, &twice] {
            carry(&lab, spec, qdisc_bypass, 10_000);
        }
    }
}

fn frames_of_every_size_arrive_and_longer_ones_are_refused() {
    let lab = lab();
    for size in [64, 65, 127, 128, 256, 512, 1024, 1280, 1517, 1518] {
        let sizes = Sizes::Frame(size.to_string().parse().unwrap());
        carry(&lab, &FrameSpec { sizes, ..FrameSpec::default() }, true, 500);
    }
    let longest = FrameSpec {
        vlan: vec!["1".parse().unwrap()],
        sizes: Sizes::Frame("1522".parse().unwrap()),
        ..FrameSpec::default()
    };
    carry(&lab, &longest, true, 500);
    let error = open_tx(&lab, 1519).err().unwrap();
    let index = lab.tx().index();
    assert_eq!(
        error.to_string(),
        format!("frames of 1519 bytes do not fit interface {index}: at most 1518 without FCS")
    );
}

fn jumbo_frames_arrive_and_are_cut_to_a_small_block() {
    let lab = Lab::create(&LabPlan { mtu: 9000, ..LabPlan::default() }).unwrap();
    let jumbo = FrameSpec { sizes: Sizes::Frame("9018".parse().unwrap()), ..FrameSpec::default() };
    carry(&lab, &jumbo, true, 2000);
    let small = PacketRxOptions { block_bytes: 4096, blocks: 8, ..PacketRxOptions::on(lab.rx().index()) };
    let mut rx = lab.rx().run(|| PacketRx::open(&small)).unwrap().unwrap();
    let template = Template::new(&jumbo).unwrap();
    let mut tx = open_tx(&lab, template.max_frame_len()).unwrap();
    send_all(&mut tx, &template, 0..4, || ());
    let mut whole = vec![0; template.max_frame_len()];
    let mut seen = 0;
    receive_until(&mut rx, 4, |_, bytes, truncated| {
        template.stamp_frame(&mut whole, seen, 0);
        seen += 1;
        assert!(truncated && bytes.len() > 3000 && bytes == &whole[..bytes.len()]);
    });
}

fn the_kernels_receiver_finds_no_wrong_checksum() {
    const DATAGRAMS: u32 = 20_000;
    // Checksum offload enables scatter-gather: a packet may then reference its sender's memory.
    let lab = Lab::create(&LabPlan { tx_checksum: true, ..LabPlan::default() }).unwrap();
    for v6 in [false, true] {
        let (src, dst): (IpAddr, IpAddr) = match v6 {
            false => (lab.tx().ipv4()[0].into(), lab.rx().ipv4()[0].into()),
            true => (lab.tx().ipv6()[0].into(), lab.rx().ipv6()[0].into()),
        };
        let socket = lab.rx().run(|| UdpSocket::bind((dst, 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let spec = FrameSpec {
            src_mac: wire::MacAddr(lab.tx().mac()),
            dst_mac: wire::MacAddr(lab.rx().mac()),
            src_addr: Values::Fixed(src),
            dst_addr: Values::Fixed(dst),
            dst_port: Values::Fixed(socket.local_addr().unwrap().port()),
            sizes: Sizes::Frame("1000-1500".parse().unwrap()),
            ..FrameSpec::default()
        };
        let template = Template::new(&spec).unwrap();
        let ring_of_32 = PacketTxOptions { batch_size: 16, ..PacketTxOptions::on(lab.tx().index(), 1496) };
        let mut tx = lab.tx().run(|| PacketTx::open(&ring_of_32)).unwrap().unwrap();
        let before = lab.rx().net_counters().unwrap();
        let (mut datagram, mut payload) = ([0; 2048], vec![0; template.max_payload_len()]);
        // As many at a time as the receive buffer certainly holds, and more than the ring: later ones are built
        // in the slots of those still waiting.
        for first in (0..DATAGRAMS).step_by(50) {
            send_all(&mut tx, &template, first..first + 50, || ());
            for sequence in first..first + 50 {
                let (len, from) = socket.recv_from(&mut datagram).unwrap();
                let whole = template.stamp_payload(&mut payload, sequence, 0);
                assert_eq!((&datagram[..len], from), (&payload[..whole], SocketAddr::from((src, 9))));
            }
        }
        let counted = lab.rx().net_counters().unwrap().since(&before);
        let datagrams = if v6 { "Udp6InDatagrams" } else { "UdpInDatagrams" };
        assert_eq!(counted.value(datagrams), Some(DATAGRAMS.into()));
        for counter in ["UdpInCsumErrors", "Udp6InCsumErrors", "UdpInErrors", "Udp6InErrors"] {
            assert_eq!(counted.value(counter), Some(0), "{counter}");
        }
    }
}

fn what_a_socket_sends_is_received_as_a_frame() {
    let lab = lab();
    let mut rx = open_rx(&lab);
    let addresses: [(IpAddr, IpAddr); 2] = [
        (lab.tx().ipv4()[0].into(), lab.rx().ipv4()[0].into()),
        (lab.tx().ipv6()[0].into(), lab.rx().ipv6()[0].into()),
    ];
    for (src, dst) in addresses {
        // An open socket: else the kernel would answer with ICMP errors.
        let _listens = lab.rx().run(|| UdpSocket::bind((dst, 4321))).unwrap().unwrap();
        let socket = lab.tx().run(|| UdpSocket::bind((src, 1234))).unwrap().unwrap();
        for number in 0..50u8 {
            socket.send_to(&[number; 100], (dst, 4321)).unwrap();
        }
        receive_until(&mut rx, 50, |index, bytes, truncated| {
            let frame = UdpFrame::parse(bytes).unwrap();
            frame.verify_checksums().unwrap();
            assert_eq!(frame.flow().to_string(), UdpFlow { src, dst }.to_string());
            assert_eq!((frame.payload(), truncated), (&[index as u8; 100][..], false));
        });
    }
}

fn only_what_comes_in_is_received() {
    let lab = lab();
    let mut rx = open_rx(&lab);
    let back = lab.rx().run(|| UdpSocket::bind((lab.rx().ipv4()[0], 4321))).unwrap().unwrap();
    let forth = lab.tx().run(|| UdpSocket::bind((lab.tx().ipv4()[0], 4321))).unwrap().unwrap();
    for _ in 0..10 {
        back.send_to(b"out", (lab.tx().ipv4()[0], 4321)).unwrap();
    }
    forth.send_to(b"come in", (lab.rx().ipv4()[0], 4321)).unwrap();
    receive_until(&mut rx, 1, |_, bytes, _| {
        assert_eq!(UdpFrame::parse(bytes).unwrap().payload(), b"come in");
    });
    assert_eq!(rx.statistics().unwrap().packets, 1);
}

fn sockets_of_a_group_share_all_packets() {
    const PACKETS: u32 = 20_000;
    let flows = FrameSpec { src_port: "inc:1000-1063".parse().unwrap(), ..FrameSpec::default() };
    let template = Template::new(&flows).unwrap();
    use FanoutMode::*;
    for mode in [Hash, LoadBalance, Cpu, Rollover, Random, QueueMapping] {
        let lab = lab();
        let options = PacketRxOptions {
            fanout: Some(Fanout { group: 7, mode }),
            ..PacketRxOptions::on(lab.rx().index())
        };
        let mut pair = [0, 1].map(|_| lab.rx().run(|| PacketRx::open(&options)).unwrap().unwrap());
        let mut tx = open_tx(&lab, template.max_frame_len()).unwrap();
        send_all(&mut tx, &template, 0..PACKETS, || ());
        let mut times = vec![0; PACKETS as usize];
        let mut each = [0; 2];
        let since = Instant::now();
        while each[0] + each[1] < PACKETS as usize {
            for (rx, count) in pair.iter_mut().zip(&mut each) {
                let seen = rx.recv(Wait::Spin, |packet| {
                    times[UdpFrame::parse(packet.bytes).unwrap().probe().unwrap().sequence as usize] += 1;
                });
                *count += seen.unwrap();
            }
            assert!(since.elapsed() < DEADLINE, "{mode:?}: only {each:?} of {PACKETS} arrived");
        }
        assert!(times.iter().all(|&times| times == 1), "{mode:?}");
        assert_eq!(pair.each_mut().map(|rx| rx.lost().unwrap()), [0, 0], "{mode:?}");
        // The modes that follow CPU, queue or a full ring send all of one sender's packets to one socket.
        if matches!(mode, Hash | LoadBalance | Random) {
            assert!(each.iter().all(|&count| count > PACKETS as usize / 10), "{mode:?}: {each:?}");
        }
        let other = if mode == Hash { LoadBalance } else { Hash };
        let differs = PacketRxOptions { fanout: Some(Fanout { group: 7, mode: other }), ..options };
        let error = lab.rx().run(|| PacketRx::open(&differs)).unwrap().err().unwrap();
        let index = lab.rx().index();
        assert_eq!(
            error.to_string(),
            format!("cannot bind a packet socket for receiving on interface {index}")
        );
    }
}

/// A receiver whose ring holds some 200 packets.
fn open_small_rx(lab: &Lab) -> PacketRx {
    let options = PacketRxOptions { block_bytes: 8192, blocks: 4, ..PacketRxOptions::on(lab.rx().index()) };
    lab.rx().run(|| PacketRx::open(&options)).unwrap().unwrap()
}

fn what_a_full_ring_loses_is_counted() {
    const PACKETS: u32 = 10_000;
    let (lab, template) = (lab(), Template::new(&FrameSpec::default()).unwrap());
    let mut rx = open_small_rx(&lab);
    let mut tx = open_tx(&lab, template.max_frame_len()).unwrap();
    let mut received = 0;
    for round in 0..3 {
        send_all(&mut tx, &template, round * PACKETS..(round + 1) * PACKETS, || ());
        // Softirqs may run after the sending call; every packet is counted once it arrived.
        let since = Instant::now();
        while rx.statistics().unwrap().packets < u64::from((round + 1) * PACKETS) {
            assert!(since.elapsed() < DEADLINE, "{:?}", rx.statistics());
        }
        let lost = rx.lost().unwrap();
        while received + lost < u64::from((round + 1) * PACKETS) {
            received += rx.recv(Wait::Block, |_| ()).unwrap() as u64;
            assert!(since.elapsed() < DEADLINE, "{received} received, {lost} lost");
        }
        assert_eq!(rx.recv(Wait::Spin, |_| ()).unwrap(), 0);
        assert!(lost > u64::from(round + 1) * 9000, "the ring holds some 200 packets, and {lost} were lost");
        assert_eq!(received + lost, u64::from((round + 1) * PACKETS));
        assert_eq!(rx.lost_seen(), lost);
        assert!(rx.statistics().unwrap().freezes > u64::from(round));
    }
}

fn the_next_packets_tell_what_was_lost() {
    const PACKETS: u32 = 10_000;
    let (lab, template) = (lab(), Template::new(&FrameSpec::default()).unwrap());
    let mut rx = open_small_rx(&lab);
    let mut tx = open_tx(&lab, template.max_frame_len()).unwrap();
    // A reader that reads at once keeps up.
    let mut drain = || {
        let mut received = 0;
        for idle in 0.. {
            match rx.recv(Wait::Block, |_| ()).unwrap() as u32 {
                0 if idle > 10 => break,
                packets => received += packets,
            }
        }
        (received, rx.lost_seen())
    };
    send_all(&mut tx, &template, 0..PACKETS, || ());
    let (received, before) = drain();
    send_all(&mut tx, &template, PACKETS..PACKETS + 10, || ());
    let (more, after) = drain();
    assert_eq!(more, 10);
    assert!(before <= after && after > 9000, "{before}, {after} lost");
    assert_eq!(after, u64::from(PACKETS - received), "only the port itself read them");
}

/// A veth whose peer receives in a kernel thread refuses packets until that thread makes room.
fn a_refused_frame_goes_later_and_is_counted_by_the_interface() {
    const FRAMES: usize = 20_000;
    let template = Template::new(&FrameSpec::default()).unwrap();
    let lab = Lab::create(&LabPlan { threaded_napi: true, ..LabPlan::default() }).unwrap();
    let mut rx = open_rx(&lab);
    let _slow = [(); 4].map(|()| slow_socket(&lab));
    let mut tx = open_tx(&lab, template.max_frame_len()).unwrap();
    let mut whole = vec![0; template.max_frame_len()];
    let (mut next, mut taken, mut turned_away, mut arrived) = (0, 0, 0, 0);
    let since = Instant::now();
    while turned_away == 0 || taken < FRAMES || taken < next as usize || arrived < taken {
        let wanted = if turned_away == 0 || taken < FRAMES { usize::MAX } else { 0 };
        let sent = tx.send(wanted, |slot| {
            next += 1;
            template.stamp_frame(slot, next - 1, 0)
        });
        let sent = sent.unwrap();
        taken += sent.taken;
        turned_away += sent.turned_away as u64;
        if wanted == 0 || taken - arrived > 2000 {
            rx.recv(Wait::Block, |packet| {
                let len = template.stamp_frame(&mut whole, arrived as u32, 0);
                assert!(packet.bytes == &whole[..len], "frame {arrived}");
                arrived += 1;
            })
            .unwrap();
        }
        assert!(since.elapsed() < DEADLINE, "{taken} taken, {turned_away} turned away, {arrived} arrived");
    }
    assert_eq!((taken, rx.lost().unwrap()), (next as usize, 0));
    let dropped = lab.tx().link().unwrap().stats.tx_dropped;
    assert_eq!(dropped, turned_away);
}

/// A packet socket whose filter takes microseconds for each packet: of several the receiving kernel thread is the slower
/// side on any machine, even where both share a CPU.
fn slow_socket(lab: &Lab) -> Socket {
    // include/uapi/linux/bpf_common.h: ldx #3, mul x, ret #0
    const LOAD_X: u16 = 0x01;
    const MULTIPLY: u16 = 0x2c;
    const RETURN: u16 = 0x06;
    let multiplications = iter::repeat_with(|| SockFilter::new(MULTIPLY, 0, 0, 0)).take(4000);
    let filter: Vec<SockFilter> = iter::once(SockFilter::new(LOAD_X, 0, 0, 3))
        .chain(multiplications)
        .chain([SockFilter::new(RETURN, 0, 0, 0)])
        .collect();
    let every_protocol = Protocol::from(i32::from(0x0003_u16.to_be()));
    let socket =
        lab.rx().run(|| Socket::new(Domain::PACKET, Type::RAW, Some(every_protocol))).unwrap().unwrap();
    socket.attach_filter(&filter).unwrap();
    socket
}

fn slots_keep_what_they_were_primed_with() {
    let lab = lab();
    let mut rx = open_rx(&lab);
    let mut tx = open_tx(&lab, 60).unwrap();
    let mut slots = 0;
    tx.prime(|slot| {
        slot[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        slot[14..].fill(0x5a);
        slots += 1;
    });
    assert!(slots >= tx.batch_size());
    let frames = 3 * slots + 1;
    let mut sent = 0;
    let since = Instant::now();
    while sent < frames {
        sent += tx.send(frames - sent, |_| 60).unwrap().taken;
        assert!(since.elapsed() < DEADLINE);
    }
    receive_until(&mut rx, frames, |_, bytes, _| assert_eq!(bytes[14..], [0x5a; 46]));
}

fn a_single_packet_is_not_kept_waiting() {
    let lab = lab();
    let template = Template::new(&FrameSpec::default()).unwrap();
    let mut tx = open_tx(&lab, template.max_frame_len()).unwrap();
    let mut rx = open_rx(&lab);
    // A check right after it finds it: a drain that ends at the first empty check loses nothing.
    for sequence in 0..20 {
        send_all(&mut tx, &template, sequence..sequence + 1, || ());
        let since = Instant::now();
        while rx.statistics().unwrap().packets <= u64::from(sequence) {
            assert!(since.elapsed() < DEADLINE, "packet {sequence}");
        }
        assert_eq!(rx.recv(Wait::Spin, |_| ()).unwrap(), 1);
    }
    assert_eq!(rx.recv(Wait::Spin, |_| ()).unwrap(), 0);
    assert_eq!(rx.recv(Wait::Block, |_| ()).unwrap(), 0);
}

fn no_packet_allocates() {
    let lab = lab();
    let template = Template::new(&FrameSpec::default()).unwrap();
    let mut tx = open_tx(&lab, template.max_frame_len()).unwrap();
    let mut rx = open_rx(&lab);
    let mut received = 0;
    let allocated = allocation_counter::measure(|| {
        for first in (0..20_000).step_by(1000) {
            send_all(&mut tx, &template, first..first + 1000, || ());
            received += rx.recv(Wait::Block, |_| ()).unwrap();
            received += rx.recv(Wait::Spin, |_| ()).unwrap();
        }
        let (lost, since) = (rx.lost().unwrap() as usize, Instant::now());
        while received + lost < 20_000 && since.elapsed() < DEADLINE {
            received += rx.recv(Wait::Block, |_| ()).unwrap();
        }
    });
    assert!(received > 10_000, "{received}");
    assert_eq!(allocated.count_total, 0);
}

fn an_interface_that_is_not_there_is_told() {
    let lab = lab();
    let error = lab.rx().run(|| PacketRx::open(&PacketRxOptions::on(99))).unwrap().err().unwrap();
    assert_eq!(error.to_string(), "cannot bind a packet socket for receiving on interface 99");
    assert_eq!(error.io().and_then(io::Error::raw_os_error), Some(19));
    let error = lab.tx().run(|| PacketTx::open(&PacketTxOptions::on(99, 60))).unwrap().err().unwrap();
    assert_eq!(error.to_string(), "cannot read the MTU for sending on interface 99");
    let odd = PacketRxOptions { block_bytes: 5000, ..PacketRxOptions::on(lab.rx().index()) };
    let error = lab.rx().run(|| PacketRx::open(&odd)).unwrap().err().unwrap();
    let index = lab.rx().index();
    assert_eq!(error.to_string(), format!("cannot map a ring for receiving on interface {index}"));
}

fn an_interface_that_goes_down_is_told() {
    let lab = lab();
    let (mut tx, mut rx) = (open_tx(&lab, 60).unwrap(), open_rx(&lab));
    for side in [lab.tx(), lab.rx()] {
        let down = side.run(|| RouteSocket::open()?.change_flags(side.index(), 0, flag::UP));
        down.unwrap().unwrap();
    }
    const ENETDOWN: i32 = 100;
    let errors = [tx.send(1, |_| 60).unwrap_err(), rx.recv(Wait::Block, |_| ()).unwrap_err()];
    let indexes = [lab.tx().index(), lab.rx().index()];
    for ((error, tried), index) in errors.iter().zip(["send", "receive"]).zip(indexes) {
        assert_eq!(error.to_string(), format!("cannot {tried} on interface {index}"));
        assert_eq!(error.io().and_then(io::Error::raw_os_error), Some(ENETDOWN));
    }
}

struct UdpFlow {
    src: IpAddr,
    dst: IpAddr,
}

impl std::fmt::Display for UdpFlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (src, dst) = (SocketAddr::from((self.src, 1234)), SocketAddr::from((self.dst, 4321)));
        write!(f, "udp {src} > {dst}")
    }
}

fn lab() -> Lab {
    Lab::create(&LabPlan::default()).unwrap()
}

fn open_tx(lab: &Lab, frame_bytes: usize) -> Result<PacketTx, PortError> {
    let options = PacketTxOptions::on(lab.tx().index(), frame_bytes);
    lab.tx().run(|| PacketTx::open(&options)).unwrap()
}

fn open_rx(lab: &Lab) -> PacketRx {
    lab.rx().run(|| PacketRx::open(&PacketRxOptions::on(lab.rx().index()))).unwrap().unwrap()
}

/// Sends numbered frames and checks that each arrives unchanged, once and in order.
fn carry(lab: &Lab, spec: &FrameSpec, qdisc_bypass: bool, frames: u32) {
    let template = Template::new(spec).unwrap();
    let options =
        PacketTxOptions { qdisc_bypass, ..PacketTxOptions::on(lab.tx().index(), template.max_frame_len()) };
    let mut tx = lab.tx().run(|| PacketTx::open(&options)).unwrap().unwrap();
    let mut rx = open_rx(lab);
    let mut whole = vec![0; template.max_frame_len()];
    let mut next = 0;
    let mut check = |rx: &mut PacketRx, wait| {
        rx.recv(wait, |packet| {
            let len = template.stamp_frame(&mut whole, next, 0);
            assert!(packet.bytes == &whole[..len], "frame {next} of {spec}");
            assert!(!packet.truncated);
            next += 1;
        })
        .unwrap()
    };
    let mut arrived = 0;
    send_all(&mut tx, &template, 0..frames, || {
        while let packets @ 1.. = check(&mut rx, Wait::Spin) {
            arrived += packets;
        }
    });
    let since = Instant::now();
    while arrived < frames as usize && since.elapsed() < DEADLINE {
        arrived += check(&mut rx, Wait::Block);
    }
    check(&mut rx, Wait::Spin);
    assert_eq!((next, rx.lost().unwrap()), (frames, 0), "{spec}");
}

fn send_all(
    tx: &mut PacketTx,
    template: &Template,
    sequences: std::ops::Range<u32>,
    mut after_some: impl FnMut(),
) {
    let since = Instant::now();
    let (mut next, mut taken, mut unread) = (sequences.start, sequences.start, 0);
    tx.prime(|slot| template.prime_frame(slot));
    while taken < sequences.end {
        let sent = tx
            .send((sequences.end - next) as usize, |slot| {
                let len = template.restamp_frame(slot, next, 0);
                next += 1;
                len
            })
            .unwrap();
        taken += sent.taken as u32;
        unread += sent.taken;
        assert!(since.elapsed() < DEADLINE, "{taken} of {sequences:?} taken");
        // Fewer than a receive ring holds, also of jumbo frames.
        if unread >= 500 {
            unread = 0;
            after_some();
        }
    }
    assert_eq!((next, taken), (sequences.end, sequences.end));
}

fn receive_until(rx: &mut PacketRx, packets: usize, mut sink: impl FnMut(usize, &[u8], bool)) {
    let since = Instant::now();
    let mut seen = 0;
    while seen < packets {
        rx.recv(Wait::Block, |packet| {
            sink(seen, packet.bytes, packet.truncated);
            seen += 1;
        })
        .unwrap();
        assert!(since.elapsed() < DEADLINE, "only {seen} of {packets} arrived");
    }
    assert_eq!(seen, packets);
}
