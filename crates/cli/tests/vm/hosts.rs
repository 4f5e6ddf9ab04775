//! Two machines with real drivers and cables between them.

use std::{fs, time::Duration};

use lab::{NicModel, VmHosts, VmOutcome, VmPlan, VmStatus};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::LINERATE;

/// Three drivers, igb in both directions, then a cable that is pulled for half a second under traffic, then a receiver's
/// machine that is reset under traffic.
const SENDER: &str = r#"
for wire in 1 2 3; do
    until [ "$(cat /sys/class/net/wire$wire/carrier)" = 1 ]; do sleep 0.1; done
    both=
    [ $wire != 1 ] || both=--both-ways
    linerate bench --peer 198.18.$wire.2 $both --tx udp,packet --rx udp --trials 1 --duration 100ms --rate 500pps \
        --no-save --json >/share/wire$wire.json || [ $? = 1 ] || exit 1
done
linerate send 198.18.1.2 --duration 3s --rate 300pps --no-save --json >/share/flap.json &
sleep 1
cable 1 off
sleep 0.5
cat /sys/class/net/wire1/carrier >/share/carrier
cable 1 on
wait $! || [ $? = 1 ] || exit 2
before=$(cat /sys/class/net/wire2/statistics/tx_packets)
linerate send 198.18.2.2 --duration 60s --rate 300pps --no-save --json >/share/lost.json 2>/share/lost.err &
until [ "$(cat /sys/class/net/wire2/statistics/tx_packets)" -gt $((before + 300)) ]; do sleep 0.1; done
touch /share/reset
wait $!
echo $? >/share/lost.status
linerate report /share/lost.json >/share/lost.txt
"#;

const RECEIVER: &str = r#"
linerate recv --no-save --receive-buffer 32000000 >/dev/null 2>&1 &
until [ -f /share/reset ]; do sleep 0.2; done
echo b >/proc/sysrq-trigger
sleep 60
"#;

/// Two machines and the folder that both write to.
pub(crate) struct TwoHosts {
    pub(crate) hosts: VmHosts,
    pub(crate) share: TempDir,
}

impl TwoHosts {
    /// Runs a script in each, in which `linerate` is the built command; again when the first machine stalls or is lost.
    pub(crate) fn run(&self, scripts: [&str; 2]) -> [VmOutcome; 2] {
        testing::repeat("a virtual machine may stall or be lost", |_| self.once(scripts))
    }

    fn once(&self, scripts: [&str; 2]) -> Result<[VmOutcome; 2], String> {
        for file in fs::read_dir(self.share.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        let prologue = format!(
            "export HOME=/root XDG_STATE_HOME=/run XDG_RUNTIME_DIR=/run TMPDIR=/run\nlinerate() {{ {LINERATE} \"$@\"; }}\n"
        );
        let [sender, receiver] = scripts.map(|script| format!("{prologue}{script}"));
        let outcomes = self.hosts.outcomes([&sender, &receiver]).expect("two machines start");
        match &outcomes[0].status {
            VmStatus::Exited(_) => Ok(outcomes),
            status => Err(format!("{status:?} {outcomes:?}")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> String {
        let path = self.share.path().join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The trials of a record.
    pub(crate) fn trials(&self, name: &str) -> Vec<Value> {
        let text = self.text(&format!("{name}.json"));
        let run: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
        run["end"]["trials"].as_array().unwrap_or_else(|| panic!("{name}: {run:#}")).clone()
    }
}

/// A ledger's lines: place, host and packets.
pub(crate) fn lines(trial: &Value) -> Vec<(String, String, u64)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = trial["ledger"]["lines"].as_array().unwrap();
    lines
        .iter()
        .map(|line| (text(&line["place"]), text(&line["host"]), line["packets"].as_u64().unwrap()))
        .collect()
}

/// Packets arrived, and every lost one is in a line; nothing is uncertain.
pub(crate) fn assert_closed(trial: &Value) {
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{trial:#}"));
    let lost: u64 = lines(trial).iter().map(|(_, _, packets)| packets).sum();
    assert!(count(&trial["sent"]) > 0 && count(&trial["delivered"]) > 0, "{trial:#}");
    assert_eq!(count(&trial["sent"]), count(&trial["delivered"]) + lost, "{trial:#}");
    assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    assert!(trial["wire"]["doubts"].is_null(), "{trial:#}");
}

#[test]
fn ledgers_close_between_two_machines_also_after_faults_of_cable_and_receiver() {
    let share = tempfile::tempdir().unwrap();
    let plan = VmPlan {
        cpus: 2,
        time_limit: Duration::from_secs(240),
        share: Some(share.path().into()),
        ..VmPlan::default()
    };
    if testing::machine(&plan).is_none() {
        return;
    }
    let cards = [NicModel::Igb, NicModel::E1000e, NicModel::Virtio];
    let hosts = TwoHosts { hosts: VmHosts::prepare(&plan, &cards).unwrap(), share };
    let [sender, receiver] = hosts.run([SENDER, RECEIVER]);
    assert_eq!(
        sender.status,
        VmStatus::Exited(0),
        "{}\n{}\n{}",
        sender.stdout,
        sender.stderr,
        receiver.stderr
    );
    // For each engine; over igb in either direction alone, and both at once.
    for (wire, expected) in [(1, 8), (2, 2), (3, 2)] {
        let trials = hosts.trials(&format!("wire{wire}"));
        assert_eq!(trials.len(), expected, "{trials:#?}");
        trials.iter().for_each(assert_closed);
    }

    assert_eq!(hosts.text("carrier"), "0\n");
    hosts.trials("flap").iter().for_each(assert_closed);

    assert!(matches!(receiver.status, VmStatus::Lost(_)), "{receiver:?}");
    assert_eq!(hosts.text("lost.status"), "1\n");
    let error = hosts.text("lost.err");
    assert!(error.contains("the receiver at 198.18.2.2:4321 went away"), "{error}");
    let [lost] = &hosts.trials("lost")[..] else { panic!("one trial") };
    for member in ["delivered", "delivered_pps", "loss_ratio"] {
        assert!(lost[member].is_null(), "{member}: {lost:#}");
    }
    assert!(lost["sent"].as_u64().unwrap() > 0);
    let words = hosts.text("lost.txt");
    assert!(
        words.contains("the receiver was lost") && !words.contains("every packet is accounted for"),
        "{words}"
    );
}
