//! A guest of the tests, and the common parts of its tests.

use std::{
    env, fs,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::{Duration, Instant},
};

use lab::{NicPair, VmPlan};
use nic::{Card, Prediction, Setting, Steering, Verifier, read_queue_counts};
use sys::rtnetlink::{RouteSocket, flag};
use wire::FlowKey;

/// In the guest's environment: the part to run.
const PART: &str = "NIC_TEST_PART";

/// How often a process is killed: `NIC_TEST_KILLS=200` takes about ten minutes.
pub(crate) fn kills() -> u32 {
    asked("NIC_TEST_KILLS", 24)
}

/// Flows of each kind with each table: `NIC_TEST_FLOWS=1000` takes two minutes.
pub(crate) fn flows_each() -> u16 {
    asked("NIC_TEST_FLOWS", 300)
}

fn asked<T: FromStr>(variable: &str, otherwise: T) -> T {
    env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

/// Runs a part of this file in a guest with these pairs; skips loudly where the packages are missing.
pub(crate) fn in_a_guest(part: &str, pairs: &[NicPair]) {
    let plan = VmPlan {
        pairs: pairs.to_vec(),
        cpus: 4,
        memory_mib: 1536,
        time_limit: Duration::from_secs(180 + u64::from(kills()) * 6),
        ..VmPlan::default()
    };
    let Some(vm) = testing::machine(&plan) else { return };
    let exe = env::current_exe().unwrap();
    let script = format!(
        "NIC_TEST_KILLS={} NIC_TEST_FLOWS={} {PART}={part} RUST_BACKTRACE=0 {} --exact {part} --nocapture 2>&1",
        kills(),
        flows_each(),
        exe.display()
    );
    println!("{}", testing::run_in(&vm, &script));
}

pub(crate) fn is_guest() -> bool {
    env::var_os(PART).is_some()
}

/// Puts both ends of pair `n` up and waits for their carriers.
pub(crate) fn up(n: u32) -> (Card, String) {
    let mut route = RouteSocket::open().unwrap();
    let names = [format!("pair{n}a"), format!("pair{n}b")];
    for file in ["all", "default"] {
        fs::write(format!("/proc/sys/net/ipv6/conf/{file}/disable_ipv6"), "1").ok();
    }
    for name in &names {
        let index = route.link_by_name(name).unwrap().index;
        route.change_flags(index, flag::UP, flag::UP).unwrap();
    }
    for name in &names {
        let index = route.link_by_name(name).unwrap().index;
        let deadline = Instant::now() + Duration::from_secs(15);
        assert!(route.wait_until_up(index, deadline).unwrap(), "{name} comes up");
    }
    let [a, b] = names;
    (Card::open(&a).unwrap(), b)
}

pub(crate) fn set(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn flows(kind: &str, count: u16) -> Vec<FlowKey> {
    let end = |address: String, port: u16| SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
    let flow = |n: u16| {
        let (src, dst) = match kind {
            "addresses" => {
                (end(format!("198.18.{}.{}", n >> 8, n & 255), 9), end(format!("198.19.{}.1", n % 7), 9))
            }
            "ports" => (end("198.18.0.1".into(), 1024 + n), end("198.19.0.1".into(), 9 + n % 5)),
            _ => (end(format!("2001:2::{n:x}"), 1024 + n), end("2001:2:0:1::1".into(), 53)),
        };
        FlowKey::udp(src, dst).unwrap()
    };
    (0..count).map(flow).collect()
}

/// Every flow's predicted queue is where its packets are counted.
pub(crate) fn assert_predicted(card: &mut Card, via: &str, flows: &[FlowKey]) {
    let steering = Steering::read(card).unwrap();
    let mut verifier = Verifier::new(card, via, 1).unwrap();
    let before = read_queue_counts(card).unwrap();
    let mut expected = vec![0u64; before.rx.len()];
    for (flow, observed) in flows.iter().zip(verifier.observe_all(card, flows).unwrap()) {
        let Prediction { queue, .. } = steering.predict(flow).unwrap();
        assert_eq!(observed.queue, queue, "{flow}: {observed:?}");
        expected[queue.unwrap() as usize] += 1;
    }
    let after = read_queue_counts(card).unwrap();
    let grown: Vec<u64> =
        after.rx.iter().map(|(queue, count)| count.packets - before.rx[queue].packets).collect();
    assert_eq!(grown, expected, "and nothing else arrived");
}
