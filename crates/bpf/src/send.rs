//! Making and sending packets in XDP.

use std::fmt;

use aya::maps::{Array, DevMap, MapData, xdp::XdpMapError};

use crate::{
    error::{BpfError, EINVAL},
    live::ended_early,
    parking::Parking,
    program::{Program, Run, object},
};

/// The packets to be made, as `wire::Recipe` has them. Packet n is the base frame with every field that varies
/// written to its place, with number and time in the probe header, and with checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendPlan {
    /// The longest frame without FCS; 0 where something varies, and in the UDP checksum.
    pub base: Vec<u8>,
    /// Whether the packets are IPv6.
    pub ipv6: bool,
    /// Where the UDP payload starts; before it stand the UDP header and the IP header without options.
    pub payload_at: usize,
    /// Source address, destination address, source port, destination port, bytes of payload.
    pub fields: [FieldDraw; 5],
    /// The sum over the IPv4 header in the base, folded, not complemented; `None` when it does not vary.
    pub ipv4_sum: Option<u16>,
    /// The sum over pseudo header and datagram in the base, folded, not complemented.
    pub udp_sum: u16,
}

/// How a field's value follows from a packet's number n; see `wire::Draw`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldDraw {
    /// As in the base frame.
    Fixed,
    /// `first + step × (n mod count)`.
    Increment {
        /// The value of packet 0.
        first: u128,
        /// From one value to the next.
        step: u32,
        /// Values, at most 2^32.
        count: u64,
    },
    /// `first + (count × r) >> 32`, r out of SplitMix64.
    Random {
        /// The smallest value.
        first: u128,
        /// Values, at most 2^32.
        count: u64,
        /// The seed.
        seed: u64,
    },
    /// `values[n mod count]`.
    List(Vec<u128>),
}

/// How frames leave the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendPath {
    /// `XDP_TX`: back out of the interface they are said to have come from.
    #[default]
    Tx,
    /// A redirect map with the interface in it.
    Map,
    /// They are dropped: what making them costs.
    Dropped,
}

/// Makes packets in the kernel and sends them out of one interface (`BPF_PROG_RUN` with live frames, since Linux
/// 5.18). One thread a sender. Frames that the driver does not take are lost without a word here.
pub struct Sender {
    program: Program,
    state: Array<MapData, [u64; STATE_WORDS]>,
    _parking: Option<Parking>,
    // Holds the interface that the program redirects to.
    _target: DevMap<MapData>,
    base: Vec<u8>,
    udp_sum: u16,
    cycles: [u64; 5],
    interface: u32,
}

/// `sizeof(struct state)` of `send.bpf.c` in words.
const STATE_WORDS: usize = 7;
/// `sizeof(struct draw)` in words.
const DRAW_WORDS: usize = 6;
/// Words of the base frame's headers.
const HEADER_WORDS: usize = 9;
/// The smallest frame without FCS.
const LEAST_FRAME: u32 = 60;

impl Sender {
    /// Frames that the kernel makes in one go at most (`TEST_XDP_MAX_BATCH`).
    pub const MOST_BATCH: u32 = 256;
    /// Bytes of a frame that fit in a page of 4 KiB with the kernel's own data, whatever the kernel.
    const ALWAYS_FITS: usize = 3072;

    /// Loads a sender for the interface of this number. For [`SendPath::Tx`] the interface must have receive rings:
    /// a veth has them while a native program is attached to it.
    ///
    /// # Errors
    /// [`BpfError::MissingCapability`], [`BpfError::Load`], [`BpfError::Map`].
    pub fn load(plan: &SendPlan, interface: u32, path: SendPath) -> Result<Self, BpfError> {
        let mut listed: Vec<u128> = Vec::new();
        let draws = plan.fields.each_ref().map(|field| field.words(&mut listed));
        let number = |value: usize| value as u32;
        let globals = [
            ("payload_at", number(plan.payload_at)),
            ("base_len", number(plan.base.len())),
            ("least_len", LEAST_FRAME),
            ("is_ipv6", plan.ipv6.into()),
            ("ipv4_checksum_varies", plan.ipv4_sum.is_some().into()),
            ("ipv4_sum", in_memory(plan.ipv4_sum.unwrap_or(0)).into()),
            ("makeup", plan.makeup()),
            ("path", path as u32),
        ];
        let headers = headers(&plan.base);
        let mut program = Program::load("send", object!("send"), |loader| {
            loader.override_global("draws", &draws, true);
            loader.override_global("headers", &headers, true);
            for (name, value) in &globals {
                loader.override_global(name, value, true);
            }
            loader.map_max_entries("values", listed.len().max(1) as u32);
        })?;

        let mut values: Array<MapData, [u64; 2]> = program.take_map("values")?;
        for (at, value) in listed.iter().enumerate() {
            let words = [*value as u64, (*value >> 64) as u64];
            values.set(at as u32, words, 0).map_err(BpfError::map("write a list of values"))?;
        }
        let mut target: DevMap<MapData> = program.take_map("target")?;
        if path == SendPath::Map {
            let refused = |source: XdpMapError| {
                let action = format!("redirect to interface number {interface}");
                BpfError::Map { action, source: source.into() }
            };
            target.set(0, interface, None, 0).map_err(refused)?;
        }
        Ok(Self {
            _parking: Parking::of(&mut program),
            state: program.take_map(".bss")?,
            _target: target,
            program,
            base: plan.base.clone(),
            udp_sum: plan.udp_sum,
            cycles: plan.fields.each_ref().map(FieldDraw::cycle),
            interface,
        })
    }

    /// Makes and sends `packets` packets from number `sequence` on, `batch_size` (1..=256) at a time; `raw_time` are
    /// the eight time bytes of the probe header as one number. Returns how many were made: fewer when a
    /// signal came, or when there were too many runs in the last second ([`LIVE_RUN_GAP_NS`](crate::LIVE_RUN_GAP_NS)).
    ///
    /// Each call makes pages of its own first: thousands of packets a call are fastest.
    /// The interface is looked for in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`BpfError::Unsupported`] and [`BpfError::Run`].
    pub fn send(
        &mut self,
        sequence: u32,
        packets: u32,
        batch_size: u32,
        raw_time: u64,
    ) -> Result<u32, BpfError> {
        self.write_state(sequence, raw_time)?;
        let run = Run {
            input: &self.base,
            interface: self.interface,
            repeat: packets,
            live_batch: Some(batch_size),
        };
        if packets > 0
            && let Err(error) = self.program.run(&run, None)
        {
            match error.os_error() {
                _ if ended_early(&error) => {}
                // Shorter frames and all else were taken before.
                Some(EINVAL) if self.base.len() > Self::ALWAYS_FITS => return Err(self.too_long(error)),
                _ => return Err(error),
            }
        }
        self.made_since(sequence)
    }

    /// Makes one packet without sending it.
    ///
    /// # Errors
    /// [`BpfError::Run`].
    pub fn frame(&mut self, sequence: u32, raw_time: u64) -> Result<Vec<u8>, BpfError> {
        self.write_state(sequence, raw_time)?;
        let mut frame = vec![0; self.base.len()];
        let run = Run { input: &self.base, interface: self.interface, repeat: 1, live_batch: None };
        let len = self.program.run(&run, Some(&mut frame))?;
        frame.truncate(len);
        Ok(frame)
    }

    fn too_long(&self, error: BpfError) -> BpfError {
        BpfError::Unsupported {
            feature: format!("making XDP live frames of {} bytes", self.base.len()),
            on: "by this kernel: each must fit in a page".into(),
            source: error.into(),
        }
    }

    fn write_state(&mut self, sequence: u32, raw_time: u64) -> Result<(), BpfError> {
        let mut state = [0; STATE_WORDS];
        let time = raw_time.swap_bytes();
        state[0] = time;
        for (index, cycle) in state[1..].iter_mut().zip(self.cycles) {
            *index = u64::from(sequence) % cycle;
        }
        let sum: u64 = (0..64).step_by(16).map(|shift| time >> shift & 0xffff).sum();
        state[STATE_WORDS - 1] = u64::from(sequence) | (sum + u64::from(in_memory(self.udp_sum))) << 32;
        self.state.set(0, state, 0).map_err(BpfError::map("tell the sender what to send"))
    }

    fn made_since(&self, sequence: u32) -> Result<u32, BpfError> {
        let state = self.state.get(&0, 0).map_err(BpfError::map("read what the sender sent"))?;
        Ok((state[STATE_WORDS - 1] as u32).wrapping_sub(sequence))
    }
}

/// A sum as of words in memory order: this machine is little-endian, as the object is.
fn in_memory(sum: u16) -> u16 {
    sum.swap_bytes()
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl SendPlan {
    /// `enum makeup` of `send.bpf.c`: the least that makes these packets.
    fn makeup(&self) -> u32 {
        let [.., payload_len] = &self.fields;
        let has_list = self.fields.iter().any(|field| matches!(field, FieldDraw::List(_)));
        if self.fields.iter().all(|field| *field == FieldDraw::Fixed) {
            0
        } else if !has_list && *payload_len == FieldDraw::Fixed {
            1
        } else {
            2
        }
    }
}

impl FieldDraw {
    /// `struct draw` of `send.bpf.c`; a list is put behind what is listed already.
    fn words(&self, listed: &mut Vec<u128>) -> [u64; DRAW_WORDS] {
        let halves = |value: u128| (value as u64, (value >> 64) as u64);
        match self {
            Self::Fixed => [0, 0, 1, 0, 0, 0],
            Self::Increment { first, step, count } => {
                let (low, high) = halves(*first);
                [low, high, *count, 0, 1 | u64::from(*step) << 32, 0]
            }
            Self::Random { first, count, seed } => {
                let (low, high) = halves(*first);
                [low, high, *count, *seed, 2, 0]
            }
            Self::List(values) => {
                let at = listed.len() as u64;
                listed.extend(values);
                [0, 0, values.len() as u64, 0, 3, at]
            }
        }
    }

    /// After how many packets the values start again, for those that go through them one by one.
    fn cycle(&self) -> u64 {
        match self {
            Self::Fixed | Self::Random { .. } => 1,
            Self::Increment { count, .. } => *count,
            Self::List(values) => values.len() as u64,
        }
    }
}

/// The base frame's first bytes as words.
fn headers(base: &[u8]) -> [u64; HEADER_WORDS] {
    let mut words = [0; HEADER_WORDS];
    for (word, bytes) in words.iter_mut().zip(base.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    words
}
