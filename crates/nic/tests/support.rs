//! A process that changes an interface and is killed at any moment.

use std::{
    env,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nic::{Card, Session, Setting, Settings, read_settings, restore};

/// In the environment of the process that is killed: interface, state directory and settings, separated by bars.
pub(crate) const VICTIM: &str = "NIC_TEST_VICTIM";
/// Likewise, when it must wait after its change.
pub(crate) const HALTS: &str = "NIC_TEST_VICTIM_HALTS";

/// The victim's work, if this process is one: the test that starts victims calls it first.
pub(crate) fn be_a_victim() -> bool {
    let Ok(order) = env::var(VICTIM) else { return false };
    let mut parts = order.split('|');
    let (interface, state) = (parts.next().unwrap(), parts.next().unwrap());
    let settings: Vec<Setting> = parts.map(|text| text.parse().unwrap()).collect();
    let mut session = Session::begin(interface, Path::new(state)).unwrap();
    session.apply(&settings).unwrap();
    if env::var_os(HALTS).is_some() {
        println!("\nchanged");
        // A loop, not one `park`: the thread may have been unparked before.
        std::thread::sleep(Duration::from_secs(60));
    }
    drop(session);
    true
}

/// Kills a process that changes `interface` at `kills` random moments, and restores after each; every setting must be
/// unchanged. `test` is the name of the test that calls [`be_a_victim`]. Returns how often something was changed.
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
        // A random moment within the duration of an undisturbed change, and a little beyond.
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

/// Applies random sequences of settings, some kept, some undone at once, and restores after each sequence: nothing
/// is left, and every setting is unchanged. `table` has values by setting. Returns how many changes were kept.
pub(crate) fn random_sequences(interface: &str, table: &[(&str, &[&str])], sequences: u32, seed: u64) -> u32 {
    println!("random sequences of settings, seed {seed}");
    let mut random = Random(seed);
    let before = all_settings(interface);
    let mut kept = 0;
    for sequence in 0..sequences {
        let state = tempfile::tempdir().unwrap();
        let mut steps = Vec::new();
        for _ in 0..=random.below(6) {
            let mut pick = || {
                let (name, values) = table[random.below(table.len())];
                format!("{name}={}", values[random.below(values.len())])
            };
            let texts: Vec<String> = (0..3).map(|_| pick()).collect();
            let texts = &texts[..=random.below(3)];
            let settings: Vec<Setting> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let mut session = Session::begin(interface, state.path()).unwrap();
            // Settings that cannot be used now, or are refused, are rolled back as a whole.
            let applied = session.apply(&settings);
            let words = applied.as_ref().map_or_else(ToString::to_string, |_| "applied".into());
            if let Err(nic::SessionError::RolledBack { left, .. }) = &applied {
                assert_eq!(left, &[], "sequence {sequence}: {steps:?}, then {texts:?}");
            }
            let keep = random.below(4) > 0;
            steps.push(format!("{texts:?}: {words}, kept: {keep}"));
            if keep && applied.is_ok_and(|applied| !applied.outcomes.is_empty()) {
                kept += 1;
                session.keep().unwrap();
            }
        }
        match restore(interface, state.path()) {
            Ok(restored) => assert_eq!(restored.left, [], "sequence {sequence}: {steps:#?}"),
            Err(nic::SessionError::NothingToRestore { .. }) => {}
            Err(error) => panic!("sequence {sequence}: {error}: {steps:#?}"),
        }
        let differences = differences(&before, &all_settings(interface));
        assert_eq!(differences, [""; 0], "sequence {sequence}: {steps:#?}");
    }
    kept
}

/// The settings that belong to this interface alone.
pub(crate) fn all_settings(interface: &str) -> Settings {
    let mut settings = read_settings(&mut Card::open(interface).unwrap()).unwrap().settings;
    // Negotiated settings return with the link, and machine-wide settings are not the interface's.
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
    assert!(child.wait().unwrap().success(), "a process that is not killed succeeds");
    since.elapsed()
}

/// A multiplicative congruential generator; its seed is above.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / f64::from(1 << 24)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.unit() * limit as f64) as usize
    }
}
