//! The engine `pci` on an emulated 82540EM: exact counts, refusals, and the kernel's driver bound again, even after a kill.

use lab::{Kernel, NicModel};

use crate::support::Guest;

#[test]
fn a_ring_driver_counts_exactly_and_returns_the_card_also_after_a_kill() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::E1000]) else { return };
    let done = guest.run(
        "set -e
        ends='--tx-interface pair1a --rx-interface pair1b --no-save'
        state() {
            basename $(readlink /sys/class/net/pair1b/device/driver)
            cat /sys/class/net/pair1b/mtu /proc/sys/vm/nr_hugepages /sys/module/e1000/parameters/copybreak
        }
        state > /share/before.txt
        linerate bench --tx pktgen --rx pci $ends --dry-run > /share/consent.json
        linerate bench rdr --real --take-device --buffers pool --copybreak 0 --payload 46 --rate max --duration 300ms \
            --trace /share/trace.csv $ends --json > /share/rdr.json || [ $? = 1 ]
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
    assert_eq!(before, "e1000\n1500\n0\n256\n");
    assert_eq!(done.text("after.txt"), before);
    assert_eq!(done.text("recovered.txt"), before);
    assert!(
        done.text("up.txt").contains("cannot use pair1b for the lab's receiving side: it is up"),
        "{}",
        done.text("up.txt")
    );
    let consent = done.text("consent.json");
    assert!(consent.contains("allow it with --take-device"), "{consent}");
    let run = done.json("rdr.json");
    let points = run["end"]["points"].as_array().unwrap();
    let of = |receiver: &str| {
        let at = points.iter().position(|point| point["receiver"] == receiver);
        let point = &points[at.unwrap_or_else(|| panic!("no {receiver} in {points:#?}"))];
        let trials = run["end"]["trials"].as_array().unwrap();
        let trial = trials.iter().find(|trial| trial["parameters"]["receiver"] == receiver).unwrap();
        assert!(trial["delivered"].as_u64().unwrap() > 0, "{trial:#}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
        (point, trial)
    };
    let (ring, trial) = of("pci pool");
    assert_eq!(trial["rx"]["options"]["buffers"], "pool", "{trial:#}");
    let count = |name: &str| trial["ring"][name].as_u64().unwrap();
    assert!(count("refills") >= trial["delivered"].as_u64().unwrap(), "{trial:#}");
    // QEMU counts a frame without a descriptor in both counters.
    let missed = ring["missed_ratio"].as_f64().unwrap() * trial["sent"].as_f64().unwrap();
    assert_eq!(count("without_descriptor"), missed.round() as u64, "{trial:#}");
    assert!(ring["refill_ns"].as_f64().is_some(), "{ring:#}");
    let (kernel, _) = of("kernel, copybreak 0");
    assert!((0.0..=1.0).contains(&kernel["allocation_ratio"].as_f64().unwrap()), "{kernel:#}");
    let trace = done.text("trace.csv");
    let mut lines = trace.lines();
    assert_eq!(lines.next(), Some("trial_index,receiver,time_ns,head,tail,missed"));
    assert_eq!(lines.count(), trial["ring"]["trace"]["moments"].as_array().unwrap().len());
}
