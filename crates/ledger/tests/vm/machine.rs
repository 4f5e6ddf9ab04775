//! Ways to lose a packet that take a kernel's modules or change its settings, a row each.

use std::{env, fs, process::Command, time::Duration};

use lab::VmPlan;

use crate::{
    scene::run,
    ways::{
        At::{Receiver, Sender},
        Listener::{self, Nobody},
        REST, SENT, Traffic, Way, way,
    },
};

/// A row, in a machine whose first namespace is set by scripts before and after it.
struct MachineWay {
    before: &'static str,
    way: Way,
    after: &'static str,
}

/// A kind of link that guests unpacked before it was added to the list of modules do not have.
const MAY_BE_MISSING: [&str; 2] = ["vrf", "ipvlan"];

const TO_4: Traffic = Traffic::Udp("198.19.0.1:4321", 20);
const TO_6: Traffic = Traffic::Udp("[2001:2:0:1::1]:4321", 20);
const AT_4: &str = "198.19.0.1:4321";
const AT_6: &str = "[2001:2:0:1::1]:4321";

/// A row without a setting of the machine.
fn only(way: Way) -> MachineWay {
    MachineWay { before: "", way, after: "" }
}

const BRIDGE: &str = "ip link add name bridge0 type bridge vlan_filtering 1 mcast_snooping 0
    ip link set bridge0 addrgenmode none; ip link set lab-rx master bridge0; ip link set bridge0 up
    bridge vlan del dev lab-rx vid 1";
/// Another flow holds the only place in the table.
const CONNTRACK: &str = "nft 'add table inet t; add chain inet t i { type filter hook prerouting priority 0; }; add rule inet t i ct state new accept'
    ip link set lo up
    nsenter --net=/proc/1/ns/net sh -c 'echo 1 > /proc/sys/net/netfilter/nf_conntrack_max'
    bash -c 'echo > /dev/udp/127.0.0.1/9'";
const CONNTRACK_AFTER: &str = "echo 65536 > /proc/sys/net/netfilter/nf_conntrack_max";
const VRF: &str = "ip link add name v type vrf table 10; ip link set v up; ip link set lab-rx master v";

#[rustfmt::skip]
fn ways() -> Vec<MachineWay> {
    vec![
        only(way!("netem loses, v4", Sender, tx "tc qdisc add dev lab-tx root netem loss 100%", rx "", Nobody, TO_4, Qdisc SENT)),
        only(way!("netem loses, v6", Sender, tx "tc qdisc add dev lab-tx root netem loss 100%", rx "", Nobody, TO_6, Qdisc SENT)),
        only(way!("netem is full", Sender, tx "tc qdisc add dev lab-tx root netem delay 100s limit 10", rx "", Nobody, TO_4, Qdisc 90)),
        only(way!("a bridge without the VLAN, v4", Receiver, tx "", rx BRIDGE, Nobody, TO_4, OtherHost SENT)),
        only(way!("a bridge without the VLAN, v6", Receiver, tx "", rx BRIDGE, Nobody, TO_6, OtherHost SENT)),
        MachineWay { before: "",
            way: way!("conntrack is full, v4", Receiver, tx "", rx CONNTRACK, Listener::Udp(AT_4), TO_4, Firewall SENT),
            after: CONNTRACK_AFTER },
        MachineWay { before: "",
            way: way!("conntrack is full, v6", Receiver, tx "", rx CONNTRACK, Listener::Udp(AT_6), TO_6, Firewall SENT),
            after: CONNTRACK_AFTER },
        MachineWay { before: "echo 16 > /proc/sys/net/core/netdev_max_backlog",
            way: way!("a small backlog", Receiver, tx "", rx "", Listener::Udp(AT_4), Traffic::Segmented(100), Backlog REST),
            after: "echo 1000 > /proc/sys/net/core/netdev_max_backlog" },
        // Named by the kernel's function alone.
        only(way!("the peer is down", Sender, tx "", rx "ip link set lab-rx down", Nobody, TO_4, PeerRing SENT)),
        only(way!("another VRF's socket, v4", Receiver, tx "", rx VRF, Listener::Udp(AT_4), TO_4, NoSocket SENT)),
        only(way!("a group over ipvlan in L3 mode", Sender,
            tx "ip link add link lab-tx name v type ipvlan mode l3
                ip link set v addrgenmode none; ip link set v up
                ip address add 192.0.2.1/24 dev v; ip route add 239.0.0.0/8 dev v",
            rx "", Nobody, Traffic::Udp("239.1.2.3:9", 20), DriverTx SENT)),
    ]
}

/// Set in the guest.
const GUEST: &str = "LEDGER_TEST_GUEST";
const TEST: &str = "machine::each_way_that_needs_a_machine_is_named_once";

#[test]
fn each_way_that_needs_a_machine_is_named_once() {
    if env::var_os(GUEST).is_none() {
        let plan =
            VmPlan { cpus: 2, memory_mib: 1024, time_limit: Duration::from_secs(180), ..VmPlan::default() };
        let Some(vm) = testing::machine(&plan) else { return };
        let exe = env::current_exe().unwrap();
        // Once more where the kernel shows its functions' addresses to nobody.
        let script = format!(
            "for hidden in 0 2; do
                echo $hidden > /proc/sys/kernel/kptr_restrict
                {GUEST}=1 RUST_BACKTRACE=0 {} --exact {TEST} --nocapture 2>&1 || exit 1
            done",
            exe.display()
        );
        println!("{}", testing::run_in(&vm, &script));
        return;
    }
    let hidden = fs::read_to_string("/proc/sys/kernel/kptr_restrict").unwrap();
    println!("kernel.kptr_restrict: {}", hidden.trim());
    let shell = |script: &str| run(Command::new("sh").args(["-ec", script]));
    let mut faults = Vec::new();
    let mut rows = 0;
    for MachineWay { before, way, after } in ways() {
        let is_kind =
            |kind: &&&str| [way.tx, way.rx].iter().any(|script| script.contains(&format!("type {kind} ")));
        if let Some(kind) = MAY_BE_MISSING.iter().find(is_kind).filter(|kind| !is_there(kind)) {
            println!(
                "not run: {}: this guest has no module {kind}; remove its folder in ~/.cache/linerate/vm",
                way.name
            );
            continue;
        }
        shell(before);
        faults.extend(way.faults());
        shell(after);
        rows += 1;
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(rows >= ways().len() - MAY_BE_MISSING.len());
}

/// Whether the kernel has links of this kind.
fn is_there(kind: &str) -> bool {
    let more = if kind == "vrf" { "table 10" } else { "link lo" };
    let add = if kind == "vrf" {
        format!("ip link add name probe type {kind} {more}")
    } else {
        format!("ip link add {more} name probe type {kind}")
    };
    let added = Command::new("sh").args(["-c", &add]).output().unwrap().status.success();
    if added {
        run(Command::new("ip").args(["link", "del", "probe"]));
    }
    added
}
