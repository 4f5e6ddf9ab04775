//! Functions that the tests' scripts call inside the guest.

use std::{env, fs, os::fd::AsFd};

use ledger::HostCounters;
use port::{CountOptions, PacketTx, PacketTxOptions, ProbeAction, TxPort, XdpMode, XdpRx};
use serde_json::json;
use sys::{
    bpf_program,
    counting::{Mark, mark},
    ethtool::EthtoolSocket,
    known,
    rtnetlink::RouteSocket,
};

/// Calls the function that the variable INSIDE names; does nothing outside a guest.
#[test]
fn called() {
    let Ok(words) = env::var("INSIDE") else { return };
    match words.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["settings", interface] => println!("{}", settings(interface)),
        ["hold-xdp", interface, file] => hold_xdp(interface, file),
        ["counters", interface] => println!("{}", counters(interface)),
        ["frames", from, to, count, bytes] => {
            frames(from, to, count.parse().unwrap(), bytes.parse().unwrap())
        }
        ["known"] => known(),
        other => panic!("no function with this name: {other:?}"),
    }
}

/// Everything that linerate might leave changed on an interface, as text.
fn settings(interface: &str) -> String {
    let mut route = RouteSocket::open().unwrap();
    let link = match route.link_by_name(interface) {
        Ok(link) => link,
        Err(error) => return format!("{error}"),
    };
    let ethtool = EthtoolSocket::open().unwrap();
    let features = ethtool.features(interface).unwrap();
    let active: Vec<String> =
        features.into_iter().filter(|feature| feature.active).map(|feature| feature.name).collect();
    let sysfs =
        |name: &str| fs::read_to_string(format!("/sys/class/net/{interface}/{name}")).unwrap_or_default();
    format!(
        "flags {:x} mtu {} mac {:?} xdp {:?} rings {:?} threaded {} gro_flush_timeout {} napi_defer_hard_irqs {} {active:?}",
        link.flags,
        link.mtu,
        link.mac,
        route.xdp_programs(link.index).unwrap(),
        sys::ethtool::rx_queues(&link),
        sysfs("threaded").trim(),
        sysfs("gro_flush_timeout").trim(),
        sysfs("napi_defer_hard_irqs").trim(),
    )
}

/// Keeps another process's XDP program on the interface until the file exists.
fn hold_xdp(interface: &str, file: &str) {
    let index = RouteSocket::open().unwrap().link_by_name(interface).unwrap().index;
    let options = CountOptions { streams: 1, verdict: ProbeAction::Pass, ..CountOptions::default() };
    let _held = XdpRx::open(index, XdpMode::Native, &options).unwrap();
    println!("holding");
    while !fs::exists(file).unwrap() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The driver and its counters, on one line.
fn counters(interface: &str) -> String {
    let read = HostCounters::read(Some(interface)).unwrap();
    json!({ "driver": read.driver, "counters": read.driver_counters, "rx_packets": read.link.rx_packets })
        .to_string()
}

/// Work with known instruction counts, each a call of its own: see `exact.rs`.
fn known() {
    let counted = |work: &mut dyn FnMut()| {
        mark(Mark::Sender);
        mark(Mark::Work);
        mark(Mark::Begin);
        work();
        mark(Mark::End);
    };
    let mut buffer = [0; FILLED_BYTES];
    let (short, long) = (known::xdp_program(0).unwrap(), known::xdp_program(XDP_MORE).unwrap());
    for times in [1000, 2000, 3000] {
        for _ in 0..REPEATS {
            counted(&mut || known::loop_of_two(times));
            counted(&mut || known::failing_calls(times));
            counted(&mut || known::string_fills(&mut buffer, times));
            counted(&mut || bpf_program::run(short.as_fd(), times as u32).unwrap());
            counted(&mut || bpf_program::run(long.as_fd(), times as u32).unwrap());
        }
    }
}

/// Repeats of each piece of known work.
pub(crate) const REPEATS: usize = 5;
/// Bytes of a string instruction.
pub(crate) const FILLED_BYTES: usize = 96;
/// The difference of two XDP programs in instructions.
pub(crate) const XDP_MORE: usize = 64;

/// Sends frames of an unused EtherType.
fn frames(from: &str, to: &str, count: usize, bytes: usize) {
    const EXPERIMENTS: [u8; 2] = [0x88, 0xb5]; // ETH_P_802_EX1
    let mut route = RouteSocket::open().unwrap();
    let (from, to) = (route.link_by_name(from).unwrap(), route.link_by_name(to).unwrap());
    let mut frame = vec![0; bytes];
    frame[..6].copy_from_slice(&to.mac.unwrap());
    frame[6..12].copy_from_slice(&from.mac.unwrap());
    frame[12..14].copy_from_slice(&EXPERIMENTS);
    let mut tx = PacketTx::open(&PacketTxOptions::on(from.index, bytes)).unwrap();
    let mut left = count;
    while left > 0 {
        left -= tx
            .send(left.min(16), |slot| {
                slot[..bytes].copy_from_slice(&frame);
                bytes
            })
            .unwrap()
            .taken;
    }
}
