//! The examples work.

use std::{
    env,
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use lab::Side;
use socket2::{Domain, Protocol, Socket, Type};
use sys::rtnetlink::RouteSocket;

use crate::support::{FLOODED, PATIENCE, lab};

/// How long an example is kept busy, of the four seconds that it runs.
const FLOOD: Duration = Duration::from_secs(3);

/// Starts an example that cargo built beside this test, and returns once it diverts.
fn example(side: &Side, name: &str, args: &[&str]) -> Child {
    let folder: PathBuf = env::current_exe().unwrap().parent().unwrap().join("../examples");
    let mut command = Command::new(folder.join(name));
    command.arg(side.interface()).args(args).stdout(Stdio::piped());
    let child = side.run(|| command.spawn()).unwrap().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let attached = || RouteSocket::open().unwrap().xdp_programs(side.index()).unwrap();
    while side.run(attached).unwrap().is_empty() {
        assert!(Instant::now() < deadline, "{name} attaches nothing");
    }
    child
}

/// Its output.
fn printed(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// An echo request without payload, and whether the answer came.
fn ping(target: IpAddr) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // Type 8, code 0, checksum, identifier and number.
    let request = [8, 0, 0xf7, 0xfe, 0, 0, 0, 1];
    socket.send_to(&request, &SocketAddr::new(target, 0).into()).unwrap();
    let mut answer = [MaybeUninit::uninit(); 64];
    socket.recv(&mut answer).is_ok_and(|len| len >= 28)
}

#[test]
fn arp_icmp_lets_pings_through_drops_the_rest_and_tells_its_rate() {
    let Some(lab) = lab() else { return };
    let target = IpAddr::from(lab.rx().ipv4()[0]);
    let child = example(lab.rx(), "arp_icmp", &["0", "4"]);
    let flood = || {
        // Enough that some are hashed to the diverted queue.
        let sockets: Vec<UdpSocket> = (0..16).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
        let (began, mut answered) = (Instant::now(), 0);
        while began.elapsed() < FLOOD {
            sockets.iter().for_each(|socket| drop(socket.send_to(&[0; 18], (target, FLOODED))));
            answered += u32::from(ping(target));
        }
        answered
    };
    assert!(lab.tx().run(flood).unwrap() > 0, "no ping was answered");
    let said = printed(child);
    assert!(said.contains("[+] pps: "), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.ends_with(" 0 unexplained") && last.contains(" accepted"), "{said}");
}

#[test]
fn udp_echo_answers_out_of_the_queue() {
    let Some(lab) = lab() else { return };
    let child = example(lab.rx(), "udp_echo", &["7", "4"]);
    let target = SocketAddr::new(lab.rx().ipv4()[0].into(), 7);
    let socket = lab.tx().run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let mut open: Vec<[u8; 32]> = Vec::new();
    let hear = |open: &mut Vec<[u8; 32]>| {
        let mut answer = [0; 64];
        let Ok((len, from)) = socket.recv_from(&mut answer) else { return false };
        let asked = open.iter().position(|question| question[..] == answer[..len]);
        open.swap_remove(asked.expect("what was asked comes back, once"));
        assert_eq!(from, target);
        true
    };
    let (deadline, mut answers) = (Instant::now() + FLOOD, 0);
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for number in 0u32.. {
        if Instant::now() > deadline || answers == 100 {
            break;
        }
        // The first ones may come before the queue is diverted.
        let question = [number.to_be_bytes(); 8].concat().try_into().unwrap();
        open.push(question);
        drop(socket.send_to(&question, target));
        answers += u32::from(hear(&mut open));
    }
    let said = printed(child);
    // On a busy machine some come late.
    while hear(&mut open) {
        answers += 1;
    }
    assert!(answers > 0, "{said}");
    assert!(said.contains(&format!("{answers} answered, 0 unexplained")), "{said}");
    assert_eq!(lab.rx().net_counters().unwrap().value("UdpInErrors"), Some(0));
}
