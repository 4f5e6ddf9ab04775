//! io_uring on older kernels: missing features are detected by trying, and the rest works.

use lab::Kernel;

use crate::support::Guest;

#[test]
fn rings_deliver_packets_on_every_kernel() {
    for kernel in Kernel::ALL {
        let Some(guest) = Guest::prepare(kernel, &[]) else { return };
        let done = guest.run(
            "set -e
            linerate probe --json > /share/probe.json || [ $? = 3 ]
            linerate bench --tx udp,uring,uring+sqpoll --rx udp,uring --trials 1 --duration 300ms --rate 2kpps \
                --no-save --json > /share/bench.json || [ $? = 1 ]
            # The sysctl came with Linux 6.6.
            sysctl=/proc/sys/kernel/io_uring_disabled
            if [ -e $sysctl ]; then
                echo 2 > $sysctl
                linerate bench --tx uring --rx udp,uring --trials 1 --duration 100ms --no-save > /share/disabled.txt 2>&1 || :
            fi",
        );
        let findings = done.json("probe.json");
        for part in ["uring send", "uring receive"] {
            let finding = findings.as_array().unwrap().iter().find(|finding| finding["engine"] == part);
            let finding = finding.unwrap();
            assert_eq!(finding["works"], true, "{kernel:?}: {finding}");
            // Bundles exist since Linux 6.10.
            let has_bundles = finding["detail"].as_str().unwrap().contains("bundles");
            assert_eq!(
                has_bundles,
                part == "uring receive" && kernel != Kernel::V6_1,
                "{kernel:?}: {finding}"
            );
        }
        if kernel != Kernel::V6_1 {
            let said = done.text("disabled.txt").split_whitespace().collect::<Vec<_>>().join(" ");
            let reason =
                "cannot set up io_uring (sysctl kernel.io_uring_disabled is 2): Operation not permitted";
            assert!(said.contains(reason), "{kernel:?}: {said}");
        }
        let run = done.json("bench.json");
        let trials = run["end"]["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 6, "{kernel:?}: {}", run["end"]["skipped"]);
        for trial in trials {
            assert!(trial["delivered"].as_u64().unwrap() > 0, "{kernel:?}: {trial:#}");
            assert_eq!(trial["ledger"]["unexplained"], 0, "{kernel:?}: {trial:#}");
        }
    }
}
