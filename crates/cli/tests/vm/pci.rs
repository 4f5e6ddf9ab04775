//! The engine `pci` on emulated cards, by sysfs and by VFIO: exact counts, refusals, and the kernel's driver bound again, even
//! after a kill.

use lab::{Kernel, NicModel};

use crate::support::Guest;

#[test]
fn a_ring_driver_counts_exactly_and_returns_the_card_also_after_a_kill() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::E1000, NicModel::E1000e]) else {
        return;
    };
    let done = guest.run(
        "set -e
        ends='--tx-interface pair1a --rx-interface pair1b --no-save'
        state() {
            basename $(readlink /sys/class/net/pair1b/device/driver)
            cat /sys/class/net/pair1b/mtu /proc/sys/vm/nr_hugepages /sys/module/e1000/parameters/copybreak
        }
        state > /share/before.txt
        both() {
            linerate bench --tx pci --rx pci --take-device --tx-interface pair2a --rx-interface pair2b --no-save --json \
                --trials 1 --duration 300ms --rate 2kpps $*
        }
        # Status 1: an emulator on a busy machine may not hold the rate.
        both > /share/e1000e.json || [ $? = 1 ]
        both --interrupts > /share/no-interrupts.txt 2>&1 || [ $? = 3 ]
        inside wraps pair2a pair2b sysfs
        mac=$(cat /sys/class/net/pair2b/address)
        $LINERATE recv 127.0.0.1 --engine pci --device pair2b --take-device --once --json --no-save > /share/recv.json \
            2> /share/recv.txt &
        until grep -q counting /share/recv.txt; do sleep 0.1; done
        linerate send 127.0.0.1 --engine pci --interface pair2a --dst-mac $mac --take-device \
            --rate 1kpps --count 300 --json --no-save > /share/send.json || [ $? = 1 ]
        wait $!
        linerate bench --tx pktgen --rx pci $ends --dry-run > /share/consent.json
        linerate bench rdr --real --take-device --buffers pool --copybreak 0 --payload 46 --rate max --duration 300ms \
            --trace /share/trace.csv $ends --json > /share/rdr.json || [ $? = 1 ]
        state > /share/after.txt
        ip link set dev pair1b up
        linerate bench --tx pktgen --rx pci --take-device $ends 2> /share/up.txt || [ $? = 4 ]
        ip link set dev pair1b down
        # Not the function: its process would be a shell's.
        $LINERATE bench --tx pktgen --rx pci --take-device $ends --trials 1 --duration 60s > /share/killed.txt 2>&1 &
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
    let e1000e = done.json("e1000e.json");
    whole(&e1000e, "sysfs");
    assert_eq!(e1000e["end"]["trials"][0]["ring"]["interrupts"], 0, "{e1000e:#}");
    let refused = done.text("no-interrupts.txt");
    assert!(refused.contains("cannot use interrupts of pair2b: sysfs gives user space none"), "{refused}");
    for run in [done.json("send.json"), done.json("recv.json")] {
        let trial = &run["end"]["trials"][0];
        let counts = [&trial["sent"], &trial["delivered"], &trial["ledger"]["unexplained"]];
        assert_eq!(counts, [300, 300, 0], "{trial:#}");
    }
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

#[test]
fn vfio_reaches_cards_behind_an_iommu_and_sysfs_is_refused_before_it_faults() {
    let Some(guest) = Guest::behind_iommu(Kernel::Latest, &[NicModel::E1000, NicModel::E1000e]) else {
        return;
    };
    let done = guest.run(
        "set -e
        one='--tx-interface pair1a --rx-interface pair1b'
        two='--tx-interface pair2a --rx-interface pair2b'
        state() {
            for interface in pair1b pair2a pair2b; do
                basename $(readlink /sys/class/net/$interface/device/driver)
                cat /sys/class/net/$interface/mtu /sys/class/net/$interface/device/driver_override
            done
            cat /proc/sys/vm/nr_hugepages
        }
        run() { linerate bench --take-device --no-save --json --trials 1 --duration 300ms $*; }
        state > /share/before.txt
        run --tx pktgen --rx pci $one --card-access sysfs > /share/refused.txt 2>&1 || [ $? = 3 ]
        run --tx pktgen --rx pci $one > /share/flood.json || [ $? = 1 ]
        run --tx pktgen --rx pci $one --interrupts --rate 1kpps > /share/line.json || [ $? = 1 ]
        run --tx pci --rx pci $two --interrupts --rate 2kpps > /share/messages.json || [ $? = 1 ]
        inside wraps pair1a pair1b vfio
        $LINERATE bench --tx pktgen --rx pci --take-device $one --no-save --duration 60s > /share/killed.txt 2>&1 &
        until [ -e /sys/bus/pci/drivers/vfio-pci/0000:* ]; do sleep 0.1; done
        kill -9 $!
        until [ -e /sys/class/net/pair1b ] && [ $(cat /proc/sys/vm/nr_hugepages) = 0 ]; do sleep 0.1; done
        state > /share/after.txt
        dmesg | grep -i 'DMAR.*fault' > /share/faults.txt || true",
    );
    assert_eq!(
        done.text("before.txt"),
        "e1000\n1500\n(null)\ne1000e\n1500\n(null)\ne1000e\n1500\n(null)\n0\n"
    );
    assert_eq!(done.text("after.txt"), done.text("before.txt"));
    assert_eq!(done.text("faults.txt"), "");
    let refused = done.text("refused.txt");
    let begin = "cannot take pair1b by sysfs: the IOMMU translates the card's DMA (DMA";
    assert!(refused.contains(begin) && refused.contains("--card-access vfio"), "{refused}");
    let flood = done.json("flood.json");
    let trial = &flood["end"]["trials"][0];
    assert!(trial["delivered"].as_u64().unwrap() > 0, "{trial:#}");
    assert_eq!(
        (&trial["ledger"]["unexplained"], &trial["ring"]["access"]),
        (&0.into(), &"vfio".into()),
        "{trial:#}"
    );
    assert_eq!(trial["ring"]["interrupts"], 0, "{trial:#}");
    for file in ["line.json", "messages.json"] {
        let run = done.json(file);
        whole(&run, "vfio");
        let interrupts = run["end"]["trials"][0]["ring"]["interrupts"].as_u64().unwrap();
        assert!(interrupts > 0, "{file}: {run:#}");
    }
}

/// Every frame of the only trial arrived, over cards that were reached in this way.
fn whole(run: &serde_json::Value, access: &str) {
    let trial = &run["end"]["trials"][0];
    assert!(trial["sent"].as_u64().unwrap() > 0, "{trial:#}");
    assert_eq!(trial["delivered"], trial["sent"], "{trial:#}");
    assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    assert_eq!(trial["ring"]["access"], access, "{trial:#}");
}
