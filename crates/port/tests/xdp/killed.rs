//! Whoever is killed leaves nothing attached; whoever lacks rights is told which.

use std::{
    env,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use lab::{LabPlan, Side};
use port::{CountOptions, XdpMode, XdpRx, XdpTx, XdpTxOptions, probe_xdp};
use sys::rtnetlink::RouteSocket;
use wire::FrameSpec;

use crate::support::{lab, napis, template, wait_for};

/// The user without any rights.
const NOBODY: u32 = 65534;
const ROLE: &str = "XDP_TEST_ROLE";
const INTERFACE: &str = "XDP_TEST_INTERFACE";

/// This executable again, in a role of [`in_another_process`], in a side's namespace.
fn again(role: &str, interface: u32) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "killed::in_another_process", "--nocapture"]);
    command.env(ROLE, role).env(INTERFACE, interface.to_string()).stdout(Stdio::piped());
    command
}

/// What the other processes do; nothing when the harness runs it.
#[test]
fn in_another_process() {
    let Ok(role) = env::var(ROLE) else { return };
    let interface = env::var(INTERFACE).unwrap().parse().unwrap();
    match role.as_str() {
        "send" => {
            let template = template(&FrameSpec::default());
            let mut tx = XdpTx::open(template.recipe(), &XdpTxOptions::on(interface)).unwrap();
            println!("\nready");
            // Ends when killed, or with the other end.
            while tx.send(XdpTx::WORTHWHILE_PACKETS, 0).is_ok() {}
        }
        "receive" => {
            let _rx = XdpRx::open(interface, XdpMode::Native, &CountOptions::default()).unwrap();
            println!("\nready");
            thread::sleep(Duration::from_secs(60)); // killed long before
        }
        "ask" => {
            let abilities = probe_xdp(interface);
            for outcome in [abilities.native, abilities.generic, abilities.live_frames] {
                println!("\nsaid: {}", outcome.unwrap_err());
            }
        }
        other => panic!("no role {other}"),
    }
}

fn start(side: &Side, role: &str) -> Child {
    let mut child = side.run(|| again(role, side.index()).spawn()).unwrap().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the {role}ing process failed");
    child
}

fn programs(side: &Side) -> Vec<u32> {
    side.run(|| RouteSocket::open().unwrap().xdp_programs(side.index()).unwrap()).unwrap()
}

#[test]
fn a_kill_under_load_leaves_no_program() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    for wait_ms in [0, 3, 17, 40] {
        let mut receiver = start(lab.rx(), "receive");
        let mut sender = start(lab.tx(), "send");
        let before = lab.rx().link().unwrap().stats.rx_packets;
        wait_for("packets", || lab.rx().link().unwrap().stats.rx_packets > before);
        assert_eq!(programs(lab.rx()).len(), 1);
        thread::sleep(Duration::from_millis(wait_ms));
        receiver.kill().unwrap();
        sender.kill().unwrap();
        receiver.wait().unwrap();
        sender.wait().unwrap();
        for side in [lab.rx(), lab.tx()] {
            wait_for("programs to go", || programs(side).is_empty());
        }
        assert_eq!(napis(lab.rx()), []);
    }
}

#[test]
fn without_rights_the_capability_is_named() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    let child = side.run(|| again("ask", side.index()).uid(NOBODY).gid(NOBODY).output()).unwrap().unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    let said: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("said: ")).collect();
    let missing =
        |program| format!("cannot load the BPF program '{program}': it needs CAP_BPF over the whole machine");
    assert_eq!(said, [missing("pass"), missing("pass"), missing("pass")], "{text}");
}
