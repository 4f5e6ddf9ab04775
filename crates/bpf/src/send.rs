//! Making and sending packets in XDP.

use std::fmt;

use aya::maps::{Array, DevMap, MapData, xdp::XdpMapError};

use crate::{
    error::{BpfError, EINVAL},
    live::ended_early,
    parking::Parking,
    program::{Program, ProgramRun, object},
};

/// The packets to be made, as `wire::Recipe` has them. Packet n is the base frame with every field that varies
/// written to its place, with number and time in the probe header, and with checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendPlan {
    /// The longest frame without FCS; 0 where something varies, and in the UDP checksum.
    pub base: Vec<u8>,
    /// Whether the packets are IPv6.
    pub ipv6: bool,
    /// Offset of the UDP payload; the UDP header and an IP header without options precede it.
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
    /// `XDP_TX`: out of the interface that they seem to have come from.
    #[default]
    Tx,
    /// A redirect map with the interface in it.
    Map,
    /// Dropped: shows the cost of making them.
    Dropped,
}

/// Makes packets in the kernel and sends them out of one interface (`BPF_PROG_RUN` with live frames, since Linux
/// 5.18). One thread per sender. Frames that the driver refuses are lost without an error here.
pub struct Sender {
    program: Program,
    state: Array<MapData, [u64; STATE_WORDS]>,
    _parking: Option<Parking>,
    // Holds the interface that the program redirects to.
    _target: DevMap<MapData>,
    base: Vec<u8>,
    udp_sum: u16,
    draws: Box<[DrawWords; 5]>,
    interface: u32,
}

/// `sizeof(struct state)` of `send.bpf.c` in words.
const STATE_WORDS: usize = 5;
/// `sizeof(struct plan)` in words.
const PLAN_WORDS: usize = 42;
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
        let draws = plan.draws(&mut listed);
        let words = plan.words(&draws, path);
        let mut program = Program::load(plan.program(), object!("send"), |loader| {
            loader.override_global("plan", &words, true);
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
            draws: Box::new(draws),
            interface,
        })
    }

    /// Makes and sends `packets` packets from number `sequence` on, `batch_size` (1..=256) at a time; `raw_time` has
    /// the eight time bytes of the probe header as one number. Returns the number made: fewer when a
    /// signal arrived, or after too many runs in the last second ([`LIVE_RUN_GAP_NS`](crate::LIVE_RUN_GAP_NS)).
    ///
    /// Each call makes pages of its own first: thousands of packets a call are fastest.
    /// The interface is looked for in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`BpfError::Unsupported`] and [`BpfError::ProgramRun`].
    pub fn send(
        &mut self,
        sequence: u32,
        packets: u32,
        batch_size: u32,
        raw_time: u64,
    ) -> Result<u32, BpfError> {
        // In the program, numbers and the values that follow from them do not restart.
        let until_the_last = (u32::MAX - sequence).saturating_add(1);
        let made = self.send_in_order(sequence, packets.min(until_the_last), batch_size, raw_time)?;
        if made < until_the_last || made == packets {
            return Ok(made);
        }
        Ok(made + self.send_in_order(0, packets - made, batch_size, raw_time)?)
    }

    fn send_in_order(
        &mut self,
        sequence: u32,
        packets: u32,
        batch_size: u32,
        raw_time: u64,
    ) -> Result<u32, BpfError> {
        self.write_state(sequence, raw_time)?;
        let run = ProgramRun {
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
    /// [`BpfError::ProgramRun`].
    pub fn frame(&mut self, sequence: u32, raw_time: u64) -> Result<Vec<u8>, BpfError> {
        self.write_state(sequence, raw_time)?;
        let mut frame = vec![0; self.base.len()];
        let run = ProgramRun { input: &self.base, interface: self.interface, repeat: 1, live_batch: None };
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
        let time = raw_time.swap_bytes();
        let sum: u64 = (0..64).step_by(16).map(|shift| time >> shift & 0xffff).sum();
        // The program adds 1, so that a checksum is never 0, which would mean "no checksum".
        let udp_sum = sum as u32 + u32::from(in_memory(self.udp_sum)) + 1;
        let [src_addr, dst_addr, src_port, dst_port, payload_len] =
            self.draws.each_ref().map(|draw| draw.at(sequence));
        let state = [
            time,
            pair(sequence, udp_sum),
            pair(src_addr, dst_addr),
            pair(src_port, dst_port),
            pair(payload_len, 0),
        ];
        self.state.set(0, state, 0).map_err(BpfError::map("write the sender's plan"))
    }

    fn made_since(&self, sequence: u32) -> Result<u32, BpfError> {
        let state = self.state.get(&0, 0).map_err(BpfError::map("read what the sender sent"))?;
        Ok((state[1] as u32).wrapping_sub(sequence))
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

/// `struct draw` of `send.bpf.c`.
#[derive(Debug, Clone, Copy, Default)]
struct DrawWords {
    base: u128,
    count: u64,
    seed: u64,
    kind: u32,
    first: u32,
    last: u32,
    step: u32,
}

impl SendPlan {
    /// The cheapest program of `send.bpf.c` that makes these packets.
    fn program(&self) -> &'static str {
        let [.., payload_len] = &self.fields;
        let has_list = self.fields.iter().any(|field| matches!(field, FieldDraw::List(_)));
        let is_drawn = !has_list && *payload_len == FieldDraw::Fixed;
        match (is_drawn, self.ipv6) {
            _ if self.fields.iter().all(|field| *field == FieldDraw::Fixed) => "send_numbered",
            (true, false) => "send_drawn_ipv4",
            (true, true) => "send_drawn_ipv6",
            (false, false) => "send_any_ipv4",
            (false, true) => "send_any_ipv6",
        }
    }

    /// The program's description of each field; lists are appended to `listed`.
    fn draws(&self, listed: &mut Vec<u128>) -> [DrawWords; 5] {
        let mut is_address = [true, true, false, false, false].into_iter();
        self.fields.each_ref().map(|field| {
            let is_long = self.ipv6 && is_address.next() == Some(true);
            field.words(is_long, listed)
        })
    }

    /// `struct plan` of `send.bpf.c`.
    fn words(&self, draws: &[DrawWords; 5], path: SendPath) -> [u64; PLAN_WORDS] {
        let numbers = [
            pair(self.payload_at as u32, self.base.len() as u32),
            pair(LEAST_FRAME, path as u32),
            pair(self.ipv4_sum.is_some().into(), in_memory(self.ipv4_sum.unwrap_or(0)).into()),
        ];
        let draws = draws.iter().flat_map(DrawWords::words);
        let all: Vec<u64> = numbers.into_iter().chain(headers(&self.base)).chain(draws).collect();
        all.try_into().expect("as many words as the program has")
    }
}

impl FieldDraw {
    /// IPv6 addresses are distances from the first; a list is appended to the values listed already.
    fn words(&self, is_long: bool, listed: &mut Vec<u128>) -> DrawWords {
        let split = |first: u128| if is_long { (first, 0) } else { (0, first as u32) };
        match self {
            Self::Fixed => DrawWords::default(),
            Self::Increment { first, step, count } => {
                let (base, first) = split(*first);
                let last = first.wrapping_add(step.wrapping_mul((count - 1) as u32));
                DrawWords { base, kind: 1, first, last, step: *step, ..DrawWords::default() }
            }
            Self::Random { first, count, seed } => {
                let (base, first) = split(*first);
                DrawWords { base, count: *count, seed: *seed, kind: 2, first, ..DrawWords::default() }
            }
            Self::List(values) => {
                let first = listed.len() as u32;
                listed.extend(values);
                let last = first + (values.len() - 1) as u32;
                DrawWords { kind: 3, first, last, step: 1, ..DrawWords::default() }
            }
        }
    }
}

impl DrawWords {
    /// What `state.at` of the field is for this packet.
    fn at(&self, sequence: u32) -> u32 {
        let steps = self.last.wrapping_sub(self.first).checked_div(self.step).unwrap_or(0);
        let index = u64::from(sequence) % (u64::from(steps) + 1);
        self.first.wrapping_add(self.step.wrapping_mul(index as u32))
    }

    fn words(&self) -> [u64; 6] {
        let Self { base, count, seed, kind, first, last, step } = *self;
        [base as u64, (base >> 64) as u64, count, seed, pair(kind, first), pair(last, step)]
    }
}

/// Two numbers in memory order, one after the other.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// The base frame's first bytes as words.
fn headers(base: &[u8]) -> [u64; HEADER_WORDS] {
    let mut words = [0; HEADER_WORDS];
    for (word, bytes) in words.iter_mut().zip(base.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    words
}
