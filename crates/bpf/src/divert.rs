//! Taking chosen packets out of chosen queues.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use aya::maps::{Array, HashMap, LpmTrie, MapData, MapError, PerCpuArray, RingBuf, XskMap, lpm_trie::Key};
use sys::{accounting, clock};

use crate::{
    error::BpfError,
    mode::Mode,
    program::{Program, ProgramRun, object},
    splice::{Instruction, with_function},
};

mod samples;
mod sets;
mod table;

pub use samples::DropShown;
pub use sets::{SetLevel, SetLine4, SetLine6, SetMember};
use table::{BUCKET_BYTES, Bucket, Table, bucket_bytes};
pub use table::{PacketSide, TableEntry};

/// What is diverted, and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DivertOptions {
    /// Slots for queues: one more than the largest number.
    pub queues: u32,
    /// What happens to the packets of each rule.
    pub rules: Vec<RuleAction>,
    /// Rules that are a few equal bytes, looked up in hash tables.
    pub table: Vec<TableEntry>,
    /// A function that finds the first rule, from 1, that takes a frame, and returns 0 when there is none: its
    /// arguments are the frame's begin and end, and a bit for each of `members`. Empty: no function.
    pub code: Vec<Instruction>,
    /// Addresses and sets that the function requires, at most [`DivertOptions::MOST_MEMBERS`].
    pub members: Vec<SetMember>,
    /// The lines of those sets' levels.
    pub lines4: Vec<SetLine4>,
    /// The same for IPv6.
    pub lines6: Vec<SetLine6>,
    /// Sampling interval of dropped packets, by rule and CPU: the first packet, then every n-th; 0: none.
    pub sample_every: u32,
    /// Networks whose packets always go to the kernel, as address and prefix length.
    pub networks: Vec<(IpAddr, u8)>,
    /// TCP connections whose packets always go to the kernel.
    pub sessions: Vec<TcpSession>,
    /// Token buckets that are remembered; the least recently used go first.
    pub buckets: u32,
    /// Whether a rule may take ARP or neighbour discovery, so that the program has to look for those.
    pub may_be_links: bool,
}

/// What happens to a packet that a rule takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleAction {
    /// Where it goes.
    pub fate: Fate,
    /// How many of them; the others are dropped.
    pub limit: Option<TokenBucket>,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    /// To the kernel.
    #[default]
    GiveBack,
    /// Dropped.
    Drop,
    /// To the kernel, counted as a packet that would be dropped.
    WouldDrop,
    /// To the AF_XDP socket of its queue; to the kernel while there is none.
    HandOver,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Whose packets share a bucket.
    pub per: Per,
    /// Nanoseconds in which a bucket gets the tokens of a packet; 0 when only bytes count.
    pub packet_cost_ns: u64,
    /// Nanoseconds in which a bucket gets the tokens of 1024 bytes of frame; 0 when only packets count.
    pub kilobyte_cost_ns: u64,
    /// Nanoseconds until an empty bucket is full.
    pub burst_ns: u64,
}

/// Whose packets share a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Per {
    /// All that the rule takes.
    #[default]
    Rule,
    /// Those from one address.
    Source,
    /// Those to one address.
    Destination,
    /// Those of one flow: both addresses and ports.
    Flow,
}

/// A TCP connection as this host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSession {
    /// The other end.
    pub peer: SocketAddr,
    /// Our port.
    pub local_port: u16,
}

/// What was counted for one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleCount {
    /// Packets that it took.
    pub packets: u64,
    /// Bytes of their frames, without FCS.
    pub bytes: u64,
    /// Packets of those that were dropped because they were above the limit.
    pub limited: u64,
    /// Bytes of those.
    pub limited_bytes: u64,
    /// Packets for a queue without a socket: they went to the kernel.
    pub unsent: u64,
}

/// Packets that went to the kernel and are counted for no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// No rule takes them.
    pub unmatched: u64,
    /// A rule takes them, but they are ARP, neighbour discovery, or excluded.
    pub excluded: u64,
    /// They came on a queue that is the kernel's.
    pub kernels: u64,
    /// They came after their queue's deadline.
    pub stale: u64,
    /// Not passed packets, but samples that found no room.
    pub unsampled: u64,
}

/// The diverting program. Until it is attached, and on queues without a deadline, it does nothing.
pub struct Divert {
    program: Program,
    sockets: XskMap<MapData>,
    counts: PerCpuArray<MapData, [u64; COUNT_WORDS]>,
    passes: PerCpuArray<MapData, [u64; 5]>,
    samples: RingBuf<MapData>,
    rules: u32,
    /// Runs that measured the program's cost, counted as packets of the kernel's queues.
    idle_runs: u64,
    _held: Held,
}

/// Maps that are written once and must stay open.
struct Held {
    _rules: Array<MapData, [u64; RULE_WORDS]>,
    _table4: Array<MapData, [u8; BUCKET_BYTES]>,
    _table6: HashMap<MapData, [u8; 20], u32>,
    _networks: LpmTrie<MapData, [u8; 16], u32>,
    _sessions: HashMap<MapData, [u8; 20], u32>,
}

/// `sizeof(struct rule)` and `sizeof(struct count)` of `divert.bpf.c`.
const RULE_WORDS: usize = 4;
const COUNT_WORDS: usize = 5;

/// Runs that measure the program's cost on queues that it does not divert: less than a millisecond.
const IDLE_RUNS: u32 = 20_000;

/// The program that sets a queue's deadline, and what it returns when it did.
const PUT_OFF: &str = "put_off";
const XDP_PASS: u32 = 2;

impl DivertOptions {
    /// Kinds of entries that the table can hold for either family: equal in which bits of which address they look
    /// at, and which port and protocol.
    pub const MOST_SHAPES: usize = table::MOST_SHAPES;
    /// Members that the program can look up.
    pub const MOST_MEMBERS: usize = sets::MOST_MEMBERS;
}

impl Divert {
    /// Loads the program.
    ///
    /// # Errors
    /// [`BpfError::MissingCapability`], [`BpfError::Load`], also when the verifier refuses the code, and
    /// [`BpfError::Map`].
    ///
    /// # Panics
    /// When the table has more than [`DivertOptions::MOST_SHAPES`] shapes of either family, or when there are more than
    /// [`DivertOptions::MOST_MEMBERS`] members.
    pub fn load(options: &DivertOptions) -> Result<Self, BpfError> {
        let table = Table::of(&options.table);
        assert!(options.members.len() <= sets::MOST_MEMBERS, "{} members", options.members.len());
        let counted = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (shapes4, shapes6) = (table.shapes4(), table.shapes6());
        let limited = options.rules.iter().any(|rule| rule.limit.is_some());
        let verdict = |rule: &RuleAction| rule.words()[0] as u32;
        let first = options.rules.first().map_or(0, verdict);
        let (buckets4, hash_factor) = table.buckets4();
        // The bits of `asked` in divert.bpf.c, from the lowest on.
        let asked = [
            table.counts().0 > 0,
            table.counts().1 > 0,
            table.has_ports4(),
            !options.code.is_empty(),
            options.rules.iter().any(|rule| verdict(rule) != first),
            options.may_be_links,
            limited,
            !options.networks.is_empty(),
            !options.sessions.is_empty(),
            !options.members.is_empty(),
            options.sample_every > 0,
        ];
        let asked = (0..).zip(asked).fold(0u32, |bits, (at, asked)| bits | u32::from(asked) << at);
        let flags = [
            ("asked", asked),
            ("only_verdict", first),
            ("buckets4_mask", counted(buckets4.len() - 1)),
            ("members_used", counted(options.members.len())),
            ("sample_every", options.sample_every.max(1)),
            ("shapes4_used", counted(table.counts().0)),
            ("shapes6_used", counted(table.counts().1)),
        ];
        let sizes = [
            ("sockets", options.queues),
            ("rules", counted(options.rules.len())),
            ("counts", counted(options.rules.len())),
            ("table4", counted(buckets4.len())),
            ("lines4", counted(options.lines4.len())),
            ("lines6", counted(options.lines6.len())),
            ("samples", if options.sample_every > 0 { samples::RING_BYTES } else { samples::NO_RING_BYTES }),
            ("table6", counted(table.entries6().len())),
            ("networks", counted(options.networks.len())),
            ("sessions", counted(options.sessions.len())),
            ("buckets", if limited { options.buckets } else { 1 }),
        ];
        let members = sets::members(&options.members);
        let object: &[u8] = object!("divert");
        let spliced = if options.code.is_empty() { None } else { Some(with_function(object, &options.code)) };
        let mut program = Program::load("divert", spliced.as_deref().unwrap_or(object), |loader| {
            loader.override_global("shapes4", &shapes4, true).override_global("shapes6", &shapes6, true);
            loader.override_global("members", &members, true);
            loader.override_global("hash_factor", &hash_factor, true);
            for (name, value) in &flags {
                loader.override_global(name, value, true);
            }
            for (name, size) in &sizes {
                loader.map_max_entries(name, (*size).max(1));
            }
        })?;
        program.load_also(PUT_OFF)?;
        let held = Held::fill(&mut program, options, &table, &buckets4)?;
        Ok(Self {
            sockets: program.take_map("sockets")?,
            counts: program.take_map("counts")?,
            passes: program.take_map("passes")?,
            samples: program.take_map("samples")?,
            program,
            rules: counted(options.rules.len()),
            idle_runs: 0,
            _held: held,
        })
    }

    /// Attaches to the interface of this number, until dropped.
    ///
    /// # Errors
    /// [`BpfError::InUse`], [`BpfError::Unsupported`], [`BpfError::MissingCapability`] and others.
    pub fn attach(&mut self, interface: u32, mode: Mode) -> Result<(), BpfError> {
        self.program.attach(interface, mode)
    }

    /// Replaces another attached one, between two packets. Packets that the other one has begun
    /// are still counted there.
    ///
    /// # Errors
    /// [`BpfError::Attach`]: then neither is attached.
    pub fn take_over(&mut self, other: &mut Self) -> Result<(), BpfError> {
        self.program.take_over(&mut other.program)
    }

    /// Diverts a queue for so long from now on, to the resolution of the kernel's timer tick.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such slot.
    pub fn divert_for(&mut self, queue: u32, time: Duration) -> Result<(), BpfError> {
        let ticks = clock::nanos(time) / accounting::tick_ns().max(1);
        self.put_off(queue, ticks.max(1))
    }

    /// Returns a queue to the kernel.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such slot.
    pub fn give_back(&mut self, queue: u32) -> Result<(), BpfError> {
        self.put_off(queue, 0)
    }

    /// How long the program takes for a UDP packet of 60 bytes that is in the CPU's cache, as if it came on queue 0.
    ///
    /// # Errors
    /// [`BpfError::Map`] and [`BpfError::ProgramRun`].
    pub fn cost(&mut self) -> Result<Duration, BpfError> {
        self.divert_for(0, Duration::from_secs(1))?;
        let cost = self.run(100_000);
        self.give_back(0)?;
        cost
    }

    /// How long the program takes for such a packet on a queue that it does not divert. To be called before a queue is
    /// diverted; these runs are in no count.
    ///
    /// # Errors
    /// [`BpfError::Map`] and [`BpfError::ProgramRun`].
    pub fn idle_cost(&mut self) -> Result<Duration, BpfError> {
        let before = self.passed()?.kernels;
        let cost = self.run(IDLE_RUNS)?;
        self.idle_runs += self.passed()?.kernels - before;
        Ok(cost)
    }

    /// Runs the program this many times over such a packet; the CPU time of a run, measured by the kernel.
    ///
    /// # Errors
    /// [`BpfError::ProgramRun`].
    pub fn run(&self, runs: u32) -> Result<Duration, BpfError> {
        const LOOPBACK: u32 = 1;
        let mut frame = [0; 60];
        frame[12] = 0x08; // IPv4
        frame[14] = 0x45;
        frame[23] = 17; // UDP
        let run = ProgramRun { input: &frame, interface: LOOPBACK, repeat: runs, live_batch: None };
        self.program.time(&run)
    }

    fn put_off(&mut self, queue: u32, ticks: u64) -> Result<(), BpfError> {
        // `struct order` of divert.bpf.c.
        let order = [u64::from(queue).to_ne_bytes(), ticks.to_ne_bytes()];
        let run = ProgramRun { input: order.as_flattened(), interface: 0, repeat: 1, live_batch: None };
        match self.program.run_also(PUT_OFF, &run)? {
            XDP_PASS if queue < self.sockets.len() => Ok(()),
            _ => Err(BpfError::map(format!("divert queue {queue}"))(MapError::OutOfBounds {
                index: queue,
                max_entries: self.sockets.len(),
            })),
        }
    }

    /// Puts a bound AF_XDP socket in a queue's slot. The kernel empties the slot when the socket is closed.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such slot, or it is no AF_XDP socket.
    pub fn insert(&mut self, queue: u32, socket: &impl AsFd) -> Result<(), BpfError> {
        let refused = BpfError::map(format!("hand packets of queue {queue} to an AF_XDP socket"));
        self.sockets.set(queue, socket.as_fd().as_raw_fd(), 0).map_err(refused)
    }

    /// Empties a queue's slot.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such slot, or it is empty.
    pub fn remove(&mut self, queue: u32) -> Result<(), BpfError> {
        self.sockets
            .unset(queue)
            .map_err(BpfError::map(format!("stop handing over packets of queue {queue}")))
    }

    /// What was counted for each rule.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn rule_counts(&self) -> Result<Vec<RuleCount>, BpfError> {
        (0..self.rules)
            .map(|rule| {
                let counts = self.counts.get(&rule, 0).map_err(BpfError::map("read the rules' counters"))?;
                let [packets, bytes, limited, limited_bytes, unsent] = sum(&counts);
                Ok(RuleCount { packets, bytes, limited, limited_bytes, unsent })
            })
            .collect()
    }

    /// Counts of the packets that went to the kernel.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn passed(&self) -> Result<Passed, BpfError> {
        let counts = self.passes.get(&0, 0).map_err(BpfError::map("read what went to the kernel"))?;
        let [unmatched, excluded, kernels, stale, unsampled] = sum(&counts);
        Ok(Passed { unmatched, excluded, kernels: kernels - self.idle_runs, stale, unsampled })
    }

    /// The samples since the last call.
    pub fn drops_shown(&mut self, each: impl FnMut(DropShown<'_>)) {
        samples::read(&mut self.samples, each);
    }
}

impl fmt::Debug for Divert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Divert").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Held {
    fn fill(
        program: &mut Program,
        options: &DivertOptions,
        table: &Table,
        buckets4: &[Bucket],
    ) -> Result<Self, BpfError> {
        let refused = || BpfError::map("write the rules");
        let mut rules: Array<MapData, [u64; RULE_WORDS]> = program.take_map("rules")?;
        for (at, rule) in (0..).zip(&options.rules) {
            rules.set(at, rule.words(), 0).map_err(refused())?;
        }
        let mut table4: Array<MapData, [u8; BUCKET_BYTES]> = program.take_map("table4")?;
        for (at, bucket) in (0..).zip(buckets4).filter(|(_, bucket)| !bucket.is_empty()) {
            table4.set(at, bucket_bytes(bucket), 0).map_err(refused())?;
        }
        if !options.lines4.is_empty() {
            let mut lines = program.map_array("lines4", options.lines4.len(), size_of::<SetLine4>())?;
            for (at, line) in options.lines4.iter().enumerate() {
                sets::line4_bytes(line, lines.value_mut(at));
            }
        }
        if !options.lines6.is_empty() {
            let mut lines = program.map_array("lines6", options.lines6.len(), size_of::<SetLine6>())?;
            for (at, line) in options.lines6.iter().enumerate() {
                sets::line6_bytes(line, lines.value_mut(at));
            }
        }
        let mut table6: HashMap<MapData, [u8; 20], u32> = program.take_map("table6")?;
        for (key, rule) in table.entries6() {
            table6.insert(key, rule, 0).map_err(refused())?;
        }
        let mut networks: LpmTrie<MapData, [u8; 16], u32> = program.take_map("networks")?;
        for (address, prefix_len) in &options.networks {
            let bits = u32::from(*prefix_len) + if address.is_ipv4() { 96 } else { 0 };
            networks.insert(&Key::new(bits, mapped(*address)), 1, 0).map_err(refused())?;
        }
        let mut sessions: HashMap<MapData, [u8; 20], u32> = program.take_map("sessions")?;
        for session in &options.sessions {
            sessions.insert(session.key(), 1, 0).map_err(refused())?;
        }
        Ok(Self { _rules: rules, _table4: table4, _table6: table6, _networks: networks, _sessions: sessions })
    }
}

impl RuleAction {
    /// `struct rule` of `divert.bpf.c`.
    fn words(&self) -> [u64; RULE_WORDS] {
        let verdict = match self.fate {
            Fate::GiveBack => 0,
            Fate::Drop => 1,
            Fate::HandOver => 2,
            Fate::WouldDrop => 3,
        };
        let Some(limit) = &self.limit else { return [verdict, 0, 0, 0] };
        let per = match limit.per {
            Per::Rule => 0,
            Per::Source => 1,
            Per::Destination => 2,
            Per::Flow => 3u64,
        };
        [verdict | per << 32, limit.packet_cost_ns, limit.kilobyte_cost_ns, limit.burst_ns]
    }
}

impl TcpSession {
    /// `struct session` of `divert.bpf.c`.
    fn key(&self) -> [u8; 20] {
        let mut key = [0; 20];
        key[..16].copy_from_slice(&mapped(self.peer.ip()));
        key[16..18].copy_from_slice(&self.peer.port().to_be_bytes());
        key[18..].copy_from_slice(&self.local_port.to_be_bytes());
        key
    }
}

/// An address as 16 bytes, IPv4 as `::ffff:a.b.c.d`.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// All CPUs together.
fn sum<const N: usize>(cpus: &[[u64; N]]) -> [u64; N] {
    cpus.iter().fold([0; N], |mut all, one| {
        all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
        all
    })
}
