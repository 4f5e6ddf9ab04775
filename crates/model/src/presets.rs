//! Machines to start from, each with the published figures it reproduces.

use std::net::Ipv4Addr;

use serde::Serialize;
use wire::{HashFields, RssKey, Spread};

use crate::{
    config::{Config, RunLength},
    parameter::ConfigError,
    rdr::rdr_machine,
    stages::{
        app::App,
        buffers::{BufferPolicy, Buffers},
        bus::{Bus, BusKind},
        memory::Memory,
        moderation::{Moderation, ModerationMode},
        packet_buffer::PacketBuffer,
        poll::Poll,
        ring::{Ring, RingKind},
        rss::{Difference, Rss},
        socket::Socket,
        stack::{Path, Stack},
        traffic::Traffic,
    },
};

/// A machine by name.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, and which figures it reproduces.
    pub about: &'static str,
    #[serde(skip)]
    build: fn() -> Config,
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "modern",
        about: "10G card, page pool, kernel path to one UDP socket: 1.8 Mpps through the stack, 0.37 Mpps read",
        build: Config::default,
    },
    Preset {
        name: "rdr",
        about: "the RDR paper's PRO/1000 MT, flooded at line rate: 0.5 Mpps, with policy=recycle 0.7 Mpps",
        build: || rdr_machine(BufferPolicy::Realloc, 1),
    },
    Preset {
        name: "apu4d4",
        about: "PC Engines apu4d4, one sender of 105 kpps; rx-usecs=0 starves the program: 41 to 57 kpps",
        build: apu4d4,
    },
    Preset {
        name: "xdp-drop",
        about: "100G card, XDP program drops on one core: 24 to 26 Mpps",
        build: xdp_drop,
    },
    Preset {
        name: "af-xdp",
        about: "100G card, AF_XDP zero copy, two sockets busy-polled by one core: 39 Mpps",
        build: af_xdp,
    },
    Preset {
        name: "bypass",
        about: "10G card of 10 queues under a flood of 6 Mpps, queue 4 given to a program: 5.84 to 6.00 Mpps",
        build: bypass,
    },
    Preset {
        name: "veth",
        about: "veth pair, UDP sockets, no bus and no ring: the sender's CPU carries the stack, 0.3 Mpps",
        build: veth,
    },
    Preset {
        name: "connectx-6-dx",
        about: "100G card, XDP redirect at line rate over many queues; nothing fitted: from 48 queues on it forwards \
                half as much again as measured",
        build: connectx_6_dx,
    },
    Preset {
        name: "ixy",
        about: "10G card forwarding in user space in batches; nothing fitted to batches or buffers",
        build: ixy,
    },
];

impl Preset {
    /// The machine.
    pub fn config(&self) -> Config {
        (self.build)()
    }

    /// The preset with this name.
    ///
    /// # Errors
    /// [`ConfigError::UnknownPreset`] with the known names.
    pub fn find(name: &str) -> Result<&'static Self, ConfigError> {
        PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| ConfigError::UnknownPreset {
            name: name.into(),
            known: PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", "),
        })
    }
}

/// PC Engines apu4d4 (i211, 4 cores of 1 GHz), Linux 5.4: receiver and softirq on one core.
///
/// 8.5 us per interrupt give about one interrupt per packet delivered with rx-usecs 0, as in the document; a
/// frame's 3.43 us then give its 68.3 % softirq with 16 000 interrupts at 160 kpps, a read's 1.5 us its 24.6 % and
/// 15.7 % system. The document's softirq share at 105 kpps, 60.4 %, comes out as 51 %: it does not give the number of
/// interrupts there.
fn apu4d4() -> Config {
    Config {
        run: RunLength { duration_us: 500_000.0, warmup_us: 50_000.0, ..RunLength::default() },
        traffic: Traffic {
            link_bps: 1_000_000_000,
            // udpsender: 32 bytes of payload
            frame_bytes: 78,
            offered_pps: Some(105_000.0),
            ..Traffic::default()
        },
        rss: Rss {
            queues: 2,
            flows_differ_in: Difference::Addresses,
            hash: HashFields::Addresses,
            // igb's default: the first half of the table to queue 0, the second to queue 1
            table: Some(Spread::Weights(vec![1, 1])),
            key: apu4d4_key(),
            source: Ipv4Addr::new(192, 168, 6, 1),
            destination: Ipv4Addr::new(192, 168, 6, 2),
            ..Rss::default()
        },
        packet_buffer: PacketBuffer { bytes: 34 * 1024 },
        bus: Bus { pcie_generation: 1, pcie_lanes: 1, max_payload_bytes: 128, ..Bus::default() },
        memory: Memory::default(),
        ring: Ring { descriptors: 256, ..Ring::default() },
        moderation: Moderation { mode: ModerationMode::Igb, rx_usecs: 3.0, rx_frames: 0 },
        poll: Poll { cpus: 2, irq_ns: 8_500.0, poll_ns: 0.0, driver_ns: 800.0, ..Poll::default() },
        buffers: Buffers { reset_ns: 50.0, pool_ns: 20.0, ..Buffers::default() },
        stack: Stack { stack_ns: 2560.0, ..Stack::default() },
        socket: Socket { truesize_bytes: 2304, ..Socket::default() },
        app: App { first_cpu: 0, syscall_ns: 0.0, wakeup_ns: 0.0, recv_ns: 1500.0, ..App::default() },
    }
}

/// The board does not report its key, which Linux draws at random. With one key in sixteen the published
/// addresses hash as published: all four to queue 0 with the default table, two to each with the equal one. This
/// is such a key.
fn apu4d4_key() -> RssKey {
    let high = 0x8084_75f0_2ee3_7363_6434_ff62_b4e8_edd1_u128;
    let low = 0x540d_6c37_02d4_1b8c_3951_42ca_8efa_f003_u128;
    let rest = 0x046b_1664_f61a_205e_u64;
    let bytes = [high.to_be_bytes().as_slice(), &low.to_be_bytes(), &rest.to_be_bytes()].concat();
    RssKey::new(&bytes).unwrap_or_else(|_| RssKey::microsoft())
}

/// A card and a bus that do not limit one core.
fn fast_card() -> Config {
    Config {
        traffic: Traffic { link_bps: 100_000_000_000, offered_pps: Some(60e6), ..Traffic::default() },
        run: RunLength { duration_us: 20_000.0, warmup_us: 2_000.0, ..RunLength::default() },
        bus: Bus { pcie_generation: 3, pcie_lanes: 16, ..Bus::default() },
        ring: Ring { descriptors: 1024, on_chip: 256, fetch_below: 192, ..Ring::default() },
        ..Config::default()
    }
}

/// ConnectX-5 at 3.6 GHz, XDP_DROP on one core (Høiland-Jørgensen et al., CoNEXT 2018): 24 to 26 Mpps.
fn xdp_drop() -> Config {
    Config {
        poll: Poll { driver_ns: 25.0, ..Poll::default() },
        stack: Stack { path: Path::XdpDrop, xdp_ns: 6.0, ..Stack::default() },
        buffers: Buffers { reset_ns: 3.0, pool_ns: 5.0, ..Buffers::default() },
        ..fast_card()
    }
}

/// AF_XDP zero copy, rxdrop on one core with two sockets (Karlsson and Töpel, FOSDEM 2019): 39.3 Mpps. Busy
/// polling lets program and driver take turns of a few microseconds on the same core.
fn af_xdp() -> Config {
    Config {
        rss: Rss { queues: 2, flows: 64, ..Rss::default() },
        moderation: Moderation { mode: ModerationMode::Polled, rx_usecs: 0.0, rx_frames: 0 },
        poll: Poll { driver_ns: 9.0, slice_us: 1.0, ..Poll::default() },
        stack: Stack { path: Path::AfXdp, xdp_ns: 4.0, ..Stack::default() },
        buffers: Buffers {
            policy: BufferPolicy::FillRing,
            reset_ns: 2.0,
            pool_ns: 2.0,
            pool_buffers: 4096,
            ..Buffers::default()
        },
        app: App {
            threads: 2,
            first_cpu: 0,
            cpus: 1,
            batch: 64,
            syscall_ns: 50.0,
            wakeup_ns: 0.0,
            recv_ns: 5.0,
            ..App::default()
        },
        ..fast_card()
    }
}

/// Single RX queue bypass (netmap on ixgbe, one queue of ten): 6 Mpps of flood to queue 4 by a flow rule, half a
/// million other frames per second over the kernel's nine.
fn bypass() -> Config {
    const FLOOD_PPS: f64 = 6.0e6;
    const OTHERS_PPS: f64 = 0.5e6;
    Config {
        traffic: Traffic { offered_pps: Some(FLOOD_PPS + OTHERS_PPS), ..Traffic::default() },
        rss: Rss {
            queues: 10,
            flows: 1000,
            bypass_queue: Some(4),
            bypass_ratio: FLOOD_PPS / (FLOOD_PPS + OTHERS_PPS),
            ..Rss::default()
        },
        // without it a full queue blocks the packet buffer, and so every other queue
        ring: Ring { drop_when_empty: true, ..Ring::default() },
        poll: Poll { cpus: 10, ..Poll::default() },
        app: App { threads: 0, ..App::default() },
        ..Config::default()
    }
}

/// A veth pair: frames go from the sender's CPU into the kernel's backlog and up the stack on the same CPU,
/// the reader has its own. The costs are of the development machine's measurements: 0.298 Mpps sent to a
/// socket and 0.42 to an XDP program by one thread.
fn veth() -> Config {
    Config {
        traffic: Traffic { frame_bytes: 78, sender_ns: 2300.0, ..Traffic::default() },
        packet_buffer: PacketBuffer { bytes: 1 << 20 },
        bus: Bus { kind: BusKind::None, ..Bus::default() },
        ring: Ring {
            // net.core.netdev_max_backlog
            descriptors: 1000,
            on_chip: 1000,
            fetch_below: 500,
            writeback_batch: 1,
            tail_batch: 1,
            drop_when_empty: true,
            kind: RingKind::Backlog,
            ..Ring::default()
        },
        moderation: Moderation { mode: ModerationMode::Polled, rx_usecs: 0.0, rx_frames: 0 },
        poll: Poll { irq_ns: 0.0, poll_ns: 0.0, driver_ns: 80.0, refill_after: 1, ..Poll::default() },
        buffers: Buffers { policy: BufferPolicy::Recycle, reset_ns: 0.0, ..Buffers::default() },
        stack: Stack { stack_ns: 975.0, ..Stack::default() },
        app: App { recv_ns: 1500.0, ..App::default() },
        ..Config::default()
    }
}

/// ConnectX-6 Dx on PCIe 4.0 x16, EPYC 9754 of 3.1 GHz, every frame of a full 100G link redirected to another card. A
/// queue's cost is from another machine: 29.8 Mpps over 6 queues with rings of 1024 at 3.6 GHz (the XDP paper), so 201 ns
/// a frame there and 234 ns at 3.1 GHz. A completion is 64 bytes for each frame.
fn connectx_6_dx() -> Config {
    Config {
        run: RunLength { duration_us: 1_200.0, warmup_us: 300.0, ..RunLength::default() },
        traffic: Traffic { link_bps: 100_000_000_000, ..Traffic::default() },
        rss: Rss { queues: 16, flows: 4096, table_buckets: 1024, ..Rss::default() },
        bus: Bus {
            pcie_generation: 4,
            pcie_lanes: 16,
            max_payload_bytes: 512,
            max_read_bytes: 4096,
            ..Bus::default()
        },
        ring: Ring {
            descriptors: 1024,
            descriptor_bytes: 64,
            on_chip: 256,
            fetch_below: 192,
            writeback_batch: 1,
            drop_when_empty: true,
            ..Ring::default()
        },
        poll: Poll { cpus: 128, driver_ns: 211.0, ..Poll::default() },
        stack: Stack { path: Path::XdpDrop, xdp_ns: 15.0, ..Stack::default() },
        buffers: Buffers { reset_ns: 3.0, pool_ns: 5.0, ..Buffers::default() },
        ..Config::default()
    }
}

/// ixy on an 82599 at 3.3 GHz, one core. A batch costs two doorbells, of the receive and of the transmit ring, 69 ns each
/// as in the `pktgen` preset, from another record; a buffer costs page_pool's 19 cycles. The rest of ixy's 96
/// cycles a packet in batches of 32 is the driver's. The link is faster than ixy's, so that the core limits.
fn ixy() -> Config {
    Config {
        run: RunLength { duration_us: 2_000.0, warmup_us: 200.0, ..RunLength::default() },
        moderation: Moderation { mode: ModerationMode::Polled, rx_usecs: 0.0, rx_frames: 0 },
        poll: Poll { budget: 32, refill_after: 0, poll_ns: 138.0, driver_ns: 19.0, ..Poll::default() },
        stack: Stack { path: Path::XdpDrop, xdp_ns: 0.0, ..Stack::default() },
        buffers: Buffers { reset_ns: 0.0, pool_ns: 5.8, ..Buffers::default() },
        ..fast_card()
    }
}

#[cfg(test)]
mod tests;
