//! Where CPUs spend their time: samples of each CPU's stack at every timer event (`perf_event_open`, `cpu-clock`).
//!
//! Needs no hardware counters. The timer cannot sample while interrupts are off; such time shows at the place where
//! they come on again.

mod symbols;

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
};

use perf_event::{Builder, SampleFlag, events::Software};

pub use symbols::{KernelSymbols, OwnSymbols};

/// Bytes of the ring between kernel and sampler for each CPU: at 4000 samples a second and 64 frames each, a quarter of
/// a second.
const RING_BYTES: usize = 1 << 19;
/// The most distinct stacks; further ones are counted as lost.
const MOST_STACKS: usize = 100_000;

/// Samples some CPUs until dropped.
pub struct Sampler {
    rings: Vec<perf_event::Sampler>,
    own_pid: u32,
    threads: BTreeMap<u32, String>,
    stacks: HashMap<Stack, u64>,
    lost: u64,
}

/// What a CPU was doing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stack {
    /// The CPU.
    pub cpu: u32,
    /// Whose time it was.
    pub task: Task,
    /// Addresses in the kernel from the running function to the outermost caller; empty in user space.
    pub kernel: Box<[u64]>,
    /// The address in user space, when it ran there.
    pub user: Option<u64>,
}

/// The owner of a sample's time: the interrupted thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// Nobody's.
    Idle,
    /// A thread of this process, by name.
    Own(String),
    /// A thread of another process or of the kernel, by name.
    Other(String),
}

/// What all looks saw.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Samples {
    /// Each stack and its number of samples, in no particular order.
    pub stacks: Vec<(Stack, u64)>,
    /// Samples that the kernel could not report for lack of room.
    pub lost: u64,
}

impl Sampler {
    /// Starts sampling `cpus`, every `period_ns` of each CPU's time.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` without CAP_PERFMON while `kernel.perf_event_paranoid` is above 0; `EINVAL` when the period
    /// is shorter than the kernel allows; `ENOENT` or `ENOSYS` from a kernel without perf events.
    pub fn start(cpus: &[u32], period_ns: u64) -> io::Result<Self> {
        let open = |cpu: &u32| {
            let mut builder = Builder::new(Software::CPU_CLOCK);
            builder.any_pid().one_cpu(*cpu as usize).include_kernel().include_hv();
            builder.sample_period(period_ns).exclude_callchain_user(true);
            builder.sample(SampleFlag::IP | SampleFlag::TID | SampleFlag::CPU | SampleFlag::CALLCHAIN);
            builder.build()?.sampled(RING_BYTES)
        };
        let mut rings = cpus.iter().map(open).collect::<io::Result<Vec<_>>>()?;
        rings.iter_mut().try_for_each(|ring| ring.enable())?;
        Ok(Self {
            rings,
            own_pid: std::process::id(),
            threads: BTreeMap::new(),
            stacks: HashMap::new(),
            lost: 0,
        })
    }

    /// Drains the rings; call it several times a second, or samples are lost.
    pub fn drain(&mut self) {
        let Self { rings, own_pid, threads, stacks, lost } = self;
        for ring in rings {
            while let Some(record) = ring.next_record() {
                match Seen::parse(record.ty(), &record.to_contiguous()) {
                    Some(Seen::Look(look)) => {
                        let task = task(*own_pid, look.pid, look.tid, threads);
                        let user = look.kernel.is_empty().then_some(look.address);
                        let stack = Stack { cpu: look.cpu, task, kernel: look.kernel, user };
                        let room = stacks.len() < MOST_STACKS;
                        match stacks.get_mut(&stack) {
                            Some(seen) => *seen += 1,
                            None if room => drop(stacks.insert(stack, 1)),
                            None => *lost += 1,
                        }
                    }
                    Some(Seen::Lost(looks)) => *lost += looks,
                    None => {}
                }
            }
            // A tickless CPU (idle, or NO_HZ_FULL) counts all samples as of one tick, and after some hundred
            // (`kernel.perf_event_max_sample_rate`) the kernel stops sampling there; restarting the event resets that. An
            // event that cannot be restarted continues unchanged.
            ring.disable().and_then(|()| ring.enable()).ok();
        }
    }

    /// All samples since the start, or since the last call.
    pub fn take(&mut self) -> Samples {
        self.drain();
        let stacks = std::mem::take(&mut self.stacks).into_iter().collect();
        Samples { stacks, lost: std::mem::take(&mut self.lost) }
    }
}

/// A record of the ring.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Look(Look),
    Lost(u64),
}

#[derive(Debug, PartialEq, Eq)]
struct Look {
    address: u64,
    pid: u32,
    tid: u32,
    cpu: u32,
    kernel: Box<[u64]>,
}

impl Seen {
    /// Reads a record's body in the layout of perf_event_open(2) for the requested sample type; other kinds are `None`.
    /// The library's own parser refuses records whose call chain is empty, which all samples of user space are.
    fn parse(kind: u32, body: &[u8]) -> Option<Self> {
        const PERF_RECORD_LOST: u32 = 2;
        const PERF_RECORD_SAMPLE: u32 = 9;
        let word = |at: usize| body.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let half = |at: usize| body.get(at * 4..at * 4 + 4)?.try_into().ok().map(u32::from_ne_bytes);
        match kind {
            PERF_RECORD_LOST => word(1).map(Self::Lost),
            PERF_RECORD_SAMPLE => {
                let frames = usize::try_from(word(3)?).ok()?;
                let chain: Option<Vec<u64>> = (4..4usize.checked_add(frames)?).map(word).collect();
                // A marker instead of an address shows where the kernel's part begins.
                let kernel = chain?.into_iter().filter(|address| !is_marker(*address)).collect();
                Some(Self::Look(Look {
                    address: word(0)?,
                    pid: half(2)?,
                    tid: half(3)?,
                    cpu: half(4)?,
                    kernel,
                }))
            }
            _ => None,
        }
    }
}

/// The markers that perf puts between addresses: the last 4095 numbers (`PERF_CONTEXT_MAX`).
fn is_marker(address: u64) -> bool {
    address >= 0u64.wrapping_sub(4095)
}

fn task(own_pid: u32, pid: u32, tid: u32, threads: &mut BTreeMap<u32, String>) -> Task {
    if tid == 0 {
        return Task::Idle;
    }
    // Threads come and go; the cache holds as many as a machine runs at a time.
    const MOST_THREADS: usize = 10_000;
    if threads.len() >= MOST_THREADS {
        threads.clear();
    }
    let name = threads.entry(tid).or_insert_with(|| {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
        name.map_or_else(|_| "ended".into(), |name| name.trim_end().to_owned())
    });
    if pid == own_pid { Task::Own(name.clone()) } else { Task::Other(name.clone()) }
}

#[cfg(test)]
mod tests {
    use std::{
        hint::black_box,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn records_are_read_as_the_kernel_lays_them_out() {
        let record = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let ids = 7 | 8 << 32;
        let kernel = record(&[0xffff_ffff_8100_0001, ids, 3, 3, 0u64.wrapping_sub(128), 0x10, 0x20]);
        let look = |address, kernel: &[u64]| {
            Some(Seen::Look(Look { address, pid: 7, tid: 8, cpu: 3, kernel: kernel.into() }))
        };
        assert_eq!(Seen::parse(9, &kernel), look(0xffff_ffff_8100_0001, &[0x10, 0x20]));
        assert_eq!(Seen::parse(9, &record(&[0x40, ids, 3, 0])), look(0x40, &[]), "user space has no chain");
        assert_eq!(Seen::parse(9, &kernel[..kernel.len() - 1]), None, "cut off");
        assert_eq!(Seen::parse(9, &record(&[0x40, ids, 3, u64::MAX])), None, "a length beyond the record");
        assert_eq!(Seen::parse(2, &record(&[1, 42])), Some(Seen::Lost(42)));
        assert_eq!(Seen::parse(5, &kernel), None);
    }

    /// A function that keeps its name under all optimisations.
    #[inline(never)]
    fn be_busy() {
        let end = Instant::now() + Duration::from_millis(300);
        let mut number = 1u64;
        while Instant::now() < end {
            for _ in 0..10_000 {
                number = black_box(number.wrapping_mul(3));
            }
        }
    }

    #[test]
    fn a_busy_thread_is_seen_where_it_is_busy() {
        let cpus = crate::cpu::allowed().unwrap();
        let mut sampler = match Sampler::start(&cpus, 1_000_000) {
            Ok(sampler) => sampler,
            Err(error) => {
                testing::skip(format_args!("no sampling here: {error}"));
                return;
            }
        };
        let busy = std::thread::Builder::new().name("busy".into());
        let busy = busy.spawn(be_busy).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let seen = |sampler: &Sampler| {
            let own = sampler.stacks.iter().filter(|(stack, _)| stack.task == Task::Own("busy".into()));
            own.filter(|(stack, _)| stack.user.is_some()).map(|(_, seen)| seen).sum::<u64>()
        };
        while seen(&sampler) == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            sampler.drain();
        }
        busy.join().unwrap();
        let samples = sampler.take();
        let own = OwnSymbols::read().unwrap();
        let in_this_file = |address: u64| own.name(address).is_some_and(|name| name.contains("be_busy"));
        let found = samples.stacks.iter().filter_map(|(stack, _)| stack.user).any(in_this_file);
        assert!(found, "the busy function is named");
        assert_eq!(seen(&sampler), 0, "samples taken once are not taken again");
    }
}
