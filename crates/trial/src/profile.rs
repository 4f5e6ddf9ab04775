//! Where the receiving CPUs' time goes: samples by stage of the receive path.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
};

use bpf::SoftirqWatch;
use measure::{FoldedStack, FunctionShare, Profile, Stage, StageShare};
use sys::{
    procfs::{self, ProcError},
    profile::{KernelSymbols, OwnSymbols, Sampler, Samples, Stack, Task},
};
use thiserror::Error;

use crate::stages::{Activity, Role, activity};

/// Nanoseconds between two samples of a CPU: a prime number, so that samples do not synchronise with timers of whole
/// milliseconds.
const PERIOD_NS: u64 = 249_989;
/// With more CPUs each is sampled less often, so that sampling stays cheap.
const MOST_CPUS_AT_FULL_RATE: u64 = 16;
/// The most stacks in a record; the smallest ones are joined.
const MOST_STACKS: usize = 300;
/// The most functions in a record.
const MOST_FUNCTIONS: usize = 25;

/// Why CPUs cannot be sampled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The kernel refuses to sample.
    #[error("cannot sample the CPUs")]
    Sample(#[source] io::Error),
    /// The table of the kernel's functions cannot be read.
    #[error("cannot read the kernel's function names")]
    Symbols(#[source] io::Error),
    /// The kernel hides the addresses of its functions.
    #[error("the kernel hides the addresses of its functions (kernel.kptr_restrict, CAP_SYSLOG)")]
    Hidden,
    /// The machine's CPUs.
    #[error(transparent)]
    Cpus(#[from] ProcError),
}

/// Everything that `--profile` adds to a trial: the profile of receiving, and the polls of devices.
pub struct Diagnosis {
    profiler: Profiler,
    /// `None` without BPF.
    napi: Option<Arc<SoftirqWatch>>,
}

impl Diagnosis {
    /// Begins to sample every CPU of the machine.
    ///
    /// # Errors
    /// Refusals of the kernel.
    pub fn start() -> Result<Self, ProfileError> {
        let napi = SoftirqWatch::start().ok().map(Arc::new);
        let cpus = procfs::stat()?.cpus.into_iter().map(|(cpu, _)| cpu).collect();
        Ok(Self { profiler: Profiler::start(cpus)?, napi })
    }

    /// The same for another generator, whose threads' names begin with one of these; with `receives` it sends and
    /// receives, and its system calls decide which.
    pub(crate) fn beside(names: &'static [&'static str], receives: bool) -> Result<Self, ProfileError> {
        let mut diagnosis = Self::start()?;
        diagnosis.profiler.peer = Some((names, if receives { Role::Peer } else { Role::Sender }));
        Ok(diagnosis)
    }

    /// Reads the tables of functions now, if the first profile must not be late; sampling begins afterwards.
    pub(crate) fn read_names(&mut self) {
        self.profiler.names.get_or_insert_with(Names::read);
        self.profiler.sampler.take();
    }

    /// Takes samples out of the kernel's rings; ten times a second at least.
    pub fn tick(&mut self) {
        self.profiler.sampler.drain();
    }

    /// The polls of devices, if they are counted.
    pub(crate) fn napi(&self) -> Option<Arc<SoftirqWatch>> {
        self.napi.clone()
    }

    /// The profile since the start or the last call, during which `packets` were delivered.
    pub fn take(&mut self, packets: u64) -> Profile {
        let samples = self.profiler.sampler.take();
        self.profiler.fold(&samples, packets)
    }
}

/// Samples CPUs from its creation on.
struct Profiler {
    sampler: Sampler,
    period_ns: u64,
    cpus: Vec<u32>,
    names: Option<Names>,
    /// Another generator's threads and their role.
    peer: Option<(&'static [&'static str], Role)>,
}

/// The tables of functions; read after the first trial, so that they do not delay it.
struct Names {
    kernel: KernelSymbols,
    own: OwnSymbols,
}

impl Profiler {
    /// Begins to sample `cpus`.
    ///
    /// # Errors
    /// Refusals of the kernel.
    fn start(cpus: Vec<u32>) -> Result<Self, ProfileError> {
        if !KernelSymbols::are_shown().map_err(ProfileError::Symbols)? {
            return Err(ProfileError::Hidden);
        }
        let period_ns = PERIOD_NS * (cpus.len() as u64).div_ceil(MOST_CPUS_AT_FULL_RATE);
        let sampler = Sampler::start(&cpus, period_ns).map_err(ProfileError::Sample)?;
        Ok(Self { sampler, period_ns, cpus, names: None, peer: None })
    }

    fn fold(&mut self, samples: &Samples, packets: u64) -> Profile {
        let names_of = self.names.get_or_insert_with(Names::read);
        let mut profile = Profile {
            period_ns: self.period_ns,
            cpus: self.cpus.clone(),
            lost_samples: samples.lost,
            ..Profile::default()
        };
        let mut stages: BTreeMap<Stage, u64> = BTreeMap::new();
        let mut functions: HashMap<String, BTreeMap<Stage, u64>> = HashMap::new();
        let mut stacks: HashMap<String, u64> = HashMap::new();
        for (stack, seen) in &samples.stacks {
            let names = names_of.of(stack);
            let role = role(&stack.task, self.peer);
            let activity = activity(names.iter().map(String::as_str), stack.user.is_some(), role);
            let doing = match activity {
                Activity::Receiving(stage) => {
                    profile.receiving_samples += seen;
                    *stages.entry(stage).or_default() += seen;
                    let function = names.first().cloned().unwrap_or_default();
                    *functions.entry(function).or_default().entry(stage).or_default() += seen;
                    "receiving"
                }
                Activity::Sending => {
                    profile.sending_samples += seen;
                    "sending"
                }
                Activity::Idle => {
                    profile.idle_samples += seen;
                    continue;
                }
                Activity::Other => {
                    profile.other_samples += seen;
                    continue;
                }
            };
            let frames =
                [doing.to_owned(), task_name(&stack.task)].into_iter().chain(names.into_iter().rev());
            *stacks.entry(frames.collect::<Vec<_>>().join(";")).or_default() += seen;
        }
        profile.stages = stages
            .into_iter()
            .map(|(stage, samples)| StageShare {
                stage,
                samples,
                share_ratio: 0.0,
                margin_ratio: 0.0,
                ns_per_packet: None,
            })
            .collect();
        profile.functions =
            functions.into_iter().filter_map(|(function, by)| of_function(function, &by)).collect();
        profile.stacks = keep(stacks);
        profile.rate(packets);
        profile.functions.truncate(MOST_FUNCTIONS);
        profile
    }
}

impl Names {
    /// Without names all time is still shown, as the kernel's or the program's.
    fn read() -> Self {
        let kernel = KernelSymbols::read().ok().flatten().unwrap_or_default();
        Self { kernel, own: OwnSymbols::read().unwrap_or_default() }
    }

    /// From the running function to its outermost caller.
    fn of(&self, stack: &Stack) -> Vec<String> {
        if let Some(address) = stack.user {
            let name = match stack.task {
                Task::Own(_) => self.own.name(address).unwrap_or("library"),
                _ => "another program",
            };
            return vec![name.to_owned()];
        }
        let name = |(depth, address): (usize, &u64)| {
            // A caller's address is that of the instruction after its call, which may be the first of another function.
            let address = address.saturating_sub(u64::from(depth > 0));
            self.kernel.name(address).map_or("bpf_prog", without_suffix).to_owned()
        };
        stack.kernel.iter().enumerate().map(name).collect()
    }
}

/// Suffixes that compilers add to a function's name when they copy, split or narrow it.
fn without_suffix(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Engines name their workers `recv N` and `send N`; another generator's threads have names of their own.
fn role(task: &Task, peer: Option<(&[&str], Role)>) -> Role {
    match (task, peer) {
        (Task::Other(name), Some((names, role))) if names.iter().any(|begin| name.starts_with(begin)) => {
            return role;
        }
        _ => {}
    }
    match task {
        Task::Idle => Role::Idle,
        Task::Own(name) if name.starts_with("recv ") => Role::Receiver,
        Task::Own(name) if name.starts_with("send ") => Role::Sender,
        _ => Role::Other,
    }
}

fn task_name(task: &Task) -> String {
    match task {
        Task::Idle => "idle CPU".into(),
        Task::Own(name) | Task::Other(name) => name.replace(';', ":"),
    }
}

fn of_function(function: String, by_stage: &BTreeMap<Stage, u64>) -> Option<FunctionShare> {
    let samples = by_stage.values().sum();
    let (stage, _) = by_stage.iter().max_by_key(|(_, samples)| **samples)?;
    Some(FunctionShare { function, stage: *stage, samples, share_ratio: 0.0 })
}

/// The most frequent stacks unchanged; all others are cut off after the thread.
fn keep(stacks: HashMap<String, u64>) -> Vec<FoldedStack> {
    let mut stacks: Vec<(String, u64)> = stacks.into_iter().collect();
    stacks.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let rest = stacks.split_off(stacks.len().min(MOST_STACKS));
    let mut kept: Vec<FoldedStack> =
        stacks.into_iter().map(|(frames, samples)| FoldedStack { frames, samples }).collect();
    let mut joined: BTreeMap<String, u64> = BTreeMap::new();
    for (frames, samples) in rest {
        let thread: Vec<&str> = frames.splitn(3, ';').take(2).collect();
        *joined.entry(format!("{};rarer stacks", thread.join(";"))).or_default() += samples;
    }
    kept.extend(joined.into_iter().map(|(frames, samples)| FoldedStack { frames, samples }));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiler(kernel: &str) -> Option<(KernelSymbols, u64)> {
        let symbols = KernelSymbols::read().ok()??;
        let text = std::fs::read_to_string("/proc/kallsyms").ok()?;
        let line = text.lines().find(|line| line.split_ascii_whitespace().nth(2) == Some(kernel))?;
        Some((symbols, u64::from_str_radix(line.split(' ').next()?, 16).ok()?))
    }

    #[test]
    fn samples_are_conserved() {
        let stacks: HashMap<String, u64> =
            (0..1000).map(|n| (format!("receiving;rx {};f{n}", n % 3), n + 1)).collect();
        let whole: u64 = stacks.values().sum();
        let kept = keep(stacks);
        assert_eq!(kept.iter().map(|stack| stack.samples).sum::<u64>(), whole);
        assert_eq!(kept.len(), MOST_STACKS + 3);
    }

    #[test]
    fn names_lose_the_compiler_s_suffixes() {
        assert_eq!(without_suffix("veth_xdp_rcv.constprop.0"), "veth_xdp_rcv");
        assert_eq!(without_suffix("ip_rcv"), "ip_rcv");
    }

    #[test]
    fn a_worker_s_work_in_the_kernel_is_folded_by_name() {
        let Some((kernel, recvmmsg)) = profiler("__sys_recvmmsg") else {
            testing::skip("the kernel hides its functions");
            return;
        };
        let stack = |task: Task, user: Option<u64>| Stack {
            cpu: 0,
            task,
            kernel: if user.is_some() { [].into() } else { [recvmmsg + 1].into() },
            user,
        };
        let samples = Samples {
            stacks: vec![
                (stack(Task::Own("recv 0".into()), None), 5),
                (stack(Task::Own("recv 0".into()), Some(1)), 3),
                (stack(Task::Own("send 0".into()), Some(1)), 2),
                (stack(Task::Idle, Some(1)), 1),
                (stack(Task::Other("cat".into()), Some(1)), 4),
            ],
            lost: 7,
        };
        let sampler = match Sampler::start(&[0], PERIOD_NS) {
            Ok(sampler) => sampler,
            Err(error) => {
                testing::skip(format_args!("no sampling here: {error}"));
                return;
            }
        };
        let names = Some(Names { kernel, own: OwnSymbols::default() });
        let mut profiler = Profiler { sampler, period_ns: PERIOD_NS, cpus: vec![0], names, peer: None };
        let profile = profiler.fold(&samples, 10);
        let counted = (profile.receiving_samples, profile.sending_samples, profile.idle_samples);
        assert_eq!((counted, profile.other_samples, profile.lost_samples), ((8, 2, 1), 4, 7));
        let stages: Vec<_> = profile.stages.iter().map(|share| (share.stage, share.samples)).collect();
        assert_eq!(stages, [(Stage::Syscall, 5), (Stage::User, 3)]);
        assert_eq!(profile.stacks[0].frames, "receiving;recv 0;__sys_recvmmsg");
        profiler.peer = Some((&["cat"], Role::Sender));
        assert_eq!(profiler.fold(&samples, 10).sending_samples, 6, "a peer that sends");
    }
}
