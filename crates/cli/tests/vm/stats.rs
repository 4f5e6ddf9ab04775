//! Receive statistics of packets that the kernel's own generator sends.

use lab::{Kernel, NicModel};
use serde_json::Value;

use crate::support::Guest;

#[test]
fn kernel_pktgen_is_measured_by_every_engine() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::Igb]) else { return };
    let done = guest.run(
        "set -e
        ip link set pair1a up
        ip link set pair1b up
        ip addr add 10.9.0.2/24 dev pair1b
        carrier() { until [ \"$(cat /sys/class/net/$1/carrier)\" = 1 ]; do sleep 0.05; done; }
        # A card that starts anew takes nothing for a moment.
        tell() { until echo \"$2\" > /proc/net/pktgen/$1; do sleep 0.1; done; }
        device=pair1b
        # pktgen writes no tag for a number that is none.
        vlan=4096
        measure() {
            name=$1; shift
            linerate recv 4321 --device $device --stats time --clocks same-host --no-save --json \"$@\" \
                > /share/$name.json 2> /share/$name.said &
            until grep -q handshakes /share/$name.said; do sleep 0.05; done
            carrier pair1a
            carrier pair1b
            tell kpktgend_0 rem_device_all
            tell kpktgend_0 'add_device pair1a'
            for words in 'count 1000' 'pkt_size 60' 'delay 200000' 'src_min 10.9.0.1' 'src_max 10.9.0.1' 'dst 10.9.0.2' \
                    \"vlan_id $vlan\" 'udp_src_min 5000' 'udp_src_max 5000' 'udp_dst_min 4321' 'udp_dst_max 4321' \
                    \"dst_mac $(cat /sys/class/net/pair1b/address)\"; do
                tell pair1a \"$words\"
            done
            if [ $vlan = 7 ]; then
                tell pair1a 'vlan_id 4096'
                tell pgctrl start
                tell pair1a 'vlan_id 7'
            fi
            tell pgctrl start
            # What was sent last may still be under way.
            for look in $(seq 100); do
                linerate recv status --json | grep -q '\"packets\":1000' && break
                sleep 0.05
            done
            linerate recv stop --json > /dev/null
            wait
            cat /share/$name.said
        }
        measure udp --engine udp --receive-buffer 8000000
        measure card --engine udp --stamp card --receive-buffer 8000000
        measure packet --engine packet
        measure tap --engine packet --stamp card
        measure xsk --engine xsk
        measure xdp --engine xdp
        measure program --engine xdp --stamp program
        # What comes without the tag, on the interface below, has the same address and is not this one's.
        ip link add link pair1b name tagged type vlan id 7
        ip link set tagged up
        ip addr del 10.9.0.2/24 dev pair1b
        ip addr add 10.9.0.2/24 dev tagged
        device=tagged
        vlan=7
        measure tagged-udp --engine udp --receive-buffer 8000000
        measure tagged-packet --engine packet",
    );
    let stamps = [
        ("udp", "kernel"),
        ("packet", "kernel"),
        ("xsk", "poll"),
        ("xdp", "poll"),
        ("program", "program"),
        ("tagged-udp", "kernel"),
        ("tagged-packet", "kernel"),
    ];
    for (name, stamp) in stamps {
        let run = done.json(&format!("{name}.json"));
        let statistics = &run["end"]["statistics"];
        let total = &statistics["total"];
        // An emulated card loses a packet now and then, when the emulator is not scheduled in time.
        let packets = total["packets"].as_u64().unwrap();
        let lost = statistics["sequence"]["lost"].as_u64().unwrap();
        assert_eq!(packets + lost, 1000, "{name}: {statistics:#}\n{}", done.stdout);
        assert!(lost < 500, "{name}: {statistics:#}");
        assert_eq!(total["frame_bytes"], 64 * packets, "{name}: pktgen counts 60 bytes without FCS");
        assert_eq!(statistics["senders"][0]["address"], "10.9.0.1");
        assert_eq!(statistics["timing"]["rx_stamp"], stamp, "{name}");
        assert_eq!(statistics["timing"]["unstamped"], 0, "{name}");
        // By queue, even if readers share a queue: a socket gets the queue that the card's driver recorded.
        let by_queue = ["queues", "readers"].map(|of| statistics[of].as_array().into_iter().flatten());
        let own = |count: &&Value| !count["queue"].is_null();
        let of_queues: u64 =
            by_queue.into_iter().flatten().filter(own).map(|count| count["packets"].as_u64().unwrap()).sum();
        let is_tagged = name.starts_with("tagged");
        let unknown = match is_tagged {
            true => Value::from("tagged (vlan) has no receive queues of its own"),
            false => Value::Null,
        };
        let told = if is_tagged { 0 } else { packets };
        assert_eq!((of_queues, &statistics["queues_unknown"]), (told, &unknown), "{name}: {statistics:#}");
        // Its seconds and microseconds were parsed: with another clock the latency would be years.
        let latency = &total["latency"];
        // With one clock reading per poll, packets that arrive during the poll seem to arrive before they were sent.
        let before_sent = total["before_sent"].as_u64().unwrap();
        assert!(before_sent == 0 || stamp == "poll", "{name}: {total:#}");
        assert_eq!(latency["samples"], packets - before_sent, "{name}: {total:#}");
        assert!(latency["max_ns"].as_u64().unwrap() < 10_000_000_000, "{name}: {latency:#}");
        assert_eq!(total["jitter"]["samples"], packets - 1, "{name}");
        let gap = total["inter_arrival"]["mean_ns"].as_f64().unwrap();
        let work = total["work_time_ns"].as_f64().unwrap();
        assert!((gap * (packets - 1) as f64 / work - 1.0).abs() < 1e-6, "{name}: {total:#}");
        // A sender that was stopped for a while catches up.
        assert!(gap > 100_000.0, "{name}: pktgen left 200 us between packets, {gap} ns arrived");
    }
    // Without hardware timestamps a card stamps no packet: that is reported, and the receiving loop's clock is used.
    for name in ["card.json", "tap.json"] {
        let card = done.json(name);
        let statistics = &card["end"]["statistics"];
        let (timing, packets) = (&statistics["timing"], &statistics["total"]["packets"]);
        assert_eq!(
            (&timing["rx_stamp"], &timing["unstamped"]),
            (&Value::from("card"), packets),
            "{timing:#}"
        );
        assert_eq!(timing["clocks"], "none", "the card's clock is not the sender's");
    }
}
