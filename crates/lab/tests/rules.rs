//! The guarantees of a lab, as root and as a user without privileges.
//!
//! Not under the usual harness: becoming root of a user namespace needs a single-threaded process. Arguments that
//! are not options choose rules by parts of their names.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::panic;
use std::process::ExitCode;
use std::time::Duration;

use lab::{Access, Lab, LabError, LabPlan, Side};
use sys::netdev::Napi;
use sys::netns::NetNs;
use sys::rtnetlink::RouteSocket;

mod support;

use support::{again, as_nobody, role, skipped};
use testing::wait_for;

type Rule = (&'static str, fn(Access));

macro_rules! rules {
    ($($name:ident,)+) => { &[$((stringify!($name), $name as fn(Access)),)+] };
}

const RULES: &[Rule] = rules![
    a_fresh_lab_stays_silent,
    a_thousand_datagrams_are_a_thousand_packets,
    every_address_reaches_every_address,
    the_interfaces_are_as_planned,
    both_ends_can_send_at_once,
    by_default_no_frame_is_larger_or_less_complete_than_on_a_wire,
    without_scatter_gather_packets_are_in_one_piece,
    with_gso_large_packets_pass_whole,
    with_gro_the_receiver_has_napi_and_the_sender_has_not,
    threaded_napi_receives_on_threads_of_its_own,
    napi_threads_are_placed_by_root_and_refused_to_others,
    two_labs_at_once_do_not_meet,
    two_hundred_labs_leave_nothing_behind,
    the_caller_stays_in_its_namespace,
    a_lab_is_used_from_many_threads,
    an_invalid_plan_is_refused_with_every_reason,
];

fn main() -> ExitCode {
    if role().is_some() {
        without_rights_the_namespace_is_what_fails();
    }
    let access = match lab::gain_access() {
        Ok(access) => access,
        Err(error) => {
            return skipped(&format!(
                "{error}: {}",
                error.source().map_or(String::new(), ToString::to_string)
            ));
        }
    };
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let mut failed = 0;
    for (name, rule) in RULES.iter().filter(|(name, _)| is_wanted(name)) {
        let kept = panic::catch_unwind(|| rule(access)).is_ok();
        println!("rule {name} ({access:?}) ... {}", if kept { "ok" } else { "FAILED" });
        failed += usize::from(!kept);
    }
    if access == Access::Privileged {
        let as_user = as_nobody(again("nobody").args(&wanted)).status().unwrap();
        failed += usize::from(!as_user.success());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Before this process becomes root of a user namespace.
fn without_rights_the_namespace_is_what_fails() {
    let error = Lab::create(&LabPlan::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot create the network namespace of the lab's sending side");
    let LabError::Namespace { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
    wait_for("the thread that failed to end", || fs::read_dir("/proc/self/task").unwrap().count() == 1);
}

fn a_fresh_lab_stays_silent(_: Access) {
    let napi = LabPlan { threaded_napi: true, ..LabPlan::default() };
    let gso = LabPlan { gso: true, tx_checksum: true, gro: true, ..LabPlan::default() };
    let labs = [LabPlan::default(), napi, gso].map(|plan| Lab::create(&plan).unwrap());
    // Reports of multicast membership come up to a second after an interface is up; nothing else arrives later.
    let nothing =
        receive_for(Duration::from_millis(1500), &bind(labs[0].rx(), labs[0].rx().ipv4()[0].into()));
    assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    for side in labs.iter().flat_map(|lab| [lab.tx(), lab.rx()]) {
        let counted: Vec<_> = side.link().unwrap().stats.named().filter(|(_, value)| *value != 0).collect();
        assert_eq!(counted, [], "{}", side.interface());
    }
}

fn without_scatter_gather_packets_are_in_one_piece(_: Access) {
    for scatter_gather in [true, false] {
        let lab = Lab::create(&LabPlan { scatter_gather, ..LabPlan::default() }).unwrap();
        for side in [lab.tx(), lab.rx()] {
            let features = side.features().unwrap();
            let found = features.iter().find(|feature| feature.name == "tx-scatter-gather").unwrap();
            assert_eq!(found.active, scatter_gather, "{}", side.interface());
        }
        // Scattered, as TCP makes them.
        assert!(stream_a_megabyte(&lab) <= 1514);
    }
}

fn a_thousand_datagrams_are_a_thousand_packets(_: Access) {
    let plans = [
        LabPlan::default(),
        LabPlan { queues: 1, tx_checksum: true, ..LabPlan::default() },
        LabPlan { gso: true, tx_checksum: true, gro: true, ..LabPlan::default() },
        LabPlan { threaded_napi: true, ..LabPlan::default() },
    ];
    for plan in plans {
        for family in 0..2 {
            let lab = Lab::create(&plan).unwrap();
            let [source, target] = [address(lab.tx(), family, 0), address(lab.rx(), family, 0)];
            exchange(&bind(lab.tx(), source), &bind(lab.rx(), target), 1000);
            // With NAPI a packet is counted after it was delivered.
            wait_for("1000 packets in the counters", || {
                stats(lab.tx()).tx_packets == 1000 && stats(lab.rx()).rx_packets == 1000
            });
            for (side, sent, received) in [(lab.tx(), 1000, 0), (lab.rx(), 0, 1000)] {
                let stats = stats(side);
                assert_eq!((stats.tx_packets, stats.rx_packets), (sent, received), "{plan:?}");
                assert_eq!((stats.tx_dropped, stats.rx_dropped, stats.rx_errors), (0, 0, 0), "{plan:?}");
            }
            let counters = lab.rx().net_counters().unwrap();
            let name = ["UdpInDatagrams", "Udp6InDatagrams"][family];
            assert_eq!(counters.value(name), Some(1000));
        }
    }
}

fn every_address_reaches_every_address(_: Access) {
    let lab = Lab::create(&LabPlan { addresses: 5, ..LabPlan::default() }).unwrap();
    assert_eq!((lab.tx().ipv4().len(), lab.rx().ipv6().len()), (5, 5));
    for family in 0..2 {
        for (from, to) in (0..5).flat_map(|from| (0..5).map(move |to| (from, to))) {
            let [source, target] = [address(lab.tx(), family, from), address(lab.rx(), family, to)];
            let [source, target] = [bind(lab.tx(), source), bind(lab.rx(), target)];
            exchange(&source, &target, 1);
            exchange(&target, &source, 1);
        }
    }
    assert_eq!((stats(lab.tx()).tx_packets, stats(lab.tx()).rx_packets), (50, 50));
}

fn the_interfaces_are_as_planned(_: Access) {
    let lab = Lab::create(&LabPlan { queues: 7, mtu: 9000, ..LabPlan::default() }).unwrap();
    for side in [lab.tx(), lab.rx()] {
        let link = side.link().unwrap();
        assert_eq!((link.tx_queues, link.rx_queues, link.mtu), (7, 7, 9000));
        assert_eq!(
            (link.name.as_str(), link.index, link.mac),
            (side.interface(), side.index(), Some(side.mac()))
        );
        let names: BTreeSet<String> =
            side.driver_statistics().unwrap().into_iter().map(|(name, _)| name).collect();
        assert!((0..7).all(|queue| names.contains(&format!("rx_queue_{queue}_xdp_drops"))), "{names:?}");
    }
    assert_ne!(lab.tx().mac(), lab.rx().mac());
}

fn both_ends_can_send_at_once(_: Access) {
    for _ in 0..100 {
        let lab = Lab::create(&LabPlan { addresses: 1, ..LabPlan::default() }).unwrap();
        let [tx, rx] = [lab.tx(), lab.rx()];
        assert!(rx.link().unwrap().operational && tx.link().unwrap().operational);
        for family in 0..2 {
            let [there, here] = [bind(tx, address(tx, family, 0)), bind(rx, address(rx, family, 0))];
            exchange(&here, &there, 1);
            exchange(&there, &here, 1);
        }
        assert_eq!((stats(rx).tx_packets, stats(rx).rx_packets), (2, 2));
    }
}

fn by_default_no_frame_is_larger_or_less_complete_than_on_a_wire(_: Access) {
    let lab = Lab::create(&LabPlan::default()).unwrap();
    for side in [lab.tx(), lab.rx()] {
        let features = side.features().unwrap();
        let left_to_the_veth: Vec<_> = features
            .iter()
            .filter(|feature| feature.active && feature.changeable)
            .map(|feature| feature.name.as_str())
            .filter(|name| {
                ["segmentation", "gso", "gro", "tx-checksum"].iter().any(|part| name.contains(part))
            })
            .collect();
        assert_eq!(left_to_the_veth, <[&str; 0]>::default());
    }
    let bytes_per_packet = stream_a_megabyte(&lab);
    assert!(bytes_per_packet <= 1514, "{bytes_per_packet} bytes a packet");
}

fn with_gso_large_packets_pass_whole(_: Access) {
    let lab = Lab::create(&LabPlan { gso: true, tx_checksum: true, ..LabPlan::default() }).unwrap();
    let bytes_per_packet = stream_a_megabyte(&lab);
    assert!(bytes_per_packet > 1514, "{bytes_per_packet} bytes a packet");
}

fn with_gro_the_receiver_has_napi_and_the_sender_has_not(_: Access) {
    let without = Lab::create(&LabPlan::default()).unwrap();
    assert_eq!(without.rx().napis().unwrap(), []);
    let with = Lab::create(&LabPlan { threaded_napi: true, queues: 3, ..LabPlan::default() }).unwrap();
    assert_eq!((with.rx().napis().unwrap().len(), with.tx().napis().unwrap().len()), (3, 0));
}

fn threaded_napi_receives_on_threads_of_its_own(_: Access) {
    let lab = Lab::create(&LabPlan { threaded_napi: true, ..LabPlan::default() }).unwrap();
    let napis = lab.rx().napis().unwrap();
    for napi in &napis {
        let name = fs::read_to_string(format!("/proc/{}/comm", napi.thread.unwrap())).unwrap();
        assert_eq!(name, format!("napi/lab-rx-{}\n", napi.id));
    }
    let before: u64 = napis.iter().map(times_woken).sum();
    let [source, target] = [address(lab.tx(), 0, 0), address(lab.rx(), 0, 0)];
    exchange(&bind(lab.tx(), source), &bind(lab.rx(), target), 100);
    assert!(napis.iter().map(times_woken).sum::<u64>() > before, "no thread has run");
    wait_for("the packets to be counted with NAPI", || {
        let counters = lab.rx().driver_statistics().unwrap();
        let by_napi =
            counters.iter().filter(|(name, _)| name.ends_with("_xdp_packets") && name.starts_with("rx_"));
        by_napi.map(|(_, packets)| packets).sum::<u64>() == 100
    });
}

fn napi_threads_are_placed_by_root_and_refused_to_others(access: Access) {
    let plan = LabPlan { threaded_napi: true, queues: 3, napi_cpus: vec![0], ..LabPlan::default() };
    match (access, Lab::create(&plan)) {
        (Access::Privileged, lab) => {
            for napi in lab.unwrap().rx().napis().unwrap() {
                assert_eq!(status(&napi, "Cpus_allowed_list"), "0");
            }
            let error = Lab::create(&LabPlan { napi_cpus: vec![1023], ..plan }).unwrap_err();
            assert_eq!(error.to_string(), "cannot place a NAPI thread on CPU 1023");
        }
        (Access::UserNamespace, lab) => {
            let LabError::PinNapi { cpu: 0, source } = lab.unwrap_err() else { panic!("another error") };
            assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}

fn two_labs_at_once_do_not_meet(_: Access) {
    let [one, other] = [(); 2].map(|()| Lab::create(&LabPlan::default()).unwrap());
    let [source, target] = [address(one.tx(), 0, 0), address(one.rx(), 0, 0)];
    // The same address and port in both.
    let elsewhere = bind(other.rx(), target);
    let here = bind_port(one.rx(), SocketAddr::new(target, elsewhere.local_addr().unwrap().port()));
    exchange(&bind(one.tx(), source), &here, 100);
    assert_eq!((stats(one.rx()).rx_packets, stats(other.rx()).rx_packets), (100, 0));
    let [a, b] = [one.tx(), other.tx()].map(|side| side.namespace().cookie().unwrap());
    assert_ne!(a, b);
}

fn two_hundred_labs_leave_nothing_behind(_: Access) {
    let count = |path: &str| fs::read_dir(path).unwrap().count();
    let (descriptors, threads, links) = (count("/proc/self/fd"), count("/proc/self/task"), links_here());
    let plan = LabPlan { threaded_napi: true, ..LabPlan::default() };
    let mut kernel_threads = Vec::new();
    for _ in 0..200 {
        kernel_threads.extend(Lab::create(&plan).unwrap().rx().napis().unwrap());
    }
    assert_eq!(count("/proc/self/fd"), descriptors);
    assert_eq!(links_here(), links);
    wait_for("finished threads to end", || count("/proc/self/task") == threads);
    // The kernel ends them with the interface, and the interface with its namespace.
    wait_for("the namespaces to end", || !kernel_threads.iter().any(still_runs));
}

fn the_caller_stays_in_its_namespace(_: Access) {
    let here = || NetNs::current().unwrap().inode().unwrap();
    let before = here();
    let lab = Lab::create(&LabPlan::default()).unwrap();
    let inside = lab.tx().run(here).unwrap();
    lab.rx().net_counters().unwrap();
    assert_eq!(here(), before);
    assert_eq!(inside, lab.tx().namespace().inode().unwrap());
    assert_ne!(inside, before);
}

fn a_lab_is_used_from_many_threads(_: Access) {
    let lab = &Lab::create(&LabPlan::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(stats(lab.rx()).rx_packets, 0)));
        }
    });
}

fn an_invalid_plan_is_refused_with_every_reason(_: Access) {
    let error = Lab::create(&LabPlan { queues: 0, gso: true, ..LabPlan::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid plan of a lab: queues of a lab must be 1 to 4096, not 0; \
         gso needs tx-checksum: the kernel allows segmentation only with checksum offload"
    );
}

/// The address number `index` of IPv4 (0) or IPv6 (1).
fn address(side: &Side, family: usize, index: usize) -> IpAddr {
    [IpAddr::V4(side.ipv4()[index]), IpAddr::V6(side.ipv6()[index])][family]
}

fn bind(side: &Side, address: IpAddr) -> UdpSocket {
    bind_port(side, SocketAddr::new(address, 0))
}

fn bind_port(side: &Side, address: SocketAddr) -> UdpSocket {
    side.run(|| UdpSocket::bind(address)).unwrap().unwrap()
}

fn receive_for(at_most: Duration, socket: &UdpSocket) -> io::Result<usize> {
    socket.set_read_timeout(Some(at_most))?;
    socket.recv(&mut [0; 64])
}

/// Sends datagrams one at a time, each after the previous one has arrived.
fn exchange(source: &UdpSocket, target: &UdpSocket, datagrams: usize) {
    source.connect(target.local_addr().unwrap()).unwrap();
    for _ in 0..datagrams {
        source.send(&[7; 32]).unwrap();
        assert_eq!(receive_for(Duration::from_secs(10), target).unwrap(), 32);
    }
}

/// Sends a megabyte by TCP; returns the mean length of the sender's frames, acknowledgements included.
fn stream_a_megabyte(lab: &Lab) -> u64 {
    let listener = lab.rx().run(|| TcpListener::bind((lab.rx().ipv4()[0], 0))).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    let mut sender = lab.tx().run(|| TcpStream::connect(target)).unwrap().unwrap();
    let receiver = std::thread::spawn(move || io::copy(&mut listener.accept().unwrap().0, &mut io::sink()));
    sender.write_all(&[0; 1 << 20]).unwrap();
    drop(sender);
    assert_eq!(receiver.join().unwrap().unwrap(), 1 << 20);
    let stats = stats(lab.tx());
    stats.tx_bytes.div_ceil(stats.tx_packets)
}

fn stats(side: &Side) -> sys::rtnetlink::LinkStats {
    side.link().unwrap().stats
}

fn links_here() -> Vec<String> {
    RouteSocket::open().unwrap().links().unwrap().into_iter().map(|link| link.name).collect()
}

fn status(napi: &Napi, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", napi.thread.unwrap())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

fn times_woken(napi: &Napi) -> u64 {
    status(napi, "voluntary_ctxt_switches").parse().unwrap()
}

/// Whether the thread is still there; its id alone may already be reused.
fn still_runs(napi: &Napi) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", napi.thread.unwrap()));
    name.is_ok_and(|name| name.trim_end() == format!("napi/lab-rx-{}", napi.id))
}
