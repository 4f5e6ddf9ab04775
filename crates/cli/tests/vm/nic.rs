//! `linerate nic` on a card that is in use.

use lab::{Kernel, NicModel};

use crate::support::Guest;

/// The far card in a namespace, a sender and receiver over the pair, and a carrier on both sides.
const UNDER_LOAD: &str = "
    ip netns add far
    ip link set pair1b netns far
    ip addr add 198.18.0.1/24 dev pair1a
    ip -n far addr add 198.18.0.2/24 dev pair1b
    ip link set pair1a up
    ip -n far link set pair1b up
    carrier() { ip -o link show pair1a | grep -q LOWER_UP && ip -n far -o link show pair1b | grep -q LOWER_UP; }
    until carrier; do sleep 0.1; done
    ip netns exec far $LINERATE recv 198.18.0.2 --no-save >/share/recv.out 2>&1 &
    receiver=$!
    until grep -q listening /share/recv.out; do sleep 0.1; done
    linerate send 198.18.0.2 --rate max --duration 120s --no-save >/share/send.out 2>&1 &
    sender=$!
    until ip -n far -s -o link show pair1b | grep -q 'RX:.*[1-9][0-9][0-9][0-9] '; do sleep 0.1; done
";

/// Both ends in one namespace: flows are predicted and verified, and flows for all queues are found.
const AT_REST: &str = "
    ip link set pair1a up
    ip link set pair1b up
    until [ \"$(cat /sys/class/net/pair1a/carrier)$(cat /sys/class/net/pair1b/carrier)\" = 11 ]; do sleep 0.1; done
    linerate nic spread pair1b --flows 8 --src-addr 198.18.0.1-198.18.0.254 --json > /share/spread.json
    linerate nic spread pair1b --flows 8 --src-port 1024-1031 --given --json > /share/given.json
    linerate nic flow pair1b --src 198.18.0.1:1024 --dst 198.19.0.1:9 --verify --via pair1a > /share/flow.out
    linerate nic flow pair1b --src 198.18.0.1:1024 --dst 198.19.0.1:9 --verify --via pair1a --json > /share/flow.json
";

#[test]
fn a_card_under_load_is_measured_and_restored() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::Igb]) else { return };
    let done = guest.run(&format!(
        "set -e
        {AT_REST}
        {UNDER_LOAD}
        settings pair1a > /share/before
        # A reset would cut the connection that somebody made to the receiver: nobody can be asked, so the answer is no.
        ring() {{ ip netns exec far $LINERATE nic show pair1b --interval 1ms --json | grep '\"ring.rx\"'; }}
        ring > /share/ring
        ip netns exec far $LINERATE nic apply pair1b --set ring.rx=512 > /share/asked.out 2> /share/asked.err && exit 1
        echo status $? >> /share/asked.err
        ring | cmp - /share/ring
        linerate nic apply pair1a --set ring.rx=512 --yes > /share/yes.out
        linerate nic restore pair1a > /share/restore.out
        settings pair1a | cmp - /share/before
        cp /bin/sleep $TMPDIR/irqbalance
        $TMPDIR/irqbalance 100 &
        balancer=$!
        linerate nic apply pair1a --set irq.pair1a-rx-0=1 2> /share/balanced
        kill $balancer
        linerate nic restore pair1a > /share/unbalanced
        # Kept or taken back, as the figures say.
        for setting in coalesce.rx-usecs=1000 coalesce.rx-usecs=0; do
            ip netns exec far $LINERATE nic apply pair1b --set $setting --measure --duration 2s --json \
                > /share/measured-$setting.json || [ $? = 1 ]
            ip netns exec far $LINERATE nic show pair1b --interval 1ms --json > /share/after-$setting.json
        done
        ip netns exec far $LINERATE nic show pair1b --interval 100ms > /share/page
        ip netns exec far $LINERATE nic advise pair1b --interval 100ms --json > /share/advice.json
        ip netns exec far $LINERATE nic watch pair1b --interval 300ms --count 2 > /share/watch
        kill $sender $receiver"
    ));
    let picked = &done.json("spread.json");
    let mut queues: Vec<u64> =
        picked["flows"].as_array().unwrap().iter().map(|flow| flow["queue"].as_u64().unwrap()).collect();
    queues.sort_unstable();
    assert_eq!(queues, [0, 0, 1, 1, 2, 2, 3, 3], "{picked}");
    assert_eq!(picked["imbalance"], 1.0);
    let given = done.json("given.json");
    // igb does not hash UDP ports by default: eight ports of one address share a queue.
    assert_eq!(given[0]["imbalance"], 4.0, "{given}");
    assert!(given[1]["imbalance"].as_f64().unwrap() < 4.0, "{given}");
    assert_ne!(given[1]["settings"].as_array().unwrap().len(), 0, "{given}");
    let flow = done.json("flow.json");
    assert_eq!(flow["observed"]["queue"], flow["queue"], "{flow}");
    assert_eq!((&flow["observed"]["sent"], &flow["observed"]["counted"]), (&64.into(), &64.into()), "{flow}");
    let verified =
        format!("verified: all 64 packets sent were counted on queue {}", flow["queue"].as_u64().unwrap());
    assert!(done.text("flow.out").contains(&verified), "{}", done.text("flow.out"));

    let asked = done.text("asked.err");
    assert!(asked.contains("changing ring.rx may take pair1b down for a moment"), "{asked}");
    assert!(asked.contains("connections go through it: 198.18.0.1:"), "{asked}");
    assert!(asked.contains("hint:  add --yes to allow that") && asked.ends_with("status 4\n"), "{asked}");
    assert_eq!(done.text("asked.out"), "pair1b:\n  ring.rx: 256 -> 512\n");
    assert!(done.text("yes.out").contains("done; linerate nic restore pair1a undoes it"));

    assert!(done.text("balanced").contains("warning: irqbalance runs and may move the interrupts again"));
    assert!(done.text("unbalanced").contains("irq.pair1a-rx-0: 1 -> "), "{}", done.text("unbalanced"));

    let mut now = "3".to_owned();
    for usecs in ["1000", "0"] {
        let measured = done.json(&format!("measured-coalesce.rx-usecs={usecs}.json"));
        let rates = &measured["measured"];
        eprintln!("rx-usecs {now} -> {usecs}: {rates}");
        assert!(rates["before_pps"].as_f64().unwrap() > 0.0, "{measured}");
        assert_eq!(measured["kept"], rates["better"], "{measured}");
        assert_eq!(measured["taken_back"].is_null(), rates["better"] == true, "{measured}");
        if rates["better"] == true {
            now = usecs.to_owned();
        }
        let after = done.json(&format!("after-coalesce.rx-usecs={usecs}.json"));
        assert_eq!(after["settings"]["coalesce.rx-usecs"], now, "{measured}");
        assert_eq!(after["settings"]["napi.rx-0.defer-hard-irqs"], "0", "{after}");
    }
    let page = done.text("page");
    assert!(page.contains("queue rx-0") && page.contains("rx_packets +"), "{page}");
    assert!(done.json("advice.json").is_array());
    assert!(done.text("watch").contains("packets/poll"), "{}", done.text("watch"));
}
