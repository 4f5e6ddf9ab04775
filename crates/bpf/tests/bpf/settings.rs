//! Programs load with every setting: the kernel does not verify disabled code, so each setting makes
//! another program of the same code.

use std::fs;

use bpf::{
    BpfError, Count, CountOptions, DropFlood, DropOptions, Drops, FunctionNames, Measure, MeasureOptions,
    Mode, ProbeAction, ProbeTime, Redirect, RedirectOptions, SocketLayer, SocketQueues, SocketQueuesOptions,
    SoftirqWatch, Stamping, WayBack,
};
use lab::LabPlan;
use sys::{btf::KernelTypes, profile::KernelSymbols};

use crate::support::lab;

const BOTH: [bool; 2] = [false, true];

#[test]
fn what_measures_loads_in_every_setting() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    for (times, by_poll, probe_time, returns) in [
        (false, false, ProbeTime::ByNumbers, Some(WayBack::Redirect)),
        (true, false, ProbeTime::ByNumbers, None),
        (true, false, ProbeTime::Micros, Some(WayBack::Tx)),
        (true, true, ProbeTime::Nanos, Some(WayBack::Redirect)),
        (true, true, ProbeTime::ByNumbers, None),
    ] {
        let options = MeasureOptions {
            verdict: ProbeAction::Drop,
            streams: 1 << 16,
            tag_inverse: 1,
            queues: 1,
            times,
            probe_time,
            returns,
            by_poll,
            work_ns: 0,
            is_scripted: false,
        };
        let attached = side.run(|| Measure::attach(side.index(), Mode::Native, &options, 0));
        attached.unwrap().unwrap_or_else(|error| panic!("{options:?}: {error:?}"));
    }
}

#[test]
fn the_kernel_names_its_functions_as_its_table_does() {
    let Some(_lab) = lab(&LabPlan::default()) else { return };
    let table = fs::read_to_string("/proc/kallsyms").unwrap();
    let Some(symbols) = KernelSymbols::of_text(&table) else {
        return testing::skip("the kernel hides the addresses of its functions");
    };
    let mut names = FunctionNames::load().unwrap();
    for wanted in ["ip_rcv", "udp_rcv", "netif_receive_skb", "kfree_skb_list_reason", "veth_xmit"] {
        let of = |line: &&str| line.split_ascii_whitespace().nth(2) == Some(wanted);
        let line = table.lines().find(of).unwrap_or_else(|| panic!("{wanted} is in the table"));
        let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        for address in [start, start + 4] {
            assert_eq!(symbols.name(address), Some(wanted));
            assert_eq!(names.name(address).unwrap().as_deref(), Some(wanted), "{line}");
        }
    }
    assert_eq!((names.name(0).unwrap(), names.name(0x1000).unwrap()), (None, None));
}

#[test]
fn what_redirects_loads_in_every_setting() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    for stamps in [None, Some(Stamping::Packet), Some(Stamping::Poll)] {
        for (dst_port, only_probes) in [(0, false), (0, true), (9, false), (9, true)] {
            let options = RedirectOptions { dst_port, only_probes, stamps, queues: 2 };
            let attached = side.run(|| Redirect::attach(side.index(), Mode::Native, &options));
            attached.unwrap().unwrap_or_else(|error| panic!("{options:?}: {error:?}"));
        }
    }
}

#[test]
fn a_card_s_stamps_are_told_where_kernel_and_driver_know_how() {
    const LOOPBACK: u32 = 1;
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    let options = RedirectOptions { stamps: Some(Stamping::Card), ..RedirectOptions::default() };
    let attach = |interface, mode| side.run(|| Redirect::attach(interface, mode, &options)).unwrap();
    let (of_veth, of_loopback) = (attach(side.index(), Mode::Native), attach(LOOPBACK, Mode::Native));
    let told = of_loopback.unwrap_err().to_string();
    match KernelTypes::read().unwrap().function("bpf_xdp_metadata_rx_timestamp") {
        Some(_) => {
            drop(of_veth.unwrap());
            // After the driver they are unknown.
            let generic = attach(side.index(), Mode::Generic).unwrap_err();
            assert_eq!(generic.to_string(), "cannot attach XDP to lab-rx (generic)");
            assert_eq!(told, "passing the card's timestamps to an XDP program is not supported by lo");
        }
        None => {
            assert!(matches!(of_veth, Err(BpfError::Unsupported { .. })), "{:?}", of_veth.err());
            let here =
                "passing the card's timestamps to an XDP program is not supported here (since Linux 6.3)";
            assert_eq!(told, here);
        }
    }
}

#[test]
fn what_counts_loads_in_every_setting() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    for (queues, work_ns) in [(0, 0), (2, 0), (2, 100)] {
        let options = CountOptions { streams: 1, queues, work_ns, ..CountOptions::default() };
        let attached = side.run(|| Count::attach(side.index(), Mode::Native, &options));
        attached.unwrap().unwrap_or_else(|error| panic!("{options:?}: {error:?}"));
    }
    for layer in [SocketLayer::Datagram, SocketLayer::Frame] {
        for times in BOTH {
            let options = SocketQueuesOptions { layer, queues: 2, times };
            SocketQueues::load(&options).unwrap_or_else(|error| panic!("{options:?}: {error:?}"));
        }
    }
    for (only_udp, headers) in BOTH.into_iter().flat_map(|udp| BOTH.map(|headers| (udp, headers))) {
        let options = DropOptions { only_udp, headers, ..DropOptions::default() };
        Drops::attach(&options).unwrap_or_else(|error| panic!("{options:?}: {error:?}"));
    }
    let flood = "10.0.0.1:9".parse().unwrap();
    side.run(|| DropFlood::attach(side.index(), Mode::Native, flood)).unwrap().unwrap();
    SoftirqWatch::start().unwrap();
}
