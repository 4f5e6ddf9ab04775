//! What the tests' scripts call inside the guest.

use std::{env, fs};

use port::{CountOptions, Verdict, XdpMode, XdpRx};
use sys::{ethtool::EthtoolSocket, rtnetlink::RouteSocket};

/// Does what the variable INSIDE says; nothing outside of a guest.
#[test]
fn called() {
    let Ok(words) = env::var("INSIDE") else { return };
    match words.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["settings", interface] => println!("{}", settings(interface)),
        ["hold-xdp", interface, file] => hold_xdp(interface, file),
        other => panic!("nothing of this name: {other:?}"),
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
        ethtool.rx_rings(interface).unwrap(),
        sysfs("threaded").trim(),
        sysfs("gro_flush_timeout").trim(),
        sysfs("napi_defer_hard_irqs").trim(),
    )
}

/// Keeps a program of another process on the interface until the file is there.
fn hold_xdp(interface: &str, file: &str) {
    let index = RouteSocket::open().unwrap().link_by_name(interface).unwrap().index;
    let options = CountOptions { streams: 1, queues: 0, verdict: Verdict::Pass };
    let _held = XdpRx::open(index, XdpMode::Native, &options).unwrap();
    println!("holding");
    while !fs::exists(file).unwrap() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
