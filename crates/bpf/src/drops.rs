//! Counting what the kernel drops, by reason and place in its code.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
};

use aya::{
    Btf, Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{Array, MapData, PerCpuArray, PerCpuHashMap, RingBuf},
    programs::{BtfTracePoint, links::FdLink},
};
use sys::btf::KernelTypes;

use crate::{
    error::{BpfError, Cause},
    program::object,
};

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DropOptions {
    /// Only drops in these network namespaces, by their cookies (`NetNs::cookie`); 0 ends the list, and none is all
    /// of them. The caller keeps each namespace alive while it is watched.
    pub namespaces: [u64; Drops::MOST_NAMESPACES],
    /// Only packets received or sent by this interface; 0: by any.
    pub interface: u32,
    /// Only UDP.
    pub only_udp: bool,
    /// A reason that is not counted; 0: none.
    pub ignored_reason: u32,
    /// Copy each dropped packet's headers, for [`Drops::headers`].
    pub headers: bool,
    /// Only probe packets of streams.
    pub streams: Option<Streams>,
}

/// Streams of probe packets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Streams {
    /// The UDP port that they go to.
    pub port: u16,
    /// Their tags; 0 is that of payloads without one.
    pub tags: Vec<u16>,
}

impl Streams {
    /// 64-bit words of a map with a bit a tag.
    pub(crate) const WORDS: u32 = 1024;

    /// The first tag and their number, where they follow each other.
    pub(crate) fn in_a_row(&self) -> Option<(u16, u32)> {
        let mut tags = self.tags.clone();
        tags.sort_unstable();
        tags.dedup();
        let (first, last) = (*tags.first()?, *tags.last()?);
        (usize::from(last - first) + 1 == tags.len()).then_some((first, tags.len() as u32))
    }

    /// Sets the bits of these tags in the object's map of them.
    pub(crate) fn mark(&self, ebpf: &mut Ebpf) -> Result<(), BpfError> {
        let unset = || BpfError::map("set the stream tags of a BPF program");
        let map = ebpf.map_mut("tags").expect("the object defines the map");
        let mut bits = Array::<&mut MapData, u64>::try_from(map).map_err(unset())?;
        for tag in &self.tags {
            let word = u32::from(tag >> 6);
            let before = bits.get(&word, 0).map_err(unset())?;
            bits.set(word, before | 1 << (tag & 63), 0).map_err(unset())?;
        }
        Ok(())
    }
}

/// Programs at the kernel's trace points `kfree_skb` and those of XDP; they see and change nothing else.
pub struct Drops {
    // Before the maps: nothing is counted any more when they go.
    links: Vec<FdLink>,
    ebpf: Ebpf,
    by_place: PerCpuHashMap<MapData, [u64; KEY_WORDS], [u64; COUNT_WORDS]>,
    cpus: PerCpuArray<MapData, [u64; CPU_WORDS]>,
    /// The kernel's information about the program at `kfree_skb`.
    program: PathBuf,
    headers: RingBuf<MapData>,
    sees_xdp: bool,
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropKind {
    /// A value of the kernel's `enum skb_drop_reason`.
    Reason(u32),
    /// XDP_ABORTED, an unknown verdict, or a verdict that the driver could not follow: the verdict.
    XdpException(u32),
    /// A redirect that failed at once, by errno.
    XdpRedirect(u32),
    /// A redirect to an interface that failed when the batch was sent, by errno.
    XdpTransmit(u32),
    /// A bounced frame (XDP_TX) that was not sent, by errno.
    XdpBounce(u32),
}

/// What was dropped for one reason at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropCount {
    /// Why.
    pub kind: DropKind,
    /// The address in the kernel's code, 0 for events of XDP.
    pub location: u64,
    /// Which of the watched namespaces.
    pub namespace: u32,
    /// Buffers (`sk_buff`) or frames.
    pub buffers: u64,
    /// Packets in those: GRO joins up to 64 datagrams in a buffer, GSO as many segments.
    pub packets: u64,
    /// A recent one.
    pub sample: Option<DropSample>,
}

/// One of the dropped packets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DropSample {
    /// The inode of the socket concerned, 0 without: `socket:[<n>]` under `/proc/<pid>/fd`.
    pub inode: u64,
    /// That socket's local port.
    pub port: u16,
    /// Ethertype.
    pub protocol: u16,
    /// The packet from its IP header on, as much as was copied.
    pub bytes: Vec<u8>,
}

/// All that was counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DropCounts {
    /// By reason and place.
    pub places: Vec<DropCount>,
    /// Events that were counted.
    pub events: u64,
    /// Events that were lost: more than 1024 places, headers that found no room, or a drop in an interrupt in the
    /// middle of another.
    pub lost: u64,
    /// What the programs themselves cost, from one event in 256.
    pub cost_ns: u64,
}

/// The headers of one dropped packet.
#[derive(Debug, Clone, Copy)]
pub struct DropHeaders<'r> {
    /// Why, where and in which namespace.
    pub kind: DropKind,
    /// The address in the kernel's code.
    pub location: u64,
    /// Which of the watched namespaces.
    pub namespace: u32,
    /// Packets in the buffer.
    pub packets: u64,
    /// Ethertype.
    pub protocol: u16,
    /// Whether `bytes` begin with the Ethernet header; else with IP's.
    pub has_mac: bool,
    /// Up to 128 bytes.
    pub bytes: &'r [u8],
}

const KEY_WORDS: usize = 2;
const COUNT_WORDS: usize = 12;
const SLOT_WORDS: usize = 4;
const SLOTS: usize = 32;
const CPU_FIELDS: usize = 8;
const CPU_WORDS: usize = CPU_FIELDS + SLOTS * SLOT_WORDS;
const HEADER_FIELDS: usize = 32;
const NAME: &str = "drops";
const DROPS: &str = "kfree_skb";
/// Trace points beside `kfree_skb`. Not all kernels have all: errors of redirects by map had one of their own once.
const XDP_POINTS: [&str; 5] =
    ["xdp_exception", "xdp_redirect_err", "xdp_redirect_map_err", "xdp_devmap_xmit", "xdp_bulk_tx"];

impl Drops {
    /// The most namespaces that can be distinguished.
    pub const MOST_NAMESPACES: usize = 4;

    /// Counts from now on.
    ///
    /// # Errors
    /// [`BpfError`]: missing capabilities (CAP_BPF and CAP_PERFMON), or a kernel before 5.17 or without BTF.
    pub fn attach(options: &DropOptions) -> Result<Self, BpfError> {
        let types = KernelTypes::read().map_err(|source| unsupported(source.into()))?;
        let arguments = types.trace_point_arguments("kfree_skb");
        let takes_socket = match arguments {
            Some(0..3) | None => return Err(unsupported("no such trace point with a reason".into())),
            Some(arguments) => u32::from(arguments >= 4),
        };
        let btf = Btf::from_sys_fs().map_err(|source| unsupported(source.into()))?;
        let flag = u32::from;
        let (only_udp, headers) = (flag(options.only_udp), flag(options.headers));
        let reasons = types.enumeration("skb_drop_reason");
        let no_socket = reasons.iter().find(|(_, name)| name == "SKB_DROP_REASON_NO_SOCKET");
        let no_socket = no_socket.map_or(0, |(number, _)| *number);
        let interface = options.interface as i32;
        let mut ebpf = EbpfLoader::new()
            .verifier_log_level(VerifierLogLevel::DISABLE)
            .btf(Some(&btf))
            .override_global("cookies", &options.namespaces[..], true)
            .override_global("interface", &interface, true)
            .override_global("only_udp", &only_udp, true)
            .override_global("ignored_reason", &options.ignored_reason, true)
            .override_global("no_socket", &no_socket, true)
            .override_global("takes_socket", &takes_socket, true)
            .override_global("headers", &headers, true)
            .override_global("flow_port", &options.streams.as_ref().map_or(0, |streams| streams.port), true)
            .map_max_entries("tags", if options.streams.is_some() { Streams::WORDS } else { 1 })
            .map_max_entries("events", if options.headers { 4 << 20 } else { 4096 })
            .load(object!("drops"))
            .map_err(|source| refused(source.into()))?;
        if let Some(streams) = &options.streams {
            streams.mark(&mut ebpf)?;
        }
        let mut links = vec![trace(&mut ebpf, DROPS, &btf)?];
        let program = ebpf.program(DROPS).and_then(|program| program.fd().ok()).expect("it is loaded");
        let program = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd()).into();
        let points = XDP_POINTS.iter().filter(|point| types.trace_point_arguments(point).is_some());
        let xdp: Vec<_> = points.map(|point| trace(&mut ebpf, point, &btf)).collect();
        let sees_xdp = !xdp.is_empty() && xdp.iter().all(Result::is_ok);
        links.extend(xdp.into_iter().flatten());
        Ok(Self {
            by_place: take_map(&mut ebpf, "by_place")?,
            cpus: take_map(&mut ebpf, "cpus")?,
            program,
            headers: take_map(&mut ebpf, "events")?,
            links,
            ebpf,
            sees_xdp,
        })
    }

    /// Stops counting until [`Self::resume`]; counts stay. A benchmark compares with and without.
    pub fn pause(&mut self) {
        self.links.clear();
    }

    /// Counts the kernel's dropped buffers again, without reading its types anew; XDP's events stay uncounted.
    ///
    /// # Errors
    /// [`BpfError::Trace`].
    pub fn resume(&mut self) -> Result<(), BpfError> {
        let link = attach(program(&mut self.ebpf, DROPS), DROPS)?;
        self.links.push(link);
        Ok(())
    }

    /// Whether this kernel reports XDP's failures.
    pub fn sees_xdp(&self) -> bool {
        self.sees_xdp
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read(&self) -> Result<DropCounts, BpfError> {
        let unread = || BpfError::map("read what was dropped");
        let mut places: BTreeMap<[u64; KEY_WORDS], DropCount> = BTreeMap::new();
        let mut counts = DropCounts::default();
        // The places follow the CPUs' own counts, so that every sample has been counted.
        let (mut seen, mut timed, mut cost_ns) = (0, 0, 0);
        for trace_points in 0..2 {
            for cpu in self.cpus.get(&trace_points, 0).map_err(unread())?.iter() {
                counts.lost += cpu[0];
                seen += cpu[1];
                timed += cpu[2];
                cost_ns += cpu[3];
                counts.events += cpu[4];
                for slot in cpu[CPU_FIELDS..].chunks_exact(SLOT_WORDS).filter(|slot| slot[2] > 0) {
                    // The bit above the namespace: the place drops UDP only.
                    let key = [slot[0], slot[1] & 0xffff_ffff_ffff];
                    places.entry(key).or_insert_with(|| DropCount::nothing(key)).add(slot[2], slot[3]);
                }
            }
        }
        for entry in self.by_place.iter() {
            let (key, cpus) = entry.map_err(unread())?;
            let count = places.entry(key).or_insert_with(|| DropCount::nothing(key));
            cpus.iter().for_each(|words| count.add_words(words));
        }
        counts.places = places.into_values().filter(|count| count.buffers > 0).collect();
        let of_buffers = counts.places.iter().filter(|count| matches!(count.kind, DropKind::Reason(_)));
        counts.events += of_buffers.map(|count| count.buffers).sum::<u64>();
        counts.lost += self.missed();
        counts.cost_ns = (u128::from(cost_ns) * u128::from(seen) / u128::from(timed.max(1))) as u64;
        counts.places.sort_by_key(|count| (std::cmp::Reverse(count.packets), count.kind, count.location));
        Ok(counts)
    }

    /// Drops in an interrupt while the program handled another on the same CPU: the kernel does not run it again
    /// but counts them (since Linux 5.12).
    fn missed(&self) -> u64 {
        let told = fs::read_to_string(&self.program).unwrap_or_default();
        let count = told.lines().find_map(|line| line.strip_prefix("recursion_misses:"));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// The headers of packets dropped since the last call, if requested; at most `most` of them.
    pub fn headers(&mut self, most: usize, mut each: impl FnMut(DropHeaders<'_>)) {
        for _ in 0..most {
            let Some(record) = self.headers.next() else { return };
            if let Some(headers) = DropHeaders::of(&record) {
                each(headers);
            }
        }
    }
}

impl fmt::Debug for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drops").field("sees_xdp", &self.sees_xdp).finish_non_exhaustive()
    }
}

impl DropKind {
    /// `struct key` of `drops.bpf.c`.
    fn of(reason: u32) -> Self {
        let detail = reason & 0xffff;
        match (reason >> 31, reason >> 16 & 0x7fff) {
            (1, 0) => Self::XdpException(detail),
            (1, 1) => Self::XdpRedirect(detail),
            (1, 2) => Self::XdpTransmit(detail),
            (1, 3) => Self::XdpBounce(detail),
            _ => Self::Reason(reason),
        }
    }
}

impl DropCount {
    /// No packet yet; `key` is `struct key` of `drops.bpf.c`.
    fn nothing(key: [u64; KEY_WORDS]) -> Self {
        let [location, reason] = key;
        Self {
            kind: DropKind::of(reason as u32),
            location,
            namespace: (reason >> 32) as u32,
            buffers: 0,
            packets: 0,
            sample: None,
        }
    }

    fn add(&mut self, buffers: u64, packets: u64) {
        self.buffers += buffers;
        self.packets += packets;
    }

    /// One CPU's `struct count`.
    fn add_words(&mut self, words: &[u64; COUNT_WORDS]) {
        self.add(words[0], words[1]);
        let is_sampled = words[2] != 0 || words[3] != 0;
        if is_sampled && matches!(self.kind, DropKind::Reason(_)) {
            self.sample = Some(DropSample::of(words));
        }
    }
}

impl DropSample {
    fn of(words: &[u64; COUNT_WORDS]) -> Self {
        let [length_low, length_high, protocol_first, protocol_second, port_low, port_high] =
            [0, 1, 4, 5, 6, 7].map(|byte| words[3].to_le_bytes()[byte]);
        let length = usize::from(u16::from_le_bytes([length_low, length_high]));
        let bytes: Vec<u8> = words[4..].iter().flat_map(|word| word.to_le_bytes()).collect();
        Self {
            inode: words[2],
            port: u16::from_le_bytes([port_low, port_high]),
            protocol: u16::from_be_bytes([protocol_first, protocol_second]),
            bytes: bytes[..length.min(bytes.len())].to_vec(),
        }
    }
}

impl<'r> DropHeaders<'r> {
    /// `struct event` of `drops.bpf.c`.
    fn of(record: &'r [u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let (reason, tail) = (word(8)?, word(24)?);
        Some(Self {
            kind: DropKind::of(reason as u32),
            location: word(0)?,
            namespace: (reason >> 32) as u32,
            packets: word(16)?,
            protocol: ((tail >> 32) as u16).swap_bytes(),
            has_mac: tail >> 48 != 0,
            bytes: record[HEADER_FIELDS..].get(..tail as u32 as usize)?,
        })
    }
}

fn trace(ebpf: &mut Ebpf, point: &'static str, btf: &Btf) -> Result<FdLink, BpfError> {
    let program = program(ebpf, point);
    program.load(point, btf).map_err(|source| refused(source.into()))?;
    attach(program, point)
}

fn program<'e>(ebpf: &'e mut Ebpf, point: &str) -> &'e mut BtfTracePoint {
    let program = ebpf.program_mut(point).expect("the object defines the program");
    program.try_into().expect("the program's section is tp_btf")
}

fn attach(program: &mut BtfTracePoint, point: &'static str) -> Result<FdLink, BpfError> {
    let link = program.attach().and_then(|id| program.take_link(id));
    link.map(FdLink::from).map_err(|source| {
        BpfError::or_capability(format!("watch the trace point {point}"), source.into(), |source| {
            BpfError::Trace { point, source }
        })
    })
}

fn take_map<M: TryFrom<aya::maps::Map, Error = aya::maps::MapError>>(
    ebpf: &mut Ebpf,
    map: &'static str,
) -> Result<M, BpfError> {
    let found = ebpf.take_map(map).expect("the object defines the map");
    M::try_from(found).map_err(BpfError::map(format!("use the BPF map '{map}'")))
}

fn refused(source: Cause) -> BpfError {
    let load = |source| BpfError::Load { program: NAME, source };
    BpfError::or_capability(format!("load the BPF program '{NAME}'"), source, load)
}

fn unsupported(source: Cause) -> BpfError {
    BpfError::Unsupported {
        feature: "naming the reasons of drops".into(),
        on: "here (since Linux 5.17, with BTF)".into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_as_the_program_writes_it() {
        let key = [0xffff_8000, 1 << 32 | 3];
        let mut words = [0; COUNT_WORDS];
        // Two buffers of five packets; socket 77 on port 53; ethertype 0x0800 in network order.
        (words[0], words[1], words[2]) = (2, 5, 77);
        words[3] = 64 | 0x0008 << 32 | 53 << 48;
        words[4] = 0x45;
        let mut count = DropCount::nothing(key);
        count.add_words(&words);
        count.add_words(&[0; COUNT_WORDS]);
        // The CPU's own counts come beside the samples.
        count.add(3, 3);
        assert_eq!(
            (count.kind, count.namespace, count.buffers, count.packets),
            (DropKind::Reason(3), 1, 5, 8)
        );
        let sample = count.sample.unwrap();
        assert_eq!((sample.inode, sample.port, sample.protocol), (77, 53, 0x0800));
        assert_eq!((sample.bytes.len(), sample.bytes[0]), (64, 0x45));
    }

    #[test]
    fn events_of_xdp_are_told_from_reasons() {
        assert_eq!(DropKind::of(1 << 31 | 1 << 16 | 6), DropKind::XdpRedirect(6));
        assert_eq!(DropKind::of(1 << 31 | 2 << 16 | 28), DropKind::XdpTransmit(28));
        assert_eq!(DropKind::of(1 << 31), DropKind::XdpException(0));
        assert_eq!(DropKind::of(5 << 16 | 2), DropKind::Reason(5 << 16 | 2), "a subsystem's reason");
    }

    #[test]
    fn a_record_that_is_cut_short_is_left_out() {
        assert!(DropHeaders::of(&[0; 31]).is_none());
        let mut record = [0u8; HEADER_FIELDS + 128];
        record[24] = 20;
        record[28..30].copy_from_slice(&[0x86, 0xdd]);
        record[30] = 1;
        let headers = DropHeaders::of(&record).unwrap();
        assert_eq!((headers.bytes.len(), headers.protocol, headers.has_mac), (20, 0x86dd, true));
        record[24] = 200;
        assert!(DropHeaders::of(&record).is_none());
    }
}
