//! The paper's machine, and the loads of its figures.

use crate::{
    config::{Config, RunLength},
    outcome::Outcome,
    parameter::ConfigError,
    simulate,
    stages::{
        app::App,
        buffers::{BufferPolicy, Buffers},
        bus::{Bus, BusKind},
        memory::Memory,
        moderation::{Moderation, ModerationMode},
        packet_buffer::PacketBuffer,
        poll::Poll,
        ring::Ring,
        rss::Rss,
        socket::Socket,
        stack::Stack,
        traffic::Traffic,
    },
};

/// Speed of the paper's links.
pub(super) const LINK_BPS: u64 = 1_000_000_000;
/// A clock of the paper's trace, as the paper rounds it.
pub(super) const CLK_NS: f64 = 15.15;

/// The paper's receiving machine: a PRO/1000 MT in a dual Xeon, Linux 2.6.12, each port on a CPU of its own.
pub fn rdr_machine(policy: BufferPolicy, ports: u32) -> Config {
    Config {
        run: RunLength { duration_us: 110_000.0, warmup_us: 10_000.0, ..RunLength::default() },
        traffic: Traffic { ports, link_bps: LINK_BPS, ..Traffic::default() },
        rss: Rss::default(),
        packet_buffer: PacketBuffer { bytes: 48 * 1024 },
        bus: Bus {
            kind: BusKind::PciX,
            clock_hz: 133_000_000,
            // an attribute phase follows the address phase
            address_clocks: 2,
            ..Bus::default()
        },
        memory: Memory::default(),
        ring: Ring {
            descriptors: 256,
            fetch_below: 0,
            writeback_delay_ns: 25.0 * CLK_NS,
            // "nearly full": seven eighths
            stop_above_bytes: Some(42 * 1024),
            stop_after: 4,
            ..Ring::default()
        },
        // InterruptThrottleRate 8000
        moderation: Moderation { mode: ModerationMode::Throttle, rx_usecs: 125.0, rx_frames: 0 },
        poll: Poll {
            cpus: 2,
            refill_after: 0,
            irq_ns: 1000.0,
            poll_ns: 0.0,
            driver_ns: 1420.0,
            ..Poll::default()
        },
        buffers: Buffers {
            policy,
            // 19 cycles at 2.4 GHz: page_pool's cost of a recycled buffer
            reset_ns: 8.0,
            slab_ns: 571.0,
            ..Buffers::default()
        },
        // the stack's work on a raw frame is part of driver_ns: the paper's frames end there
        stack: Stack { stack_ns: 0.0, ..Stack::default() },
        socket: Socket::default(),
        app: App { threads: 0, ..App::default() },
    }
}

/// The machine of the trace: one port on PCI at 64 bit and 66 MHz, frames every 54 CLK.
pub(super) fn traced(policy: BufferPolicy) -> Result<Outcome, ConfigError> {
    traced_on(rdr_machine(policy, 1))
}

pub(super) fn traced_on(mut config: Config) -> Result<Outcome, ConfigError> {
    let read_clocks = config.bus.read_clocks;
    config.bus = Bus { kind: BusKind::Pci, read_clocks, ..Bus::default() };
    config.traffic.offered_pps = Some(1e9 / (54.0 * CLK_NS));
    config.run =
        RunLength { duration_us: TRACE_US, warmup_us: 0.0, trace_us: TRACE_US, ..RunLength::default() };
    simulate(&config)
}

/// Length of the trace: until the packet buffer is full.
pub(super) const TRACE_US: f64 = 100_000.0 * CLK_NS / 1000.0;

/// A flood of a million smallest frames per second, as in the paper's loss figures.
pub(super) fn flooded(policy: BufferPolicy) -> Result<Outcome, ConfigError> {
    let mut config = rdr_machine(policy, 1);
    config.traffic.offered_pps = Some(1e6);
    simulate(&config)
}
