//! `linerate tune` between two real interfaces.

use lab::{Kernel, NicModel};
use serde_json::Value;

use crate::support::Guest;

#[test]
fn a_card_is_restored_after_a_search_and_after_a_killed_one() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::Igb]) else { return };
    let done = guest.run(
        "set -e
        # igb makes its indirection table when it comes up for the first time.
        for interface in pair1a pair1b; do ip link set $interface up; done
        for interface in pair1a pair1b; do ip link set $interface down; done
        settings pair1b > /share/before
        tune='tune --tx-interface pair1a --rx-interface pair1b --flows 8 --threads 2 --rx udp+reuseport
            --duration 100ms --only channels.combined,rss.fields.udp4,coalesce.rx-usecs'
        linerate $tune --dry-run --json > /share/space.json
        linerate $tune --budget 12s --no-save --json > /share/run.json || [ $? = 1 ]
        settings pair1b > /share/after
        $LINERATE $tune --budget 60s --no-save > /dev/null 2> /share/progress &
        killed=$!
        until grep -q 'trial 6 ' /share/progress; do sleep 0.1; done
        kill -s KILL $killed
        wait $killed || true
        until ip link show pair1b > /dev/null 2>&1; do sleep 0.1; done
        linerate nic restore > /share/restored || [ $? = 4 ]
        settings pair1b > /share/restored-to",
    );
    let space = done.json("space.json");
    let knobs: Vec<&str> =
        space["knobs"].as_array().unwrap().iter().map(|knob| knob["name"].as_str().unwrap()).collect();
    assert_eq!(knobs, ["channels.combined", "rss.fields.udp4", "coalesce.rx-usecs"]);
    let run = done.json("run.json");
    let end = &run["end"];
    let ran = |attempt: &&Value| attempt["value"].is_number();
    assert!(end["tuning"]["history"].as_array().unwrap().iter().filter(ran).count() > 3, "{end:#}");
    assert!(end["baseline"]["delivered_pps"].as_f64().unwrap() > 0.0, "{end:#}");
    assert_eq!(done.text("after"), done.text("before"));
    assert_eq!(done.text("restored-to"), done.text("before"), "{}", done.text("restored"));
}
