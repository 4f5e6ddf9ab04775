//! Polls of network devices and the exact time of the receiving softirq, by CPU, for the whole machine.

use std::fmt;

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{MapData, PerCpuArray},
    programs::RawTracePoint,
};

use crate::{
    error::{BpfError, Cause},
    program::object,
};

/// Counts until dropped; its programs are detached then, or when the process ends.
pub struct SoftirqWatch {
    // Before the map: nothing is counted any more when it goes.
    _programs: Ebpf,
    by_cpu: PerCpuArray<MapData, [u64; 6]>,
}

/// What the receiving softirq of one CPU did since the watch began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NapiCounts {
    /// Polls of devices.
    pub polls: u64,
    /// Packets that the polls took.
    pub packets: u64,
    /// Polls that used up their budget.
    pub full: u64,
    /// Polls that found nothing.
    pub empty: u64,
    /// Nanoseconds in the softirq.
    pub net_rx_ns: u64,
}

/// Each is the name of a program and of its tracepoint.
const PROGRAMS: [&str; 3] = ["napi_poll", "softirq_entry", "softirq_exit"];

impl SoftirqWatch {
    /// Loads and attaches.
    ///
    /// # Errors
    /// [`BpfError::MissingCapability`] and [`BpfError::Load`].
    pub fn start() -> Result<Self, BpfError> {
        let mut loader = EbpfLoader::new();
        loader.verifier_log_level(VerifierLogLevel::DISABLE);
        let mut programs =
            loader.load(object!("softirq")).map_err(|source| refused(PROGRAMS[0], source.into()))?;
        let map = programs.take_map("by_cpu").expect("the object defines the map");
        let by_cpu = PerCpuArray::try_from(map).map_err(BpfError::map("use the BPF map 'by_cpu'"))?;
        for name in PROGRAMS {
            let program = programs.program_mut(name).expect("the object defines the program");
            let program: &mut RawTracePoint =
                program.try_into().expect("the program's section is raw_tracepoint");
            program.load().map_err(|source| refused(name, source.into()))?;
            program.attach(name).map_err(|source| refused(name, source.into()))?;
        }
        Ok(Self { _programs: programs, by_cpu })
    }

    /// The counts of each CPU so far, by its number.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read(&self) -> Result<Vec<NapiCounts>, BpfError> {
        let values = self.by_cpu.get(&0, 0).map_err(BpfError::map("read the counters of polls"))?;
        Ok(values.iter().map(NapiCounts::of).collect())
    }
}

fn refused(program: &'static str, source: Cause) -> BpfError {
    let load = |source| BpfError::Load { program, source };
    BpfError::or_capability(format!("load the BPF program '{program}'"), source, load)
}

impl fmt::Debug for SoftirqWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftirqWatch").finish_non_exhaustive()
    }
}

impl NapiCounts {
    /// From `struct counts` of `softirq.bpf.c`.
    fn of(words: &[u64; 6]) -> Self {
        let [polls, packets, full, empty, net_rx_ns, _] = *words;
        Self { polls, packets, full, empty, net_rx_ns }
    }

    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            polls: self.polls - earlier.polls,
            packets: self.packets - earlier.packets,
            full: self.full - earlier.full,
            empty: self.empty - earlier.empty,
            net_rx_ns: self.net_rx_ns - earlier.net_rx_ns,
        }
    }
}
