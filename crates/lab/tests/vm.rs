//! Virtual machines: what the script sees and returns, and that nothing remains.

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::{NicModel, NicPair, VmPlan, VmStatus};
use testing::machine;

#[test]
fn a_script_has_the_hosts_files_every_card_and_two_streams_of_its_own() {
    let shared = tempfile::tempdir().unwrap();
    let pairs = NicModel::ALL.map(NicPair::of).to_vec();
    let plan = VmPlan { pairs, cpus: 4, share: Some(shared.path().into()), ..VmPlan::default() };
    let Some(vm) = machine(&plan) else { return };
    let outside = shared.path().join("outside");
    let script = format!(
        "uname -r; pwd
        for card in /sys/class/net/pair*; do
            driver=$(readlink $card/device/driver)
            echo ${{card##*/}} ${{driver##*/}} $(cat $card/address) $(ls -d $card/queues/rx-* | wc -l)
        done
        cmp {} /proc/$$/cwd/Cargo.toml && echo the files are the host\\'s
        echo nothing > {} && echo written
        echo shared > /share/inside
        ip link set pair1a up && ip link set pair1b up
        echo words >&2
        head -c 100000 /dev/zero | tr '\\0' x
        exit 202",
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        outside.display()
    );
    let outcome = testing::outcome_in(&vm, &script);
    assert_eq!(outcome.status, VmStatus::Exited(202), "{outcome:?}");
    let cards = "pair1a igb 52:54:00:00:01:0a 8\npair1b igb 52:54:00:00:01:0b 8\n\
                 pair2a e1000 52:54:00:00:02:0a 1\npair2b e1000 52:54:00:00:02:0b 1\n\
                 pair3a e1000e 52:54:00:00:03:0a 1\npair3b e1000e 52:54:00:00:03:0b 1\n\
                 pair4a vmxnet3 52:54:00:00:04:0a 4\npair4b vmxnet3 52:54:00:00:04:0b 4\n\
                 pair5a virtio_net 52:54:00:00:05:0a 1\npair5b virtio_net 52:54:00:00:05:0b 1\n";
    let here = env::current_dir().unwrap();
    let expected = format!(
        "{}\n{}\n{cards}the files are the host's\nwritten\n{}",
        vm.kernel_version(),
        here.display(),
        "x".repeat(100_000)
    );
    assert!(outcome.stdout == expected, "{:.1200}", outcome.stdout);
    assert_eq!(outcome.stderr, "words\n");
    assert_eq!(fs::read_to_string(shared.path().join("inside")).unwrap(), "shared\n");
    assert!(!outside.exists(), "what the guest writes stays in its memory");
}

#[test]
fn a_machine_that_panics_is_lost_and_its_last_words_are_told() {
    let Some(vm) = machine(&VmPlan::default()) else { return };
    let outcome = vm.outcome("echo c > /proc/sysrq-trigger; sleep 60").unwrap();
    let VmStatus::Lost(words) = outcome.status else { panic!("{outcome:?}") };
    assert!(words.contains("sysrq triggered crash"), "{words}");
    assert!(words.chars().all(|letter| letter == '\n' || !letter.is_control()), "{words:?}");
}

#[test]
fn a_lost_machine_of_a_test_gets_a_second_chance() {
    let shared = tempfile::tempdir().unwrap();
    let plan = VmPlan { share: Some(shared.path().into()), ..VmPlan::default() };
    let Some(vm) = machine(&plan) else { return };
    if env::var_os(LOSER).is_some() {
        let script = "[ -e /share/seen ] && echo again && exit; touch /share/seen; echo c > /proc/sysrq-trigger; sleep 60";
        assert_eq!(testing::run_in(&vm, script), "again\n");
        return;
    }
    // In its own process: this repeat does not count for the run.
    let log = shared.path().join("log");
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_lost_machine_of_a_test_gets_a_second_chance"])
        .envs([(LOSER, "1".as_ref()), ("LINERATE_TEST_LOG", log.as_os_str())])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = fs::read_to_string(log).unwrap();
    assert!(told.starts_with("REPEATED\t") && told.lines().count() == 1, "{told}");
    assert!(told.contains("the virtual machine did not finish: VmOutcome { status: Lost("), "{told}");
}

#[test]
fn a_machine_is_ended_at_its_time_limit() {
    let plan = VmPlan { time_limit: Duration::from_millis(300), ..VmPlan::default() };
    let Some(vm) = machine(&plan) else { return };
    let outcome = vm.outcome("sleep 1000").unwrap();
    assert!(matches!(outcome.status, VmStatus::TimedOut(_)), "{outcome:?}");
}

#[test]
fn an_emulator_that_refuses_to_start_is_quoted() {
    let plan = VmPlan { memory_mib: u32::MAX, ..VmPlan::default() };
    let Some(vm) = machine(&plan) else { return };
    let outcome = vm.outcome("true").unwrap();
    let VmStatus::Lost(words) = outcome.status else { panic!("{outcome:?}") };
    assert!(words.contains("qemu-system"), "{words}");
}

/// In the environment of the process that loses a machine.
const LOSER: &str = "LAB_TEST_LOSES_A_MACHINE";

/// In the environment of the process that the test below starts and kills.
const KEEPER: &str = "LAB_TEST_KEEPS_A_MACHINE";

#[test]
fn a_killed_process_takes_its_machine_with_it() {
    let Some(vm) = machine(&VmPlan::default()) else { return };
    if env::var_os(KEEPER).is_some() {
        vm.outcome("sleep 1000").unwrap();
    }
    let mut keeper = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_takes_its_machine_with_it"])
        .env(KEEPER, "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let emulator = wait_for("the emulator", || emulator_of(&keeper));
    keeper.kill().unwrap();
    assert_eq!(keeper.wait().unwrap().signal(), Some(9));
    wait_for("the emulator's end", || state_of(emulator).is_none_or(|state| state == 'Z').then_some(()));
}

/// The process that a thread of the test's child started and that became the emulator.
fn emulator_of(keeper: &Child) -> Option<u32> {
    let threads = fs::read_dir(format!("/proc/{}/task", keeper.id())).ok()?;
    let children =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: String = children.collect();
    let mut children = children.split_whitespace().filter_map(|child| child.parse().ok());
    children.find(|child| {
        fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name.starts_with("qemu-system"))
    })
}

/// The letter after the name in `/proc/PID/stat`.
fn state_of(process: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits for a change that the kernel does not announce.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen within 30 s");
        std::thread::yield_now();
    }
}
