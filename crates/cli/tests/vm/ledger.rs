//! The driver counters that `drivers.toml` names, on the real drivers.

use lab::{Kernel, NicModel};
use ledger::{CounterKind, Drivers, Place};
use serde_json::Value;

use crate::support::Guest;

const CARDS: [NicModel; 5] =
    [NicModel::Igb, NicModel::E1000, NicModel::E1000e, NicModel::Vmxnet3, NicModel::Virtio];
const LONG: u64 = 100;
/// Counters that only other kernels and devices have: virtio renamed its counters in Linux 6.13, and only some devices count
/// what they dropped.
const IS_ELSEWHERE: [(&str, &str); 5] = [
    ("virtio_net", "rx_queue_#_drops"),
    ("virtio_net", "rx_queue_#_xdp_drops"),
    ("virtio_net", "tx_queue_#_xdp_tx_drops"),
    ("virtio_net", "rx#_hw_drop_overruns"),
    ("virtio_net", "tx#_hw_drops"),
];
/// Each driver's counter for frames that are too long. The emulated 82576 drops them silently; vmxnet3 and virtio accept
/// them.
const EXPECTED: [(&str, u64); 5] =
    [("igb", 0), ("e1000", LONG), ("e1000e", LONG), ("vmxnet3", 0), ("virtio_net", 0)];

/// Sends frames longer than the receiving end of each pair accepts, and short ones, between two readings.
fn script() -> String {
    let pairs = (1..=CARDS.len()).map(|pair| {
        let (a, b) = (format!("pair{pair}a"), format!("pair{pair}b"));
        format!(
            "ip link set {a} mtu 4000 up; ip link set {b} mtu 1500 up\n\
             until [ \"$(cat /sys/class/net/{a}/carrier /sys/class/net/{b}/carrier | tr -d '\\n')\" = 11 ]; do sleep 0.1; done\n\
             inside counters {b} | grep '^{{' > /share/{pair}.before\n\
             inside frames {a} {b} {LONG} 3000 >/dev/null || exit 1\n\
             inside frames {a} {b} 10 100 >/dev/null || exit 1\n"
        )
    });
    // Drivers read their registers every two seconds.
    let read = (1..=CARDS.len())
        .map(|pair| format!("inside counters pair{pair}b | grep '^{{' > /share/{pair}.after\n"));
    pairs.chain(["sleep 3\n".to_owned()]).chain(read).chain(FLOODS.iter().map(flood)).collect()
}

/// More than a ring holds. Of the emulated cards, vmxnet3 and the 82540 count frames without a descriptor; the others stop
/// the sender, or count nothing (82576). The 82540's register continues where a real card's restarts at 0, and the driver
/// adds it at each reading: a second trial would show the first one's losses many times.
const FLOODS: [(u32, &str); 2] = [(2, "--rx-ring 80"), (4, "--rx-ring 32")];

fn flood((pair, ring): &(u32, &str)) -> String {
    format!(
        "ip link set pair{pair}a down; ip link set pair{pair}b down
         linerate bench --tx-interface pair{pair}a --rx-interface pair{pair}b --tx packet --rx udp {ring} --trials 2 \
             --duration 300ms --no-save --json > /share/flood{pair}.json || [ $? = 1 ]\n"
    )
}

fn counters(reading: &Value) -> Vec<(&str, u64)> {
    let all = reading["counters"].as_array().unwrap();
    all.iter().map(|counter| (counter[0].as_str().unwrap(), counter[1].as_u64().unwrap())).collect()
}

#[test]
fn counters_of_drivers_exist_and_move_as_the_file_describes() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &CARDS) else { return };
    let done = guest.run(&script());
    let drivers = Drivers::built_in();
    let mut seen = Vec::new();
    for pair in 1..=CARDS.len() {
        let (before, after) = (done.json(&format!("{pair}.before")), done.json(&format!("{pair}.after")));
        let driver = after["driver"].as_str().unwrap();
        let all = counters(&after);
        for (name, _) in &all {
            assert_ne!(drivers.kind(driver, name), CounterKind::Unknown, "{driver} {name:?} is in no list");
        }
        for loss in drivers.losses(driver) {
            let is_there = all.iter().any(|(name, _)| loss.is(name));
            assert!(
                is_there || IS_ELSEWHERE.contains(&(driver, loss.pattern())),
                "{driver} {}",
                loss.pattern()
            );
        }
        let grown = |place: Place| -> u64 {
            let of_place = |name: &str| matches!(drivers.kind(driver, name), CounterKind::Loss(loss) if loss.place == place);
            let earlier = counters(&before);
            let both = all.iter().zip(earlier.iter()).filter(|((name, _), _)| of_place(name));
            both.map(|((_, now), (_, then))| now - then).sum()
        };
        seen.push((driver.to_owned(), grown(Place::BadFrame)));
    }
    assert_eq!(seen, EXPECTED.map(|(driver, long)| (driver.to_owned(), long)));

    for (pair, _) in FLOODS {
        let flood = done.json(&format!("flood{pair}.json"));
        let trials = flood["end"]["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 2, "{flood:#}");
        for trial in trials {
            let count = |name: &str| trial[name].as_u64().unwrap();
            let lines = trial["ledger"]["lines"].as_array().unwrap();
            let of = |line: &Value| line["packets"].as_u64().unwrap();
            let missed = lines.iter().find(|line| line["place"] == Place::NicMissed.name());
            assert!(missed.is_some_and(|line| of(line) > 0), "{trial:#}");
            assert_eq!(count("sent"), count("delivered") + lines.iter().map(of).sum::<u64>(), "{trial:#}");
            assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
        }
    }
}
