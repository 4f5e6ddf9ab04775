//! Random machines: in every configuration, every lost frame has a place, time never goes back, and
//! the same seed gives the same run. `simulate` itself asserts the first two after every run and panics.

use model::{
    BufferPolicy, BusKind, Config, ConfigError, ModerationMode, Path, RingKind, parameters, simulate,
};

/// SplitMix64, so that a failure is repeated by its number alone.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn one_of<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[self.roll(values.len() as u64) as usize]
    }
}

/// Any machine, valid or not: small rings and buffers, free and costly steps, every policy and path.
fn any_machine(dice: &mut Dice) -> Config {
    let mut config = Config::default();
    let choices: &[(&str, &[&str])] = &[
        ("run.warmup_us", &["0", "10", "100"]),
        ("traffic.ports", &["1", "1", "2", "3"]),
        ("traffic.link_bps", &["1000000000", "10000000000", "100000000000"]),
        ("traffic.frame_bytes", &["64", "65", "300", "1518"]),
        ("traffic.mix", &["null", "null", "imix", "64:1,1500:1"]),
        ("traffic.arrival", &["cbr", "poisson", "burst"]),
        ("traffic.offered_pps", &["null", "1000", "300000", "2000000"]),
        ("traffic.burst_frames", &["1", "7", "1000"]),
        ("traffic.sender_ns", &["0", "0", "0", "300"]),
        ("traffic.sender_cpu", &["0", "1", "2"]),
        ("rss.queues", &["1", "1", "2", "5"]),
        ("rss.flows", &["1", "10", "100"]),
        ("rss.heavy_ratio", &["0", "0.7"]),
        ("rss.bypass_queue", &["null", "null", "0", "1"]),
        ("rss.bypass_ratio", &["0", "0", "0.5", "1"]),
        ("packet_buffer.bytes", &["1518", "2000", "20000", "500000"]),
        ("bus.kind", &["none", "pci", "pci-x", "pcie"]),
        ("bus.read_clocks", &["0", "8", "100"]),
        ("bus.pcie_lanes", &["1", "8"]),
        ("bus.max_payload_bytes", &["64", "128", "512"]),
        ("bus.read_latency_ns", &["0", "550", "20000"]),
        ("ring.descriptors", &["2", "17", "33", "64", "256", "4096"]),
        ("ring.on_chip", &["1", "16", "64"]),
        ("ring.fetch_batch", &["1", "16"]),
        ("ring.fetch_below", &["0", "0", "8"]),
        ("ring.stop_above_bytes", &["null", "0", "1000"]),
        ("ring.writeback_batch", &["1", "4", "16"]),
        ("ring.writeback_delay_ns", &["0", "378.75", "5000"]),
        ("ring.tail_batch", &["1", "8", "16"]),
        ("ring.drop_when_empty", &["false", "true"]),
        ("ring.kind", &["card", "card", "backlog"]),
        ("moderation.mode", &["none", "delay", "throttle", "adaptive", "igb", "polled"]),
        ("moderation.rx_usecs", &["0", "1", "3", "30", "500"]),
        ("moderation.rx_frames", &["0", "0", "1", "40"]),
        ("poll.cpus", &["1", "2", "4"]),
        ("poll.budget", &["1", "3", "64", "300"]),
        ("poll.refill_after", &["0", "1", "16"]),
        ("poll.irq_ns", &["0", "1500", "20000"]),
        ("poll.poll_ns", &["0", "100"]),
        ("poll.driver_ns", &["0", "60", "950", "9000"]),
        ("poll.slice_us", &["0", "1", "2000"]),
        ("buffers.policy", &["realloc", "recycle", "page-pool", "copybreak", "fill-ring"]),
        ("buffers.reset_ns", &["0", "10", "500"]),
        ("buffers.slab_keeps", &["0", "157"]),
        ("buffers.slab_at_start", &["0", "24"]),
        ("buffers.free_burst", &["1", "170", "1000"]),
        ("buffers.page_batch", &["1", "32"]),
        ("buffers.pool_buffers", &["64", "4096", "5000"]),
        ("stack.path", &["kernel", "xdp-drop", "af-xdp"]),
        ("socket.bytes", &["768", "5000", "212992"]),
        ("socket.xsk_slots", &["1", "2048"]),
        ("socket.reuseport", &["false", "true"]),
        ("app.threads", &["0", "1", "3"]),
        ("app.first_cpu", &["0", "1", "3"]),
        ("app.batch", &["1", "64"]),
        ("app.syscall_ns", &["0", "250"]),
        ("app.wakeup_ns", &["0", "5000"]),
        ("app.recv_ns", &["0", "450", "20000"]),
        ("app.service", &["fixed", "exponential"]),
    ];
    for (name, values) in choices {
        config.set(name, dice.one_of(values)).unwrap();
    }
    // most contradictions are resolved, some are left for the model to refuse
    if dice.roll(8) > 0 {
        if config.ring.kind == RingKind::Backlog {
            config.bus.kind = BusKind::None;
            config.ring.drop_when_empty = true;
        }
        if config.rss.bypass_queue.is_none_or(|queue| queue >= config.rss.queues) {
            config.rss.bypass_queue = None;
            config.rss.bypass_ratio = 0.0;
        }
        if config.stack.path != Path::AfXdp && config.buffers.policy == BufferPolicy::FillRing {
            config.buffers.policy = BufferPolicy::Realloc;
        }
        if config.traffic.sender_ns > 0.0 {
            config.traffic.ports = 1;
        }
        config.moderation.rx_frames *= u32::from(config.moderation.mode == ModerationMode::Throttle);
    }
    config.run.duration_us = 400.0 + dice.roll(1000) as f64;
    config.run.seed = dice.roll(u64::MAX);
    config
}

#[test]
fn random_machines_account_for_every_frame() {
    let (mut simulated, mut refused, mut lost) = (0, 0, [0u64; 3]);
    for number in 0..3000 {
        println!("machine {number}");
        let config = any_machine(&mut Dice(number));
        match simulate(&config) {
            Ok(outcome) => {
                let ledger = outcome.ledger(&config);
                assert!(ledger.is_closed(), "machine {number}: {ledger:?}");
                assert!(outcome.window.delivered <= outcome.total.delivered);
                let series: u64 = outcome.series.iter().map(|sample| sample.sent).sum();
                // a sender's last frame may leave after the last sample
                let late = u64::from(config.traffic.sender_ns > 0.0);
                let missing = outcome.total.sent - series;
                assert!(missing <= late, "machine {number}: {missing} frames are not in the series");
                for cpu in &outcome.cpus {
                    let busy = cpu.irq_ratio + cpu.softirq_ratio + cpu.app_ratio + cpu.sender_ratio;
                    assert!(
                        (0.0..1.0 + 1e-9).contains(&busy),
                        "machine {number}: CPU {} busy {busy}",
                        cpu.cpu
                    );
                }
                for loss in &outcome.losses {
                    lost[loss.place as usize] += loss.packets;
                }
                simulated += 1;
            }
            Err(ConfigError::Invalid(problems)) => {
                assert!(!problems.is_empty());
                refused += 1;
            }
            Err(error) => panic!("machine {number}: {error}"),
        }
    }
    println!("{simulated} simulated, {refused} refused, lost {lost:?}");
    assert!(simulated > 500, "only {simulated} of the random machines were valid");
    assert!(lost.iter().all(|packets| *packets > 0), "every place loses somewhere: {lost:?}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let (mut compared, mut differed) = (0, 0);
    for number in 0..100 {
        let mut config = any_machine(&mut Dice(number));
        config.set("arrival", "poisson").unwrap();
        config.set("rate", "50000").unwrap();
        let Ok(first) = simulate(&config) else { continue };
        assert!(simulate(&config).unwrap() == first, "machine {number}");
        config.run.seed ^= 1;
        compared += 1;
        differed += usize::from(simulate(&config).unwrap() != first);
    }
    assert!(compared > 20 && differed == compared, "{differed} of {compared} differ");
}

#[test]
fn what_no_machine_could_be_is_refused_and_never_simulated() {
    let mut config = Config::default();
    config.ring.descriptors = 0;
    assert!(matches!(simulate(&config), Err(ConfigError::Invalid(_))));
}

#[test]
fn extreme_values_are_simulated_or_refused() {
    let values = [
        "0",
        "1",
        "2",
        "0.001",
        "1000000",
        "1e9",
        "1e12",
        "4294967295",
        "18446744073709551615",
        "-1",
        "null",
    ];
    let mut simulated = 0;
    for parameter in parameters().filter(|parameter| parameter.name != "run.duration_us") {
        for value in values {
            for arrival in ["cbr", "poisson", "burst"] {
                let mut config = Config::default();
                config.run.duration_us = 20.0;
                config.run.warmup_us = 1.0;
                config.run.samples = 3;
                config.set("arrival", arrival).unwrap();
                let set = config.set(parameter.name, value);
                if set.is_ok() && simulate(&config).is_ok() {
                    simulated += 1;
                }
            }
        }
    }
    assert!(simulated > 500, "{simulated}");
}

#[test]
fn a_run_is_the_same_on_every_machine() {
    // random arrivals, service times and queues; the numbers were written down once and hold everywhere
    let mut config = Config::default();
    for (name, value) in [
        ("arrival", "poisson"),
        ("rate", "500000"),
        ("mix", "imix"),
        ("queues", "4"),
        ("flows", "100"),
        ("heavy-ratio", "0.3"),
        ("app.service", "exponential"),
        ("seed", "42"),
    ] {
        config.set(name, value).unwrap();
    }
    let outcome = simulate(&config).unwrap();
    let of_queues: Vec<u64> =
        outcome.queues.iter().map(|q| (q.delivered_pps * outcome.window_s).round() as u64).collect();
    let total = outcome.total;
    let counts = (total.sent, total.delivered, total.lost, total.interrupts);
    let drained_ps = (outcome.drained_s * 1e12).round() as u64;
    assert_eq!(
        (counts, &of_queues[..], drained_ps),
        ((49947, 37141, 12806, 28412), &[5691, 5625, 6082, 15799][..], 100_708_470_071)
    );
}
