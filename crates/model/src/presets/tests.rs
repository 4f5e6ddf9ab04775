use super::*;
use crate::{Outcome, simulate};

fn run(name: &str, settings: &[(&str, &str)]) -> Outcome {
    let mut config = Preset::find(name).unwrap().config();
    for (parameter, value) in settings {
        config.set(parameter, value).unwrap();
    }
    simulate(&config).unwrap()
}

#[track_caller]
fn between(value: f64, least: f64, most: f64) {
    assert!((least..=most).contains(&value), "{value} is not between {least} and {most}");
}

#[test]
fn every_preset_is_a_valid_machine() {
    for preset in PRESETS {
        let outcome = simulate(&preset.config()).unwrap();
        assert!(outcome.window.delivered > 0, "{} delivers nothing", preset.name);
    }
}

#[test]
fn unknown_presets_are_refused_with_the_ones_there_are() {
    let error = Preset::find("apu").unwrap_err().to_string();
    assert!(error.starts_with("unknown preset 'apu': expected modern, rdr, apu4d4"), "{error}");
}

#[test]
fn apu4d4_with_moderation_delivers_one_sender_whole() {
    let outcome = run("apu4d4", &[]);
    assert_eq!(outcome.total.lost, 0);
    between(outcome.delivered_pps(), 104_900.0, 105_100.0);
    between(outcome.cpus[0].irq_ratio + outcome.cpus[0].softirq_ratio, 0.45, 0.66);
    between(outcome.cpus[0].app_ratio, 0.14, 0.17);
}

#[test]
fn apu4d4_with_two_senders_takes_16_thousand_interrupts_per_second() {
    let outcome = run("apu4d4", &[("rate", "160000")]);
    between(outcome.delivered_pps(), 159_000.0, 160_100.0);
    between(outcome.interrupts_per_s(), 14_400.0, 17_600.0);
    between(outcome.cpus[0].irq_ratio + outcome.cpus[0].softirq_ratio, 0.62, 0.75);
}

#[test]
fn apu4d4_without_moderation_starves_the_program() {
    for rate in ["105000", "160000"] {
        let outcome = run("apu4d4", &[("rx-usecs", "0"), ("rate", rate)]);
        between(outcome.delivered_pps(), 41_000.0, 57_000.0);
        assert!(outcome.losses.iter().all(|loss| loss.place == crate::LossStage::SocketBuffer));
    }
    // "every packet received generates an interrupt"
    let outcome = run("apu4d4", &[("rx-usecs", "0"), ("rate", "160000")]);
    between(outcome.interrupts_per_packet(), 0.9, 1.15);
}

#[test]
fn apu4d4_does_not_care_how_large_its_ring_is() {
    for usecs in ["3", "0"] {
        let rate =
            |ring| run("apu4d4", &[("ring", ring), ("rx-usecs", usecs), ("rate", "160000")]).delivered_pps();
        between(rate("4096") / rate("256"), 0.98, 1.02);
    }
}

#[test]
fn apu4d4_leaves_queue_1_idle_until_the_table_is_spread() {
    let four = [("flows", "4"), ("threads", "2"), ("rate", "265000"), ("socket.reuseport", "true")];
    let by_default = run("apu4d4", &four);
    assert_eq!(by_default.queues[1].delivered_pps, 0.0);
    let spread = run("apu4d4", &[&four[..], &[("table", "equal:2")]].concat());
    between(spread.queues[1].delivered_pps / spread.queues[0].delivered_pps, 0.98, 1.02);
    between(spread.delivered_pps(), 256_000.0, 273_000.0);
    assert!(by_default.delivered_pps() < 0.8 * spread.delivered_pps());
}

#[test]
fn the_modern_machine_drops_in_xdp_ten_million_and_in_the_stack_1_8_million() {
    between(run("modern", &[("path", "xdp-drop")]).delivered_pps(), 9.5e6, 10.5e6);
    between(run("modern", &[("threads", "0")]).delivered_pps(), 1.7e6, 1.9e6);
    between(run("modern", &[("rate", "1000000")]).delivered_pps(), 0.35e6, 0.39e6);
}

#[test]
fn one_core_drops_what_the_xdp_paper_says() {
    between(run("xdp-drop", &[]).delivered_pps(), 24e6, 26e6);
}

#[test]
fn one_core_with_two_af_xdp_sockets_reads_39_million() {
    let outcome = run("af-xdp", &[]);
    between(outcome.delivered_pps() / 39.3e6, 0.9, 1.1);
    assert!(outcome.queues.iter().all(|queue| queue.delivered_pps > 15e6));
}

#[test]
fn a_bypassed_queue_takes_the_flood_and_the_kernel_s_queues_do_not_notice() {
    let outcome = run("bypass", &[]);
    between(outcome.queues[4].delivered_pps, 5.84e6, 6.0e6);
    let kernel: f64 = outcome.queues.iter().filter(|q| q.queue != 4).map(|q| q.delivered_pps).sum();
    between(kernel, 0.495e6, 0.505e6);
}

#[test]
fn without_dropping_at_once_a_full_queue_holds_up_all_others() {
    let settings = [("stack.bypass_ns", "300"), ("fifo", "100000")];
    let kernel = |drop| {
        let outcome = run("bypass", &[&settings[..], &[("ring.drop_when_empty", drop)]].concat());
        outcome.queues.iter().filter(|q| q.queue != 4).map(|q| q.delivered_pps).sum::<f64>()
    };
    assert!(kernel("false") < 0.7 * kernel("true"));
}

#[test]
fn a_veth_sender_carries_the_stack_on_its_own_cpu() {
    let socket = run("veth", &[]);
    between(socket.sent_pps() / 0.298e6, 0.95, 1.05);
    assert_eq!(socket.total.lost, 0);
    let xdp = run("veth", &[("path", "xdp-drop")]);
    between(xdp.sent_pps() / 0.42e6, 0.95, 1.05);
}
