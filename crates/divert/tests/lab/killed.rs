//! A killed process leaves all packets to the kernel, at any moment; other traffic is not affected by a diversion.
//!
//! The test starts its own executable again, which diverts until it is killed.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use divert::{BEAT, Diversion, FilterAt};
use lab::{Lab, Side};
use sys::rtnetlink::RouteSocket;

use crate::support::{FLOODED, PATIENCE, VALID, lab, plan, send, settle, start};

const ROLE: &str = "DIVERT_TEST_PLACE";
/// Number of kills; LINERATE_KILLS sets another number.
const KILLS: usize = 200;
/// About as long as the other process takes for a few changes. Half of the kills count it from its start, the others
/// from when it diverts.
const LATEST_KILL: Duration = Duration::from_millis(60);
/// The promised time, if a CPU is free to check it.
const OPEN_WITHIN: Duration = Duration::from_secs(1);
/// One kill in this many may be seen later, because a busy machine checks late.
const ONE_LATE_IN: usize = 20;

/// The other process; nothing when the harness runs it. Diverts, and changes queues and rules all the time.
#[test]
fn in_another_process() {
    let Ok(place) = env::var(ROLE) else { return };
    let place = if place == "user" { FilterAt::User } else { FilterAt::Xdp };
    let plan = divert::DivertPlan {
        place,
        queues: vec![0, 1],
        rules: vec![format!("drop udp dst port {FLOODED}").parse().unwrap()],
        ..divert::DivertPlan::of("lab-rx", "udp").unwrap()
    };
    println!("\nstarts");
    let mut diversion = Diversion::start(&plan).unwrap();
    println!("diverts");
    for round in 0u16.. {
        diversion.beat().unwrap();
        match round % 4 {
            0 => diversion.remove_queue(1).unwrap(),
            1 => diversion.add_queue(1).unwrap(),
            2 => diversion
                .reload(vec![format!("drop udp dst port {FLOODED} or {round}").parse().unwrap()])
                .unwrap(),
            _ => thread::sleep(BEAT / 50),
        }
    }
}

/// Starts the other process and waits for its message.
fn begin(side: &Side, place: &str, said: &str) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "killed::in_another_process", "--nocapture"]);
    command.env(ROLE, place).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = side.run(|| command.spawn()).unwrap().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == said), "the other process failed");
    child
}

fn programs(side: &Side) -> Vec<u32> {
    side.run(|| RouteSocket::open().unwrap().xdp_programs(side.index()).unwrap()).unwrap()
}

/// Floods until it is stopped.
fn flood(lab: &Lab, stop: &AtomicBool) {
    let target = (IpAddr::from(lab.rx().ipv4()[0]), FLOODED);
    let flood = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        while !stop.load(Relaxed) {
            // Without a listener a datagram may be refused; the next send reports it.
            (0..64).for_each(|_| drop(socket.send_to(&[0; 18], target)));
        }
    };
    lab.tx().run(flood).unwrap();
}

#[test]
fn after_a_kill_at_any_moment_under_flood_everything_flows_again_within_a_second() {
    let Some(lab) = lab() else { return };
    let seed =
        env::var("LINERATE_SEED").map_or_else(|_| sys::clock::realtime_ns(), |seed| seed.parse().unwrap());
    println!("LINERATE_SEED={seed}");
    let kills = env::var("LINERATE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut random = Random(seed | 1);
    let stop = AtomicBool::new(false);
    let (mut attached, mut late, mut slowest) = (0, 0, Duration::ZERO);
    thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&lab, &stop));
        // The flood ends even if a check below fails.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..kills {
                let (place, said) = (["xdp", "user"][round % 2], ["starts", "diverts"][round / 2 % 2]);
                let mut child = begin(lab.rx(), place, said);
                thread::sleep(random.up_to(LATEST_KILL));
                attached += usize::from(!programs(lab.rx()).is_empty());
                child.kill().unwrap();
                let killed = Instant::now();
                child.wait().unwrap();
                // The flood reaches the stack again, which has no listener.
                let before = lab.rx().net_counters().unwrap().value("UdpNoPorts").unwrap();
                while lab.rx().net_counters().unwrap().value("UdpNoPorts").unwrap() == before
                    || !programs(lab.rx()).is_empty()
                {
                    assert!(killed.elapsed() < PATIENCE, "not open {:?} after a kill", killed.elapsed());
                }
                let took = killed.elapsed();
                late += usize::from(took >= OPEN_WITHIN);
                slowest = slowest.max(took);
            }
        }));
        stop.store(true, Relaxed);
        flooding.join().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    println!("{kills} kills, {attached} of them while attached; open again after {slowest:?} at the latest");
    assert!(late <= kills / ONE_LATE_IN, "{late} of {kills} kills were open later than {OPEN_WITHIN:?}");
    assert!(attached > kills / 4, "only {attached} diversions were ever attached: this shows little");
}

#[test]
fn nothing_else_is_lost_while_a_diversion_begins_changes_and_ends() {
    let Some(lab) = lab() else { return };
    for place in [FilterAt::Xdp, FilterAt::User] {
        let stop = AtomicBool::new(false);
        let numbered = lab.rx().run(|| UdpSocket::bind(("0.0.0.0", VALID)).unwrap()).unwrap();
        numbered.set_read_timeout(Some(PATIENCE)).unwrap();
        let listener = lab.rx().run(|| TcpListener::bind("0.0.0.0:0").unwrap()).unwrap();
        let address = (IpAddr::from(lab.rx().ipv4()[0]), listener.local_addr().unwrap().port());
        thread::scope(|scope| {
            let sent = scope.spawn(|| number(&lab, &numbered, &stop));
            let streamed = scope.spawn(|| stream(&lab, address, &stop));
            let received = scope.spawn(|| {
                let (mut connection, _) = listener.accept().unwrap();
                let mut bytes = Vec::new();
                connection.read_to_end(&mut bytes).unwrap();
                bytes
            });
            // The others end even if a check below fails.
            let _stopped = Stops(&stop);
            let rule = format!("drop udp dst port {FLOODED}");
            for _ in 0..3 {
                let mut diversion = start(&lab, &plan(&lab, place, &[&rule]));
                send(&lab, &mut diversion, FLOODED, 100);
                diversion.remove_queue(1).unwrap();
                send(&lab, &mut diversion, FLOODED, 100);
                lab.rx().run(|| diversion.add_queue(1)).unwrap().unwrap();
                diversion.reload(vec![rule.parse().unwrap(), "drop icmp".parse().unwrap()]).unwrap();
                send(&lab, &mut diversion, FLOODED, 100);
                assert_eq!(diversion.finish().unwrap().ledger.unexplained, 0);
            }
            stop.store(true, Relaxed);
            let numbers = sent.join().unwrap();
            assert!(numbers > 100, "only {numbers} numbered datagrams");
            let bytes = streamed.join().unwrap();
            assert_eq!(received.join().unwrap().len(), bytes, "{place:?}");
        });
        // A sender without an answer for a while, as on a busy machine, sends its last segment again; the receiver then reports
        // that it had it already (RFC 2883).
        let counters = lab.tx().net_counters().unwrap();
        let count = |name: &str| counters.value(name).unwrap();
        let (again, had) = (count("TcpRetransSegs"), count("TcpExtTCPDSACKRecv"));
        assert!(
            again <= had,
            "{place:?}: {again} segments sent again, {had} of them for nothing: the others were lost"
        );
    }
}

/// Stops the others when dropped.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends numbered datagrams, each after the arrival of the last; returns how many.
fn number(lab: &Lab, arriving: &UdpSocket, stop: &AtomicBool) -> u64 {
    let target = (IpAddr::from(lab.rx().ipv4()[0]), VALID);
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let mut got = [0; 64];
        for number in 0u64.. {
            if stop.load(Relaxed) {
                return number;
            }
            socket.send_to(&number.to_be_bytes(), target).unwrap();
            assert_eq!(arriving.recv(&mut got).unwrap(), 8);
            assert_eq!(got[..8], number.to_be_bytes());
        }
        unreachable!("2^64 datagrams")
    };
    lab.tx().run(send).unwrap()
}

/// Sends bytes over TCP until it is stopped; returns how many.
fn stream(lab: &Lab, to: (IpAddr, u16), stop: &AtomicBool) -> usize {
    let send = || {
        let mut connection = TcpStream::connect(to).unwrap();
        let mut bytes = 0;
        while !stop.load(Relaxed) {
            connection.write_all(&[7; 1000]).unwrap();
            bytes += 1000;
            thread::sleep(Duration::from_micros(200));
        }
        bytes
    };
    lab.tx().run(send).unwrap()
}

#[test]
fn a_diversion_without_a_beat_is_over_within_its_deadline() {
    // A busy machine may check late.
    let mut times = Vec::new();
    while times.last().is_none_or(|took| *took >= OPEN_WITHIN) {
        assert!(times.len() < 5, "closed for {times:?}");
        let Some(lab) = lab() else { return };
        let mut diversion = start(&lab, &plan(&lab, FilterAt::Xdp, &["drop udp"]));
        send(&lab, &mut diversion, FLOODED, 10);
        settle(&mut diversion, 10);
        let began = Instant::now();
        let socket = lab.tx().run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        let before = lab.rx().net_counters().unwrap().value("UdpNoPorts");
        while lab.rx().net_counters().unwrap().value("UdpNoPorts") == before {
            drop(socket.send_to(&[0; 18], (IpAddr::from(lab.rx().ipv4()[0]), FLOODED)));
            assert!(began.elapsed() < PATIENCE, "still closed after {:?}", began.elapsed());
        }
        times.push(began.elapsed());
    }
}

/// Marsaglia's xorshift64: enough to choose moments.
struct Random(u64);

impl Random {
    fn up_to(&mut self, most: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        most.mul_f64(self.0 as f64 / u64::MAX as f64)
    }
}
