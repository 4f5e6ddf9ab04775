//! Functions that the tests' scripts call inside the guest.

use std::{
    env, fs,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use ledger::HostCounters;
use port::{
    CardAccess, CountOptions, PacketTx, PacketTxOptions, PciOptions, PciRx, PciTx, ProbeAction, RxPort,
    TxPort, Wait, XdpMode, XdpRx,
};
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
        ["wraps", from, to, access] => wraps(from, to, access.parse().unwrap()),
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

/// Frames of many sizes from one card's ring to another's, a thousand times around both rings, in order and whole; the sending
/// card's own count agrees.
fn wraps(from: &str, to: &str, access: CardAccess) {
    const SLOTS: u32 = 16;
    const WRAPS: u32 = 1000;
    let bytes = |number: u32| 60 + number as usize % 1900;
    sys::pci::set_guard_program(crate::support::LINERATE);
    let mac = RouteSocket::open().unwrap().link_by_name(to).unwrap().mac.unwrap();
    let options = |interface| PciOptions {
        take_device: true,
        access,
        interrupts: access == CardAccess::Vfio,
        ring_slots: SLOTS,
        tail_batch: 1,
        ..PciOptions::on(interface)
    };
    let mut rx = PciRx::open(&options(to)).unwrap();
    let mut tx = PciTx::open(&options(from), 2000).unwrap();
    tx.prime(|slot| slot[..6].copy_from_slice(&mac));
    let (mut sent, mut next, began) = (0u32, 0u32, Instant::now());
    while next < SLOTS * WRAPS {
        // Fewer than the receiver always has descriptors for.
        let fill = |slot: &mut [u8]| {
            slot[14..18].copy_from_slice(&sent.to_be_bytes());
            sent += 1;
            bytes(sent - 1)
        };
        tx.send(1 + next as usize % 7, fill).unwrap();
        while next < sent {
            rx.recv(Wait::Block, |received| {
                let number = u32::from_be_bytes(received.bytes[14..18].try_into().unwrap());
                assert_eq!((number, received.bytes.len()), (next, bytes(next)));
                next += 1;
            })
            .unwrap();
            assert!(began.elapsed() < Duration::from_secs(60), "frame {next} of {sent} did not arrive");
        }
    }
    assert_eq!(tx.finish().unwrap(), u64::from(sent), "the card's count of frames sent");
    assert_eq!(rx.lost().unwrap(), 0);
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
pub(crate) const REPEATS: usize = 15;
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
