//! What sets the CPUs' frequency and sleep, as a record has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What sets the CPUs' frequency and how deeply they sleep, when the run started. A virtual machine shows only a part of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuControl {
    /// Frequency governors in use; empty where the kernel controls no frequency.
    pub governors: Vec<String>,
    /// The frequency driver.
    pub frequency_driver: Option<String>,
    /// The lowest frequency that governors may choose, in kHz.
    pub least_khz: Option<u64>,
    /// The highest one.
    pub most_khz: Option<u64>,
    /// Whether CPUs may exceed their nominal frequency.
    pub turbo: Option<bool>,
    /// The idle driver.
    pub idle_driver: Option<String>,
    /// Idle states (C-states) in use, each with the time to leave it in microseconds.
    pub idle_states_us: BTreeMap<String, u32>,
    /// The longest time to wake up that idle states may take, in microseconds, where one is set (`/dev/cpu_dma_latency`).
    pub wake_up_limit_us: Option<u32>,
    /// Whether a core's second hardware thread is in use (SMT).
    pub smt: Option<bool>,
    /// Whether a hypervisor runs below the kernel.
    pub is_virtual: bool,
    /// The CPUs that serve each interrupt of network cards, by its number and name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interrupt_cpus: BTreeMap<String, String>,
}

impl CpuControl {
    /// As rows of a name and a value, with what is not visible named as such.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let hidden = || {
            let machine = if self.is_virtual { "in this virtual machine" } else { "on this machine" };
            format!("not visible {machine}")
        };
        let switch = |on: Option<bool>| on.map_or_else(hidden, |on| if on { "on" } else { "off" }.into());
        let driver =
            |driver: &Option<String>| driver.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        let frequency = match (self.governors.is_empty(), self.least_khz.zip(self.most_khz)) {
            (true, _) => hidden(),
            (false, None) => format!("{}{}", self.governors.join(", "), driver(&self.frequency_driver)),
            (false, Some((least, most))) => format!(
                "{}{}, {} to {} MHz",
                self.governors.join(", "),
                driver(&self.frequency_driver),
                least / 1000,
                most / 1000
            ),
        };
        let states = self.idle_states_us.iter().map(|(name, us)| format!("{name} {us} µs"));
        let sleep = match self.idle_driver {
            Some(_) => format!("{}{}", states.collect::<Vec<_>>().join(", "), driver(&self.idle_driver)),
            None => hidden(),
        };
        let limit = self.wake_up_limit_us.map_or_else(|| "none".into(), |us| format!("{us} µs"));
        vec![
            ("frequency governor", frequency),
            ("turbo", switch(self.turbo)),
            ("C-states", sleep),
            ("limit of waking up", limit),
            ("SMT", switch(self.smt)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_does_not_show_is_named_so() {
        let rows = CpuControl { is_virtual: true, ..CpuControl::default() }.rows();
        let hidden: Vec<&str> = rows
            .iter()
            .filter(|(_, value)| value.starts_with("not visible in this virtual"))
            .map(|row| row.0)
            .collect();
        assert_eq!(hidden, ["frequency governor", "turbo", "C-states", "SMT"]);
        let shown = CpuControl {
            governors: vec!["powersave".into()],
            frequency_driver: Some("intel_pstate".into()),
            least_khz: Some(800_000),
            most_khz: Some(3_600_000),
            turbo: Some(true),
            idle_driver: Some("intel_idle".into()),
            idle_states_us: [("C1".to_owned(), 2), ("C6".to_owned(), 133)].into(),
            wake_up_limit_us: Some(0),
            smt: Some(false),
            ..CpuControl::default()
        };
        let values: Vec<String> = shown.rows().into_iter().map(|(_, value)| value).collect();
        assert_eq!(
            values,
            [
                "powersave (intel_pstate), 800 to 3600 MHz",
                "on",
                "C1 2 µs, C6 133 µs (intel_idle)",
                "0 µs",
                "off"
            ]
        );
    }
}
