//! One loaded program: from object to link.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use aya::{
    Ebpf, EbpfLoader, TestRun, TestRunAttrs, TestRunOptions, TestRunResult, VerifierLogLevel,
    maps::{Map, MapError},
    programs::{
        RawTracePoint, Xdp,
        links::FdLink,
        loaded_programs,
        xdp::{XdpLink, XdpMode},
    },
};
use sys::{bpf_map::ArrayMemory, bpf_program, rtnetlink::RouteSocket};

use crate::{
    bound,
    error::{BpfError, Cause, EBUSY, EEXIST, EOPNOTSUPP, errno, interface_name},
    mode::Mode,
};

/// A program in the kernel.
#[derive(Debug)]
pub(crate) struct Program {
    ebpf: Ebpf,
    name: &'static str,
    /// The program, when it was loaded for one device.
    bound: Option<OwnedFd>,
    /// Detaches when dropped; the kernel does so when the process ends.
    link: Option<Link>,
}

/// What attaches a program to an interface: the loader's link, or ours for programs that the loader did not load.
#[derive(Debug)]
enum Link {
    Loaders(FdLink),
    Ours(#[expect(dead_code, reason = "held until the drop")] OwnedFd),
}

/// One use of `BPF_PROG_RUN`.
pub(crate) struct ProgramRun<'a> {
    /// The frame that the program finds.
    pub(crate) input: &'a [u8],
    /// The interface and queue that the program sees.
    pub(crate) interface: u32,
    /// Number of runs.
    pub(crate) repeat: u32,
    /// Frames per batch that really take the program's verdict; `None`: none does.
    pub(crate) live_batch: Option<u32>,
}

/// The bytes of `objects/<name>.bpf.o`.
macro_rules! object {
    ($name:literal) => {
        aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/objects/", $name, ".bpf.o"))
    };
}
pub(crate) use object;

impl Program {
    /// Loads the program `name` of an object; `configure` sets its constants and map sizes.
    pub(crate) fn load<'a>(
        name: &'static str,
        object: &[u8],
        configure: impl FnOnce(&mut EbpfLoader<'a>),
    ) -> Result<Self, BpfError> {
        Self::load_for(None, name, object, configure)
    }

    /// The same; with an interface's number for a program that reads the card's timestamps, which can be
    /// attached only there, natively.
    pub(crate) fn load_for<'a>(
        device: Option<u32>,
        name: &'static str,
        object: &[u8],
        configure: impl FnOnce(&mut EbpfLoader<'a>),
    ) -> Result<Self, BpfError> {
        let mut loader = EbpfLoader::new();
        loader.verifier_log_level(VerifierLogLevel::DISABLE);
        configure(&mut loader);
        let mut ebpf = loader.load(object).map_err(refused(name))?;
        let bound = match device {
            Some(interface) => Some(bound::load(name, object, &ebpf, interface)?),
            None => xdp(&mut ebpf, name).load().map(|()| None).map_err(refused(name))?,
        };
        Ok(Self { ebpf, name, bound, link: None })
    }

    /// Attaches the program to an interface without one.
    pub(crate) fn attach(&mut self, interface: u32, mode: Mode) -> Result<(), BpfError> {
        let flags = match mode {
            Mode::Native => XdpMode::Driver,
            Mode::Generic => XdpMode::Skb,
        };
        if let Some(bound) = &self.bound {
            let link = bpf_program::attach(bound.as_fd(), interface, mode == Mode::Generic);
            self.link = Some(Link::Ours(link.map_err(|source| refusal(interface, mode, source.into()))?));
            return Ok(());
        }
        let program = xdp(&mut self.ebpf, self.name);
        let link = program.attach_to_if_index(interface, flags).and_then(|id| program.take_link(id));
        let link = link.map_err(|source| refusal(interface, mode, source.into()))?;
        // Only a link ends with the process. On kernels before 5.9 the loader falls back to netlink.
        let link = FdLink::try_from(link).map_err(|source| BpfError::Unsupported {
            feature: "attaching XDP by link".into(),
            on: "here (since Linux 5.9)".into(),
            source: source.into(),
        })?;
        self.link = Some(Link::Loaders(link));
        Ok(())
    }

    /// Attaches another program of the object to a tracepoint, as long as this one lives.
    pub(crate) fn watch_tracepoint(
        &mut self,
        name: &'static str,
        tracepoint: &'static str,
    ) -> Result<(), BpfError> {
        let program = self.ebpf.program_mut(name).expect("the object defines the program");
        let program: &mut RawTracePoint =
            program.try_into().expect("the program's section is raw_tracepoint");
        let attached = program.load().and_then(|()| program.attach(tracepoint));
        attached.map(drop).map_err(|source| {
            let trace = |source| BpfError::Trace { point: tracepoint, source };
            BpfError::or_capability(format!("watch the trace point {tracepoint}"), source.into(), trace)
        })
    }

    /// Replaces another attached program, between two packets.
    pub(crate) fn take_over(&mut self, other: &mut Self) -> Result<(), BpfError> {
        let Some(Link::Loaders(link)) = other.link.take() else { return Ok(()) };
        let program = xdp(&mut self.ebpf, self.name);
        let replace = || {
            let link: XdpLink = link.try_into()?;
            let link = program.attach_to_link(link).and_then(|id| program.take_link(id))?;
            Ok::<_, Cause>(FdLink::try_from(link)?)
        };
        let link = replace().map_err(|source| BpfError::Replace { program: self.name, source })?;
        self.link = Some(Link::Loaders(link));
        Ok(())
    }

    /// Loads another program of the same object, for [`Program::run_also`].
    pub(crate) fn load_also(&mut self, name: &'static str) -> Result<(), BpfError> {
        xdp(&mut self.ebpf, name)
            .load()
            .map_err(|source| BpfError::Load { program: name, source: source.into() })
    }

    /// Runs the program; returns the length of the frame that it left in `output`.
    pub(crate) fn run(&self, run: &ProgramRun<'_>, output: Option<&mut [u8]>) -> Result<usize, BpfError> {
        Ok(self.run_named(self.name, run, output)?.data_size_out as usize)
    }

    /// Runs the program; returns the time of one run.
    pub(crate) fn time(&self, run: &ProgramRun<'_>) -> Result<Duration, BpfError> {
        Ok(self.run_named(self.name, run, None)?.duration)
    }

    /// Runs another program of the object; returns its result.
    pub(crate) fn run_also(&self, name: &'static str, run: &ProgramRun<'_>) -> Result<u32, BpfError> {
        Ok(self.run_named(name, run, None)?.return_value)
    }

    fn run_named(
        &self,
        name: &'static str,
        run: &ProgramRun<'_>,
        output: Option<&mut [u8]>,
    ) -> Result<TestRunResult, BpfError> {
        // `struct xdp_md`: data, its end, metadata, then the interface and its queue.
        let mut context = [0; 24];
        context[4..8].copy_from_slice(&(run.input.len() as u32).to_ne_bytes());
        context[12..16].copy_from_slice(&run.interface.to_ne_bytes());
        let mut options = TestRunOptions::new();
        options.data_in = Some(run.input);
        options.data_out = output;
        options.ctx_in = Some(&context);
        options.repeat = run.repeat;
        if let Some(batch_size) = run.live_batch {
            options.attrs = TestRunAttrs::new().xdp_live_frames(batch_size);
        }
        let program = self.ebpf.program(name).expect("the object defines the program");
        let program: &Xdp = program.try_into().expect("the program's section is xdp");
        program.test_run(options).map_err(|source| {
            let action = format!("run the BPF program '{name}'");
            let other = |source| BpfError::ProgramRun { program: name, source };
            BpfError::or_capability(action, source.into(), other)
        })
    }

    /// The values of one of the program's arrays as memory, once.
    pub(crate) fn map_array(
        &mut self,
        map: &'static str,
        values: usize,
        value_bytes: usize,
    ) -> Result<ArrayMemory, BpfError> {
        let Some(Map::Array(array)) = self.ebpf.take_map(map) else { panic!("the object defines the array") };
        ArrayMemory::map(array.fd().as_fd(), values, value_bytes).map_err(|source| BpfError::Map {
            action: format!("map the BPF array '{map}' into memory"),
            source: source.into(),
        })
    }

    /// A map of the program, once.
    pub(crate) fn take_map<M: TryFrom<Map, Error = MapError>>(
        &mut self,
        map: &'static str,
    ) -> Result<M, BpfError> {
        let found = self.ebpf.take_map(map).expect("the object defines the map");
        M::try_from(found).map_err(BpfError::map(format!("use the BPF map '{map}'")))
    }
}

fn xdp<'e>(ebpf: &'e mut Ebpf, name: &str) -> &'e mut Xdp {
    let program = ebpf.program_mut(name).expect("the object defines the program");
    program.try_into().expect("the program's section is xdp")
}

fn refused<E: Into<Cause>>(name: &'static str) -> impl FnOnce(E) -> BpfError {
    move |source| {
        let load = |source| BpfError::Load { program: name, source };
        BpfError::or_capability(format!("load the BPF program '{name}'"), source.into(), load)
    }
}

fn refusal(index: u32, mode: Mode, source: Cause) -> BpfError {
    let errno = errno(&*source);
    let interface = interface_name(index);
    match errno {
        Some(EBUSY | EEXIST) => match foreign_program(index) {
            Some((id, program)) => BpfError::InUse { interface, program, id, source },
            None => BpfError::Attach { interface, mode, source },
        },
        Some(EOPNOTSUPP) => {
            BpfError::Unsupported { feature: format!("{mode} XDP"), on: format!("by {interface}"), source }
        }
        _ => {
            let action = format!("attach XDP to {interface}");
            BpfError::or_capability(action, source, |source| BpfError::Attach { interface, mode, source })
        }
    }
}

/// The XDP program of an interface: the kernel's number, and its name, empty where it may not be read.
pub fn foreign_program(interface: u32) -> Option<(u32, String)> {
    let id = *RouteSocket::open().ok()?.xdp_programs(interface).ok()?.first()?;
    let name = loaded_programs()
        .filter_map(Result::ok)
        .find(|program| program.id() == id)
        .and_then(|program| program.name_as_str().map(str::to_owned));
    Some((id, name.unwrap_or_default()))
}
