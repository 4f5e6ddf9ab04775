//! The engine `pci` on an emulated 82540EM: exact counts, refusals, and the kernel's driver back afterwards and after a kill.

use lab::{Kernel, NicModel};

use crate::support::Guest;

#[test]
fn a_ring_driver_counts_exactly_and_returns_the_card_also_after_a_kill() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::E1000]) else { return };
    let done = guest.run(
        "set -e
        ends='--tx-interface pair1a --rx-interface pair1b --no-save'
        state() { basename $(readlink /sys/class/net/pair1b/device/driver); cat /sys/class/net/pair1b/mtu /proc/sys/vm/nr_hugepages; }
        state > /share/before.txt
        linerate bench --tx pktgen --rx pci $ends --json > /share/consent.json || [ $? = 3 ] || [ $? = 1 ]
        linerate bench --tx pktgen --rx pci --buffers pool --take-device $ends --trials 1 --duration 500ms --json \
            > /share/pool.json || [ $? = 1 ]
        state > /share/after.txt
        ip link set dev pair1b up
        linerate bench --tx pktgen --rx pci --take-device $ends 2> /share/up.txt || [ $? = 4 ]
        ip link set dev pair1b down
        linerate bench --tx pktgen --rx pci --take-device $ends --trials 1 --duration 60s > /share/killed.txt 2>&1 &
        while [ -e /sys/class/net/pair1b ]; do sleep 0.1; done
        kill -9 $!
        until [ -e /sys/class/net/pair1b ] && [ $(cat /proc/sys/vm/nr_hugepages) = 0 ]; do sleep 0.1; done
        state > /share/recovered.txt",
    );
    let before = done.text("before.txt");
    assert!(before.starts_with("e1000\n1500\n"), "{before}");
    assert_eq!(done.text("after.txt"), before);
    assert_eq!(done.text("recovered.txt"), before);
    assert!(
        done.text("up.txt").contains("cannot use pair1b for the lab's receiving side: it is up"),
        "{}",
        done.text("up.txt")
    );
    let consent = done.text("consent.json");
    assert!(consent.contains("allow it with --take-device"), "{consent}");
    let run = done.json("pool.json");
    let trial = &run["end"]["trials"][0];
    assert!(trial["delivered"].as_u64().unwrap() > 0, "{trial:#}");
    assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    assert_eq!(trial["rx"]["options"]["buffers"], "pool", "{trial:#}");
}
