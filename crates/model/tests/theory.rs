//! The model against theory where theory is exact. Every random result is compared with the interval that
//! independent replications give; the seeds are fixed, so a test that passes once passes always.

use model::{
    Arrival, BusKind, Config, ModerationMode, Outcome, Path, Service, simulate,
    theory::{md1_mean, md1k, mm1k_loss, mm1k_mean},
};

/// A single server: Poisson arrivals, a socket of `capacity` places, 1 µs to read a frame; nothing else costs
/// time or space.
fn single_server(load: f64, capacity: u64, service: Service) -> Config {
    let mut config = Config::default();
    config.run.duration_us = 60_000.0;
    config.run.warmup_us = 2_000.0;
    config.traffic.arrival = Arrival::Poisson;
    config.traffic.link_bps = 1_000_000_000_000_000;
    config.traffic.offered_pps = Some(load * 1e6);
    config.bus.kind = BusKind::None;
    config.packet_buffer.bytes = u64::MAX;
    config.ring.descriptors = 1 << 16;
    config.ring.writeback_batch = 1;
    config.moderation.mode = ModerationMode::Polled;
    config.poll.driver_ns = 0.0;
    config.poll.poll_ns = 0.0;
    config.stack.stack_ns = 0.0;
    config.buffers.reset_ns = 0.0;
    config.buffers.pool_ns = 0.0;
    config.buffers.page_batch_ns = 0.0;
    config.socket.bytes = capacity;
    config.socket.truesize_bytes = 1;
    config.app.recv_ns = 1000.0;
    config.app.syscall_ns = 0.0;
    config.app.wakeup_ns = 0.0;
    config.app.service = service;
    config
}

/// A mean over independent replications and the half width of its 99.9 % interval.
struct Interval {
    mean: f64,
    half: f64,
}

/// Student's t for 19 degrees of freedom at 99.9 %, both sides.
const T_19: f64 = 3.883;

impl Interval {
    fn of(config: &Config, measure: impl Fn(&Outcome) -> f64) -> Self {
        let values: Vec<f64> = (1..=20)
            .map(|seed| {
                let mut config = config.clone();
                config.run.seed = seed;
                measure(&simulate(&config).unwrap())
            })
            .collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, half: T_19 * (variance / n).sqrt() }
    }

    /// The exact value lies in the interval, and the interval is narrow enough to mean something.
    fn assert_holds(&self, exact: f64, what: &str) {
        let Self { mean, half } = self;
        assert!((mean - exact).abs() <= *half, "{what}: {mean} ± {half} does not hold {exact}");
        assert!(*half < 0.1 * exact, "{what}: {mean} ± {half} is too wide to say anything");
    }
}

fn loss_ratio(outcome: &Outcome) -> f64 {
    outcome.window.lost as f64 / outcome.window.sent as f64
}

fn mean_in_system(outcome: &Outcome) -> f64 {
    outcome.occupancy.socket.mean_frames
}

#[test]
fn a_deterministic_server_queues_as_pollaczek_and_khinchine_say() {
    for load in [0.3, 0.6, 0.8, 0.9] {
        let config = single_server(load, 1 << 40, Service::Fixed);
        Interval::of(&config, mean_in_system).assert_holds(md1_mean(load), &format!("M/D/1 at {load}"));
    }
}

#[test]
fn a_deterministic_server_with_few_places_loses_as_the_embedded_chain_says() {
    for (load, capacity) in [(0.8, 3), (0.95, 8), (1.2, 8), (2.0, 5)] {
        let config = single_server(load, capacity, Service::Fixed);
        let (loss, mean) = md1k(load, capacity as u32);
        let name = format!("M/D/1/{capacity} at {load}");
        Interval::of(&config, loss_ratio).assert_holds(loss, &format!("{name}, loss"));
        Interval::of(&config, mean_in_system).assert_holds(mean, &format!("{name}, mean"));
    }
}

#[test]
fn an_exponential_server_loses_and_queues_as_the_birth_death_chain_says() {
    for (load, capacity) in [(0.7, 3), (0.95, 10), (1.5, 6)] {
        let config = single_server(load, capacity, Service::Exponential);
        let name = format!("M/M/1/{capacity} at {load}");
        let capacity = capacity as u32;
        Interval::of(&config, loss_ratio).assert_holds(mm1k_loss(load, capacity), &format!("{name}, loss"));
        Interval::of(&config, mean_in_system)
            .assert_holds(mm1k_mean(load, capacity), &format!("{name}, mean"));
    }
}

#[test]
fn without_a_place_to_wait_the_loss_is_erlangs() {
    for load in [0.5, 1.0, 4.0] {
        let config = single_server(load, 1, Service::Fixed);
        Interval::of(&config, loss_ratio).assert_holds(load / (1.0 + load), &format!("bufferless at {load}"));
    }
}

#[test]
fn an_endless_buffer_loses_nothing_below_capacity_and_grows_by_the_excess_above() {
    let below = simulate(&single_server(0.95, 1 << 40, Service::Exponential)).unwrap();
    assert_eq!(below.total.lost, 0);
    let mut above = single_server(1.25, 1 << 40, Service::Fixed);
    above.traffic.arrival = Arrival::Cbr;
    let above = simulate(&above).unwrap();
    assert_eq!(above.total.lost, 0);
    let left_over = above.series.last().unwrap().socket_frames as f64;
    assert!((left_over / (0.25 * 60_000.0) - 1.0).abs() < 0.01, "{left_over} frames wait at the end");
    assert!((above.delivered_pps() / 1e6 - 1.0).abs() < 1e-3);
}

#[test]
fn a_link_brings_its_line_rate_and_no_more() {
    for (speed, frame, pps) in [
        (1_000_000_000, 64, 1_488_095.2),
        (1_000_000_000, 78, 1_275_510.2),
        (10_000_000_000, 64, 14_880_952.4),
        (10_000_000_000, 1518, 812_743.8),
        (100_000_000_000, 64, 148_809_523.8),
    ] {
        let mut config = Config::default();
        config.run.duration_us = 2_000.0;
        config.run.warmup_us = 100.0;
        config.traffic.link_bps = speed;
        config.traffic.frame_bytes = frame;
        let sent = simulate(&config).unwrap().sent_pps();
        assert!((sent / pps - 1.0).abs() < 1e-3, "{speed} {frame}: {sent}");
        config.traffic.offered_pps = Some(1e12);
        assert_eq!(simulate(&config).unwrap().sent_pps(), sent, "a higher rate delivers no more");
    }
}

/// A machine whose only limit is its bus.
fn bus_bound() -> Config {
    let mut config = Config::default();
    config.run.duration_us = 5_000.0;
    config.run.warmup_us = 1_000.0;
    config.traffic.link_bps = 400_000_000_000;
    config.ring.descriptors = 1 << 14;
    config.ring.on_chip = 1024;
    config.ring.fetch_below = 768;
    // interrupts write incomplete groups of descriptors back: few of them, so that groups are complete
    config.moderation.rx_usecs = 50.0;
    config.poll.irq_ns = 0.0;
    config.stack.path = Path::XdpDrop;
    config.poll.driver_ns = 1.0;
    config.poll.poll_ns = 0.0;
    config.stack.xdp_ns = 0.0;
    config.buffers.policy = model::BufferPolicy::Recycle;
    config.buffers.reset_ns = 0.0;
    config
}

#[test]
fn a_bus_carries_what_its_formula_says() {
    for (kind, generation, lanes, frame) in [
        (BusKind::Pcie, 1, 4, 64),
        (BusKind::Pcie, 2, 8, 256),
        (BusKind::Pcie, 3, 8, 1518),
        (BusKind::Pcie, 3, 16, 64),
        (BusKind::Pcie, 4, 8, 300),
        (BusKind::Pci, 1, 1, 64),
        (BusKind::Pci, 1, 1, 1518),
        (BusKind::PciX, 1, 1, 500),
    ] {
        let mut config = bus_bound();
        config.bus.kind = kind;
        config.bus.pcie_generation = generation;
        config.bus.pcie_lanes = lanes;
        config.traffic.frame_bytes = frame;
        let limit = config.bus.limit_pps(frame, &config.ring.traffic());
        let outcome = simulate(&config).unwrap();
        let through = outcome.delivered_pps();
        assert!(
            (through / limit - 1.0).abs() < 0.01,
            "{kind:?} {generation} x{lanes}, {frame} B: {through} of {limit}"
        );
        // the rest of the time passes in gaps between transactions
        assert!(outcome.bus_busy_ratio > 0.6, "{kind:?} {generation} x{lanes}: {}", outcome.bus_busy_ratio);
    }
}
