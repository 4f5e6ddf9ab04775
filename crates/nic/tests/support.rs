//! A process that changes an interface and is killed at any moment.

use std::{
    env,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nic::{Card, Session, Setting, Settings, read_settings, restore};

/// In the environment of the process that is killed: interface, state directory and settings, parted by bars.
const VICTIM: &str = "NIC_TEST_VICTIM";

/// The victim's work, where this process is one: to be called first by the test that starts them.
pub(crate) fn be_a_victim() -> bool {
    let Ok(order) = env::var(VICTIM) else { return false };
    let mut parts = order.split('|');
    let (interface, state) = (parts.next().unwrap(), parts.next().unwrap());
    let settings: Vec<Setting> = parts.map(|text| text.parse().unwrap()).collect();
    let mut session = Session::begin(interface, Path::new(state)).unwrap();
    session.apply(&settings).unwrap();
    drop(session);
    true
}

/// Kills a process that changes `interface` at `kills` random moments, and restores after each; every setting must be
/// what it was. `test` is the name of the test that calls [`be_a_victim`]. Returns how often something was changed.
pub(crate) fn kill_and_restore(interface: &str, test: &str, settings: &[&str], kills: u32) -> u32 {
    let state = tempfile::tempdir().unwrap();
    let order = [&[interface, state.path().to_str().unwrap()], settings].concat().join("|");
    let victim = || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test]).env(VICTIM, &order).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let before = all_settings(interface);
    let whole = timed(victim());
    println!("an undisturbed change of {} settings and back takes {whole:?}", settings.len());
    let mut random = Random(0x5eed);
    let mut changed = 0;
    for kill in 0..kills {
        let mut child = victim();
        // Somewhere within what an undisturbed one takes, and a little beyond.
        let moment = whole.mul_f64(random.unit() * 1.1);
        let since = Instant::now();
        while since.elapsed() < moment {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        match restore(interface, state.path()) {
            Ok(restored) => {
                assert_eq!(restored.left, [], "kill {kill} after {moment:?}");
                changed += u32::from(!restored.changes.is_empty());
            }
            Err(nic::SessionError::NothingToRestore { .. }) => {}
            Err(error) => panic!("kill {kill} after {moment:?}: {error}"),
        }
        assert_eq!(differences(&before, &all_settings(interface)), [""; 0], "kill {kill} after {moment:?}");
    }
    changed
}

/// The settings that are this interface's own.
pub(crate) fn all_settings(interface: &str) -> Settings {
    let mut settings = read_settings(&mut Card::open(interface).unwrap()).unwrap().settings;
    // What is negotiated comes back with the link, and the machine's own are not the interface's.
    settings.retain(|name, _| !name.starts_with("pause."));
    settings
}

fn differences(before: &Settings, now: &Settings) -> Vec<String> {
    let names = before.keys().chain(now.keys());
    names
        .filter(|name| before.get(*name) != now.get(*name))
        .map(|name| format!("{name}: {:?}, was {:?}", now.get(name), before.get(name)))
        .collect()
}

fn timed(mut child: Child) -> Duration {
    let since = Instant::now();
    assert!(child.wait().unwrap().success(), "a process that nobody kills succeeds");
    since.elapsed()
}

/// A multiplicative congruential generator; its seed stands above.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / f64::from(1 << 24)
    }
}
