//! Counting probe packets in XDP.

use std::fmt;

use aya::maps::{MapData, PerCpuArray};

use crate::{
    error::BpfError,
    mode::Mode,
    program::{Program, object},
    queues::{QUEUE_WORDS, QueuePackets},
};

/// What happens to counted packets; all others go to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProbeAction {
    /// They are dropped.
    #[default]
    Drop,
    /// They go to the kernel, too.
    Pass,
    /// For tests: this number of `enum xdp_action`.
    Other(u32),
}

/// What is counted, and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountOptions {
    /// Number of streams to distinguish; packets of stream `streams` and above are foreign.
    pub streams: u16,
    /// A packet's tag times this, modulo 2^16, is its stream.
    pub tag_inverse: u16,
    /// Number of receive queues to distinguish; 0 saves the time.
    pub queues: u32,
    /// What happens to counted packets.
    pub verdict: ProbeAction,
    /// Nanoseconds that each counted packet keeps the program busy, at most [`WORK_AT_MOST_NS`].
    pub work_ns: u32,
}

/// The longest time that a packet may keep the program busy: the loop is bounded, independent of the clock.
pub const WORK_AT_MOST_NS: u32 = 10_000;

/// Counts packets with a probe header at the start of the UDP payload, by stream and CPU. Checksums are not
/// verified: use sockets for that.
///
/// Loss, reordering and duplicates are counted by CPU: exact when one CPU receives a stream,
/// which holds unless its flows are spread over queues. Over several CPUs the sum of the losses is still exact if
/// there are no duplicates. Duplicates are recognised among the last 256 numbers of a stream.
pub struct Count {
    // Before the maps: nothing is counted any more when they go.
    _program: Program,
    by_stream: PerCpuArray<MapData, [u64; STREAM_WORDS]>,
    by_queue: PerCpuArray<MapData, [u64; QUEUE_WORDS]>,
    queues: u32,
}

/// What was counted, by one CPU or by all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// By stream.
    pub streams: Vec<StreamCount>,
    /// Packets without probe header, or of a foreign stream; they went to the kernel.
    pub foreign: u64,
}

/// What was counted of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamCount {
    /// Packets, including duplicates.
    pub packets: u64,
    /// UDP payload bytes of those.
    pub payload_bytes: u64,
    /// Bytes of their frames from Ethernet header to FCS.
    pub frame_bytes: u64,
    /// The lowest sequence number.
    pub first: u32,
    /// Sequence numbers from the lowest to the highest, both included.
    pub span: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Packets behind by more than 256 numbers: reordered or duplicate. Counted as arrived.
    pub stale: u64,
}

/// `sizeof(struct stream)` of `count.bpf.c` in words.
const STREAM_WORDS: usize = 12 + 256 / 2;

impl Default for CountOptions {
    /// 256 streams, dropped; no queues.
    fn default() -> Self {
        Self { streams: 256, tag_inverse: 1, queues: 0, verdict: ProbeAction::Drop, work_ns: 0 }
    }
}

impl ProbeAction {
    /// As `enum xdp_action` has it.
    pub(crate) fn action(self) -> u32 {
        match self {
            Self::Drop => 1,
            Self::Pass => 2,
            Self::Other(action) => action,
        }
    }
}

impl Count {
    /// Attaches to the interface of this number, until dropped.
    ///
    /// # Errors
    /// [`BpfError::InUse`], [`BpfError::Unsupported`], [`BpfError::MissingCapability`] and others.
    pub fn attach(interface: u32, mode: Mode, options: &CountOptions) -> Result<Self, BpfError> {
        let verdict = options.verdict.action();
        let streams = u32::from(options.streams).max(1);
        let tag_inverse = u32::from(options.tag_inverse);
        let mut program = Program::load("count", object!("count"), |loader| {
            loader
                .override_global("streams", &streams, true)
                .override_global("tag_inverse", &tag_inverse, true)
                .override_global("queues", &options.queues, true)
                .override_global("verdict", &verdict, true)
                .override_global("work_ns", &options.work_ns, true)
                .map_max_entries("by_stream", streams)
                .map_max_entries("by_queue", options.queues.max(1));
        })?;
        let (by_stream, by_queue) = (program.take_map("by_stream")?, program.take_map("by_queue")?);
        program.attach(interface, mode)?;
        Ok(Self { _program: program, by_stream, by_queue, queues: options.queues })
    }

    /// What all CPUs counted so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read(&self) -> Result<Counts, BpfError> {
        Ok(self.read_cpus()?.into_iter().fold(Counts::default(), Counts::plus))
    }

    /// What each CPU counted so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read_cpus(&self) -> Result<Vec<Counts>, BpfError> {
        let mut cpus: Vec<Counts> = Vec::new();
        for stream in 0..self.by_stream.len() {
            let refused = BpfError::map(format!("read the counters of stream {stream}"));
            let values = self.by_stream.get(&stream, 0).map_err(refused)?;
            cpus.resize_with(values.len(), Counts::default);
            for (cpu, words) in cpus.iter_mut().zip(values.iter()) {
                cpu.streams.push(StreamCount::of(words));
                cpu.foreign += words[2];
            }
        }
        Ok(cpus)
    }

    /// The counts of each requested receive queue.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read_queues(&self) -> Result<Vec<QueuePackets>, BpfError> {
        let read = |queue| {
            let refused = BpfError::map(format!("read the counters of queue {queue}"));
            self.by_queue.get(&queue, 0).map(|cpus| QueuePackets::of_cpus(cpus.iter())).map_err(refused)
        };
        let mut queues: Vec<QueuePackets> = (0..self.queues).map(read).collect::<Result<_, _>>()?;
        for stream in 0..self.by_stream.len() {
            let refused = BpfError::map(format!("read the counters of stream {stream}"));
            for words in self.by_stream.get(&stream, 0).map_err(refused)?.iter() {
                let (queue, newest) = newest_on_queue(words);
                if let Some(counts) = queues.get_mut(queue) {
                    *counts = counts.plus(newest);
                }
            }
        }
        Ok(queues)
    }
}

/// The queue of a stream's newest packets, and their counts that `by_queue` does not have yet.
fn newest_on_queue(words: &[u64; STREAM_WORDS]) -> (usize, QueuePackets) {
    let &[packets, payload_bytes, .., frame_bytes, next_and_queue, counted, counted_payload, counted_frame] =
        words.first_chunk::<12>().expect("there are more");
    let newest = QueuePackets {
        packets: packets.saturating_sub(counted),
        payload_bytes: payload_bytes.saturating_sub(counted_payload),
        frame_bytes: frame_bytes.saturating_sub(counted_frame),
        arrived_ns: None,
    };
    ((next_and_queue >> 32) as usize, newest)
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Count").field("streams", &self.by_stream.len()).finish_non_exhaustive()
    }
}

impl Counts {
    /// All streams together; figures of one stream are added.
    pub fn packets(&self) -> u64 {
        self.streams.iter().map(|stream| stream.packets).sum()
    }

    /// UDP payload bytes of all streams.
    pub fn payload_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.payload_bytes).sum()
    }

    /// Bytes of the frames of all streams.
    pub fn frame_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.frame_bytes).sum()
    }

    /// The sum of both, stream by stream.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.streams.resize(self.streams.len().max(other.streams.len()), StreamCount::default());
        for (stream, more) in self.streams.iter_mut().zip(other.streams) {
            *stream = stream.plus(more);
        }
        self.foreign += other.foreign;
        self
    }
}

impl StreamCount {
    /// Numbers between the lowest and the highest that did not arrive. Losses after the highest are not
    /// visible here: compare [`StreamCount::span`] with the number sent.
    pub fn lost(&self) -> u64 {
        self.span.saturating_sub(self.packets - self.duplicates)
    }

    /// Both together: the numbers from the lowest of both to the highest.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        if self.packets == 0 || other.packets == 0 {
            return if self.packets == 0 { other } else { self };
        }
        // Numbers wrap; the two are less than half the circle apart.
        let apart = i64::from(other.first.wrapping_sub(self.first) as i32);
        let end = (self.span as i64).max(apart + other.span as i64);
        Self {
            packets: self.packets + other.packets,
            payload_bytes: self.payload_bytes + other.payload_bytes,
            frame_bytes: self.frame_bytes + other.frame_bytes,
            first: if apart < 0 { other.first } else { self.first },
            span: (end - apart.min(0)) as u64,
            reordered: self.reordered + other.reordered,
            duplicates: self.duplicates + other.duplicates,
            stale: self.stale + other.stale,
        }
    }

    /// From `struct stream` of `count.bpf.c`.
    fn of(words: &[u64; STREAM_WORDS]) -> Self {
        let [packets, payload_bytes, _, span, reordered, duplicates, stale, frame_bytes, next] =
            *words.first_chunk().unwrap();
        let first = (next as u32).wrapping_sub(span as u32);
        Self { packets, payload_bytes, frame_bytes, first, span, reordered, duplicates, stale }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_newest_packets_are_of_its_queue() {
        let mut words = [0; STREAM_WORDS];
        (words[0], words[1], words[7]) = (100, 1800, 6400);
        words[8] = 3 << 32 | 0xffff_fff0;
        (words[9], words[10], words[11]) = (60, 1080, 3840);
        let newest = QueuePackets { packets: 40, payload_bytes: 720, frame_bytes: 2560, arrived_ns: None };
        assert_eq!(newest_on_queue(&words), (3, newest));
        assert_eq!(
            StreamCount {
                packets: 100,
                payload_bytes: 1800,
                frame_bytes: 6400,
                first: 0xffff_fff0,
                ..StreamCount::default()
            },
            StreamCount::of(&words)
        );
    }

    fn seen(first: u32, span: u64, packets: u64) -> StreamCount {
        StreamCount { first, span, packets, ..StreamCount::default() }
    }

    #[test]
    fn two_cpus_that_shared_a_stream_lost_nothing_together() {
        let even = seen(0, 99, 50);
        let odd = seen(1, 99, 50);
        assert_eq!((even.lost(), odd.lost()), (49, 49));
        for both in [even.plus(odd), odd.plus(even)] {
            assert_eq!((both.first, both.span, both.packets, both.lost()), (0, 100, 100, 0));
        }
        assert_eq!(even.plus(StreamCount::default()), even);
    }

    #[test]
    fn numbers_that_wrap_between_cpus_are_one_span() {
        let before = seen(u32::MAX - 9, 10, 10);
        let after = seen(0, 10, 9);
        for both in [before.plus(after), after.plus(before)] {
            assert_eq!((both.first, both.span, both.lost()), (u32::MAX - 9, 20, 1));
        }
    }
}
