//! Two machines whose packets take VLANs, a bond and a router, and lose some at the receiver's driver and backlog.

use std::{fs, time::Duration};

use lab::{NicModel, VmHosts, VmPlan, VmStatus};
use serde_json::Value;

use crate::hosts::{TwoHosts, assert_closed, lines};

/// A VLAN, a bond with a VLAN, and a VLAN on the card whose ring overflows.
const LINKS: &str = r#"
links() {
    for wire in 1 4; do
        until [ "$(cat /sys/class/net/wire$wire/carrier)" = 1 ]; do sleep 0.1; done
    done
    ip link add link wire1 name wire1.5 type vlan id 5 || exit 3
    ip address add 198.19.5.$1/24 dev wire1.5
    ip address add fd05::$1/64 dev wire1.5 nodad
    ip link set wire1.5 up
    ip link add link wire4 name wire4.8 type vlan id 8
    ip address add 198.19.8.$1/24 dev wire4.8
    ip link set wire4.8 up
    ip link add bond1 type bond mode active-backup miimon 50 || exit 4
    for port in wire2 wire3; do
        ip address flush dev $port
        ip link set $port down
        ip link set $port master bond1
    done
    ip link set bond1 up
    ip address add 198.19.6.$1/24 dev bond1
    ip link add link bond1 name bond1.7 type vlan id 7
    ip address add 198.19.7.$1/24 dev bond1.7
    ip link set bond1.7 up
    by wire2
}
by() {
    until [ "$(cat /sys/class/net/bond1/bonding/active_slave)" = $1 ]; do
        echo $1 >/sys/class/net/bond1/bonding/active_slave 2>/dev/null
        sleep 0.1
    done
}
reached() {
    until [ -f /share/$1 ]; do sleep 0.1; done
}
"#;

const SENDER: &str = r#"
links 1
ip route add 198.19.9.0/24 via 198.19.5.2
towards() {
    linerate bench --peer $2 --tx $3 --rx $4 --trials 1 --duration 100ms --rate 500pps --no-save --json \
        >/share/$1.json || [ $? = 1 ] || exit 5
}
towards vlan 198.19.5.2 packet,xdp packet
towards vlan-v6 fd05::2 packet udp
towards router 198.19.9.2 xdp udp
towards bond 198.19.6.2 packet,xsk udp
by wire3
touch /share/by-wire3
reached is-by-wire3
towards bond-vlan 198.19.7.2 packet udp
linerate send 198.19.8.2 --engine packet --count 5000 --no-save --json >/share/ring.json || [ $? = 1 ] || exit 6
touch /share/narrow
reached is-narrow
linerate send 198.18.1.2 --count 3000 --no-save --json >/share/backlog.json || [ $? = 1 ] || exit 7
"#;

const RECEIVER: &str = r#"
links 2
ip address add 198.19.9.2/32 dev lo
linerate nic apply wire4 --set ring.rx=32 >/share/apply.txt 2>&1
{
    reached by-wire3
    by wire3
    touch /share/is-by-wire3
    reached narrow
    for queue in /sys/class/net/wire1/queues/rx-*; do echo 2 >$queue/rps_cpus; done
    echo 1 >/proc/sys/net/core/netdev_max_backlog
    touch /share/is-narrow
} &
linerate recv --no-save --allow-attach --receive-buffer 32000000
"#;

#[test]
fn frames_take_vlans_bonds_and_routers_and_losses_behind_a_vlan_are_the_receivers() {
    let share = tempfile::tempdir().unwrap();
    let plan = VmPlan {
        cpus: 2,
        time_limit: Duration::from_secs(400),
        share: Some(share.path().into()),
        ..VmPlan::default()
    };
    if testing::machine(&plan).is_none() {
        return;
    }
    // Of the emulated cards vmxnet3 counts what it has no descriptor for, in any trial; the others stop the sender or say
    // nothing.
    let cards = [NicModel::Igb, NicModel::Virtio, NicModel::Virtio, NicModel::Vmxnet3];
    let hosts = TwoHosts { hosts: VmHosts::prepare(&plan, &cards).unwrap(), share };
    let [sender, receiver] = hosts.run([&format!("{LINKS}{SENDER}"), &format!("{LINKS}{RECEIVER}")]);
    assert_eq!(
        sender.status,
        VmStatus::Exited(0),
        "{}\n{}\n{}\n{}",
        sender.stdout,
        sender.stderr,
        receiver.stderr,
        fs::read_to_string(hosts.share.path().join("apply.txt")).unwrap_or_default()
    );
    for (way, expected) in [("vlan", 2), ("vlan-v6", 1), ("router", 1), ("bond", 2), ("bond-vlan", 1)] {
        let trials = hosts.trials(way);
        assert_eq!(trials.len(), expected, "{way}: {trials:#?}");
        for trial in &trials {
            // The other port of a bond delivers nothing.
            assert_closed(trial);
            let count = |member: &Value| member.as_u64().unwrap_or_else(|| panic!("{way}: {trial:#}"));
            assert_eq!(trial["sent"], trial["wire"]["left"], "{way}: {trial:#}");
            assert!(count(&trial["wire"]["seen"]) >= count(&trial["delivered"]), "{way}: {trial:#}");
        }
    }
    for (way, place) in [("ring", "card out of buffers"), ("backlog", "receive backlog full")] {
        let [trial] = &hosts.trials(way)[..] else { panic!("one trial") };
        assert_closed(trial);
        let lines = lines(trial);
        let named = lines.iter().find(|(name, ..)| name == place);
        assert!(named.is_some_and(|(_, host, packets)| host == "receiver" && *packets > 0), "{trial:#}");
    }
}
