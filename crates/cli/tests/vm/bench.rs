//! `linerate bench` between two real interfaces.

use lab::{Kernel, NicModel};
use serde_json::Value;

use crate::support::Guest;

/// The trial of a pair, by its labels.
fn trial<'r>(run: &'r Value, tx: &str, rx: &str) -> &'r Value {
    let trials = run["end"]["trials"].as_array().unwrap();
    let found = trials.iter().find(|trial| trial["tx"]["label"] == tx && trial["rx"]["label"] == rx);
    found.unwrap_or_else(|| panic!("no {tx} → {rx} in {}", run["end"]))
}

/// Lost packets by place; the rest is delivered or unexplained.
fn lost(trial: &Value) -> u64 {
    trial["ledger"]["lines"].as_array().unwrap().iter().map(|line| line["packets"].as_u64().unwrap()).sum()
}

#[test]
fn packets_between_two_cards_are_all_accounted_for_and_the_cards_are_restored() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::Igb, NicModel::E1000]) else { return };
    let done = guest.run(
        "set -e
        for card in pair1a pair1b pair2a pair2b; do settings $card; done > /share/before
        bench='linerate bench --trials 1 --duration 300ms --rate 2kpps --no-save --json'
        $bench --tx-interface pair1a --rx-interface pair1b --tx packet,xsk,xdp --rx xdp > /share/igb.json || [ $? = 1 ]
        $bench --tx-interface pair2a --rx-interface pair2b --tx xsk --rx xsk,xdp > /share/e1000.json || [ $? = 1 ]
        # At the highest rate, past the queueing discipline, frames find the card's ring full and are sent later.
        linerate bench --trials 1 --duration 300ms --no-save --json --tx-interface pair1a --rx-interface pair1b \
            --tx packet,udp+gso --rx xdp > /share/full.json || [ $? = 1 ]
        $bench --tx-interface pair1a --rx-interface pair1b --tx packet --rx xdp --rx-usecs 20 --sweep rx-ring=256,512 \
            > /share/rings.json || [ $? = 1 ]
        for card in pair1a pair1b pair2a pair2b; do settings $card; done > /share/after",
    );
    let igb = done.json("igb.json");
    assert_eq!(igb["end"]["skipped"].as_array().unwrap(), &[] as &[Value], "igb supports all of it");
    for tx in ["packet", "xsk", "xdp"] {
        let trial = trial(&igb, tx, "xdp");
        let count = |name: &str| trial[name].as_u64().unwrap();
        assert!(count("delivered") > 0, "{trial}");
        assert_eq!(count("sent"), count("delivered") + lost(trial), "{trial}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial}");
    }
    let cards: Vec<&str> = igb["start"]["machine"]["interfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|nic| nic["driver"].as_str().unwrap())
        .collect();
    assert_eq!(cards, ["igb", "igb"]);
    let full = done.json("full.json");
    let at_most = trial(&full, "packet", "xdp");
    assert_eq!(at_most["ledger"]["unexplained"], 0, "{at_most:#}");
    // The emulated card breaks messages that it should segment: the engine is left out instead of blaming the wire.
    let reason = full["end"]["skipped"][0]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("pair1a breaks hardware UDP segmentation: of 8 datagrams sent as one message"),
        "{full:#}"
    );
    assert_eq!(full["end"]["trials"].as_array().unwrap().len(), 1, "{full:#}");
    let e1000 = done.json("e1000.json");
    let copied = trial(&e1000, "xsk", "xsk");
    assert_eq!(copied["sent"].as_u64().unwrap(), copied["delivered"].as_u64().unwrap() + lost(copied));
    let skipped = e1000["end"]["skipped"][0]["reason"].as_str().unwrap();
    assert!(skipped.contains("native XDP is not supported by pair2b"), "{skipped}");
    // Settings changed by a sweep are restored as well.
    let rings = done.json("rings.json");
    let slots: Vec<&Value> =
        rings["end"]["points"].as_array().unwrap().iter().map(|point| &point["rx_ring"]).collect();
    assert_eq!(slots, [256, 512]);
    assert_eq!(rings["start"]["origin"], "hosts");
    assert_eq!(done.text("after"), done.text("before"));
}

#[test]
fn interfaces_in_use_are_refused_and_a_killed_run_returns_its_interfaces() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::Igb]) else { return };
    let seed = fastrand::u64(..);
    eprintln!("LINERATE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let moments: Vec<String> = (0..2).map(|_| format!("{:.2}", random.f64() * 5.0)).collect();
    let script = "refused() {
            name=$1; shift
            linerate bench --no-save --tx udp --rx udp \"$@\" > /share/$name.out 2> /share/$name.err
            echo $? >> /share/$name.err
        }
        both() { for card in pair1a pair1b; do settings $card; done; }
        both > /share/before
        refused absent --tx-interface pair1a --rx-interface nope0
        refused same --tx-interface pair1a --rx-interface pair1a
        refused loopback --tx-interface pair1a --rx-interface lo
        refused large --tx-interface pair1a --rx-interface pair1b --payload 4000

        # Another process's program stays, and its name and ID are shown.
        inside hold-xdp pair1b /share/let-go > /share/holder &
        until grep -q holding /share/holder; do sleep 0.1; done
        linerate bench --no-save --trials 1 --tx udp --rx xdp --tx-interface pair1a --rx-interface pair1b > /share/foreign
        touch /share/let-go
        wait

        # At moments that differ from run to run; a kernel that gives an interface back does so a little later.
        for moment in {moments}; do
            $LINERATE bench --no-save --trials 9 --tx xsk --rx xdp --tx-interface pair1a --rx-interface pair1b \
                > /dev/null 2>&1 &
            bench=$!
            sleep $moment
            kill -s KILL $bench
            wait $bench
            for look in $(seq 100); do
                both > /share/now
                cmp -s /share/now /share/before && break
                sleep 0.1
            done
            cmp /share/now /share/before || { cat /share/now; exit 1; }
        done";
    let done = guest.run(&script.replace("{moments}", &moments.join(" ")));
    let told = |name: &str, status: &str, words: &str| {
        let err = done.text(&format!("{name}.err"));
        assert!(err.contains(words) && err.trim_end().ends_with(status), "{name}: {err}");
    };
    told("absent", "4", "nope0");
    told("same", "2", "both sides of a lab cannot have the same interface pair1a");
    told("loopback", "4", "cannot use lo for the lab's receiving side");
    told("large", "4", "ip link set pair1");
    let foreign = done.text("foreign");
    assert!(foreign.contains("(id ") && foreign.contains("is already there"), "{foreign}");
}

#[test]
fn one_queue_of_a_card_is_flooded_and_filtered_in_every_way_and_the_others_are_not_touched() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::Igb]) else { return };
    let done = guest.run(
        "set -e
        both() { for card in pair1a pair1b; do settings $card; done; }
        both > /share/before
        linerate bench single-rx-queue --tx-interface pair1a --rx-interface pair1b --queue 1 --tx packet \\
            --duration 300ms --transfer-rate 20Mbps --no-save --json > /share/run.json || [ $? = 1 ]
        both > /share/after",
    );
    let run = done.json("run.json");
    let points = run["end"]["points"].as_array().unwrap();
    for filter in ["plain XDP drop", "divert --where xdp", "divert --where user"] {
        let full = points.iter().find(|point| point["filter"] == filter && point["flood"] == "full");
        let full = full.unwrap_or_else(|| panic!("{filter} in {:#}", run["end"]));
        assert!(full["filtered_pps"].as_f64().unwrap() > 0.0, "{full}");
        assert!(full["valid_delivered_packets"].as_u64().unwrap() > 0, "{full}");
    }
    for point in points {
        let filter = point["filter"].as_str().unwrap();
        if filter.starts_with("divert") {
            // The card's table leads both flows to the queue: no other queue is diverted, and nothing is left to the program.
            assert_eq!(point["diverted"]["queues"], serde_json::json!([1]), "{point:#}");
            let rules = point["diverted"]["card_rules"].as_array().unwrap();
            assert!(
                !rules.is_empty() && rules.iter().all(|rule| rule.as_str().unwrap().ends_with(" to queue 1"))
            );
            assert_eq!(point["diverted"]["selected"], serde_json::json!([]), "{point:#}");
            assert!(point["diverted"]["other_queues_ns"].is_u64(), "{point:#}");
        }
        // On its own queue, the flow beside is counted exactly, with every filter and flood.
        let others = &point["other_flows"];
        assert_ne!(others["beside_queue"], 1, "{point:#}");
        assert_ne!(others["transfer_queue"], 1, "{point:#}");
        assert_eq!(others["beside_counted"], others["beside_sent"], "{point:#}");
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {point:#}"));
        let missing = number(&others["beside_sent"]) - number(&others["beside_delivered"]);
        // An emulated machine may keep its readers waiting.
        let full = point["lost_packets_by_place"]["receive buffer of the service full"].as_u64().unwrap_or(0);
        assert!(missing <= full, "{point:#}");
        let by_queue: Vec<u64> = others["packets_by_queue"]
            .as_array()
            .unwrap()
            .iter()
            .map(|packets| packets.as_u64().unwrap())
            .collect();
        if point["flood"] != "none" {
            let arrived = by_queue[1] as f64;
            assert!(arrived >= point["filtered_pps"].as_f64().unwrap() * 0.3, "{point:#}");
        }
    }
    assert_eq!(done.text("after"), done.text("before"));
}

#[test]
fn the_rows_of_apu4d4_are_trials_with_ledgers() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::Igb]) else { return };
    let done = guest.run(
        "set -e
        # 1: the emulated card counts some frames nowhere, so that ledgers do not close.
        linerate bench apu4d4 --rx-interface pair1a --tx-interface pair1b --duration 300ms --no-save --json \\
            > /share/run.json || [ $? = 1 ]",
    );
    let run = done.json("run.json");
    let (points, trials) = (&run["end"]["points"], &run["end"]["trials"]);
    let (points, trials) = (points.as_array().unwrap(), trials.as_array().unwrap());
    assert_eq!((points.len(), trials.len()), (7, 7));
    for (point, trial) in points.iter().zip(trials) {
        let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{value} in {trial:#}"));
        let lost_by = |place: &str| {
            let lines = trial["ledger"]["lines"].as_array().unwrap().iter();
            lines.filter(|line| line["place"] == place).map(|line| number(&line["packets"])).sum::<i64>()
        };
        assert_eq!(trial["parameters"]["row"], point["row"]);
        assert!(number(&trial["delivered"]) > 0, "{trial:#}");
        assert_eq!(trial["receipt"]["handed"], trial["sent"], "{trial:#}");
        // Frames that find the emulated card's ring full are the difference of the two cards' counters. Nothing else is
        // unexplained, except for frames that are not part of the load.
        let on_wire = number(&trial["receipt"]["on_wire"]);
        let received = trial["queues"]["rx"].as_array().unwrap().iter();
        let between = on_wire - received.map(|queue| number(&queue["packets"])).sum::<i64>();
        let load = number(&trial["sent"]) - lost_by("qdisc full") - lost_by("sending interface");
        let others = between - lost_by("card out of buffers") - number(&trial["ledger"]["unexplained"]);
        assert!((0..=on_wire - load).contains(&others), "{trial:#}");
    }
}
