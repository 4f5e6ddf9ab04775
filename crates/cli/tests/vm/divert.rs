//! `linerate divert` on a card with several queues, zero-copy, with changes to its table.

use lab::{Kernel, NicModel};

use crate::support::Guest;

#[test]
fn a_card_is_steered_and_after_a_kill_passes_packets_until_restored() {
    let Some(guest) = Guest::prepare(Kernel::Latest, &[NicModel::Igb]) else { return };
    let done = guest.run(
        r#"set -e
        ip netns add out
        ip link set pair1a netns out
        ip -n out link set pair1a up
        ip -n out addr add 192.168.6.1/24 dev pair1a
        ip link set pair1b up
        ip addr add 192.168.6.2/24 dev pair1b
        table() { linerate nic show pair1b --json | grep -o '"rss.table": *"[^"]*"'; }
        send() {
            ip netns exec out $LINERATE send 192.168.6.2:9 --duration 2s --rate 1kpps --no-handshake \
                --i-am-allowed-to-send-there --no-save > /share/sent 2>&1 || true
        }
        no_ports() { awk '/^Udp:/ && $3 ~ /[0-9]/ { print $3 }' /proc/net/snmp; }
        divert="$LINERATE divert pair1b --queue 1 --drop all"
        table > /share/before

        # The card has no rules of this kind: its table stays as it was, and the program selects the packets. Tags stay in them.
        tags() { linerate nic show pair1b --json | grep -o '"feature.rx-vlan-hw-parse": *"[^"]*"'; }
        tags > /share/tags.before
        $divert --match 'udp and dst port 9' --steer --for 100s > /share/steer.out 2> /share/steer.err &
        pid=$!
        until grep -q diverting /share/steer.err; do kill -0 $pid; sleep 0.1; done
        tags > /share/tags.during
        # What the card does not bring to queue 1 is dropped wherever it arrives.
        until [ "$(cat /sys/class/net/pair1b/operstate)" = up ]; do sleep 0.1; done
        before=$(no_ports)
        send
        echo $(($(no_ports) - before)) > /share/past
        linerate divert stop > /share/stopped
        wait $pid
        tags > /share/tags.after
        table > /share/refused

        $divert --match 'udp and dst port 9' --where user --card rss.table=weights:0,1 --for 100s \
            > /share/divert.out 2> /share/divert.err &
        pid=$!
        until grep -q diverting /share/divert.err; do kill -0 $pid; sleep 0.1; done
        table > /share/during
        until [ "$(cat /sys/class/net/pair1b/operstate)" = up ]; do sleep 0.1; done
        send
        linerate divert status --json > /share/status.json

        # What is not matched reaches the kernel through the zero-copy queue, whatever its length.
        before=$(no_ports)
        ip netns exec out $LINERATE send 192.168.6.2:10 --duration 500ms --rate 1kpps --frame-size 1518 \
            --no-handshake --i-am-allowed-to-send-there --no-save --json > /share/long.json || true
        echo $(($(no_ports) - before)) > /share/passed
        # How long the kernel gets nothing after a kill: the driver restarts the link when the zero-copy socket goes.
        ip netns exec out $LINERATE send 192.168.6.2:9 --duration 12s --rate 500pps --no-handshake \
            --i-am-allowed-to-send-there --no-save > /share/sent 2>&1 &
        sending=$!
        sleep 0.5
        before=$(no_ports)
        read -r killed _ < /proc/uptime
        kill -s KILL $pid
        wait $pid || true
        table > /share/killed
        until [ "$(no_ports)" -gt "$before" ] || ! kill -0 $sending 2> /dev/null; do sleep 0.02; done
        read -r opened _ < /proc/uptime
        echo "$killed $opened" > /share/away
        echo $(($(no_ports) - before)) > /share/opened
        kill $sending 2> /dev/null || true
        wait $sending || true
        linerate nic restore pair1b > /share/restored
        table > /share/after"#,
    );
    let told = done.text("steer.err");
    let refused = "selected by the program on every queue: udp and dst port 9 (igb takes rules of Ethernet types and MAC";
    assert!(told.contains(refused), "{told}");
    assert!(told.contains("diverting queue 1, 0"), "{told}");
    assert_eq!(done.text("past").trim(), "0", "packets that no queue caught");
    assert!(done.text("stopped").trim_end().ends_with("0  unexplained"));
    let tags = |when: &str| done.text(&format!("tags.{when}"));
    assert!(tags("before").contains("\"on\"") && tags("during").contains("\"off\""), "{}", tags("during"));
    assert_eq!(tags("after"), tags("before"));
    let before = done.text("before");
    assert!(before.contains("rss.table"), "{before}");
    assert_eq!(done.text("refused"), before);
    assert_ne!(done.text("during"), before);
    assert_eq!(done.text("killed"), done.text("during"));
    let opened: u64 = done.text("opened").trim().parse().unwrap();
    assert!(opened > 0, "nothing came to the kernel after the kill");
    let away: Vec<f64> = done.text("away").split_whitespace().map(|time| time.parse().unwrap()).collect();
    println!("igb, zero-copy: the kernel got nothing for {:.2} s after the kill", away[1] - away[0]);
    assert_eq!(done.text("after"), before);

    let sent = done.json("long.json")["end"]["trials"][0]["sent"].as_u64().unwrap();
    let passed: u64 = done.text("passed").trim().parse().unwrap();
    assert!(sent > 0, "nothing was sent");
    assert_eq!(passed, sent, "frames of 1518 bytes beside a diversion");

    let status = &done.json("status.json")[0];
    assert_eq!(status["queues"][0]["zero_copy"], true, "{status:#}");
    let ledger = &status["ledger"];
    let dropped = ledger["lines"].as_array().unwrap().iter().find(|line| line["fate"] == "dropped");
    let dropped = dropped.unwrap_or_else(|| panic!("nothing dropped: {status:#}"));
    assert!(dropped["packets"].as_u64().unwrap() > 0, "{status:#}");
    assert_eq!(ledger["unexplained"], 0, "{status:#}");
}
