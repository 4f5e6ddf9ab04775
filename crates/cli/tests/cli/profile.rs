//! `--profile`: where receiving spends its time.

use serde_json::Value;

use crate::support::{Recv, as_nobody, is_root, json, linerate, run, skip, words};

fn stages(trial: &Value) -> Vec<(String, u64)> {
    let stages = trial["profile"]["stages"].as_array().expect("a profile has stages");
    stages.iter().map(|s| (s["stage"].as_str().unwrap().into(), s["samples"].as_u64().unwrap())).collect()
}

#[test]
fn a_trial_s_samples_are_conserved_and_belong_to_the_stages_of_its_path() {
    if !is_root() {
        return skip("sampling CPUs needs root");
    }
    // A machine short of CPU time takes few samples, which may miss a stage of the path.
    for (tx, rx, expected) in [
        ("udp", "udp", &[][..]),
        ("udp", "xdp", &["xdp"]),
        ("xdp", "udp", &["udp", "ip", "allocation"]),
        ("xdp", "xdp", &["xdp"]),
    ] {
        let pair = ["bench", "--tx", tx, "--rx", rx, "--trials", "1", "--duration", "600ms"];
        testing::repeat(&format!("samples of {tx} → {rx} need CPU time"), |_| {
            let (_, run) = json(&[&pair[..], &["--profile", "--no-save", "--json"]].concat());
            let trial = &run["end"]["trials"][0];
            conserves_samples(trial);
            has_stages(trial, expected)
        });
    }
}

/// Whether each of these stages has samples.
fn has_stages(trial: &Value, expected: &[&str]) -> Result<(), String> {
    let seen = stages(trial);
    let sum: u64 = seen.iter().map(|(_, samples)| samples).sum();
    assert_eq!(trial["profile"]["receiving_samples"], sum, "{trial:#}");
    let missing = expected.iter().find(|stage| !seen.iter().any(|(name, n)| name == *stage && *n > 0));
    missing.map_or(Ok(()), |stage| Err(format!("no sample in {stage}: {seen:?}")))
}

fn conserves_samples(trial: &Value) {
    let profile = &trial["profile"];
    let sum: u64 = stages(trial).iter().map(|(_, samples)| samples).sum();
    assert_eq!(profile["receiving_samples"], sum, "{profile:#}");
    let stacks: u64 =
        profile["stacks"].as_array().unwrap().iter().map(|s| s["samples"].as_u64().unwrap()).sum();
    let kept = sum + profile["sending_samples"].as_u64().unwrap();
    assert_eq!(stacks, kept, "every sample of receiving and sending is in a stack");
    let polls: u64 = trial["cpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cpu| cpu["net_rx"]["polls"]["packets"].as_u64().unwrap())
        .sum();
    assert!(polls >= trial["delivered"].as_u64().unwrap(), "every packet delivered was polled: {polls}");
}

#[test]
fn without_permission_it_fails_before_it_begins() {
    if !is_root() {
        return skip("changing to nobody needs root");
    }
    let (status, out, err) =
        words(as_nobody(linerate(&["bench", "--profile", "--no-save"])).output().unwrap());
    assert_eq!((status, out.as_str()), (3, ""), "{err}");
    assert!(err.contains("hint:  run as root"), "{err}");
    assert!(!err.contains("trial 1"), "{err}");
}

#[test]
fn a_receiver_on_another_host_reports_its_profile() {
    if !is_root() {
        return skip("sampling CPUs needs root");
    }
    let bench = |receiver: &Recv| {
        let peer = receiver.address.to_string();
        let asked = ["bench", "--peer", &peer, "--profile", "--tx", "udp", "--trials", "1"];
        run(&[&asked[..], &["--duration", "400ms", "--no-save", "--json"]].concat())
    };
    let blind = Recv::start(&[]);
    let (status, _, err) = bench(&blind);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("refused: it does not profile its CPUs: start it with --profile"), "{err}");

    testing::repeat(NEEDS_TIME, |_| {
        let receiver = Recv::start(&["--once", "--json", "--profile"]);
        let (status, out, err) = bench(&receiver);
        assert!(status <= 1, "{err}");
        let (_, received, _) = receiver.finish();
        let [sent, received]: [Value; 2] = [out, received]
            .map(|text| serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")));
        let [ours, theirs] = [&sent["end"]["trials"][0], &received["end"]["trials"][0]];
        assert_eq!(stages(ours), stages(theirs), "both report the same trial");
        let stacks = |trial: &Value| trial["profile"]["stacks"].as_array().unwrap().len();
        assert_eq!(stacks(ours), 0, "stacks stay on the host that sampled them");
        assert!(stacks(theirs) > 0 || theirs["profile"]["receiving_samples"] == 0, "{theirs:#}");
        has_stages(ours, &["udp"])
    });
}

/// A receiver short of CPU time takes few samples, which may miss the kernel's UDP.
const NEEDS_TIME: &str = "a sample in UDP needs CPU time";

#[test]
fn a_receiver_profiles_each_sender_s_trial() {
    if !is_root() {
        return skip("sampling CPUs needs root");
    }
    testing::repeat(NEEDS_TIME, |_| {
        let receiver = Recv::start(&["--once", "--json", "--profile"]);
        let target = receiver.address.to_string();
        run(&["send", &target, "--no-save", "--duration", "400ms", "--rate", "max"]);
        let (status, out, err) = receiver.finish();
        assert!(status.success(), "{err}");
        let run: Value = serde_json::from_str(&out).unwrap();
        has_stages(&run["end"]["trials"][0], &["udp"])
    });
}
