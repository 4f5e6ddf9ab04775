//! Keeps programs for `BPF_PROG_RUN` where the kernel finds them at once.
//!
//! The kernel calls XDP programs through one list, the dispatcher (`kernel/bpf/dispatcher.c`). `BPF_PROG_RUN` puts
//! its program there and removes it again, and waits for an RCU grace period each time: some 30 ms per call in
//! which nothing is sent. A program that is natively attached anywhere is in the list already, and a call costs only
//! its packets (`make bench-xdp` shows both). So it is attached where no packet ever arrives.

use std::os::fd::AsFd;

use sys::{
    netns::NetNs,
    rtnetlink::{RouteSocket, VethEnd, VethPair},
};

use crate::{mode::Mode, program::Program};

/// A network namespace of the program's own, with a veth pair that stays down; closing the descriptor removes it.
#[derive(Debug)]
pub(crate) struct Parking {
    _namespace: NetNs,
}

impl Parking {
    /// Parks a program. `None` without CAP_SYS_ADMIN: then every run is slower.
    pub(crate) fn of(program: &mut Program) -> Option<Self> {
        const NAME: &str = "parked";
        let namespace = NetNs::create().ok()?;
        let attach = || {
            let mut route = RouteSocket::open().ok()?;
            let end = |name, last| VethEnd { name, mac: [2, 0, 0, 0, 0, last] };
            let (near, far) = (end(NAME, 1), end("peer", 2));
            let pair = VethPair { near, far, far_namespace: namespace.as_fd(), queues: 1, mtu: 1500 };
            route.create_veth(&pair).ok()?;
            let index = route.link_by_name(NAME).ok()?.index;
            program.attach(index, Mode::Native).ok()
        };
        namespace.run(attach).ok()??;
        Some(Self { _namespace: namespace })
    }
}
