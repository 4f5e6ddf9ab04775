//! Measuring probe packets in XDP: sequence numbers, inter-arrival times, jitter, latency.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use aya::maps::{Array, MapData, PerCpuArray};

use sys::{clock, cpu};

use crate::{
    count::ProbeAction,
    error::BpfError,
    mode::Mode,
    places::{clear, values},
    program::{Program, ProgramRun, object},
    queues::{QUEUE_WORDS, QueuePackets},
    returns::ReturnMap,
};

/// What is measured, and what happens to the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasureOptions {
    /// What happens to probe packets.
    pub verdict: ProbeAction,
    /// Number of receive queues to distinguish.
    pub queues: u32,
    /// Packets of stream `streams` and above are foreign, and belong to the kernel.
    pub streams: u32,
    /// A tag times this is its stream, modulo 2^16; with 0 every tag is of stream 0.
    pub tag_inverse: u16,
    /// Whether times are measured, or only numbers.
    pub times: bool,
    /// How senders write the time.
    pub probe_time: ProbeTime,
    /// Whether probes go back to the addresses of [`Measure::take_returns`].
    pub returns: Option<WayBack>,
    /// Read the clock once per poll of the device instead of once per packet.
    pub by_poll: bool,
    /// Nanoseconds that each probe keeps the program busy, at most [`WORK_AT_MOST_NS`](crate::WORK_AT_MOST_NS).
    pub work_ns: u32,
    /// For tests: packets carry their time of arrival in the eight bytes after the stream tag.
    pub is_scripted: bool,
}

/// How probes go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayBack {
    /// `XDP_TX`.
    Tx,
    /// A redirect to the interface they came from: for a veth, which with `XDP_TX` wakes only a peer that has a
    /// program, and leaves the packets in the ring of any other.
    Redirect,
}

/// The format of the time in the probe header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProbeTime {
    /// Guessed from the value.
    #[default]
    ByNumbers,
    /// Seconds and microseconds of the wall clock.
    Micros,
    /// Nanoseconds since the host's start.
    Nanos,
}

/// Measures packets with a probe header at the start of the UDP payload, by CPU; all others go to the kernel. Checksums
/// are not verified. Duplicates are recognised among the last 256 numbers of a sender.
///
/// A CPU distinguishes 64 senders and 256 flows, fewer when their places in the tables collide.
pub struct Measure {
    // Before the maps: nothing is counted any more when they go.
    program: Program,
    settings: Array<MapData, [u64; 2]>,
    readers: PerCpuArray<MapData, [u64; READER_WORDS]>,
    senders: PerCpuArray<MapData, [u64; SENDER_WORDS]>,
    flows: PerCpuArray<MapData, [u64; FLOW_WORDS]>,
    histograms: PerCpuArray<MapData, [u64; BUCKETS]>,
    by_queue: PerCpuArray<MapData, [u64; QUEUE_WORDS]>,
    runs: PerCpuArray<MapData, [u64; RUN_WORDS]>,
    returns: Option<ReturnMap>,
    queues: u32,
    bank: u32,
    cost: Option<MeasuringCost>,
}

/// The program's time per packet, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuringCost {
    /// For a packet with its own times.
    pub alone_ns: f64,
    /// For a packet that left and arrived together with the previous one.
    pub together_ns: f64,
}

/// What one CPU measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    /// The CPU.
    pub cpu: u32,
    /// Packets with a probe header.
    pub packets: u64,
    /// Packets without.
    pub foreign: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// Bytes of frames from Ethernet header to FCS.
    pub frame_bytes: u64,
    /// When the first and the last packet arrived, in nanoseconds of the monotonic clock; 0 without packets.
    pub arrived_ns: [u64; 2],
    /// Packets whose sender or flow found no room.
    pub beyond_tables: u64,
    /// Packets that arrived before they were sent.
    pub before_sent: u64,
    /// Packets without a wall-clock time.
    pub sent_by_uptime: u64,
    /// Packets that were sent back.
    pub returned: u64,
    /// Time since the previous packet.
    pub inter_arrival: MeasuredTimes,
    /// Time since the previous packet of the same flow.
    pub flow_inter_arrival: MeasuredTimes,
    /// Difference of the transit times of two successive packets of a sender.
    pub jitter: MeasuredTimes,
    /// Time from departure to arrival.
    pub latency: MeasuredTimes,
    /// Senders seen.
    pub senders: Vec<MeasuredSender>,
    /// Flows seen.
    pub flows: Vec<MeasuredFlow>,
}

/// Samples of one quantity in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredTimes {
    /// Samples by bucket: values below 256 have one each, every power of two above has 128; from 2^38 on all share the
    /// last.
    pub counts: Vec<u64>,
    /// The smallest and the largest sample; meaningless without any.
    pub extremes_ns: [u64; 2],
    /// The sum of all samples.
    pub sum: u128,
    /// The sum of their squares.
    pub squares: u128,
}

/// What one CPU measured of one sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredSender {
    /// Its address.
    pub address: IpAddr,
    /// Its stream tag.
    pub stream: u16,
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// Different send times.
    pub send_times: u64,
    /// Sixteen times the jitter of RFC 3550, in nanoseconds; `None` before the first packet with a time.
    pub jitter_scaled_ns: Option<u64>,
    /// The lowest number since its last start.
    pub first: u32,
    /// Numbers from the lowest to the highest since then.
    pub span: u64,
    /// Numbers of these that arrived.
    pub distinct: u64,
    /// When the first and the last of them arrived, in nanoseconds.
    pub arrived_ns: [u64; 2],
    /// How often it restarted.
    pub restarts: u64,
    /// Numbers that arrived before its last restart.
    pub distinct_before: u64,
    /// Numbers that were missing before its last restart.
    pub lost_before: u64,
    /// Packets after one with a higher number.
    pub reordered: u64,
    /// Sum of their extents (RFC 4737).
    pub extent_sum: u64,
    /// The largest of their extents.
    pub extent_max: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Packets too far behind to classify.
    pub late: u64,
    /// Packets implausibly far ahead.
    pub strays: u64,
}

/// What one CPU measured of one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredFlow {
    /// Its source.
    pub source: SocketAddr,
    /// Its destination.
    pub destination: SocketAddr,
    /// The stream tag of its packets.
    pub stream: u16,
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// When the first and the last packet came, in nanoseconds.
    pub arrived_ns: [u64; 2],
    /// The longest time between two of its packets.
    pub longest_gap_ns: u64,
}

// Of measure.bpf.c.
const READER_COUNTS: usize = 11;
const READER_WORDS: usize = READER_COUNTS + KINDS * SUMS_WORDS;
const SUMS_WORDS: usize = 8;
const SENDER_WORDS: usize = 26 + 2 + 3 * 256 / 2;
const FLOW_WORDS: usize = 11;
const RUN_WORDS: usize = 20;
const TRIAL: u64 = 2;
const TRIAL_APART: u64 = 4;
const BUCKETS: usize = 4096;
const KINDS: usize = 5;
const SENDERS: u32 = 64;
const FLOWS: u32 = 256;

impl Measure {
    /// Attaches to the interface of this number, until dropped. `wall_ahead_ns` is by how much the wall clock is ahead
    /// of the monotonic one.
    ///
    /// # Errors
    /// [`BpfError::InUse`], [`BpfError::Unsupported`], [`BpfError::MissingCapability`] and others.
    pub fn attach(
        interface: u32,
        mode: Mode,
        options: &MeasureOptions,
        wall_ahead_ns: u64,
    ) -> Result<Self, BpfError> {
        let verdict = options.verdict.action();
        let queues = options.queues.max(1);
        let probe_clock = options.probe_time as u32;
        let (is_timed, is_scripted) = (u32::from(options.times), u32::from(options.is_scripted));
        let may_return = u32::from(options.returns.is_some());
        let return_by_redirect = u32::from(options.returns == Some(WayBack::Redirect));
        let (by_poll, tag_inverse) = (u32::from(options.by_poll), u32::from(options.tag_inverse));
        let mut program = Program::load("measure", object!("measure"), |loader| {
            loader
                .override_global("verdict", &verdict, true)
                .override_global("is_timed", &is_timed, true)
                .override_global("is_scripted", &is_scripted, true)
                .override_global("probe_clock", &probe_clock, true)
                .override_global("may_return", &may_return, true)
                .override_global("return_by_redirect", &return_by_redirect, true)
                .override_global("by_poll", &by_poll, true)
                .override_global("streams", &options.streams, true)
                .override_global("tag_inverse", &tag_inverse, true)
                .override_global("work_ns", &options.work_ns, true)
                .map_max_entries("by_queue", 2 * queues);
        })?;
        let mut this = Self {
            settings: program.take_map("settings")?,
            readers: program.take_map("readers")?,
            senders: program.take_map("senders")?,
            flows: program.take_map("flows")?,
            histograms: program.take_map("histograms")?,
            by_queue: program.take_map("by_queue")?,
            runs: program.take_map("runs")?,
            returns: Some(ReturnMap::over(program.take_map("returns")?)),
            queues,
            bank: 0,
            cost: None,
            program,
        };
        if options.times {
            this.cost = Some(this.tried(wall_ahead_ns)?);
        }
        this.set(wall_ahead_ns, 0)?;
        if options.by_poll {
            this.program.watch_tracepoint("measure_polled", "napi_poll")?;
        }
        this.program.attach(interface, mode)?;
        Ok(this)
    }

    /// The cost of a packet, measured before the program was attached; `None` where no times are measured.
    pub fn cost(&self) -> Option<MeasuringCost> {
        self.cost
    }

    /// The addresses that probes go back to; `None` the second time.
    pub fn take_returns(&mut self) -> Option<ReturnMap> {
        self.returns.take()
    }

    /// Sets by how much the wall clock is ahead of the monotonic one.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn set_wall_clock(&mut self, wall_ahead_ns: u64) -> Result<(), BpfError> {
        self.set(wall_ahead_ns, 0)
    }

    /// What each CPU has measured so far; CPUs that saw nothing are left out.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read(&self) -> Result<Vec<Measured>, BpfError> {
        self.read_bank(self.bank)
    }

    /// The same, and starts a new measurement.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn take(&mut self, wall_ahead_ns: u64) -> Result<Vec<Measured>, BpfError> {
        let full = self.bank;
        self.bank = 1 - full;
        self.set(wall_ahead_ns, 0)?;
        // Running polls still fill their bank; where the kernel does not wait, their packets may be lost.
        cpu::wait_for_readers().ok();
        let measured = self.read_bank(full)?;
        self.clear(full)?;
        Ok(measured)
    }

    /// Packets by receive queue.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read_queues(&self) -> Result<Vec<QueuePackets>, BpfError> {
        let read = |queue| {
            let cpus = values(("by_queue", &self.by_queue), 2 * queue + self.bank)?;
            Ok(QueuePackets::of_cpus(cpus.iter()))
        };
        (0..self.queues).map(read).collect()
    }

    /// Packets, payload bytes, foreign packets and packets sent back of all CPUs so far; cheaper than reading
    /// everything.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read_counts(&self) -> Result<[u64; 4], BpfError> {
        let cpus = values(("readers", &self.readers), self.bank)?;
        let sum = |word: usize| cpus.iter().map(|words| words[word]).sum();
        Ok([sum(0), sum(2), sum(1), sum(9)])
    }

    /// Packets and payload bytes by stream tag of all CPUs so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read_streams(&self) -> Result<Vec<(u16, u64, u64)>, BpfError> {
        let mut streams = Vec::new();
        for place in self.bank * SENDERS..(self.bank + 1) * SENDERS {
            for words in values(("senders", &self.senders), place)?.iter().filter(|words| words[4] > 0) {
                streams.push((words[2] as u16, words[4], words[5]));
            }
        }
        Ok(streams)
    }

    fn set(&mut self, wall_ahead_ns: u64, flags: u64) -> Result<(), BpfError> {
        let refused = BpfError::map("set the measuring program's clock and bank");
        self.settings.set(0, [wall_ahead_ns, u64::from(self.bank) | flags], 0).map_err(refused)
    }

    /// Runs the program repeatedly over a packet; call it before attaching.
    fn tried(&mut self, wall_ahead_ns: u64) -> Result<MeasuringCost, BpfError> {
        const PACKETS: u32 = 5000;
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[26..42].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 26, 0, 0]);
        frame[42..46].copy_from_slice(&0xbe9b_e955u32.to_be_bytes());
        frame[50..58].copy_from_slice(&clock::monotonic_ns().to_be_bytes());
        let mut cost_ns = |flags| {
            self.set(wall_ahead_ns, flags)?;
            let run = ProgramRun { input: &frame, interface: 0, repeat: PACKETS, live_batch: None };
            let rows = (0..3).map(|_| self.program.time(&run)).collect::<Result<Vec<_>, _>>()?;
            Ok::<_, BpfError>(rows.iter().min().map_or(0.0, |least| least.as_nanos() as f64))
        };
        let cost = MeasuringCost { together_ns: cost_ns(TRIAL)?, alone_ns: cost_ns(TRIAL | TRIAL_APART)? };
        self.clear(0)?;
        clear(("runs", &mut self.runs), 0..1, [0; RUN_WORDS])?;
        Ok(cost)
    }

    fn read_bank(&self, bank: u32) -> Result<Vec<Measured>, BpfError> {
        let readers = values(("readers", &self.readers), bank)?;
        let mut cpus: Vec<Measured> =
            readers.iter().enumerate().map(|(cpu, words)| Measured::of(cpu as u32, words)).collect();
        for kind in 0..KINDS {
            let all = values(("histograms", &self.histograms), bank * KINDS as u32 + kind as u32)?;
            let of_cpus = cpus.iter_mut().zip(readers.iter()).zip(all.iter());
            for ((cpu, words), counts) in of_cpus.filter(|((cpu, _), _)| cpu.packets > 0) {
                cpu.add_times(kind, &MeasuredTimes::of(kind, words, counts));
            }
        }
        for place in bank * SENDERS..(bank + 1) * SENDERS {
            for (cpu, words) in cpus.iter_mut().zip(values(("senders", &self.senders), place)?.iter()) {
                cpu.senders.extend(MeasuredSender::of(words));
            }
        }
        for place in bank * FLOWS..(bank + 1) * FLOWS {
            for (cpu, words) in cpus.iter_mut().zip(values(("flows", &self.flows), place)?.iter()) {
                cpu.flows.extend(MeasuredFlow::of(words));
            }
        }
        cpus.retain(|cpu| cpu.packets + cpu.foreign > 0);
        Ok(cpus)
    }

    fn clear(&mut self, bank: u32) -> Result<(), BpfError> {
        clear(("readers", &mut self.readers), bank..bank + 1, [0; READER_WORDS])?;
        clear(("senders", &mut self.senders), bank * SENDERS..(bank + 1) * SENDERS, [0; SENDER_WORDS])?;
        clear(("flows", &mut self.flows), bank * FLOWS..(bank + 1) * FLOWS, [0; FLOW_WORDS])?;
        let kinds = KINDS as u32;
        clear(("histograms", &mut self.histograms), bank * kinds..(bank + 1) * kinds, [0; BUCKETS])?;
        (0..self.queues).try_for_each(|queue| {
            let place = 2 * queue + bank;
            clear(("by_queue", &mut self.by_queue), place..place + 1, [0; QUEUE_WORDS])
        })
    }
}

impl fmt::Debug for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measure").field("bank", &self.bank).finish_non_exhaustive()
    }
}

impl Measured {
    fn of(cpu: u32, words: &[u64; READER_WORDS]) -> Self {
        let &[
            packets,
            foreign,
            payload_bytes,
            frame_bytes,
            first_ns,
            last_ns,
            beyond_tables,
            before_sent,
            sent_by_uptime,
            returned,
            _last_flow,
        ] = words.first_chunk::<READER_COUNTS>().expect("a reader begins with its counts");
        Self {
            cpu,
            packets,
            foreign,
            payload_bytes,
            frame_bytes,
            arrived_ns: [first_ns, last_ns],
            beyond_tables,
            before_sent,
            sent_by_uptime,
            returned,
            ..Self::default()
        }
    }

    /// By `enum kind`: a gap after a packet of the same flow is of both inter-arrival times.
    fn add_times(&mut self, kind: usize, times: &MeasuredTimes) {
        match kind {
            0 => {
                self.inter_arrival.add(times);
                self.flow_inter_arrival.add(times);
            }
            1 => self.inter_arrival.add(times),
            2 => self.flow_inter_arrival.add(times),
            3 => self.jitter.add(times),
            _ => self.latency.add(times),
        }
    }
}

impl MeasuredTimes {
    /// From `struct sums` of a reader, and the histogram.
    fn of(kind: usize, reader: &[u64; READER_WORDS], counts: &[u64; BUCKETS]) -> Self {
        let words = &reader[READER_COUNTS + kind * SUMS_WORDS..][..SUMS_WORDS];
        let wide = |at: usize| u128::from(words[at + 1]) << 64 | u128::from(words[at]);
        let extremes_ns = [!words[0], words[1]];
        Self { counts: counts.to_vec(), extremes_ns, sum: wide(4), squares: wide(6) }
    }

    fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn add(&mut self, other: &Self) {
        if other.samples() == 0 {
            return;
        }
        let is_first = self.samples() == 0;
        self.counts.resize(BUCKETS, 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        let ([least, most], [others_least, others_most]) = (self.extremes_ns, other.extremes_ns);
        self.extremes_ns =
            [if is_first { others_least } else { least.min(others_least) }, most.max(others_most)];
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

impl MeasuredSender {
    /// From `struct sender`; `None` when its place is free.
    fn of(words: &[u64; SENDER_WORDS]) -> Option<Self> {
        let next = words[26] as u32;
        // Numbers that arrived in order and were not stored yet.
        let in_order = u64::from(next.wrapping_sub((words[27] >> 32) as u32));
        let span = words[15] + in_order;
        (words[4] > 0).then(|| Self {
            address: address([words[0], words[1]], words[3]),
            stream: words[2] as u16,
            packets: words[4],
            payload_bytes: words[5],
            send_times: words[6],
            jitter_scaled_ns: (words[9] > 0).then_some(words[10]),
            first: next.wrapping_sub(span as u32),
            span,
            distinct: words[16] + in_order,
            arrived_ns: [words[11], words[12]],
            restarts: words[17],
            distinct_before: words[18],
            lost_before: words[19],
            reordered: words[20],
            extent_sum: words[21],
            extent_max: words[22],
            duplicates: words[23],
            late: words[24],
            strays: words[25],
        })
    }
}

impl MeasuredFlow {
    /// From `struct flow`; `None` when its place is free.
    fn of(words: &[u64; FLOW_WORDS]) -> Option<Self> {
        let tag = words[4];
        let is_ipv6 = tag >> 48 & 1;
        let end =
            |at: usize, port: u64| SocketAddr::new(address([words[at], words[at + 1]], is_ipv6), port as u16);
        (words[6] > 0).then(|| Self {
            source: end(0, tag >> 16),
            destination: end(2, tag),
            stream: (tag >> 32) as u16,
            packets: words[6],
            payload_bytes: words[7],
            arrived_ns: [words[8], words[9]],
            longest_gap_ns: words[10],
        })
    }
}

/// An address in header order.
fn address(words: [u64; 2], is_ipv6: u64) -> IpAddr {
    let [a, b] = words.map(u64::to_ne_bytes);
    if is_ipv6 == 0 {
        return Ipv4Addr::new(a[0], a[1], a[2], a[3]).into();
    }
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&a);
    octets[8..].copy_from_slice(&b);
    Ipv6Addr::from(octets).into()
}
