//! The result of a simulation, as plain data.

use serde::Serialize;

/// The outcome of one simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Simulated seconds during which frames arrived.
    pub duration_s: f64,
    /// Seconds of the measured window: the duration without the warm-up.
    pub window_s: f64,
    /// Simulated seconds until the last frame had left.
    pub drained_s: f64,
    /// Everything from the first frame to the last one drained.
    pub total: Counters,
    /// What happened within the measured window; rates and means are over it.
    pub window: Counters,
    /// Where frames were lost, in all, in the order a frame meets the places.
    pub losses: Vec<Loss>,
    /// How each CPU spent the window.
    pub cpus: Vec<CpuTime>,
    /// What each queue did in the window.
    pub queues: Vec<QueueOutcome>,
    /// CPU seconds in all: interrupts, polls and stack, reading programs, sender.
    pub cpu_s: [f64; 4],
    /// CPU time of the whole run by what it was spent on, without functions that took none.
    pub functions: Vec<FunctionTime>,
    /// Share of the window in which the bus (PCIe: its direction to memory) was busy.
    pub bus_busy_ratio: f64,
    /// Mean and largest queues in the window.
    pub occupancy: Occupancy,
    /// Levels and counts over time.
    pub series: Vec<Sample>,
    /// Bus transactions from the start on, as long as `run.trace_us` says.
    pub trace: Vec<Transaction>,
    /// Bytes in each port's packet buffer over time, as long as the trace.
    pub levels: Vec<BufferLevel>,
    /// A clock of the bus in picoseconds, for the trace.
    pub clock_ps: u64,
}

/// Counts of one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Frames that reached the card, or that a sender on this machine passed on.
    pub sent: u64,
    /// Their bytes, header to FCS.
    pub sent_bytes: u64,
    /// Frames that reached their end: program, XDP program or stack.
    pub delivered: u64,
    /// Their bytes, header to FCS.
    pub delivered_bytes: u64,
    /// Frames lost, wherever.
    pub lost: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Polls.
    pub polls: u64,
    /// Trips to the page allocator.
    pub page_trips: u64,
    /// Frames that arrived while the card had no descriptor (RNBC): still buffered, not yet lost.
    pub no_descriptor_arrivals: u64,
}

impl Counters {
    /// What was counted since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            sent: self.sent - earlier.sent,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            delivered: self.delivered - earlier.delivered,
            delivered_bytes: self.delivered_bytes - earlier.delivered_bytes,
            lost: self.lost - earlier.lost,
            interrupts: self.interrupts - earlier.interrupts,
            polls: self.polls - earlier.polls,
            page_trips: self.page_trips - earlier.page_trips,
            no_descriptor_arrivals: self.no_descriptor_arrivals - earlier.no_descriptor_arrivals,
        }
    }
}

/// A place where frames are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossStage {
    /// The card's packet buffer was full (MPC, `rx_missed_errors`).
    PacketBuffer,
    /// No descriptor, or no room in a backlog, and the frame may not wait for one.
    NoDescriptor,
    /// The socket's buffer, or the AF_XDP receive ring, was full.
    SocketBuffer,
}

impl LossStage {
    pub(crate) const ALL: [Self; 3] = [Self::PacketBuffer, Self::NoDescriptor, Self::SocketBuffer];
}

/// Frames lost at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Where.
    pub place: LossStage,
    /// How many.
    pub packets: u64,
}

/// What CPU time is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuFunction {
    /// An interrupt until its poll starts.
    Interrupt,
    /// A poll beside its frames.
    Poll,
    /// The driver's work for a frame, buffers not included.
    Driver,
    /// The stack, or the XDP program.
    Stack,
    /// Copying small frames out of their buffers.
    Copy,
    /// Freeing and allocating buffers, or taking them from a pool.
    Allocate,
    /// Trips to the page allocator.
    Pages,
    /// Setting up descriptors again.
    Reset,
    /// Reading programs, and the program of a bypassed queue.
    Program,
    /// The sender.
    Sender,
}

impl CpuFunction {
    /// Every function, in the order of a frame's path.
    pub const ALL: [Self; 10] = [
        Self::Interrupt,
        Self::Poll,
        Self::Driver,
        Self::Stack,
        Self::Copy,
        Self::Allocate,
        Self::Pages,
        Self::Reset,
        Self::Program,
        Self::Sender,
    ];

    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Poll => "poll",
            Self::Driver => "driver",
            Self::Stack => "stack",
            Self::Copy => "copy",
            Self::Allocate => "free and allocate",
            Self::Pages => "page allocator",
            Self::Reset => "reset descriptor",
            Self::Program => "program",
            Self::Sender => "sender",
        }
    }
}

/// CPU time spent on a function.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FunctionTime {
    /// The function.
    pub function: CpuFunction,
    /// Seconds in all.
    pub cpu_s: f64,
    /// Share of all CPU time that was spent on anything.
    pub busy_ratio: f64,
}

/// How full a packet buffer was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BufferLevel {
    /// Whose.
    pub port: u32,
    /// When, in picoseconds.
    pub at_ps: u64,
    /// Bytes in it from then on.
    pub bytes: u64,
}

/// How a CPU spent the window, as shares of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuTime {
    /// CPU number.
    pub cpu: u32,
    /// Interrupts.
    pub irq_ratio: f64,
    /// Polls, driver and stack.
    pub softirq_ratio: f64,
    /// Reading programs.
    pub app_ratio: f64,
    /// The sender.
    pub sender_ratio: f64,
}

/// What a queue did in the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct QueueOutcome {
    /// Queue number, counted over all ports.
    pub queue: u32,
    /// The CPU that serves it.
    pub cpu: u32,
    /// Its frames that reached their end, per second.
    pub delivered_pps: f64,
    /// Its interrupts per second.
    pub interrupts_per_s: f64,
}

/// Mean and largest queues, all of a kind together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Occupancy {
    /// Frames on the card.
    pub packet_buffer: Level,
    /// Frames in memory that the driver has not taken.
    pub ring: Level,
    /// Frames in sockets, the ones being read included.
    pub socket: Level,
}

/// A queue's length over the window.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Level {
    /// Mean, weighted by time; the sum over all queues of the kind.
    pub mean_frames: f64,
    /// The longest single queue.
    pub most_frames: u64,
}

/// Levels at one time, and what was counted since the sample before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Simulated microseconds since the start.
    pub at_us: f64,
    /// Bytes in the packet buffers.
    pub packet_buffer_bytes: u64,
    /// Descriptors that the card may still use.
    pub ring_free: u64,
    /// Frames in memory that the driver has not taken.
    pub ring_used: u64,
    /// Frames in sockets.
    pub socket_frames: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames delivered.
    pub delivered: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Frames lost.
    pub lost: u64,
}

/// A bus transaction, or the driver's write to the tail register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Transaction {
    /// What crossed.
    pub kind: TransactionKind,
    /// For which port.
    pub port: u32,
    /// When it began, in picoseconds.
    pub start_ps: u64,
    /// How long it held the bus, in picoseconds; 0 for a tail.
    pub length_ps: u64,
}

/// Kinds of bus transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransactionKind {
    /// A frame to memory.
    Frame,
    /// Finished descriptors back to memory.
    WriteBack,
    /// Free descriptors to the card.
    Fetch,
    /// The driver publishes descriptors (RDT).
    Tail,
    /// The card ends a read of descriptors early (STOP#), to move frames instead.
    Stop,
}

impl Outcome {
    /// Frames per second delivered in the window.
    pub fn delivered_pps(&self) -> f64 {
        self.window.delivered as f64 / self.window_s
    }

    /// Bits per second delivered in the window, header to FCS.
    pub fn delivered_bps(&self) -> f64 {
        self.window.delivered_bytes as f64 * 8.0 / self.window_s
    }

    /// Frames per second sent in the window.
    pub fn sent_pps(&self) -> f64 {
        self.window.sent as f64 / self.window_s
    }

    /// Bits per second sent in the window, header to FCS.
    pub fn sent_bps(&self) -> f64 {
        self.window.sent_bytes as f64 * 8.0 / self.window_s
    }

    /// Frames per second lost in the window.
    pub fn lost_pps(&self) -> f64 {
        self.window.lost as f64 / self.window_s
    }

    /// Interrupts for each frame delivered in the window.
    pub fn interrupts_per_packet(&self) -> f64 {
        if self.window.delivered == 0 {
            return 0.0;
        }
        self.window.interrupts as f64 / self.window.delivered as f64
    }

    /// Share of all CPU time spent that went to a function.
    pub fn share(&self, function: CpuFunction) -> f64 {
        self.functions.iter().find(|time| time.function == function).map_or(0.0, |time| time.busy_ratio)
    }

    /// Interrupts per second in the window.
    pub fn interrupts_per_s(&self) -> f64 {
        self.window.interrupts as f64 / self.window_s
    }
}
