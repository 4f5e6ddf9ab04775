//! Counting a socket's probe packets by receive queue.

use std::{fmt, ops::Range, os::fd::AsFd};

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{Array, MapData, PerCpuArray},
    programs::SocketFilter,
};

use sys::cpu;

use crate::{
    error::{BpfError, Cause},
    places::{clear, values},
    program::object,
};

/// The header with which packets of a socket begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketLayer {
    /// The UDP header: UDP sockets.
    Datagram,
    /// The Ethernet header: packet sockets.
    Frame,
}

/// What is counted, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketQueuesOptions {
    /// Where packets begin.
    pub layer: SocketLayer,
    /// Queues of the interface.
    pub queues: u32,
    /// Read the clock for each packet, for the times of the first and the last.
    pub times: bool,
}

/// Probe packets of one receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueuePackets {
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// Bytes of their frames from Ethernet header to FCS.
    pub frame_bytes: u64,
    /// When the first and the last arrived, in monotonic nanoseconds, if times were requested and one arrived.
    pub arrived_ns: Option<[u64; 2]>,
}

/// Counts packets before they reach sockets' buffers, as long as the sockets are open.
pub struct SocketQueues {
    // Kept, so that more sockets can be added.
    program: Ebpf,
    by_queue: PerCpuArray<MapData, [u64; QUEUE_WORDS]>,
    bank: Array<MapData, u32>,
    filled: u32,
    queues: u32,
}

/// `sizeof(struct queue)` in words.
pub(crate) const QUEUE_WORDS: usize = 5;
const PROGRAM: &str = "queues_seen";

impl SocketQueues {
    /// Loads the program; nothing is counted yet.
    ///
    /// # Errors
    /// [`BpfError::MissingCapability`] and [`BpfError::Load`].
    pub fn load(options: &SocketQueuesOptions) -> Result<Self, BpfError> {
        let queues = options.queues.max(1);
        let (of_datagrams, is_timed) =
            (u32::from(options.layer == SocketLayer::Datagram), u32::from(options.times));
        let mut loader = EbpfLoader::new();
        loader
            .verifier_log_level(VerifierLogLevel::DISABLE)
            .override_global("of_datagrams", &of_datagrams, true)
            .override_global("is_timed", &is_timed, true)
            .override_global("queues", &queues, true)
            .map_max_entries("by_queue", 2 * (queues + 1));
        let mut program = loader.load(object!("queues")).map_err(|source| refused(source.into()))?;
        filter(&mut program).load().map_err(|source| refused(source.into()))?;
        let mut map = |name| program.take_map(name).expect("the object defines the map");
        let (by_queue, bank) = (map("by_queue"), map("bank"));
        let by_queue =
            PerCpuArray::try_from(by_queue).map_err(BpfError::map("use the BPF map 'by_queue'"))?;
        let bank = Array::try_from(bank).map_err(BpfError::map("use the BPF map 'bank'"))?;
        Ok(Self { program, by_queue, bank, filled: 0, queues })
    }

    /// Counts this socket's packets from now on, until it is closed.
    ///
    /// # Errors
    /// [`BpfError::Filter`].
    pub fn watch(&mut self, socket: impl AsFd) -> Result<(), BpfError> {
        let attached = filter(&mut self.program).attach(socket);
        attached.map_err(|source| BpfError::Filter { program: PROGRAM, source: source.into() })
    }

    /// Packets so far: those without a queue, then queue by queue.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn read(&self) -> Result<(QueuePackets, Vec<QueuePackets>), BpfError> {
        let read = |place| Ok(QueuePackets::of_cpus(values(("by_queue", &self.by_queue), place)?.iter()));
        let mut queues = self.places(self.filled).map(read).collect::<Result<Vec<_>, _>>()?;
        Ok((queues.remove(0), queues))
    }

    /// The same, and restarts all counts.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn take(&mut self) -> Result<(QueuePackets, Vec<QueuePackets>), BpfError> {
        let next = 1 - self.filled;
        let refused = BpfError::map("choose the bank of a socket's queues");
        self.bank.set(0, next, 0).map_err(refused)?;
        // Packets in flight are still counted in the old bank.
        cpu::wait_for_readers().ok();
        let read = self.read()?;
        let places = self.places(self.filled);
        clear(("by_queue", &mut self.by_queue), places, [0; QUEUE_WORDS])?;
        self.filled = next;
        Ok(read)
    }

    fn places(&self, bank: u32) -> Range<u32> {
        let places = self.queues + 1;
        bank * places..(bank + 1) * places
    }
}

fn filter(program: &mut Ebpf) -> &mut SocketFilter {
    let program = program.program_mut(PROGRAM).expect("the object defines the program");
    program.try_into().expect("the program's section is socket")
}

fn refused(source: Cause) -> BpfError {
    let load = |source| BpfError::Load { program: PROGRAM, source };
    BpfError::or_capability(format!("load the BPF program '{PROGRAM}'"), source, load)
}

impl QueuePackets {
    /// What all CPUs counted.
    pub(crate) fn of_cpus<'c>(cpus: impl Iterator<Item = &'c [u64; QUEUE_WORDS]>) -> Self {
        cpus.map(Self::of).fold(Self::default(), Self::plus)
    }

    /// From `struct queue` of the programs.
    fn of(words: &[u64; QUEUE_WORDS]) -> Self {
        let [packets, payload_bytes, frame_bytes, first_ns, last_ns] = *words;
        let arrived_ns = (first_ns > 0).then_some([first_ns, last_ns]);
        Self { packets, payload_bytes, frame_bytes, arrived_ns }
    }

    /// The difference from an earlier reading; it has no times.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            payload_bytes: self.payload_bytes - before.payload_bytes,
            frame_bytes: self.frame_bytes - before.frame_bytes,
            arrived_ns: None,
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let arrived_ns = match (self.arrived_ns, other.arrived_ns) {
            (Some([first, last]), Some([others_first, others_last])) => {
                Some([first.min(others_first), last.max(others_last)])
            }
            (one, other) => one.or(other),
        };
        Self {
            packets: self.packets + other.packets,
            payload_bytes: self.payload_bytes + other.payload_bytes,
            frame_bytes: self.frame_bytes + other.frame_bytes,
            arrived_ns,
        }
    }
}

impl fmt::Debug for SocketQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketQueues").field("queues", &self.queues).finish_non_exhaustive()
    }
}
