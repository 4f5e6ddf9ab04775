//! The facts about the machine that affect packet rates.

use std::{collections::BTreeMap, fs};

use lab::{Lab, LabError, LabPlan, Side};
use measure::{CpuControl, Machine, NicFacts};
use sys::cycles::HardwareCounters;
use trial::interrupt_accounting;

/// Reads the kernel's description of itself and its CPUs; unknown facts stay empty.
pub fn read_machine() -> Machine {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = line("/proc/cpuinfo");
    Machine {
        kernel: line("/proc/sys/kernel/osrelease"),
        architecture: std::env::consts::ARCH.into(),
        cpu_model: field(&cpuinfo, "model name").unwrap_or_default().into(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        memory_bytes: field(&line("/proc/meminfo"), "MemTotal").and_then(kilobytes).unwrap_or(0),
        clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        mitigations: mitigations(),
        interfaces: Vec::new(),
        interrupt_accounting: interrupt_accounting(),
        cpu_control: Some(cpu_control()),
        quiet: None,
        no_hardware_counters: HardwareCounters::of_this_thread().err().map(|error| error.to_string()),
    }
}

/// The most interrupts in a record.
const MOST_INTERRUPTS: usize = 256;

fn cpu_control() -> CpuControl {
    let sys::cpu_control::CpuControl {
        governors,
        frequency_driver,
        frequency_khz,
        turbo,
        idle_driver,
        idle_states,
        wake_up_limit_us,
        smt,
        is_virtual,
    } = sys::cpu_control::CpuControl::read();
    let in_use = idle_states.into_iter().filter(|state| !state.is_disabled);
    CpuControl {
        governors,
        frequency_driver,
        least_khz: frequency_khz.map(|(least, _)| least),
        most_khz: frequency_khz.map(|(_, most)| most),
        turbo,
        idle_driver,
        idle_states_us: in_use.map(|state| (state.name, state.exit_latency_us)).collect(),
        wake_up_limit_us,
        smt,
        is_virtual,
        interrupt_cpus: interrupt_cpus(),
    }
}

/// The CPUs of each interrupt of this namespace's cards.
fn interrupt_cpus() -> BTreeMap<String, String> {
    let interfaces = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let cards = interfaces.filter(|entry| entry.path().join("device").exists());
    let cards = cards.filter_map(|entry| nic::Card::open(&entry.file_name().to_string_lossy()).ok());
    let interrupts = cards.flat_map(|card| nic::card_interrupts(&card).unwrap_or_default());
    let affinity = |interrupt: nic::Interrupt| {
        let nic::Affinity { asked, effective } = nic::affinity(interrupt.number)?;
        let cpus = if effective.is_empty() { asked } else { effective };
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        Some((format!("{} {}", interrupt.number, interrupt.name), cpus.join(",")))
    };
    interrupts.filter_map(affinity).take(MOST_INTERRUPTS).collect()
}

/// The properties of a lab's two interfaces, read from a lab made for this.
///
/// # Errors
/// When no lab can be made.
pub fn read_lab_interfaces(plan: &LabPlan) -> Result<Vec<NicFacts>, LabError> {
    /// The features that decide whether one buffer is one frame.
    const TOLD: [&str; 6] = [
        "tx-udp-segmentation",
        "tx-tcp-segmentation",
        "tx-generic-segmentation",
        "rx-gro",
        "tx-checksum-ip-generic",
        "tx-scatter-gather",
    ];
    let facts = |side: &Side, role: &str| {
        let link = side.link()?;
        let features = side.features()?.into_iter().filter(|feature| TOLD.contains(&feature.name.as_str()));
        let on_off = |on| if on { "on" } else { "off" }.to_owned();
        let threaded = (role == "rx").then(|| ("threaded-napi".into(), on_off(plan.threaded_napi)));
        Ok(NicFacts {
            name: link.name,
            driver: side.driver()?,
            role: role.into(),
            mtu_bytes: link.mtu,
            rx_queues: side.rx_queues()?,
            tx_queues: link.tx_queues,
            speed_bps: None,
            settings: features
                .map(|feature| (feature.name, on_off(feature.active)))
                .chain(threaded)
                .collect(),
        })
    };
    let lab = Lab::create(plan)?;
    Ok(vec![facts(lab.tx(), "tx")?, facts(lab.rx(), "rx")?])
}

fn mitigations() -> BTreeMap<String, String> {
    let Ok(folder) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    folder
        .flatten()
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), text.trim().to_owned()))
        })
        .filter(|(_, text)| text != "Not affected")
        .collect()
}

/// The value of a `name : value` line.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_files_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nMemTotal:       16 kB\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 3 GHz"));
        assert_eq!(field(text, "MemTotal").and_then(kilobytes), Some(16 * 1024));
        assert_eq!(field(text, "absent"), None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_cpu() {
        let machine = read_machine();
        assert!(!machine.kernel.is_empty() && machine.cpus > 0 && machine.memory_bytes > 0);
        let counted = HardwareCounters::of_this_thread();
        assert_eq!(machine.no_hardware_counters, counted.err().map(|error| error.to_string()));
    }
}
