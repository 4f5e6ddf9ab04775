//! What sets the CPUs' frequency and how deeply they sleep: read, and held for as long as a value lives.
//!
//! Files: `Documentation/admin-guide/pm/cpufreq.rst`, `cpuidle.rst` and `power/pm_qos_interface.rst` of the kernel.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::sysfs::ForNow;

/// The machine's control of its CPUs. Most virtual machines show only a part: the hypervisor decides the rest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuControl {
    /// The frequency governors in use, each once; empty where the kernel controls no frequency.
    pub governors: Vec<String>,
    /// The frequency driver.
    pub frequency_driver: Option<String>,
    /// The lowest and the highest frequency that the governors may choose, in kHz.
    pub frequency_khz: Option<(u64, u64)>,
    /// Whether the CPU may exceed its nominal frequency.
    pub turbo: Option<bool>,
    /// The idle driver; `None` where the kernel has none.
    pub idle_driver: Option<String>,
    /// The idle states (C-states) of the first CPU, the lightest first.
    pub idle_states: Vec<IdleState>,
    /// The longest time to wake up that the idle driver may choose, in microseconds (`/dev/cpu_dma_latency`); `None` without a
    /// limit, or where only root can read it.
    pub wake_up_limit_us: Option<u32>,
    /// Whether a core's second hardware thread is in use.
    pub smt: Option<bool>,
    /// Whether a hypervisor runs below this kernel.
    pub is_virtual: bool,
}

/// An idle state of a CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdleState {
    /// Its name, for example `C6`.
    pub name: String,
    /// The time to leave it, in microseconds.
    pub exit_latency_us: u32,
    /// Whether it is switched off.
    pub is_disabled: bool,
}

/// Without a limit `/dev/cpu_dma_latency` has this value (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const NO_LIMIT_US: i32 = 2_000_000_000;
const CPUS: &str = "sys/devices/system/cpu";
const WAKE_UP_LIMIT: &str = "dev/cpu_dma_latency";
/// The governor with a constant, highest frequency.
const PERFORMANCE: &str = "performance";

impl CpuControl {
    /// This machine's.
    pub fn read() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        let cpus = root.join(CPUS);
        let word = |path: PathBuf| {
            let text = fs::read_to_string(path).ok()?;
            let word = text.trim().to_owned();
            (!word.is_empty()).then_some(word)
        };
        let number = |path: PathBuf| word(path)?.parse::<u64>().ok();
        let policies = policies(root);
        let all =
            |file: &str| policies.iter().filter_map(|policy| number(policy.join(file))).collect::<Vec<_>>();
        let governors: BTreeSet<String> =
            policies.iter().filter_map(|policy| word(policy.join("scaling_governor"))).collect();
        let limits = all("scaling_min_freq").into_iter().min().zip(all("scaling_max_freq").into_iter().max());
        let turbo = match number(cpus.join("intel_pstate/no_turbo")) {
            Some(off) => Some(off == 0),
            None => number(cpus.join("cpufreq/boost")).map(|on| on == 1),
        };
        let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        Self {
            governors: governors.into_iter().collect(),
            frequency_driver: policies.first().and_then(|policy| word(policy.join("scaling_driver"))),
            frequency_khz: limits,
            turbo,
            idle_driver: word(cpus.join("cpuidle/current_driver")).filter(|driver| driver != "none"),
            idle_states: idle_states(&cpus.join("cpu0/cpuidle")),
            wake_up_limit_us: wake_up_limit(&root.join(WAKE_UP_LIMIT)),
            smt: number(cpus.join("smt/active")).map(|on| on == 1),
            is_virtual: flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"),
        }
    }
}

/// The folders of the frequency policies, which are in effect for one CPU or several.
fn policies(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(CPUS).join("cpufreq"));
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let is_policy =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("policy"));
    let mut policies: Vec<PathBuf> = paths.filter(is_policy).collect();
    policies.sort();
    policies
}

fn idle_states(folder: &Path) -> Vec<IdleState> {
    let state = |number: usize| {
        let read = |file: &str| fs::read_to_string(folder.join(format!("state{number}/{file}"))).ok();
        Some(IdleState {
            name: read("name")?.trim().into(),
            exit_latency_us: read("latency")?.trim().parse().ok()?,
            is_disabled: read("disable").is_some_and(|text| text.trim() == "1"),
        })
    };
    (0..).map_while(state).collect()
}

fn wake_up_limit(path: &Path) -> Option<u32> {
    let mut bytes = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
    let limit_us = i32::from_ne_bytes(bytes);
    u32::try_from(limit_us).ok().filter(|_| limit_us != NO_LIMIT_US)
}

/// Why frequency or sleep cannot be held.
#[derive(Debug, Error)]
#[error("cannot hold the CPUs: {path}")]
pub struct HoldError {
    /// The kernel's file.
    pub path: String,
    /// The cause. `WouldBlock`: another process holds it.
    #[source]
    pub source: io::Error,
}

/// The CPUs' frequency at its highest and their idle states at the lightest, until this is dropped or the process ends in any
/// way, a kill included: then the former values return.
#[derive(Debug)]
pub struct HeldCpus {
    /// The frequencies are held; `false` where the kernel does not control them.
    pub frequency: bool,
    /// Idle states are held; `false` where the kernel does not control them.
    pub idle: bool,
    _values: Option<ForNow>,
    // The limit is in effect while the file is open.
    _limit: Option<File>,
}

impl HeldCpus {
    /// Sets every frequency policy to the governor `performance` with its highest frequency as the lowest, and limits the time to
    /// wake up to 0.
    ///
    /// # Errors
    /// The kernel's refusal; without one, what the kernel does not have is left out.
    pub fn hold() -> Result<Self, HoldError> {
        Self::hold_below(Path::new("/"))
    }

    fn hold_below(root: &Path) -> Result<Self, HoldError> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |source| HoldError { path, source }
        };
        let mut paths = Vec::new();
        let mut changes = Vec::new();
        for policy in policies(root) {
            let read = |file: &str| fs::read_to_string(policy.join(file)).unwrap_or_default();
            let governors = read("scaling_available_governors");
            let highest = read("scaling_max_freq");
            let governor =
                governors.split_whitespace().any(|name| name == PERFORMANCE).then_some(PERFORMANCE);
            let wanted = [("scaling_governor", governor), ("scaling_min_freq", Some(highest.trim()))];
            for (file, value) in wanted {
                let (Some(value), path) = (value.filter(|value| !value.is_empty()), policy.join(file)) else {
                    continue;
                };
                let file = File::options().read(true).write(true).open(&path).map_err(failed(&path))?;
                changes.push((file, format!("{value}\n")));
                paths.push(path);
            }
        }
        let frequency = !changes.is_empty();
        let values = frequency
            .then(|| ForNow::set(changes))
            .transpose()
            .map_err(|(at, source)| failed(&paths[at])(source))?;
        let path = root.join(WAKE_UP_LIMIT);
        let limit = match File::options().write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => {
                let mut file = opened.map_err(failed(&path))?;
                file.write_all(&0i32.to_ne_bytes()).map_err(failed(&path))?;
                Some(file)
            }
        };
        Ok(Self { frequency, idle: limit.is_some(), _values: values, _limit: limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

    fn laptop() -> tempfile::TempDir {
        let no_limit = NO_LIMIT_US.to_ne_bytes();
        let root = machine(&[
            ("proc/cpuinfo", b"processor\t: 0\nflags\t\t: fpu vme sse\n"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", b"0\n"),
            ("sys/devices/system/cpu/smt/active", b"1\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", b"intel_idle\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", b"POLL\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", b"0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", b"C6\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", b"133\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", b"1\n"),
            ("dev/cpu_dma_latency", &no_limit),
        ]);
        for policy in ["policy0", "policy1"] {
            for (file, content) in [
                ("scaling_governor", "powersave\n"),
                ("scaling_driver", "intel_pstate\n"),
                ("scaling_available_governors", "performance powersave\n"),
                ("scaling_min_freq", "800000\n"),
                ("scaling_max_freq", "3600000\n"),
            ] {
                let folder = root.path().join(CPUS).join("cpufreq").join(policy);
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join(file), content).unwrap();
            }
        }
        root
    }

    #[test]
    fn everything_that_the_kernel_shows_is_read() {
        let state = |name: &str, exit_latency_us, is_disabled| IdleState {
            name: name.into(),
            exit_latency_us,
            is_disabled,
        };
        let expected = CpuControl {
            governors: vec!["powersave".into()],
            frequency_driver: Some("intel_pstate".into()),
            frequency_khz: Some((800_000, 3_600_000)),
            turbo: Some(true),
            idle_driver: Some("intel_idle".into()),
            idle_states: vec![state("POLL", 0, false), state("C6", 133, true)],
            wake_up_limit_us: None,
            smt: Some(true),
            is_virtual: false,
        };
        assert_eq!(CpuControl::below(laptop().path()), expected);
    }

    #[test]
    fn a_machine_that_shows_nothing_is_read_as_such() {
        let root = machine(&[("proc/cpuinfo", b"flags\t: fpu hypervisor\n")]);
        let shown = CpuControl::below(root.path());
        assert_eq!(shown, CpuControl { is_virtual: true, ..CpuControl::default() });
        let held = HeldCpus::hold_below(root.path()).unwrap();
        assert!(!held.frequency && !held.idle);
    }

    #[test]
    fn held_cpus_are_at_their_highest_frequency_until_dropped() {
        let root = laptop();
        let value = |file: &str| fs::read_to_string(root.path().join(POLICY).join(file)).unwrap();
        let held = HeldCpus::hold_below(root.path()).unwrap();
        assert!(held.frequency && held.idle);
        assert_eq!(value("scaling_governor").trim(), "performance");
        assert_eq!(value("scaling_min_freq").trim(), "3600000");
        assert_eq!(CpuControl::below(root.path()).wake_up_limit_us, Some(0));
        let refused = HeldCpus::hold_below(root.path()).unwrap_err();
        assert_eq!(refused.source.kind(), io::ErrorKind::WouldBlock, "another one holds them");
        assert!(refused.to_string().ends_with("policy0/scaling_governor"), "{refused}");
        drop(held);
        // A pseudo-file has no length; of these, the longer value's end remains.
        assert!(value("scaling_governor").starts_with("powersave\n"), "{}", value("scaling_governor"));
        assert!(value("scaling_min_freq").starts_with("800000\n"), "{}", value("scaling_min_freq"));
    }

    #[test]
    fn the_kernel_keeps_the_limit_while_it_is_held() {
        let Ok(held) = HeldCpus::hold() else { return testing::skip("only root may hold CPUs") };
        if !held.idle {
            return testing::skip("this kernel has no /dev/cpu_dma_latency");
        }
        assert_eq!(CpuControl::read().wake_up_limit_us, Some(0));
        drop(held);
        assert_ne!(CpuControl::read().wake_up_limit_us, Some(0));
    }
}
