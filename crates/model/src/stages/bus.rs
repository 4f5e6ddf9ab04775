//! The host bus between card and memory, shared by all ports: PCI, PCI-X, PCI Express, or none.

use serde::{Deserialize, Serialize};

use crate::{
    parameter::{Parameter, Problems},
    units::{PS_PER_S, ps_from_ns},
};

/// The bus between card and memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bus {
    /// Which kind of bus.
    pub kind: BusKind,
    /// PCI, PCI-X: clock in hertz.
    pub clock_hz: u64,
    /// PCI, PCI-X: bytes moved by one clock.
    pub bytes_per_clock: u32,
    /// PCI, PCI-X: clocks before the data of a transaction (address and attribute phases).
    pub address_clocks: u32,
    /// PCI, PCI-X: least clocks between two transactions (turn-around and arbitration).
    pub gap_clocks: u32,
    /// PCI, PCI-X: clocks that memory takes before the first data of a read.
    pub read_clocks: u32,
    /// PCI Express: generation, 1 to 5.
    pub pcie_generation: u32,
    /// PCI Express: lanes.
    pub pcie_lanes: u32,
    /// PCI Express: largest payload of one packet in bytes (MPS).
    pub max_payload_bytes: u32,
    /// PCI Express: largest read request in bytes (MRRS).
    pub max_read_bytes: u32,
    /// PCI Express: bytes by which memory answers a read (read completion boundary and its multiples).
    pub completion_bytes: u32,
    /// PCI Express: header, sequence, checksum and framing of a write or a read request.
    pub write_overhead_bytes: u32,
    /// PCI Express: the same for a completion.
    pub completion_overhead_bytes: u32,
    /// PCI Express: share of the link left by acknowledgements and flow control.
    pub link_efficiency: f64,
    /// PCI Express: time from a read request to its first data, in nanoseconds.
    pub read_latency_ns: f64,
}

/// Kinds of host bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BusKind {
    /// No bus: memory to memory (veth), or a bus that costs nothing.
    None,
    /// Conventional PCI: one transaction at a time.
    Pci,
    /// PCI-X: as PCI with an attribute phase and higher clocks.
    PciX,
    /// PCI Express: packets on a link with two directions.
    Pcie,
}

impl Default for Bus {
    fn default() -> Self {
        Self {
            kind: BusKind::Pcie,
            clock_hz: 66_000_000,
            bytes_per_clock: 8,
            address_clocks: 1,
            gap_clocks: 7,
            read_clocks: 8,
            pcie_generation: 2,
            pcie_lanes: 8,
            max_payload_bytes: 256,
            max_read_bytes: 512,
            completion_bytes: 64,
            write_overhead_bytes: 24,
            completion_overhead_bytes: 20,
            link_efficiency: 0.92,
            read_latency_ns: 550.0,
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("bus.kind", "", "none, pci, pci-x or pcie").short("bus"),
    Parameter::new("bus.clock_hz", "Hz", "PCI(-X): clock").source("RDR paper: 66 and 133 MHz"),
    Parameter::new("bus.bytes_per_clock", "bytes", "PCI(-X): 8 on a 64-bit bus, 4 on a 32-bit one")
        .source("PCI Local Bus Specification 2.1"),
    Parameter::new("bus.address_clocks", "CLK", "PCI(-X): clocks before a transaction's data")
        .source("RDR paper: a 64-byte frame takes 54 - 45 = 9 CLK, 8 of them data"),
    Parameter::new("bus.gap_clocks", "CLK", "PCI(-X): least clocks between two transactions")
        .source("RDR paper: 7 CLK between frames when catching up"),
    Parameter::new("bus.read_clocks", "CLK", "PCI(-X): memory's delay before the first data of a read")
        .source("not in the paper; PCI 2.1 section 3.5.1.1 allows up to 16"),
    Parameter::new("bus.pcie_generation", "", "PCIe: generation, 1 to 5"),
    Parameter::new("bus.pcie_lanes", "lanes", "PCIe: lanes"),
    Parameter::new("bus.max_payload_bytes", "bytes", "PCIe: largest payload of one packet").short("mps"),
    Parameter::new("bus.max_read_bytes", "bytes", "PCIe: largest read request").short("mrrs"),
    Parameter::new("bus.completion_bytes", "bytes", "PCIe: data of one completion").short("rcb"),
    Parameter::new(
        "bus.write_overhead_bytes",
        "bytes",
        "PCIe: header, sequence, checksum, framing of a request",
    )
    .source("Neugebauer et al., SIGCOMM 2018, section 3"),
    Parameter::new("bus.completion_overhead_bytes", "bytes", "PCIe: the same for a completion")
        .source("Neugebauer et al., SIGCOMM 2018, section 3"),
    Parameter::new("bus.link_efficiency", "ratio", "PCIe: share of the link left by acknowledgements")
        .source("Neugebauer et al., SIGCOMM 2018: 57.88 of 62.96 Gb/s"),
    Parameter::new("bus.read_latency_ns", "ns", "PCIe: from a read request to its first data")
        .source("Neugebauer et al., SIGCOMM 2018: about 550 ns"),
];

impl Bus {
    /// Usable bits per second in one direction of a PCI Express link, without acknowledgements.
    ///
    /// 2.5, 5, 8, 16 or 32 GT/s a lane, coded 8b/10b up to generation 2 and 128b/130b after (PCI-SIG).
    pub fn pcie_bps(&self) -> f64 {
        let per_lane = match self.pcie_generation {
            1 => 2.5e9 * 0.8,
            2 => 5e9 * 0.8,
            3 => 8e9 * 128.0 / 130.0,
            4 => 16e9 * 128.0 / 130.0,
            _ => 32e9 * 128.0 / 130.0,
        };
        per_lane * f64::from(self.pcie_lanes) * self.link_efficiency
    }

    /// The most frames of this size per second that the bus can carry, with their descriptors fetched and
    /// written back in groups of these sizes; infinite without a bus.
    pub fn limit_pps(&self, frame_bytes: u32, descriptors: &DescriptorTraffic) -> f64 {
        let DescriptorTraffic { descriptor_bytes, fetch_batch, writeback_batch } = *descriptors;
        match self.kind {
            BusKind::None => f64::INFINITY,
            BusKind::Pci | BusKind::PciX => {
                let clocks =
                    |bytes, extra| f64::from(self.transaction_clocks(bytes) + extra + self.gap_clocks);
                let per_frame = clocks(frame_bytes, 0)
                    + clocks(descriptor_bytes * writeback_batch, 0) / f64::from(writeback_batch)
                    + clocks(descriptor_bytes * fetch_batch, self.read_clocks) / f64::from(fetch_batch);
                self.clock_hz as f64 / per_frame
            }
            BusKind::Pcie => {
                let requests = f64::from(self.write_overhead_bytes);
                let up = f64::from(self.write_bytes(frame_bytes))
                    + f64::from(self.write_bytes(descriptor_bytes * writeback_batch))
                        / f64::from(writeback_batch)
                    + requests * f64::from((descriptor_bytes * fetch_batch).div_ceil(self.max_read_bytes))
                        / f64::from(fetch_batch);
                let down =
                    f64::from(self.read_bytes(descriptor_bytes * fetch_batch)) / f64::from(fetch_batch);
                self.pcie_bps() / (8.0 * up.max(down))
            }
        }
    }

    /// Clocks of one PCI transaction without the gap behind it.
    fn transaction_clocks(&self, bytes: u32) -> u32 {
        self.address_clocks + bytes.div_ceil(self.bytes_per_clock)
    }

    /// Bytes on a PCI Express link for a write.
    fn write_bytes(&self, bytes: u32) -> u32 {
        bytes + self.write_overhead_bytes * bytes.div_ceil(self.max_payload_bytes)
    }

    /// Bytes on a PCI Express link for the answers to a read.
    fn read_bytes(&self, bytes: u32) -> u32 {
        bytes + self.completion_overhead_bytes * bytes.div_ceil(self.completion_bytes)
    }

    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.range("bus.clock_hz", self.clock_hz, 1_000_000, 10_000_000_000);
        problems.range("bus.bytes_per_clock", self.bytes_per_clock, 1, 64);
        problems.range("bus.address_clocks", self.address_clocks, 0, 1000);
        problems.range("bus.gap_clocks", self.gap_clocks, 0, 1000);
        problems.range("bus.read_clocks", self.read_clocks, 0, 1000);
        problems.range("bus.pcie_generation", self.pcie_generation, 1, 5);
        problems.range("bus.pcie_lanes", self.pcie_lanes, 1, 32);
        problems.range("bus.max_payload_bytes", self.max_payload_bytes, 64, 4096);
        problems.range("bus.max_read_bytes", self.max_read_bytes, 64, 4096);
        problems.range("bus.completion_bytes", self.completion_bytes, 64, 4096);
        problems.range("bus.write_overhead_bytes", self.write_overhead_bytes, 0, 256);
        problems.range("bus.completion_overhead_bytes", self.completion_overhead_bytes, 0, 256);
        problems.ratio("bus.link_efficiency", self.link_efficiency);
        if self.link_efficiency < 0.01 {
            problems.add("bus.link_efficiency", "must be at least 0.01");
        }
        problems.duration_ns("bus.read_latency_ns", self.read_latency_ns);
    }
}

/// How descriptors cross the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorTraffic {
    /// Bytes of a descriptor.
    pub descriptor_bytes: u32,
    /// Descriptors fetched by one read.
    pub fetch_batch: u32,
    /// Descriptors written back together.
    pub writeback_batch: u32,
}

/// When a transaction holds the bus, in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) start_ps: u64,
    pub(crate) end_ps: u64,
}

/// The state of the bus. Transactions run in the order of their requests; their queue is arithmetic, because
/// each requester waits for the end of its transaction before its next request.
#[derive(Debug)]
pub(crate) struct Arbiter {
    config: Bus,
    clock_ps: u64,
    /// Picoseconds of a byte on the PCI Express link, times 2^20.
    byte_ps_q20: u64,
    latency_ps: u64,
    /// When the bus, or the direction from the card to memory, is free again.
    free_ps: u64,
    /// When the direction from memory to the card is free again.
    down_free_ps: u64,
    pub(crate) busy_ps: u64,
}

impl Arbiter {
    pub(crate) fn new(config: &Bus) -> Self {
        let byte_ps = 8.0 * PS_PER_S as f64 / config.pcie_bps();
        Self {
            config: config.clone(),
            clock_ps: PS_PER_S / config.clock_hz,
            byte_ps_q20: (byte_ps * f64::from(1 << 20)).round() as u64,
            latency_ps: ps_from_ns(config.read_latency_ns),
            free_ps: 0,
            down_free_ps: 0,
            busy_ps: 0,
        }
    }

    /// The card writes to memory.
    #[inline]
    pub(crate) fn write(&mut self, now_ps: u64, bytes: u32) -> Slot {
        match self.config.kind {
            BusKind::None => Slot { start_ps: now_ps, end_ps: now_ps },
            BusKind::Pci | BusKind::PciX => self.transaction(now_ps, self.config.transaction_clocks(bytes)),
            BusKind::Pcie => self.up(now_ps, self.config.write_bytes(bytes)),
        }
    }

    /// The card reads from memory, with one request.
    pub(crate) fn read(&mut self, now_ps: u64, bytes: u32) -> Slot {
        match self.config.kind {
            BusKind::None => Slot { start_ps: now_ps, end_ps: now_ps },
            BusKind::Pci | BusKind::PciX => {
                self.transaction(now_ps, self.config.transaction_clocks(bytes) + self.config.read_clocks)
            }
            BusKind::Pcie => {
                let requests = bytes.div_ceil(self.config.max_read_bytes) * self.config.write_overhead_bytes;
                let asked = self.up(now_ps, requests);
                let start_ps = (asked.end_ps + self.latency_ps).max(self.down_free_ps);
                self.down_free_ps = start_ps + self.link_ps(self.config.read_bytes(bytes));
                Slot { start_ps: asked.start_ps, end_ps: self.down_free_ps }
            }
        }
    }

    /// Closes memory to the card for a time, from the end of its current transaction or from now on.
    pub(crate) fn close(&mut self, now_ps: u64, for_ps: u64) {
        self.free_ps = self.free_ps.max(now_ps) + for_ps;
        self.down_free_ps = self.down_free_ps.max(now_ps) + for_ps;
    }

    /// Length of a clock of PCI or PCI-X in picoseconds.
    pub(crate) fn clock_ps(&self) -> u64 {
        self.clock_ps
    }

    #[inline]
    fn transaction(&mut self, now_ps: u64, clocks: u32) -> Slot {
        let start_ps = self.free_ps.max(now_ps);
        let length_ps = u64::from(clocks) * self.clock_ps;
        let end_ps = start_ps + length_ps;
        self.free_ps = end_ps + u64::from(self.config.gap_clocks) * self.clock_ps;
        self.busy_ps += length_ps;
        Slot { start_ps, end_ps }
    }

    #[inline]
    fn up(&mut self, now_ps: u64, bytes: u32) -> Slot {
        let start_ps = self.free_ps.max(now_ps);
        let length_ps = self.link_ps(bytes);
        self.free_ps = start_ps + length_ps;
        self.busy_ps += length_ps;
        Slot { start_ps, end_ps: self.free_ps }
    }

    #[inline]
    fn link_ps(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * self.byte_ps_q20) >> 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pci() -> Bus {
        Bus { kind: BusKind::Pci, ..Bus::default() }
    }

    #[test]
    fn a_smallest_frame_takes_nine_clocks_of_pci_and_seven_pass_before_the_next() {
        let mut bus = Arbiter::new(&pci());
        let clock = bus.clock_ps();
        assert_eq!(bus.write(0, 64), Slot { start_ps: 0, end_ps: 9 * clock });
        assert_eq!(bus.write(0, 64), Slot { start_ps: 16 * clock, end_ps: 25 * clock });
    }

    #[test]
    fn pci_64_bit_66_mhz_moves_at_most_533_megabytes_per_second() {
        let mut bus = Arbiter::new(&Bus { address_clocks: 0, gap_clocks: 0, ..pci() });
        let end = (0..1000).map(|_| bus.write(0, 4096).end_ps).max().unwrap();
        let rate = 1000.0 * 4096.0 / (end as f64 / PS_PER_S as f64);
        // 533 MB/s counts the clock as 66.6 MHz, the paper's 15.15 ns as 66.0
        assert!((rate - 528e6).abs() < 1e5, "{rate}");
    }

    #[test]
    fn generations_double_and_the_third_carries_7_88_gigabits_a_lane() {
        let bps = |generation, lanes| {
            Bus { pcie_generation: generation, pcie_lanes: lanes, link_efficiency: 1.0, ..Bus::default() }
                .pcie_bps()
        };
        assert_eq!(bps(1, 4), 8e9);
        assert_eq!(bps(2, 8), 32e9);
        assert!((bps(3, 8) - 63.015e9).abs() < 1e6);
        assert_eq!(bps(5, 16), 4.0 * bps(3, 16));
    }

    #[test]
    fn a_link_carries_what_the_formula_says() {
        for (generation, payload, frame) in [(1, 128, 64), (2, 256, 1518), (3, 256, 300), (4, 512, 64)] {
            let config = Bus { pcie_generation: generation, max_payload_bytes: payload, ..Bus::default() };
            let mut bus = Arbiter::new(&config);
            let end = (0..10_000).map(|_| bus.write(0, frame).end_ps).max().unwrap();
            let on_link = frame + 24 * frame.div_ceil(payload);
            let expected = config.pcie_bps() / (8.0 * f64::from(on_link));
            let measured = 10_000.0 / (end as f64 / PS_PER_S as f64);
            assert!((measured / expected - 1.0).abs() < 1e-3, "{measured} {expected}");
        }
    }

    #[test]
    fn reads_wait_for_memory_but_do_not_hold_up_writes() {
        let mut bus = Arbiter::new(&Bus::default());
        let read = bus.read(0, 256);
        assert!(read.end_ps > 550_000);
        assert!(bus.write(0, 64).end_ps < 100_000);
    }
}
