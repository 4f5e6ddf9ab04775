use measure::{Cost, Start};
use serde_json::json;

use super::*;
use crate::{Labels, Preset, simulate};

fn start(origin: Origin) -> Start {
    Start {
        command: "bench".into(),
        version: "test".into(),
        started_at: String::new(),
        origin,
        machine: Machine { cpu_model: "a CPU".into(), kernel: "6.18".into(), ..Machine::default() },
        asked: Default::default(),
    }
}

/// The engines of these tests are named as those of a lab.
fn traits_of(trial: &Trial) -> PairTraits {
    let path = match trial.rx.engine.as_str() {
        "xdp" => Path::XdpDrop,
        "xsk" => Path::AfXdp,
        _ => Path::Kernel,
    };
    PairTraits { path, frame_ring: trial.rx.engine == "packet", page_per_frame: trial.tx.engine == "xdp" }
}

fn calibrated(run: &Run) -> Result<Calibration, CalibrateError> {
    calibrate(run, traits_of)
}

fn run_of(origin: Origin, trials: Vec<Trial>) -> Run {
    crate::record::run(start(origin), trials, Vec::new(), Vec::new())
}

/// A lab machine whose costs the tests know and the calibration must find: `measured` runs it as a lab would.
struct Lab {
    sender_ns: f64,
    stack_ns: f64,
    reader_ns: f64,
    engine: &'static str,
}

const UDP: Lab = Lab { sender_ns: 1200.0, stack_ns: 900.0, reader_ns: 2800.0, engine: "udp" };

impl Lab {
    fn measured(&self, offered_pps: Option<f64>) -> Trial {
        let mut config = Preset::find("veth").unwrap().config();
        config.run.duration_us = 300_000.0;
        config.traffic.offered_pps = offered_pps;
        config.traffic.sender_ns = self.sender_ns;
        config.poll.driver_ns = 0.0;
        (config.stack.stack_ns, config.stack.xdp_ns) = (self.stack_ns, self.stack_ns);
        config.app.recv_ns = self.reader_ns;
        config.stack.path = match self.engine {
            "xdp" => crate::Path::XdpDrop,
            "xsk" => crate::Path::AfXdp,
            _ => crate::Path::Kernel,
        };
        let labels = Labels { tx: "udp".into(), rx: self.engine.into() };
        let mut trial = simulate(&config).unwrap().trial(&config, &labels, 1);
        // in a lab softirq counts for the sender's thread, and a reader's cost is its own
        let [softirq, sender]: [f64; 2] =
            [self.stack_ns, self.sender_ns].map(|ns| ns * trial.sent as f64 / 1e9);
        trial.tx_cost = cost(softirq + sender, trial.sent);
        trial.rx_cost = cost(self.reader_ns * trial.delivered as f64 / 1e9, trial.delivered);
        (trial.tx.cpus, trial.rx.cpus) = (vec![0], vec![1]);
        trial.rx.engine = self.engine.into();
        // the preset's buffer and what a frame takes of it
        trial.rx.options.insert("ring_bytes".into(), json!(212_992));
        trial
    }
}

fn cost(system_s: f64, packets: u64) -> Cost {
    let ns_per_packet = Some(system_s * 1e9 / packets.max(1) as f64);
    Cost { user_s: 0.0, system_s, ns_per_packet, ..Cost::default() }
}

#[track_caller]
fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a / b - 1.0).abs() <= tolerance, "{a} is not within {tolerance} of {b}");
}

#[test]
fn what_a_saturated_run_cost_is_found_again() {
    let calibration = calibrated(&run_of(Origin::Lab, vec![UDP.measured(None)])).unwrap();
    let pair = &calibration.pairs[0];
    close(pair.sender_ns, 1200.0, 0.03);
    close(pair.stack_ns, 900.0, 0.03);
    close(pair.reader_ns.unwrap(), 2800.0, 0.02);
    assert!(pair.basis[2].contains("was always busy and lost packets"), "{:?}", pair.basis);
    assert_eq!(calibration.machine, "a CPU, Linux 6.18");
}

#[test]
fn other_loads_than_the_calibrated_one_are_predicted_within_fifteen_per_cent() {
    let calibration = calibrated(&run_of(Origin::Lab, vec![UDP.measured(None)])).unwrap();
    let loads = [Load::OfLossFree(0.8), Load::OfLossFree(1.2), Load::OfLossFree(1.3)];
    let predicted = predict(&calibration, &loads, 0.001, start(Origin::Model)).unwrap();
    let loss_free = predicted.end.points[0].values["loss_free_pps"].as_f64().unwrap();
    close(loss_free, 1e9 / 2800.0, 0.05);
    for (trial, factor) in predicted.end.trials.iter().zip([0.8, 1.2, 1.3]) {
        let measured = UDP.measured(Some(factor * loss_free));
        assert_eq!((&trial.tx.label, &trial.rx.label), (&measured.tx.label, &measured.rx.label));
        close(trial.delivered_pps, measured.delivered_pps, 0.15);
        if measured.loss_ratio > 0.01 {
            close(trial.loss_ratio, measured.loss_ratio, 0.15);
        } else {
            assert!(trial.loss_ratio < 0.01);
        }
        assert!(trial.ledger.is_closed());
    }
}

#[test]
fn every_receiving_engine_of_the_lab_is_predicted_from_its_overload() {
    for engine in ["udp", "packet", "xsk", "xdp"] {
        let lab = Lab { engine, ..UDP };
        let calibration = calibrated(&run_of(Origin::Lab, vec![lab.measured(None)])).unwrap();
        for rate in [150_000.0, 450_000.0] {
            let predicted = predict(&calibration, &[Load::Pps(rate)], 0.001, start(Origin::Model)).unwrap();
            let measured = lab.measured(Some(rate));
            close(predicted.end.trials[0].delivered_pps, measured.delivered_pps, 0.05);
            let loss = predicted.end.trials[0].loss_ratio;
            assert!((loss - measured.loss_ratio).abs() < 0.02, "{engine} at {rate}: {loss}");
        }
    }
}

#[test]
fn a_sender_slower_than_the_load_is_predicted_as_such() {
    let slow = Lab { sender_ns: 5000.0, ..UDP };
    let calibration = calibrated(&run_of(Origin::Lab, vec![slow.measured(None)])).unwrap();
    let predicted = predict(&calibration, &[Load::Pps(400_000.0)], 0.001, start(Origin::Model)).unwrap();
    let trial = &predicted.end.trials[0];
    close(trial.sent_pps, 1e9 / 5900.0, 0.05);
    assert!(!trial.receipt.kept_up && trial.loss_ratio < 0.01, "{:?}", trial.receipt);
}

#[test]
fn a_reader_that_never_lost_is_calibrated_from_its_cpu_time() {
    let calibration = calibrated(&run_of(Origin::Lab, vec![UDP.measured(Some(100_000.0))])).unwrap();
    let pair = &calibration.pairs[0];
    close(pair.reader_ns.unwrap(), 2800.0, 0.01);
    assert!(pair.basis[2].contains("was busy 28 % of the time"), "{:?}", pair.basis);
}

#[test]
fn surer_trials_outweigh_others_and_repeats_give_their_median() {
    let mut low = UDP.measured(Some(50_000.0));
    low.rx_cost = cost(1.0, low.delivered);
    let trials = vec![low, UDP.measured(None), UDP.measured(None), UDP.measured(None)];
    let calibration = calibrated(&run_of(Origin::Lab, trials)).unwrap();
    assert_eq!(calibration.pairs.len(), 1);
    close(calibration.pairs[0].reader_ns.unwrap(), 2800.0, 0.02);
    assert!(calibration.pairs[0].basis[2].ends_with("median of 3"));
}

#[test]
fn a_busy_neighbour_does_not_make_the_machine_slow() {
    // both workers had half of their CPU: the rates halve, the costs do not
    let mut trial = UDP.measured(None);
    trial.duration_s *= 2.0;
    trial.sent_pps /= 2.0;
    trial.delivered_pps /= 2.0;
    trial.cpus.iter_mut().for_each(|cpu| cpu.softirq_ratio /= 2.0);
    let pair = calibrated(&run_of(Origin::Lab, vec![trial])).unwrap().pairs.remove(0);
    close(pair.reader_ns.unwrap(), 2800.0, 0.02);
    close(pair.sender_ns + pair.stack_ns, 2100.0, 0.02);
}

#[test]
fn threads_that_share_a_cpu_are_as_fast_as_one() {
    let mut trial = UDP.measured(None);
    (trial.tx.threads, trial.rx.threads) = (2, 2);
    let pair = calibrated(&run_of(Origin::Lab, vec![trial])).unwrap().pairs.remove(0);
    close(pair.sender_ns + pair.stack_ns, 2100.0, 0.02);
    assert_eq!((pair.reader_cpus, pair.machine().unwrap().app.threads), (1, 2));
    close(pair.loss_free_pps(0.001).unwrap(), 1e9 / 2800.0, 0.05);
}

#[test]
fn a_stack_slower_than_its_sender_still_takes_every_frame_at_once() {
    let lab = Lab { sender_ns: 400.0, stack_ns: 1500.0, reader_ns: 500.0, engine: "udp" };
    let pair = calibrated(&run_of(Origin::Lab, vec![lab.measured(None)])).unwrap().pairs.remove(0);
    close(pair.loss_free_pps(0.001).unwrap(), 1e9 / 1900.0, 0.02);
}

#[test]
fn xdp_has_no_reader_and_loses_nothing() {
    let lab = Lab { engine: "xdp", ..UDP };
    let calibration = calibrated(&run_of(Origin::Lab, vec![lab.measured(None)])).unwrap();
    assert_eq!(calibration.pairs[0].reader_ns, None);
    let predicted = predict(&calibration, &[Load::Max, Load::Pps(1e5)], 0.001, start(Origin::Model)).unwrap();
    close(predicted.end.trials[0].delivered_pps, 1e9 / 2100.0, 0.03);
    assert!(predicted.end.trials.iter().all(|trial| trial.ledger.lost() == 0));
}

#[test]
fn a_card_s_settings_are_read_whatever_their_spelling() {
    let settings = [
        ("rx-usecs", "30"),
        ("RX ring", "1024"),
        ("current_link_speed", "8.0 GT/s PCIe"),
        ("current_link_width", "8"),
    ];
    let nic = NicFacts {
        role: "rx".into(),
        speed_bps: Some(25_000_000_000),
        rx_queues: 8,
        settings: settings.map(|(name, value)| (name.to_string(), value.to_string())).into(),
        ..NicFacts::default()
    };
    let mut trial = UDP.measured(None);
    trial.cpus[0].softirq_ratio = 0.5;
    let mut run = run_of(Origin::Hosts, vec![trial]);
    run.start.machine.interfaces = vec![nic];
    let pair = calibrated(&run).unwrap().pairs.remove(0);
    assert_eq!(pair.sender_ns, 0.0);
    let machine = pair.machine().unwrap();
    assert_eq!((machine.ring.descriptors, machine.moderation.rx_usecs), (1024, 30.0));
    assert_eq!((machine.bus.pcie_generation, machine.bus.pcie_lanes), (3, 8));
    assert_eq!(machine.traffic.link_bps, 25_000_000_000);
    machine.validate().unwrap();
}

#[test]
fn threaded_napi_gives_the_stack_a_cpu_of_its_own() {
    let mut run = run_of(Origin::Lab, vec![UDP.measured(None)]);
    run.start.machine.interfaces = vec![NicFacts {
        role: "rx".into(),
        settings: [("threaded-napi".to_string(), "on".to_string())].into(),
        ..NicFacts::default()
    }];
    let pair = calibrated(&run).unwrap().pairs.remove(0);
    assert!(pair.threaded_napi);
    assert_eq!(pair.machine().unwrap().poll.first_cpu, 2);
}

#[test]
fn a_program_with_a_cpu_of_its_own_is_calibrated_by_what_it_took_of_a_flood() {
    // XDP on threaded NAPI: no softirq time is counted, and the ring in front of it overflows
    let flooded = || {
        let mut trial =
            Lab { sender_ns: 500.0, stack_ns: 0.0, reader_ns: 800.0, engine: "udp" }.measured(None);
        trial.rx.engine = "xdp".into();
        trial.cpus.iter_mut().for_each(|cpu| cpu.softirq_ratio = 0.0);
        (trial.tx_cost, trial.rx_cost) = (cost(trial.duration_s, trial.sent), Cost::default());
        trial
    };
    let mut run = run_of(Origin::Lab, vec![flooded(), flooded()]);
    run.start.machine.interfaces = vec![NicFacts {
        role: "rx".into(),
        settings: [("threaded-napi".to_string(), "on".to_string())].into(),
        ..NicFacts::default()
    }];
    let calibration = calibrated(&run).unwrap();
    let pair = &calibration.pairs[0];
    close(pair.stack_ns, 800.0, 0.02);
    close(pair.sender_ns, 500.0, 0.02);
    assert!(pair.basis[1].contains("rate of a program that lost packets"), "{:?}", pair.basis);
    let predicted =
        predict(&calibration, &[Load::OfLossFree(0.9), Load::OfLossFree(1.5)], 0.005, start(Origin::Model))
            .unwrap();
    let trials = &predicted.end.trials;
    close(predicted.end.points[0].values["loss_free_pps"].as_f64().unwrap(), 1e9 / 800.0, 0.02);
    assert_eq!(trials[0].ledger.lost(), 0);
    close(trials[1].loss_ratio, 1.0 / 3.0, 0.03);
}

#[test]
fn what_a_deep_buffer_held_at_the_end_is_not_taken_for_speed() {
    let deep = |offered_pps: Option<f64>| {
        let mut config = Preset::find("veth").unwrap().config();
        config.run.duration_us = 300_000.0;
        config.traffic = crate::Traffic { offered_pps, sender_ns: 300.0, ..config.traffic };
        (config.stack.stack_ns, config.poll.driver_ns, config.app.recv_ns) = (300.0, 0.0, 1500.0);
        // 8 MiB of a packet socket's ring: 58,254 frames of 64 bytes, a fifth of what is sent in this time
        (config.socket.bytes, config.socket.truesize_bytes) = (8 << 20, 144);
        let labels = Labels { tx: "xdp".into(), rx: "packet".into() };
        let mut trial = simulate(&config).unwrap().trial(&config, &labels, 1);
        trial.tx_cost = cost(600.0 * trial.sent as f64 / 1e9, trial.sent);
        trial.rx_cost = cost(1500.0 * trial.delivered as f64 / 1e9, trial.delivered);
        (trial.tx.cpus, trial.rx.cpus) = (vec![0], vec![1]);
        (trial.frame_size_bytes, trial.rx.engine) = (64, "packet".into());
        trial.rx.options.insert("ring_bytes".into(), json!(8 << 20));
        trial
    };
    let calibration = calibrated(&run_of(Origin::Lab, vec![deep(None)])).unwrap();
    close(calibration.pairs[0].reader_ns.unwrap(), 1500.0, 0.02);
    let predicted = predict(&calibration, &[Load::Pps(1.2e6)], 0.005, start(Origin::Model)).unwrap();
    let (trial, measured) = (&predicted.end.trials[0], deep(Some(1.2e6)));
    close(trial.delivered_pps, measured.delivered as f64 / measured.duration_s, 0.02);
    close(trial.loss_ratio, measured.loss_ratio, 0.03);
}

#[test]
fn a_goal_allows_the_share_that_it_names() {
    let pair = calibrated(&run_of(Origin::Lab, vec![UDP.measured(None)])).unwrap().pairs.remove(0);
    let [strict, lenient] = [0.001, 0.1].map(|goal| pair.loss_free_pps(goal).unwrap());
    close(lenient * 0.9, strict, 0.02);
}

#[test]
fn runs_that_say_nothing_are_refused_with_why() {
    assert_eq!(
        calibrated(&run_of(Origin::Lab, Vec::new())).unwrap_err().to_string(),
        "the run has no finished trial to calibrate from: measure one with linerate bench"
    );
    let mut trial = UDP.measured(Some(1e5));
    trial.tx_cost = Cost::default();
    let error = calibrated(&run_of(Origin::Lab, vec![trial])).unwrap_err().to_string();
    assert!(error.ends_with("udp to udp: no trial shows what sending costs"), "{error}");
}

#[test]
fn a_calibration_survives_json() {
    let calibration = calibrated(&run_of(Origin::Lab, vec![UDP.measured(None)])).unwrap();
    let json = json!(calibration);
    assert_eq!(serde_json::from_value::<Calibration>(json).unwrap().pairs.len(), 1);
}

#[test]
fn costs_that_no_machine_has_calibrate_nothing() {
    let mut run = run_of(Origin::Lab, vec![UDP.measured(Some(100_000.0))]);
    let trial = &mut run.end.trials[0];
    let (sent, delivered) = (trial.sent, trial.delivered);
    trial.rx_cost = cost(1e-9, delivered);
    let error = calibrated(&run).unwrap_err().to_string();
    assert!(error.contains("reading a packet takes ") && error.contains("which is impossible"), "{error}");
    run.end.trials[0].tx_cost = cost(1e-9, sent);
    let error = calibrated(&run).unwrap_err().to_string();
    assert!(error.contains("sending a packet takes ") && error.contains("which is impossible"), "{error}");
}
