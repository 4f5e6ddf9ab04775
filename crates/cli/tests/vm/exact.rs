//! Counted instructions: known answers, and `linerate bench --exact`.

use std::{env, fs, process::Command, time::Duration};

use lab::{Accel, Kernel, VmPlan};
use serde_json::Value;
use trial::{CountNames, read_counts};

use crate::{
    inside::{FILLED_BYTES, REPEATS, XDP_MORE},
    support::LINERATE,
};

/// Instructions of a thread alone, without interrupts and softirqs.
#[derive(Debug, Clone, Copy)]
struct Counted {
    instructions: f64,
    string_bytes: f64,
}

/// Kinds of work, in the order of `inside::known`.
const WORK: [&str; 5] = ["loop", "system call", "string", "short XDP program", "long XDP program"];

#[test]
fn known_work_is_counted_to_the_instruction() {
    let share = tempfile::tempdir().unwrap();
    let plan = VmPlan {
        kernel: Kernel::Latest,
        cpus: 1,
        accel: Accel::Counting,
        time_limit: Duration::from_secs(240),
        share: Some(share.path().into()),
        kernel_options: vec!["norandmaps".into()],
        ..VmPlan::default()
    };
    let Some(vm) = testing::machine(&plan) else { return };
    let this = env::current_exe().unwrap();
    let script = format!(
        "grep -E 'asm_|irq_entries' /proc/kallsyms > /share/symbols
        INSIDE=known {} --exact inside::called --nocapture --quiet && cat /proc/kallsyms > /share/kallsyms",
        this.display()
    );
    testing::run_in(&vm, &script);
    let text = |name: &str| fs::read_to_string(share.path().join(name)).unwrap();
    let counts = read_counts(&text("counts")).unwrap();
    let names = CountNames::of(&text("kallsyms"), &this).unwrap();
    assert_eq!(counts.len(), 3 * REPEATS * WORK.len());
    let counted: Vec<Counted> = counts
        .iter()
        .map(|counts| {
            let found = counts.fold(&names, 1, 1);
            let instructions =
                found.sender_user_per_packet.unwrap() + found.sender_kernel_per_packet.unwrap();
            Counted { instructions, string_bytes: found.string_bytes_per_packet.unwrap() }
        })
        .collect();
    // Exceptions and ticks add instructions: the least of the repeats is the work.
    let least = |times: usize, work: usize, of: fn(&Counted) -> f64| {
        let repeats = counted.chunks(REPEATS * WORK.len()).nth(times).unwrap();
        repeats.chunks(WORK.len()).map(|round| of(&round[work])).fold(f64::INFINITY, f64::min)
    };
    // A thousand times more of each, twice.
    let each = |work: usize, of: fn(&Counted) -> f64| {
        let by_times = [0, 1, 2].map(|times| least(times, work, of));
        let (first, second) = (by_times[1] - by_times[0], by_times[2] - by_times[1]);
        // What the kernel does once for all runs of a program depends on its memory layout, and is less than one
        // instruction per run.
        let once = if WORK[work].ends_with("XDP program") { 1000.0 } else { 0.0 };
        assert!((first - second).abs() <= once, "{}: {by_times:?}", WORK[work]);
        assert!(once > 0.0 || second % 1000.0 == 0.0, "{}: {second} a thousand times", WORK[work]);
        ((first + second) / 2000.0).round()
    };
    let instructions = |work: usize| each(work, |counted| counted.instructions);
    assert_eq!(instructions(0), 2.0, "dec and jnz");
    let call = instructions(1);
    assert!((50.0..1000.0).contains(&call), "into the kernel and back: {call}");
    assert_eq!(each(2, |counted| counted.string_bytes), FILLED_BYTES as f64);
    // Includes the loop around it, which is long in a debug build.
    assert!(instructions(2) < FILLED_BYTES as f64, "a string instruction counts once: {}", instructions(2));
    assert_eq!(instructions(4) - instructions(3), XDP_MORE as f64);
}

/// Runs `linerate` on this host.
fn bench(words: &str) -> Value {
    let output = Command::new(LINERATE).args(words.split(' ')).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}: {told}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

#[test]
fn a_ladder_s_instructions_match_its_stages_and_the_emulated_clock() {
    let kernels = [Kernel::V6_1, Kernel::Latest];
    let is_there = |kernel| testing::machine(&VmPlan { kernel, ..VmPlan::default() }).is_some();
    if !kernels.into_iter().all(is_there) {
        return;
    }
    let words = "bench --exact --tx xdp,xsk --rx xdp --kernel 6.1,latest --duration 20ms --json --no-save";
    let run = bench(words);
    assert_eq!(run["start"]["origin"], "exact");
    let trials = run["end"]["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 4);
    let of_machines: Vec<&str> = run["start"]["machine"]["kernel"].as_str().unwrap().split(", ").collect();
    for trial in trials {
        assert_eq!(trial["kernel"], trial["parameters"]["kernel"]);
        assert!(of_machines.contains(&trial["kernel"].as_str().unwrap()), "{of_machines:?}");
        assert_stages_are_the_total(trial);
    }
    // The run compares the counts with the clock of the sender's thread.
    let notes = run["end"]["notes"].as_array().unwrap();
    assert!(!notes.iter().any(|note| note.as_str().unwrap().contains("clock advanced")), "{notes:#?}");
}

fn assert_stages_are_the_total(trial: &Value) {
    // On Linux 6.1, a copying AF_XDP socket reports completions late.
    assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {trial:#}"));
    let counts = &trial["instructions"];
    let stages = counts["stages"].as_array().unwrap().iter();
    let (sent, delivered) = (number(&trial["sent"]), number(&trial["delivered"]));
    let packets = |stage: &Value| if stage["side"] == "receiver" { delivered } else { sent };
    let sum: f64 = stages.map(|stage| number(&stage["per_packet"]) * packets(stage)).sum();
    assert!((sum - number(&counts["total"])).abs() < 1.0, "{sum} of {}", counts["total"]);
    assert!(trial["tx_cost"]["ns_per_packet"].is_null(), "an emulated machine has no times");
}

#[test]
fn zero_copy_on_emulated_cards_leaves_nothing_unexplained() {
    if testing::machine(&VmPlan { kernel: Kernel::Latest, ..VmPlan::default() }).is_none() {
        return;
    }
    // A burst from AF_XDP's ring is larger than the receiving card's: QEMU's igb drops the rest and counts none of it. What
    // virtio's XDP program drops is in two of the driver's counters.
    for card in ["igb", "virtio"] {
        let words = format!("bench --exact --card {card} --tx xsk --rx xdp --duration 20ms --json --no-save");
        let run = bench(&words);
        let trial = &run["end"]["trials"][0];
        assert!(trial["delivered"].as_u64().is_some_and(|packets| packets > 1000), "{trial:#}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{card}: {:#}", trial["ledger"]);
    }
}
