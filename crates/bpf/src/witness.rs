//! Counts the packets of some streams at an interface's driver, among other traffic.

use std::{fmt, time::Duration};

use aya::{
    Ebpf, EbpfLoader, TestRun, TestRunOptions, VerifierLogLevel,
    maps::{MapData, PerCpuArray},
    programs::{LinkOrder, SchedClassifier, TcAttachType, links::FdLink, tc::TcAttachOptions},
};

use crate::{
    drops::Streams,
    error::{BpfError, Cause, EINVAL, EOPNOTSUPP, errno, interface_name},
    program::object,
};

/// The direction of counted packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Out: behind the protocols, before the queueing discipline.
    Out,
    /// In: behind the driver, before the protocols.
    In,
}

/// Counts probe packets of streams at a tc hook (TCX) and passes all packets. The kernel removes the program when this value or
/// the process ends.
pub struct Witness {
    // Before the maps: nothing is counted any more when they go.
    _link: FdLink,
    ebpf: Ebpf,
    seen: PerCpuArray<MapData, [u64; 2]>,
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Witnessed {
    /// Packets of the streams, including each segment of joined ones.
    pub packets: u64,
    /// Packets to the port that could not be read.
    pub unread: u64,
}

const NAME: &str = "witness";
/// A program that does nothing.
const EMPTY: &str = "nothing";
/// Runs that one measurement of the program's cost takes.
const RUNS: u32 = 10_000;

impl Witness {
    /// Counts from now on at the interface of this number in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`BpfError`]: missing capabilities, or a kernel before 6.6.
    pub fn attach(interface: u32, way: Way, streams: &Streams) -> Result<Self, BpfError> {
        let (first_tag, tag_count) = streams.in_a_row().unwrap_or_default();
        let mut ebpf = EbpfLoader::new()
            .verifier_log_level(VerifierLogLevel::DISABLE)
            .override_global("port", &streams.port, true)
            .override_global("first_tag", &first_tag, true)
            .override_global("tag_count", &tag_count, true)
            .load(object!("witness"))
            .map_err(|source| refused(source.into()))?;
        streams.mark(&mut ebpf)?;
        let map = ebpf.take_map("seen").expect("the object defines the map");
        let seen = PerCpuArray::try_from(map).map_err(BpfError::map("use the BPF map 'seen'"))?;
        load(&mut ebpf, EMPTY)?;
        load(&mut ebpf, NAME)?;
        let link = link(&mut ebpf, interface, way)?;
        Ok(Self { _link: link, ebpf, seen })
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read(&self) -> Result<Witnessed, BpfError> {
        let cpus = self.seen.get(&0, 0).map_err(BpfError::map("read what the witness counted"))?;
        Ok(cpus.iter().fold(Witnessed::default(), |sum, [packets, unread]| Witnessed {
            packets: sum.packets + packets,
            unread: sum.unread + unread,
        }))
    }

    /// The program's CPU time for `frame`, which each run counts: the time of a measurement, minus that
    /// of an empty program.
    ///
    /// # Errors
    /// [`BpfError::ProgramRun`].
    pub fn cost(&self, frame: &[u8]) -> Result<Duration, BpfError> {
        Ok(self.run(frame, RUNS)?.saturating_sub(self.calling_cost(frame)?))
    }

    /// Runs the program over `frame`, which is counted each time; the CPU time of a run, as the kernel measures it.
    ///
    /// # Errors
    /// [`BpfError::ProgramRun`].
    pub fn run(&self, frame: &[u8], runs: u32) -> Result<Duration, BpfError> {
        self.time(NAME, frame, runs)
    }

    /// The same with a program that does nothing.
    ///
    /// # Errors
    /// [`BpfError::ProgramRun`].
    pub fn run_empty(&self, frame: &[u8], runs: u32) -> Result<Duration, BpfError> {
        self.time(EMPTY, frame, runs)
    }

    /// The kernel's own time in such a measurement.
    ///
    /// # Errors
    /// [`BpfError::ProgramRun`].
    pub fn calling_cost(&self, frame: &[u8]) -> Result<Duration, BpfError> {
        self.run_empty(frame, RUNS)
    }

    fn time(&self, name: &'static str, frame: &[u8], runs: u32) -> Result<Duration, BpfError> {
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = runs;
        let program = self.ebpf.program(name).expect("the object defines the program");
        let program: &SchedClassifier = program.try_into().expect("the program's section is classifier");
        let failed = |source| BpfError::ProgramRun { program: name, source };
        Ok(program.test_run(options).map_err(|source| failed(source.into()))?.duration)
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}

fn classifier<'e>(ebpf: &'e mut Ebpf, name: &str) -> &'e mut SchedClassifier {
    let program = ebpf.program_mut(name).expect("the object defines the program");
    program.try_into().expect("the program's section is classifier")
}

fn load(ebpf: &mut Ebpf, name: &str) -> Result<(), BpfError> {
    classifier(ebpf, name).load().map_err(|source| refused(source.into()))
}

fn link(ebpf: &mut Ebpf, interface: u32, way: Way) -> Result<FdLink, BpfError> {
    let program = classifier(ebpf, NAME);
    let name = interface_name(interface);
    let hook = match way {
        Way::Out => TcAttachType::Egress,
        Way::In => TcAttachType::Ingress,
    };
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let attached = program.attach_with_options(&name, hook, options).and_then(|id| program.take_link(id));
    let link = attached.map_err(|source| refusal(&name, source.into()))?;
    FdLink::try_from(link).map_err(|source| refusal(&name, source.into()))
}

fn refusal(interface: &str, source: Cause) -> BpfError {
    match errno(&*source) {
        Some(EINVAL | EOPNOTSUPP) | None => BpfError::Unsupported {
            feature: "counting packets at tc by link".into(),
            on: "here (since Linux 6.6)".into(),
            source,
        },
        Some(_) => {
            let action = format!("attach a program to tc of {interface}");
            BpfError::or_capability(action, source, |source| BpfError::Filter { program: NAME, source })
        }
    }
}

fn refused(source: Cause) -> BpfError {
    let load = |source| BpfError::Load { program: NAME, source };
    BpfError::or_capability(format!("load the BPF program '{NAME}'"), source, load)
}
