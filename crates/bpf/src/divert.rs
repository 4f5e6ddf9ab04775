//! Taking chosen packets out of chosen queues.

use std::{
    collections::HashMap as Places,
    fmt,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use aya::maps::{Array, HashMap, LpmTrie, MapData, MapError, PerCpuArray, XskMap, lpm_trie::Key};
use sys::{accounting, clock};

use crate::{
    error::BpfError,
    program::{Mode, Program, Run, object},
    splice::{Instruction, with_function},
};

/// What is diverted, and what is done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DivertOptions {
    /// Slots for queues: one more than the largest number.
    pub queues: u32,
    /// What is done with the packets of each rule.
    pub rules: Vec<RuleAction>,
    /// Rules that are a few equal bytes, looked up in hash tables.
    pub table: Vec<TableEntry>,
    /// A function that finds the first rule, from 1, that takes a frame, and returns 0 when there is none: its two
    /// arguments are where the frame begins and ends. Empty: there is none.
    pub code: Vec<Instruction>,
    /// Networks whose packets always go to the kernel, as address and prefix length.
    pub networks: Vec<(IpAddr, u8)>,
    /// TCP connections whose packets always go to the kernel.
    pub sessions: Vec<TcpSession>,
    /// Token buckets that are remembered; the least recently used go first.
    pub buckets: u32,
    /// Whether a rule may take ARP or neighbour discovery, so that the program has to look for those.
    pub may_be_links: bool,
}

/// What is done with a packet that a rule takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleAction {
    /// Where it goes.
    pub fate: Fate,
    /// How many of them; the others are dropped.
    pub limit: Option<Limit>,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    /// To the kernel.
    #[default]
    GiveBack,
    /// Nowhere.
    Drop,
    /// To the AF_XDP socket of its queue; to the kernel while there is none.
    HandOver,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
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

/// One of a packet's two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketSide {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// Packets without VLAN tag that a rule takes; what is `None` does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEntry {
    /// The rule, from 0.
    pub rule: u32,
    /// IPv4 packets; else IPv6 packets.
    pub ipv4: bool,
    /// An address and how many bits of it count.
    pub network: Option<(PacketSide, IpAddr, u8)>,
    /// A TCP, UDP or SCTP port; later fragments have none.
    pub port: Option<(PacketSide, u16)>,
    /// The IP protocol, which must not be behind extension headers.
    pub protocol: Option<u8>,
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
    /// Packets that should have gone to a socket and found none: they went to the kernel.
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
}

/// The diverting program. Until it is attached, and on queues without a deadline, it does nothing.
pub struct Divert {
    program: Program,
    _deadlines: Array<MapData, u64>,
    sockets: XskMap<MapData>,
    counts: PerCpuArray<MapData, [u64; COUNT_WORDS]>,
    passes: PerCpuArray<MapData, [u64; 4]>,
    rules: u32,
    _held: Held,
}

/// Maps that are written once and only have to live.
struct Held {
    _rules: Array<MapData, [u64; RULE_WORDS]>,
    _table4: Array<MapData, [u8; BUCKET_BYTES]>,
    _table6: HashMap<MapData, [u8; 20], u32>,
    _networks: LpmTrie<MapData, [u8; 16], u32>,
    _sessions: HashMap<MapData, [u8; 20], u32>,
}

/// `sizeof(struct rule)`, `sizeof(struct count)`, `sizeof(struct shape)` and `sizeof(struct bucket4)` of
/// `divert.bpf.c`.
const RULE_WORDS: usize = 4;
const COUNT_WORDS: usize = 5;
const SHAPE_BYTES: usize = 20;
const BUCKET_BYTES: usize = 64;
/// `KEYS` of `divert.bpf.c`.
const BUCKET_KEYS: usize = 5;

/// The program that sets a queue's deadline, and what it returns when it did.
const PUT_OFF: &str = "put_off";
const XDP_PASS: u32 = 2;

impl DivertOptions {
    /// Kinds of entries that the table can hold for either family: equal in which bits of which address they look
    /// at, and which port and protocol.
    pub const MOST_SHAPES: usize = 16;
}

impl Divert {
    /// Loads the program.
    ///
    /// # Errors
    /// [`BpfError::MissingCapability`], [`BpfError::Load`], also when the verifier refuses the code, and
    /// [`BpfError::Map`].
    ///
    /// # Panics
    /// When the table has more than [`DivertOptions::MOST_SHAPES`] shapes of either family.
    pub fn load(options: &DivertOptions) -> Result<Self, BpfError> {
        let table = Table::of(&options.table);
        let counted = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (shapes4, shapes6) = (shape_bytes(&table.shapes4), shape_bytes(&table.shapes6));
        let limited = options.rules.iter().any(|rule| rule.limit.is_some());
        let verdict = |rule: &RuleAction| rule.words()[0] as u32;
        let first = options.rules.first().map_or(0, verdict);
        let (buckets4, hash_factor) = bucketed(&table.entries4);
        let flags = [
            ("buckets4_mask", counted(buckets4.len() - 1)),
            ("has_verdicts", options.rules.iter().any(|rule| verdict(rule) != first).into()),
            ("only_verdict", first),
            ("may_be_links", options.may_be_links.into()),
            ("shapes4_used", counted(table.shapes4.len())),
            ("shapes6_used", counted(table.shapes6.len())),
            ("has_code", u32::from(!options.code.is_empty())),
            ("has_limits", limited.into()),
            ("has_networks", u32::from(!options.networks.is_empty())),
            ("has_sessions", u32::from(!options.sessions.is_empty())),
        ];
        let sizes = [
            ("deadlines", options.queues),
            ("sockets", options.queues),
            ("rules", counted(options.rules.len())),
            ("counts", counted(options.rules.len())),
            ("table4", counted(buckets4.len())),
            ("table6", counted(table.entries6.len())),
            ("networks", counted(options.networks.len())),
            ("sessions", counted(options.sessions.len())),
            ("buckets", if limited { options.buckets } else { 1 }),
        ];
        let object: &[u8] = object!("divert");
        let spliced = if options.code.is_empty() { None } else { Some(with_function(object, &options.code)) };
        let mut program = Program::load("divert", spliced.as_deref().unwrap_or(object), |loader| {
            loader.override_global("shapes4", &shapes4, true).override_global("shapes6", &shapes6, true);
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
            _deadlines: program.take_map("deadlines")?,
            sockets: program.take_map("sockets")?,
            counts: program.take_map("counts")?,
            passes: program.take_map("passes")?,
            program,
            rules: counted(options.rules.len()),
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

    /// Takes the place of another one that is attached, between two packets. Packets that the other one has begun
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

    /// Gives a queue back to the kernel.
    ///
    /// # Errors
    /// [`BpfError::Map`]: there is no such slot.
    pub fn give_back(&mut self, queue: u32) -> Result<(), BpfError> {
        self.put_off(queue, 0)
    }

    fn put_off(&mut self, queue: u32, ticks: u64) -> Result<(), BpfError> {
        // `struct order` of divert.bpf.c.
        let order = [u64::from(queue).to_ne_bytes(), ticks.to_ne_bytes()];
        let run = Run { input: order.as_flattened(), interface: 0, repeat: 1, live_batch: None };
        match self.program.run_also(PUT_OFF, &run)? {
            XDP_PASS => Ok(()),
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

    /// What went to the kernel besides.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn passed(&self) -> Result<Passed, BpfError> {
        let counts = self.passes.get(&0, 0).map_err(BpfError::map("read what went to the kernel"))?;
        let [unmatched, excluded, kernels, stale] = sum(&counts);
        Ok(Passed { unmatched, excluded, kernels, stale })
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
        let mut table6: HashMap<MapData, [u8; 20], u32> = program.take_map("table6")?;
        for (key, rule) in &table.entries6 {
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

/// The table as the program reads it. What stands first takes the packet, so a key that is there stays.
#[derive(Default)]
struct Table {
    shapes4: Vec<Shape>,
    shapes6: Vec<Shape>,
    entries4: Places<u64, u32>,
    entries6: Places<[u8; 20], u32>,
}

/// What the entries of one table have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    network: Option<(PacketSide, u8)>,
    port: Option<PacketSide>,
    protocol: Option<u8>,
}

impl Table {
    fn of(entries: &[TableEntry]) -> Self {
        let mut table = Self::default();
        for entry in entries {
            if entry.ipv4 {
                let shape = number(&mut table.shapes4, entry.shape());
                let mut key = [0; 8];
                if let Some((_, IpAddr::V4(address), prefix_len)) = entry.network {
                    key[..4].copy_from_slice(&masked::<4>(address.octets(), prefix_len));
                }
                key[4..].copy_from_slice(&entry.tail(shape));
                // Bytes as they lie in a packet, so that the program has nothing to swap.
                table.entries4.entry(u64::from_le_bytes(key)).or_insert(entry.rule + 1);
            } else {
                let shape = number(&mut table.shapes6, entry.shape());
                let mut key = [0; 20];
                if let Some((_, IpAddr::V6(address), prefix_len)) = entry.network {
                    key[..16].copy_from_slice(&masked::<16>(address.octets(), prefix_len));
                }
                key[16..].copy_from_slice(&entry.tail(shape));
                table.entries6.entry(key).or_insert(entry.rule + 1);
            }
        }
        table
    }
}

impl TableEntry {
    fn shape(&self) -> Shape {
        Shape {
            network: self.network.map(|(side, _, prefix_len)| (side, prefix_len)),
            port: self.port.map(|(side, _)| side),
            protocol: self.protocol,
        }
    }

    /// The end of `struct key4` and `struct key6`: port, protocol, shape.
    fn tail(&self, shape: u8) -> [u8; 4] {
        let [high, low] = self.port.map_or(0, |(_, port)| port).to_be_bytes();
        [high, low, self.protocol.unwrap_or(0), shape]
    }
}

/// Keys and rules, from 1, of a place in the table of IPv4's entries.
type Bucket = Vec<(u64, u32)>;

/// The entries in buckets of at most [`BUCKET_KEYS`], and the factor by which a key's bucket is found.
fn bucketed(entries: &Places<u64, u32>) -> (Vec<Bucket>, u64) {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    // Half full at first; a fuller bucket than fits asks for another factor, then for more buckets.
    let least = (entries.len() * 2 / BUCKET_KEYS).max(1).next_power_of_two();
    let tries = (0u32..).map(|attempt| (least << (attempt / 4), GOLDEN.rotate_left(attempt * 7) | 1));
    tries
        .map(|(count, factor)| {
            let mut buckets = vec![Bucket::new(); count];
            for (key, rule) in entries {
                let at = (key.wrapping_mul(factor) >> 32) as usize & (count - 1);
                buckets[at].push((*key, *rule));
            }
            (buckets, factor)
        })
        .find(|(buckets, _)| buckets.iter().all(|bucket| bucket.len() <= BUCKET_KEYS))
        .expect("there are larger tables")
}

/// `struct bucket4` of `divert.bpf.c`.
fn bucket_bytes(bucket: &Bucket) -> [u8; BUCKET_BYTES] {
    let mut bytes = [0; BUCKET_BYTES];
    for (place, (key, rule)) in bucket.iter().enumerate() {
        bytes[place * 8..][..8].copy_from_slice(&key.to_ne_bytes());
        bytes[BUCKET_KEYS * 8 + place * 4..][..4].copy_from_slice(&rule.to_ne_bytes());
    }
    bytes
}

/// The number of a shape, which is added when it is new.
fn number(shapes: &mut Vec<Shape>, shape: Shape) -> u8 {
    let at = shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
        shapes.push(shape);
        shapes.len() - 1
    });
    assert!(at < DivertOptions::MOST_SHAPES, "more than {} shapes", DivertOptions::MOST_SHAPES);
    at as u8
}

/// The array `shapes4` or `shapes6` of `divert.bpf.c`.
fn shape_bytes(shapes: &[Shape]) -> [[u8; SHAPE_BYTES]; DivertOptions::MOST_SHAPES] {
    let mut all = [[0; SHAPE_BYTES]; DivertOptions::MOST_SHAPES];
    let side = |side| match side {
        None => 0,
        Some(PacketSide::Source) => 1,
        Some(PacketSide::Destination) => 2,
    };
    for (shape, bytes) in shapes.iter().zip(&mut all) {
        let prefix_len = shape.network.map_or(0, |(_, prefix_len)| prefix_len);
        bytes[..16].copy_from_slice(&masked::<16>([0xff; 16], prefix_len));
        bytes[16] = side(shape.network.map(|(side, _)| side));
        bytes[17] = side(shape.port);
        bytes[18] = shape.protocol.unwrap_or(0);
    }
    all
}

/// The first bits of an address, the others 0.
fn masked<const N: usize>(mut octets: [u8; N], prefix_len: u8) -> [u8; N] {
    for (at, octet) in octets.iter_mut().enumerate() {
        let bits = usize::from(prefix_len).saturating_sub(at * 8).min(8);
        *octet &= !(0xffu16 >> bits) as u8;
    }
    octets
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rule: u32, network: &str, prefix_len: u8) -> TableEntry {
        let address: IpAddr = network.parse().unwrap();
        let network = Some((PacketSide::Source, address, prefix_len));
        TableEntry { rule, ipv4: address.is_ipv4(), network, port: None, protocol: Some(17) }
    }

    #[test]
    fn equal_shapes_share_a_number_and_the_first_of_equal_entries_stays() {
        let table = Table::of(&[
            entry(0, "192.0.2.1", 24),
            entry(1, "198.51.100.0", 24),
            entry(2, "192.0.2.200", 24),
            entry(3, "192.0.2.1", 32),
            entry(4, "2001:db8::", 32),
        ]);
        assert_eq!((table.shapes4.len(), table.shapes6.len()), (2, 1));
        let mut entries: Vec<_> =
            table.entries4.into_iter().map(|(key, rule)| (key.to_le_bytes(), rule)).collect();
        entries.sort_by_key(|(_, rule)| *rule);
        assert_eq!(
            entries,
            [
                ([192, 0, 2, 0, 0, 0, 17, 0], 1),
                ([198, 51, 100, 0, 0, 0, 17, 0], 2),
                ([192, 0, 2, 1, 0, 0, 17, 1], 4)
            ]
        );
        assert_eq!(table.entries6.into_values().collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn an_entry_without_address_is_about_its_family() {
        let port = Some((PacketSide::Destination, 53));
        let entry = TableEntry { rule: 0, ipv4: true, network: None, port, protocol: Some(17) };
        let table = Table::of(&[entry, TableEntry { rule: 1, ipv4: false, ..entry }]);
        assert_eq!(table.entries4, Places::from([(u64::from_le_bytes([0, 0, 0, 0, 0, 53, 17, 0]), 1)]));
        assert_eq!(table.entries6.into_values().collect::<Vec<_>>(), [2]);
        let shape = shape_bytes(&table.shapes4)[0];
        assert_eq!(shape[..16], [0; 16]);
        assert_eq!(shape[16..], [0, 2, 17, 0]);
    }

    #[test]
    fn every_key_is_in_the_bucket_of_its_hash_and_no_bucket_overflows() {
        for count in [0u64, 1, 6, 1000, 20_000] {
            // Addresses one after the other, as prefixes are.
            let entries: Places<u64, u32> =
                (0..count).map(|at| (at << 8 | 17 << 48, at as u32 + 1)).collect();
            let (buckets, factor) = bucketed(&entries);
            assert!(buckets.len().is_power_of_two() && buckets.len() as u64 <= count.max(1) * 4, "{count}");
            for (at, bucket) in buckets.iter().enumerate() {
                assert!(bucket.len() <= BUCKET_KEYS);
                for (key, rule) in bucket {
                    assert_eq!((key.wrapping_mul(factor) >> 32) as usize % buckets.len(), at);
                    assert_eq!(entries[key], *rule);
                }
            }
            assert_eq!(buckets.iter().map(Vec::len).sum::<usize>() as u64, count);
        }
    }

    #[test]
    fn a_bucket_is_keys_then_rules() {
        let bytes = bucket_bytes(&vec![(1, 2), (3, 4)]);
        assert_eq!((bytes[0], bytes[8], bytes[40], bytes[44]), (1, 3, 2, 4));
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 4);
    }

    #[test]
    fn only_the_first_bits_count() {
        assert_eq!(masked([0xff; 4], 0), [0; 4]);
        assert_eq!(masked([0xff; 4], 9), [0xff, 0x80, 0, 0]);
        assert_eq!(masked([0xff; 4], 32), [0xff; 4]);
    }
}
