//! Attaching to the lab's interfaces.

use std::os::fd::AsFd;

use bpf::{
    BpfError, Mode, Pass, QueuePackets, Redirect, RedirectOptions, SocketLayer, SocketQueues,
    SocketQueuesOptions,
};
use lab::{LabPlan, Side};
use sys::rtnetlink::RouteSocket;

use crate::support::lab;

fn programs(side: &Side) -> Vec<u32> {
    side.run(|| RouteSocket::open().unwrap().xdp_programs(side.index()).unwrap()).unwrap()
}

#[test]
fn a_program_goes_away_with_its_value() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    for mode in [Mode::Native, Mode::Generic] {
        let side = lab.rx();
        let pass = side.run(|| Pass::attach(side.index(), mode)).unwrap().unwrap();
        assert_eq!(programs(side).len(), 1, "{mode}");
        drop(pass);
        assert_eq!(programs(side), [0u32; 0], "{mode}");
    }
}

#[test]
fn a_foreign_program_is_refused_by_name_and_id() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    let attach =
        |mode| side.run(|| Redirect::attach(side.index(), mode, &RedirectOptions::default())).unwrap();
    let _pass = side.run(|| Pass::attach(side.index(), Mode::Native)).unwrap().unwrap();
    let [foreign] = programs(side)[..] else { panic!("one program") };
    for mode in [Mode::Native, Mode::Generic] {
        let error = attach(mode).unwrap_err();
        assert!(matches!(error, BpfError::InUse { id, .. } if id == foreign), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!("cannot attach to lab-rx: the XDP program 'pass' (id {foreign}) is already there")
        );
    }
    assert_eq!(programs(side), [foreign]);
}

#[test]
fn an_interface_that_does_not_exist_is_named_by_its_number() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let error = lab.rx().run(|| Pass::attach(4_000_000, Mode::Native)).unwrap().unwrap_err();
    assert_eq!(error.to_string(), "cannot attach XDP to interface number 4000000 (native)");
}

#[test]
fn only_af_xdp_sockets_have_a_place_in_a_slot() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    let options = RedirectOptions { queues: 2, ..RedirectOptions::default() };
    let mut redirect = side.run(|| Redirect::attach(side.index(), Mode::Native, &options)).unwrap().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = redirect.insert(1, &file.as_fd()).unwrap_err();
    assert_eq!(error.to_string(), "cannot redirect queue 1 to an AF_XDP socket");
    assert!(redirect.insert(2, &file).is_err());
}

#[test]
fn only_sockets_packets_are_told_apart_by_queue() {
    let Some(_) = lab(&LabPlan::default()) else { return };
    const ENOTSOCK: i32 = 88;
    let options = SocketQueuesOptions { layer: SocketLayer::Datagram, queues: 2, times: false };
    let mut queues = SocketQueues::load(&options).unwrap();
    let error = queues.watch(std::fs::File::open("/dev/null").unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "cannot attach the BPF program 'queues_seen' to a socket");
    assert_eq!(error.os_error(), Some(ENOTSOCK));
    assert_eq!(queues.read().unwrap(), (QueuePackets::default(), vec![QueuePackets::default(); 2]));
}
