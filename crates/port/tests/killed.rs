//! A process killed under load leaves no program, no changed NAPI setting, no promiscuous interface and no busy queue.
//! The interfaces are in namespaces of the test, and outlive the killed processes. As root; otherwise skipped
//! loudly.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabPlan, Side};
use port::{
    BusyPoll, CountOptions, PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, PortError, RxPort, TxPort,
    UdpTxOptions, UringRx, UringRxOptions, UringTx, UringTxOptions, Wait, XdpMode, XdpRx, XdpTx,
    XdpTxOptions, XskRx, XskRxOptions, XskTx, XskTxOptions,
};
use sys::{ethtool::Feature, netdev::Napi, rtnetlink::RouteSocket, rtnetlink::flag, sysfs::Sysfs};
use testing::wait_for;
use wire::{FrameSpec, Template};

/// The state of an interface as seen from outside.
#[derive(Debug, PartialEq)]
struct Look {
    programs: Vec<u32>,
    is_promiscuous: bool,
    flags: u32,
    settings: Vec<String>,
    features: Vec<Feature>,
    napis: Vec<Napi>,
}

const SETTINGS: [&str; 2] = ["napi_defer_hard_irqs", "gro_flush_timeout"];
const ROLE: &str = "KILLED_TEST_ROLE";
const INTERFACE: &str = "KILLED_TEST_INTERFACE";
/// The address that sockets send to and receive on.
const PEER: &str = "KILLED_TEST_PEER";
const PORT: u16 = 4321;
const PATIENCE: Duration = Duration::from_secs(20);
const BUSILY: Option<BusyPoll> = Some(BusyPoll::USUAL);

fn lab() -> Option<Lab> {
    testing::root_lab(&LabPlan::default(), "XDP needs root")
}

/// The work of the other processes; nothing under the harness.
#[test]
fn in_another_process() {
    let Ok(role) = env::var(ROLE) else { return };
    let name = env::var(INTERFACE).unwrap();
    let index = RouteSocket::open().unwrap().link_by_name(&name).unwrap().index;
    let template = Template::new(&FrameSpec::default()).unwrap();
    let ready = || println!("\nready");
    match role.as_str() {
        "send packet" => {
            let options = PacketTxOptions::on(index, template.max_frame_len());
            send(PacketTx::open(&options).unwrap(), &template, ready)
        }
        "send xsk" => {
            let options = XskTxOptions { busy_poll: BUSILY, ..XskTxOptions::on(&name, 0) };
            send(XskTx::open(&options).unwrap(), &template, ready)
        }
        "send xdp" => {
            let mut tx = XdpTx::open(template.recipe(), &XdpTxOptions::on(index)).unwrap();
            ready();
            // Ends when killed, or with the other end.
            while tx.send(tx.worthwhile_packets(), 0).is_ok() {}
        }
        "send uring" => {
            let peer = env::var(PEER).unwrap().parse().unwrap();
            let sockets = UdpTxOptions::to(peer, template.max_payload_len());
            let mut tx = UringTx::open(&UringTxOptions { sockets, sqpoll: true }).unwrap();
            ready();
            while tx.send(usize::MAX, |slot| slot.len()).is_ok() {}
        }
        "receive uring" => {
            let options = UringRxOptions::at(env::var(PEER).unwrap().parse().unwrap());
            receive(UringRx::open(&options).unwrap(), ready)
        }
        "receive packet" => receive(PacketRx::open(&PacketRxOptions::on(index)).unwrap(), ready),
        "receive xsk" => {
            let options = XskRxOptions { busy_poll: BUSILY, ..XskRxOptions::on(&name, 0) };
            receive(XskRx::open(&options).unwrap().remove(0), ready)
        }
        "receive xdp" => {
            let rx = XdpRx::open(index, XdpMode::Native, &CountOptions::default()).unwrap();
            ready();
            while rx.read().is_ok() {}
        }
        other => panic!("no role {other}"),
    }
}

fn send(mut tx: impl TxPort, template: &Template, ready: impl Fn()) {
    tx.prime(|slot| template.prime_frame(slot));
    ready();
    while tx.send(usize::MAX, |slot| template.restamp_frame(slot, 0, 0)).is_ok() {}
}

fn receive(mut rx: impl RxPort, ready: impl Fn()) {
    ready();
    while rx.recv(Wait::Block, |_| ()).is_ok() {}
}

/// This executable again, in a side's namespace.
fn start(side: &Side, role: &str, peer: &Side) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "in_another_process", "--nocapture"]);
    command.env(ROLE, role).env(INTERFACE, side.interface());
    command.env(PEER, format!("{}:{PORT}", peer.ipv4()[0])).stdout(Stdio::piped());
    let mut child = side.run(|| command.spawn()).unwrap().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the process that should {role} failed");
    child
}

fn settings(side: &Side) -> Vec<String> {
    let sysfs = Sysfs::of(side.namespace()).unwrap();
    let read = |setting| sysfs.read(&format!("class/net/{}/{setting}", side.interface())).unwrap();
    SETTINGS.into_iter().map(read).collect()
}

fn look(side: &Side) -> Look {
    let programs = || RouteSocket::open().unwrap().xdp_programs(side.index()).unwrap();
    let flags = side.link().unwrap().flags;
    Look {
        programs: side.run(programs).unwrap(),
        is_promiscuous: flags & flag::PROMISCUOUS != 0,
        flags,
        settings: settings(side),
        features: side.features().unwrap(),
        napis: side.napis().unwrap_or_default(),
    }
}

/// Kills sender and receiver at random moments, and checks both interfaces.
fn kill_under_load(engine: &str) {
    const ROUNDS: u32 = 4;
    let Some(lab) = lab() else { return };
    let seed = std::process::id();
    let before = [lab.tx(), lab.rx()].map(look);
    for round in 0..ROUNDS {
        let wait_ms = u64::from(seed.wrapping_mul(2_654_435_761).rotate_left(round * 7) % 50);
        let mut receiver = start(lab.rx(), &format!("receive {engine}"), lab.rx());
        let mut sender = start(lab.tx(), &format!("send {engine}"), lab.rx());
        let sent = lab.tx().link().unwrap().stats.tx_packets;
        wait_for("packets", || lab.tx().link().unwrap().stats.tx_packets > sent + 1000);
        if ["xsk", "xdp"].contains(&engine) {
            assert_eq!(look(lab.rx()).programs.len(), 1, "{engine}: the test would show nothing");
        }
        if engine == "xsk" {
            let changed = [lab.tx(), lab.rx()].map(settings);
            assert_eq!(changed, [["2", "200000"], ["2", "200000"]], "the test would show nothing");
        }
        thread::sleep(Duration::from_millis(wait_ms)); // the moment of the kill
        receiver.kill().unwrap();
        sender.kill().unwrap();
        receiver.wait().unwrap();
        sender.wait().unwrap();
        let mut after = [lab.tx(), lab.rx()].map(look);
        let deadline = Instant::now() + PATIENCE;
        while after != before && Instant::now() < deadline {
            after = [lab.tx(), lab.rx()].map(look);
        }
        assert_eq!(after, before, "{engine}, round {round}, seed {seed}, killed after {wait_ms} ms");
        // The kernel tears rings down a moment after their process ends; then the port is free again.
        if engine == "uring" {
            let options = UringRxOptions::at((lab.rx().ipv4()[0], PORT).into());
            wait_for("the port", || lab.rx().run(|| UringRx::open(&options).is_ok()).unwrap());
        }
    }
    // The queues can be opened again, with everything that belongs to them.
    if engine == "xsk" {
        let options = XskRxOptions { busy_poll: BUSILY, ..XskRxOptions::on(lab.rx().interface(), 0) };
        lab.rx().run(|| XskRx::open(&options)).unwrap().unwrap();
        assert_eq!(look(lab.rx()), before[1], "closed in peace");
    }
}

#[test]
fn a_kill_of_packet_sockets_leaves_nothing() {
    kill_under_load("packet");
}

#[test]
fn a_kill_of_io_uring_leaves_nothing() {
    kill_under_load("uring");
}

#[test]
fn a_kill_of_af_xdp_leaves_nothing() {
    kill_under_load("xsk");
}

#[test]
fn a_kill_of_xdp_leaves_nothing() {
    kill_under_load("xdp");
}

#[test]
fn who_polls_what_another_process_polls_is_told() {
    let Some(lab) = lab() else { return };
    let before = settings(lab.tx());
    let mut other = start(lab.tx(), "send xsk", lab.rx());
    let options = XskTxOptions { busy_poll: BUSILY, ..XskTxOptions::on(lab.tx().interface(), 1) };
    let open = || lab.tx().run(|| XskTx::open(&options)).unwrap();
    let error = open().err().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot set napi_defer_hard_irqs of lab-tx: another process has set it for its own busy polling"
    );
    assert!(matches!(error, PortError::NapiInUse { .. }));
    other.kill().unwrap();
    other.wait().unwrap();
    wait_for("the guard", || settings(lab.tx()) == before);
    // Two ports of one process share the settings.
    let mut first = None;
    wait_for("the lock", || open().map(|port| first = Some(port)).is_ok());
    let second = XskTxOptions { queue: 0, ..options.clone() };
    let second = lab.tx().run(|| XskTx::open(&second)).unwrap().unwrap();
    drop(first);
    assert_eq!(settings(lab.tx()), ["2", "200000"]);
    drop(second);
    assert_eq!(settings(lab.tx()), before);
}
