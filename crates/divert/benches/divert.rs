//! `make bench-divert`: the cost of a diversion against minimal programs for the same job, in rotation; medians
//! of rates, and of each round's ratios.
//!
//! Packets are XDP live frames of 64 bytes, made on CPU 0. Everything that is measured is on CPU 1: the NAPI thread of
//! the receiving veth, and in user space the thread of the queue too. A rate is packets per second of CPU time there,
//! so that slow senders and other programs do not count.
//!
//! `make bench-divert ARGS=user` measures one group of the five: `xdp`, `user`, `back`, `threads` (a queue each, on both CPUs)
//! and `sets` (a million networks, memory and time).

use std::{
    any::Any,
    env,
    error::Error,
    fs::{self, File, OpenOptions},
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use aya::{
    Ebpf, include_bytes_aligned,
    programs::{Xdp, xdp::XdpMode as AyaMode},
};
use bpf::{Inject, Mode, Pass};
use divert::{BEAT, Diversion, DivertPlan, Fate, FilterAt, NetworkSet, Rule, Sets};
use lab::{Lab, LabPlan};
use port::{CountOptions, RxPort, Wait, XdpRx, XdpTx, XdpTxOptions, XskQueueOptions, XskRx, XskRxOptions};
use sys::{
    cpu,
    rtnetlink::{RouteSocket, flag},
    udp::UdpSink,
};
use wire::{FrameSpec, MacAddr, Template, Values};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 24;
const TURN: Duration = Duration::from_millis(150);
const SENDER: u32 = 0;
const RECEIVER: u32 = 1;
const FLOODED: u16 = 9;
/// Frames of a re-injected batch.
const BATCH: usize = 64;

/// Rates of one contender, one per turn.
struct Contender {
    name: &'static str,
    rates: Vec<f64>,
}

fn main() -> Outcome<()> {
    if !env::args().any(|argument| argument == "--bench") {
        return Ok(()); // built and started by `cargo test`, which measures nothing
    }
    let asked: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let is_asked = |group: &str| asked.is_empty() || asked.iter().any(|word| word == group);
    lab::gain_access()?;
    println!("64-byte frames; medians of {ROUNDS} turns of {TURN:?}; Mpps per second of CPU {RECEIVER}");
    let thousand: Vec<String> = (0..1000)
        .map(|number| match number {
            999 => format!("drop udp and dst port {FLOODED}"),
            even if even % 2 == 0 => format!("drop udp and src net 10.{}.{}.0/24", even / 250, even % 250),
            odd => format!("drop udp and dst port {}", 20_000 + odd),
        })
        .collect();
    let one = [format!("drop udp and dst port {FLOODED}")];
    let coded = [format!("drop udp port {FLOODED}")];
    if is_asked("xdp") {
        report(&[
            ("bare XDP drop, headers read", &|lab| count_all(lab)),
            ("bare XDP drop, nothing read", &|lab| drop_all(lab)),
            ("divert in XDP, 1 rule", &|lab| divert(lab, FilterAt::Xdp, &one)),
            ("divert in XDP, 1 compiled rule", &|lab| divert(lab, FilterAt::Xdp, &coded)),
            ("divert in XDP, 1,000 rules", &|lab| divert(lab, FilterAt::Xdp, &thousand)),
        ])?;
    }
    if is_asked("user") {
        report(&[
            ("bare AF_XDP loop, one port's packets", &|lab| receive(lab, FLOODED)),
            ("bare AF_XDP loop, nothing read", &|lab| receive(lab, 0)),
            ("divert in user space, 1 rule", &|lab| divert(lab, FilterAt::User, &one)),
            ("divert in user space, 1 compiled", &|lab| divert(lab, FilterAt::User, &coded)),
            ("divert in user space, 1,000 rules", &|lab| divert(lab, FilterAt::User, &thousand)),
        ])?;
    }
    if is_asked("back") {
        give_back()?;
    }
    if is_asked("threads") {
        threads()?;
    }
    if is_asked("sets") {
        sets()?;
    }
    Ok(())
}

/// One queue, and two queues with a thread each: the flood of a queue, its packet processing and its thread share a CPU, so that
/// two queues have twice as much of everything. Packets per second of the clock.
fn threads() -> Outcome<()> {
    println!("a queue, its sender and its thread on each CPU; Mpps of all queues");
    for (name, place) in [("XDP", FilterAt::Xdp), ("user space", FilterAt::User)] {
        let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for round in 0..ROUNDS {
            // By turns: the host's speed changes.
            let mut each = [0.0; 2];
            for queues in if round % 2 == 0 { [1, 2] } else { [2, 1] } {
                each[queues as usize - 1] = diverted_by_threads(place, queues)?;
            }
            rates.iter_mut().zip(each).for_each(|(rates, rate)| rates.push(rate));
            ratios.push(each[1] / each[0]);
        }
        let [one, two] = rates.map(|rates| median(&rates) / 1e6);
        println!(
            "divert in {name:<12} 1 queue {one:>6.2} Mpps  2 queues {two:>6.2} Mpps  ratio {:.3}",
            median(&ratios)
        );
    }
    println!();
    Ok(())
}

/// Packets per second that a diversion of so many queues drops, with a sender for each.
fn diverted_by_threads(place: FilterAt, queues: u32) -> Outcome<f64> {
    // Packets are processed in the softirq of the CPU that sends them, as of the one that a card interrupts.
    let lab = Lab::create(&LabPlan { queues: 2, gro: true, ..LabPlan::default() })?;
    let mut receiver = divert_queues(&lab, place, queues)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let send = |cpu| {
            let (lab, stop) = (&lab, &stop);
            move || lab.tx().run(|| flood(lab, (Sources::One, cpu), stop).map_err(|error| error.to_string()))
        };
        let sending: Vec<_> = (0..queues).map(|cpu| scope.spawn(send(cpu))).collect();
        thread::sleep(TURN / 5);
        let (packets, began) = ((receiver.taken)(), Instant::now());
        thread::sleep(TURN);
        let rate = ((receiver.taken)() - packets) as f64 / began.elapsed().as_secs_f64();
        stop.store(true, Relaxed);
        for sending in sending {
            sending.join().map_err(|_| "the sender panicked")???;
        }
        Ok(rate)
    })
}

/// Diverts the first queues, queue n with a thread on CPU n.
fn divert_queues(lab: &Lab, place: FilterAt, queues: u32) -> Outcome<Receiver> {
    let rules = [format!("drop udp and dst port {FLOODED}")];
    let cpus = (0..queues).collect();
    divert_with(lab, place, &rules, &Sets::default(), cpus)
}

/// Networks of the large sets.
const NETWORKS: u32 = 1_000_000;

/// Memory of a million networks, here and in the kernel, and their cost per packet.
fn sets() -> Outcome<()> {
    let mut random = fastrand::Rng::with_seed(7);
    let v4: String = (0..NETWORKS)
        .map(|_| format!("{}/{}\n", Ipv4Addr::from_bits(random.u32(..)), random.u8(16..=32)))
        .collect();
    let v6: String = (0..NETWORKS)
        .map(|_| {
            let bits = 0x2000 << 112 | random.u128(..) >> 3;
            format!("{}/{}\n", Ipv6Addr::from_bits(bits), random.u8(32..=64))
        })
        .collect();
    println!("a set of {NETWORKS} networks");
    let mut set4 = None;
    for (family, text) in [("IPv4", &v4), ("IPv6", &v6)] {
        let began = Instant::now();
        let set = NetworkSet::parse(text).map_err(|errors| errors[0].to_string())?;
        let parsed = began.elapsed();
        let addresses: Vec<IpAddr> = (0..1 << 20)
            .map(|_| match family {
                "IPv4" => Ipv4Addr::from_bits(random.u32(..)).into(),
                _ => Ipv6Addr::from_bits(0x2000 << 112 | random.u128(..) >> 3).into(),
            })
            .collect();
        let began = Instant::now();
        let found = addresses.iter().filter(|address| set.contains(**address)).count();
        let each_ns = began.elapsed().as_nanos() as f64 / addresses.len() as f64;
        println!(
            "{family}: read in {parsed:?}, {:.1} MB, a lookup of a random address {each_ns:.0} ns in this process ({} % are in it)",
            set.bytes() as f64 / 1e6,
            100 * found / addresses.len()
        );
        set4.get_or_insert(set);
    }
    let mut sets = Sets::default();
    sets.insert("bad", set4.expect("it was made"));
    println!("64-byte frames from random addresses; Mpps per second of CPU {RECEIVER}");
    let one = [format!("drop udp and dst port {FLOODED}")];
    let of_set = ["drop src set bad".to_owned(), format!("drop udp and dst port {FLOODED}")];
    let none = Sets::default();
    report_from(
        Sources::Random,
        &[
            ("divert in XDP, 1 compiled rule", &|lab| divert_by(lab, FilterAt::Xdp, &one, &none)),
            ("divert in XDP, a set and a rule", &|lab| divert_by(lab, FilterAt::Xdp, &of_set, &sets)),
            ("divert in user space, 1 compiled rule", &|lab| divert_by(lab, FilterAt::User, &one, &none)),
            ("divert in user space, a set and a rule", &|lab| divert_by(lab, FilterAt::User, &of_set, &sets)),
        ],
    )
}

/// Where the flood comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sources {
    One,
    Random,
}

/// A receiver of one turn: set up on a lab, it counts the packets it took, and ends when dropped.
type Receive<'r> = &'r dyn Fn(&Lab) -> Outcome<Receiver>;

struct Receiver {
    taken: Box<dyn FnMut() -> u64>,
    /// Its thread besides the NAPI thread.
    thread: Option<u32>,
    _held: Box<dyn Any>,
}

fn report(contenders: &[(&'static str, Receive<'_>)]) -> Outcome<()> {
    report_from(Sources::One, contenders)
}

fn report_from(sources: Sources, contenders: &[(&'static str, Receive<'_>)]) -> Outcome<()> {
    let mut all: Vec<Contender> =
        contenders.iter().map(|(name, _)| Contender { name, rates: Vec::new() }).collect();
    for round in 0..ROUNDS {
        // One contender's cleanup slows the next: the order changes each round.
        for at in (0..all.len()).map(|turn| (turn + round) % contenders.len()) {
            all[at].rates.push(flooded(sources, contenders[at].1)?);
        }
    }
    show(&all);
    println!();
    Ok(())
}

fn show(all: &[Contender]) {
    for contender in all {
        let ratios: Vec<f64> =
            contender.rates.iter().zip(&all[0].rates).map(|(rate, base)| rate / base).collect();
        let (rate, ratio) = (median(&contender.rates), median(&ratios));
        println!("{:<36}{:>8.2} Mpps{ratio:>8.3}", contender.name, rate / 1e6);
    }
}

/// Packets that a flooded receiver takes per second of its CPU's time.
fn flooded(sources: Sources, receive: Receive<'_>) -> Outcome<f64> {
    let plan = LabPlan { queues: 1, threaded_napi: true, napi_cpus: vec![RECEIVER], ..LabPlan::default() };
    let lab = Lab::create(&plan)?;
    let mut receiver = receive(&lab)?;
    let napi = lab.rx().napis()?.first().and_then(|napi| napi.thread).ok_or("no NAPI thread")?;
    let threads: Vec<u32> = receiver.thread.into_iter().chain([napi]).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            lab.tx().run(|| flood(&lab, (sources, SENDER), &stop).map_err(|error| error.to_string()))
        });
        // The first packets find cold caches.
        thread::sleep(TURN / 5);
        let (packets, busy_ns) = ((receiver.taken)(), busy_ns(&threads)?);
        thread::sleep(TURN);
        let (packets, busy_ns) = ((receiver.taken)() - packets, self::busy_ns(&threads)? - busy_ns);
        stop.store(true, Relaxed);
        sending.join().map_err(|_| "the sender panicked")???;
        Ok(packets as f64 * 1e9 / busy_ns as f64)
    })
}

fn flood(lab: &Lab, (sources, cpu): (Sources, u32), stop: &AtomicBool) -> Outcome<()> {
    cpu::pin_to(cpu)?;
    let mut spec = frames(lab, lab.rx().mac());
    if sources == Sources::Random {
        spec.src_addr = "random:1.0.0.0-223.255.255.255".parse()?;
    }
    let template = Template::new(&spec)?;
    let mut tx = XdpTx::open(template.recipe(), &XdpTxOptions::on(lab.tx().index()))?;
    while !stop.load(Relaxed) {
        tx.send(16_384, 0)?;
    }
    Ok(())
}

fn frames(lab: &Lab, dst_mac: [u8; 6]) -> FrameSpec {
    FrameSpec {
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(dst_mac),
        src_addr: Values::Fixed(lab.tx().ipv4()[0].into()),
        dst_addr: Values::Fixed(lab.rx().ipv4()[0].into()),
        dst_port: Values::Fixed(FLOODED),
        ..FrameSpec::default()
    }
}

/// Time that threads ran, from the scheduler's own accounts.
fn busy_ns(threads: &[u32]) -> Outcome<u64> {
    threads.iter().try_fold(0, |sum, thread| {
        let text = fs::read_to_string(format!("/proc/{thread}/schedstat"))?;
        Ok(sum + text.split(' ').next().ok_or("no time")?.parse::<u64>()?)
    })
}

fn drop_all(lab: &Lab) -> Outcome<Receiver> {
    let mut ebpf = Ebpf::load(include_bytes_aligned!("../../port/benches/xdp/plain.bpf.o"))?;
    let program: &mut Xdp = ebpf.program_mut("drop_all").ok_or("no program")?.try_into()?;
    program.load()?;
    let index = lab.rx().index();
    lab.rx().run(|| program.attach_to_if_index(index, AyaMode::Driver).map(drop))??;
    Ok(Receiver { taken: by_interface(lab)?, thread: None, _held: Box::new(ebpf) })
}

/// Packets that the driver gave to the program.
fn by_interface(lab: &Lab) -> Outcome<Box<dyn FnMut() -> u64>> {
    let namespace = lab.rx().namespace().try_clone()?;
    let interface = lab.rx().interface().to_owned();
    let ethtool = namespace.run(sys::ethtool::EthtoolSocket::open)??;
    Ok(Box::new(move || {
        let counters = ethtool.statistics(&interface).unwrap_or_default();
        counters.iter().filter(|(name, _)| name.ends_with("_xdp_drops")).map(|(_, value)| value).sum()
    }))
}

fn count_all(lab: &Lab) -> Outcome<Receiver> {
    let index = lab.rx().index();
    let rx = lab.rx().run(|| XdpRx::open(index, Mode::Native, &CountOptions::default()))??;
    Ok(Receiver { taken: by_interface(lab)?, thread: None, _held: Box::new(rx) })
}

/// What comes to this port, or with 0 everything: then the program in the kernel reads no header.
fn receive(lab: &Lab, dst_port: u16) -> Outcome<Receiver> {
    let interface = lab.rx().interface();
    let batch_size = XskQueueOptions::on(interface, 0).batch_size as usize;
    let options = XskRxOptions { batch_size, dst_port, ..XskRxOptions::on(interface, 0) };
    let mut rx = lab.rx().run(|| XskRx::open(&options))??.remove(0);
    let (taken, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (shared, stopping) = (taken.clone(), stop.clone());
    let (tell, told) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(own_number()).ok();
        // Placed like a diversion's thread.
        cpu::pin_to(RECEIVER).ok();
        cpu::go_first(0).ok();
        let mut bytes = 0;
        while !stopping.load(Relaxed) {
            let packets = rx.recv(Wait::Block, |packet| bytes += u64::from(packet.bytes[0])).unwrap_or(0);
            shared.fetch_add(packets as u64, Relaxed);
        }
        bytes
    });
    let held = StopsAndJoins { stop, thread: Some(thread) };
    Ok(Receiver { taken: Box::new(move || taken.load(Relaxed)), thread: told.recv()?, _held: Box::new(held) })
}

fn own_number() -> Option<u32> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

struct StopsAndJoins {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Drop for StopsAndJoins {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
    }
}

fn divert(lab: &Lab, place: FilterAt, rules: &[String]) -> Outcome<Receiver> {
    divert_by(lab, place, rules, &Sets::default())
}

fn divert_by(lab: &Lab, place: FilterAt, rules: &[String], sets: &Sets) -> Outcome<Receiver> {
    divert_with(lab, place, rules, sets, vec![RECEIVER])
}

/// Diverts the first queues, one for each of these CPUs.
fn divert_with(
    lab: &Lab,
    place: FilterAt,
    rules: &[String],
    sets: &Sets,
    cpus: Vec<u32>,
) -> Outcome<Receiver> {
    let rules: Result<Vec<Rule>, _> = rules.iter().map(|rule| rule.parse()).collect();
    let plan = DivertPlan {
        selection: (place == FilterAt::User)
            .then(|| format!("udp dst port {FLOODED}").parse())
            .transpose()?,
        rules: rules?,
        sets: sets.clone(),
        reinject: false,
        cpus: cpus.clone(),
        ..DivertPlan::bare(lab.rx().interface(), 0..cpus.len() as u32, place)
    };
    let diversion = lab.rx().run(|| Diversion::start(&plan))??;
    let thread = (place == FilterAt::User).then(|| thread_called("divert-0")).flatten();
    let (diversion, stop) = (Arc::new(Mutex::new(diversion)), Arc::new(AtomicBool::new(false)));
    let (shared, stopping) = (diversion.clone(), stop.clone());
    let beating = thread::spawn(move || {
        while !stopping.load(Relaxed) {
            shared.lock().expect("nobody panics").beat().expect("the lab goes on");
            thread::sleep(BEAT / 2);
        }
        0
    });
    let held = StopsAndJoins { stop, thread: Some(beating) };
    // Reading a thousand counters takes the sender's CPU: only at the turn's ends.
    let taken = move || {
        let status = diversion.lock().expect("nobody panics").status().expect("the lab goes on");
        status.ledger.of(Fate::Dropped)
    };
    Ok(Receiver { taken: Box::new(taken), thread, _held: Box::new(held) })
}

/// The number of this process's thread of that name.
fn thread_called(name: &str) -> Option<u32> {
    let tasks = fs::read_dir("/proc/self/task").ok()?.flatten();
    let mut named = tasks.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    });
    named.next()?.file_name().to_str()?.parse().ok()
}

/// Passes a batch of frames to the kernel.
type Give = Box<dyn FnMut() -> Outcome<()> + Send>;

/// Passes frames to a kernel that delivers them to a socket: all on one CPU, by the thread's clock.
fn give_back() -> Outcome<()> {
    let lab = Lab::create(&LabPlan { queues: 1, gro: true, ..LabPlan::default() })?;
    let side = lab.rx();
    let _pass = side.run(|| Pass::attach(side.index(), Mode::Native))??;
    let _sink = side.run(|| UdpSink::open((IpAddr::from([0, 0, 0, 0]), FLOODED).into()))??;
    let mut inject = side.run(|| Inject::load(side.index()))??;
    let mut tap = Tap::open(&lab)?;
    let raw = side.run(RawSocket::open)??;
    side.run(|| {
        let mut route = RouteSocket::open()?;
        let loopback = route.link_by_name("lo")?.index;
        route.change_flags(loopback, flag::UP, flag::UP)
    })??;
    let stamped = |mac| -> Outcome<Vec<u8>> {
        let template = Template::new(&frames(&lab, mac))?;
        let mut frame = vec![0; template.max_frame_len()];
        let len = template.stamp_frame(&mut frame, 1, 0);
        frame.truncate(len);
        Ok(frame)
    };
    let (frame, tap_frame) = (stamped(side.mac())?, stamped(tap.mac)?);
    let mut ways: [(&'static str, Give); 3] = [
        ("TAP, a write a frame", Box::new(move || (0..BATCH).try_for_each(|_| tap.give(&tap_frame)))),
        (
            "raw socket, sendmmsg of 64",
            Box::new({
                let packet = frame[14..].to_vec();
                move || raw.give(&packet)
            }),
        ),
        (
            "live frames, 64 a call",
            Box::new(move || {
                (0..BATCH).for_each(|_| assert!(inject.push(&frame)));
                inject.flush()?;
                Ok(())
            }),
        ),
    ];
    println!("frames re-injected into the kernel, which delivers them; Mpps per second of CPU {RECEIVER}");
    let mut all: Vec<Contender> =
        ways.iter().map(|(name, _)| Contender { name, rates: Vec::new() }).collect();
    for _ in 0..ROUNDS {
        for ((_, give), contender) in ways.iter_mut().zip(&mut all) {
            let before = delivered(&lab)?;
            let spent_ns = side.run(|| {
                cpu::pin_to(RECEIVER).map_err(|error| error.to_string())?;
                let (began, start) = (Instant::now(), busy_ns(&[own_number().unwrap_or(0)]));
                while began.elapsed() < TURN {
                    give().map_err(|error| error.to_string())?;
                }
                let end = busy_ns(&[own_number().unwrap_or(0)]);
                Ok::<u64, String>(
                    end.map_err(|error| error.to_string())? - start.map_err(|error| error.to_string())?,
                )
            })??;
            contender.rates.push((delivered(&lab)? - before) as f64 * 1e9 / spent_ns as f64);
        }
    }
    show(&all);
    Ok(())
}

/// Packets that IP handed to UDP.
fn delivered(lab: &Lab) -> Outcome<u64> {
    Ok(lab.rx().net_counters()?.value("IpInDelivers").ok_or("no counter")?)
}

/// A TAP interface on the lab's receiving side.
struct Tap {
    file: File,
    mac: [u8; 6],
}

impl Tap {
    fn open(lab: &Lab) -> Outcome<Self> {
        const TUNSETIFF: libc::c_ulong = 0x4004_54ca; // linux/if_tun.h
        const IFF_TAP: i16 = 2;
        const IFF_NO_PI: i16 = 0x1000;
        let open = || -> Result<Self, String> {
            let words = |error: &dyn Error| error.to_string();
            let file =
                OpenOptions::new().read(true).write(true).open("/dev/net/tun").map_err(|e| words(&e))?;
            let mut request = [0u8; 40];
            request[..4].copy_from_slice(b"tap0");
            request[16..18].copy_from_slice(&(IFF_TAP | IFF_NO_PI).to_ne_bytes());
            // SAFETY: the request is a live `struct ifreq` of 40 bytes.
            let status = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
            if status < 0 {
                return Err(words(&std::io::Error::last_os_error()));
            }
            let mut route = RouteSocket::open().map_err(|e| words(&e))?;
            let link = route.link_by_name("tap0").map_err(|e| words(&e))?;
            route.disable_address_generation(link.index).map_err(|e| words(&e))?;
            route
                .change_flags(link.index, flag::UP | flag::NO_ARP, flag::UP | flag::NO_ARP)
                .map_err(|e| words(&e))?;
            Ok(Self { file, mac: link.mac.unwrap_or_default() })
        };
        Ok(lab.rx().run(open)??)
    }

    fn give(&mut self, frame: &[u8]) -> Outcome<()> {
        self.file.write_all(frame)?;
        Ok(())
    }
}

/// A raw IP socket that sends to an address of its own host.
struct RawSocket(socket2::Socket);

impl RawSocket {
    fn open() -> Result<Self, String> {
        let protocol = socket2::Protocol::from(libc::IPPROTO_RAW);
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(protocol))
            .map(Self)
            .map_err(|error| error.to_string())
    }

    fn give(&self, packet: &[u8]) -> Outcome<()> {
        let octets: [u8; 4] = packet[16..20].try_into()?;
        let target = socket2::SockAddr::from(std::net::SocketAddr::from((octets, 0)));
        let mut iov = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
        let header = libc::msghdr {
            msg_name: target.as_ptr().cast_mut().cast(),
            msg_namelen: target.len(),
            msg_iov: &raw mut iov,
            msg_iovlen: 1,
            msg_control: std::ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        };
        let mut messages = [libc::mmsghdr { msg_hdr: header, msg_len: 0 }; BATCH];
        let (fd, count) = (self.0.as_raw_fd(), BATCH as libc::c_uint);
        // SAFETY: as many messages as said, all of whose pointers lead to live memory that is only read.
        let sent = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, 0) };
        if sent < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
    }
}

fn median(values: &[f64]) -> f64 {
    measure::median(values).unwrap_or(f64::NAN)
}
