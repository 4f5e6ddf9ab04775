//! Predictions: the calibrated machine simulated at other loads.

use measure::{Point, Run, Start, Trial};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Calibration, PairCalibration};
use crate::{
    config::Config,
    outcome::Outcome,
    parameter::ConfigError,
    presets::Preset,
    record::{self, Labels},
    simulate,
    stages::{bus::BusKind, moderation::ModerationMode, stack::Path},
};

/// `VETH_RING_SIZE` of the kernel's drivers/net/veth.c: frames that wait for a NAPI poll.
const VETH_RING: u32 = 256;

/// A load to predict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// As fast as the sender can; towards a card, line rate.
    Max,
    /// Packets per second.
    Pps(f64),
    /// A multiple of the rate that the model finds loss-free.
    OfLossFree(f64),
}

/// Simulates every pair at every load. Trials carry the labels that were measured, so that
/// `linerate compare` shows prediction and measurement side by side; points add the loss-free rate: the highest at which
/// no larger share than `loss_ratio` is lost.
///
/// # Errors
/// [`ConfigError::Invalid`] when a load or a calibrated value cannot be simulated.
pub fn predict(
    calibration: &Calibration,
    loads: &[Load],
    loss_ratio: f64,
    mut start: Start,
) -> Result<Run, ConfigError> {
    start.asked.insert("calibration".into(), json!(calibration));
    start.asked.insert("loads".into(), json!(loads));
    start.asked.insert("loss_ratio".into(), json!(loss_ratio));
    let (mut points, mut trials) = (Vec::new(), Vec::new());
    for pair in &calibration.pairs {
        let loss_free_pps = pair.loss_free_pps(loss_ratio)?;
        for (number, load) in loads.iter().enumerate() {
            let offered_pps = match *load {
                Load::Max => None,
                Load::Pps(pps) => Some(pps),
                Load::OfLossFree(factor) => Some(factor * loss_free_pps),
            };
            let (outcome, config) = pair.simulate_at(offered_pps)?;
            points.push(pair.point(&outcome, offered_pps, loss_free_pps));
            trials.push(pair.trial(&outcome, &config, number as u32 + 1));
        }
    }
    let mut run = record::run(start, trials, Vec::new(), points);
    run.end.notes.push(format!("predicted for {}", calibration.machine));
    for pair in &calibration.pairs {
        run.end.notes.push(format!("{} to {}: {}", pair.tx.label, pair.rx.label, pair.basis.join("; ")));
    }
    run.end.notes.extend(calibration.notes.iter().cloned());
    Ok(run)
}

impl PairCalibration {
    /// The machine that this pair ran on, as the model has it.
    ///
    /// # Errors
    /// [`ConfigError::UnknownPreset`] never happens: both presets exist.
    pub fn machine(&self) -> Result<Config, ConfigError> {
        let mut config = Preset::find(if self.card.is_some() { "modern" } else { "veth" })?.config();
        config.run.duration_us = self.duration_s.clamp(0.05, 2.0) * 1e6;
        config.run.warmup_us = 0.05 * config.run.duration_us;
        config.traffic.frame_bytes = self.frame_size_bytes;
        config.poll.driver_ns = 0.0;
        config.buffers.reset_ns = 0.0;
        config.buffers.pool_ns = 0.0;
        config.stack.path = self.path;
        (config.stack.stack_ns, config.stack.xdp_ns) = (self.stack_ns, self.stack_ns);
        config.socket.bytes = self.socket_bytes.unwrap_or(config.socket.bytes);
        config.socket.truesize_bytes = self.truesize_bytes;
        config.socket.reuseport = self.rx.options.get("reuse_port") == Some(&serde_json::Value::Bool(true));
        config.app.threads = self.rx.threads.max(1);
        config.app.cpus = self.reader_cpus.max(1);
        config.app.recv_ns = self.reader_ns.unwrap_or(0.0);
        config.app.syscall_ns = 0.0;
        config.app.wakeup_ns = 0.0;
        // a socket for each reader needs flows and queues enough to spread over them
        if config.socket.reuseport || config.stack.path == Path::AfXdp {
            config.rss.queues = self.rx.threads.max(1);
            config.rss.flows = 64 * config.rss.queues;
        }
        match &self.card {
            None => {
                config.traffic.sender_ns = self.sender_ns;
                config.traffic.link_bps = 1_000_000_000_000;
                // the sender's CPU is 0, readers follow, and a threaded NAPI comes last
                config.app.first_cpu = u32::from(!self.shared_cpu);
                if self.threaded_napi {
                    let threads = super::napi_cpus(&self.rx);
                    let beside_readers =
                        !threads.is_empty() && threads.iter().all(|cpu| self.rx.cpus.contains(cpu));
                    let after_readers = if beside_readers { 0 } else { config.app.cpus };
                    config.poll.first_cpu = config.app.first_cpu + after_readers;
                    if config.stack.path == Path::XdpDrop {
                        // the ring at the receiving end, between the sender and the program
                        config.ring.descriptors = VETH_RING;
                        config.ring.on_chip = VETH_RING;
                        config.ring.fetch_below = VETH_RING / 2;
                    }
                }
            }
            Some(card) => {
                config.traffic.link_bps = card.link_bps.unwrap_or(config.traffic.link_bps);
                config.ring.descriptors = card.ring.unwrap_or(config.ring.descriptors);
                config.bus.kind = BusKind::Pcie;
                config.bus.pcie_generation = card.pcie_generation.unwrap_or(config.bus.pcie_generation);
                config.bus.pcie_lanes = card.pcie_lanes.unwrap_or(config.bus.pcie_lanes);
                if let Some(usecs) = card.rx_usecs {
                    let off = usecs == 0.0 && card.rx_frames.unwrap_or(0) <= 1;
                    config.moderation.mode =
                        if off { ModerationMode::None } else { ModerationMode::Throttle };
                    config.moderation.rx_usecs = usecs;
                    config.moderation.rx_frames = if off { 0 } else { card.rx_frames.unwrap_or(0) };
                }
            }
        }
        Ok(config)
    }

    /// The highest rate at which no larger share than `goal` is lost.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] when a calibrated value cannot be simulated.
    pub fn loss_free_pps(&self, goal: f64) -> Result<f64, ConfigError> {
        let loss_ratio = |outcome: &Outcome| outcome.total.lost as f64 / outcome.total.sent.max(1) as f64;
        let (at_most, _) = self.simulate_at(None)?;
        if loss_ratio(&at_most) <= goal {
            return Ok(at_most.sent_pps());
        }
        // half of the rate delivered in overload is far below the loss-free rate; buffers absorb a trial's first losses
        let (mut free, mut losing) = (0.5 * at_most.delivered_pps().max(1.0), at_most.sent_pps());
        while losing / free > 1.002 {
            let middle = 0.5 * (free + losing);
            let (outcome, _) = self.simulate_at(Some(middle))?;
            if loss_ratio(&outcome) <= goal { free = middle } else { losing = middle }
        }
        Ok(free)
    }

    fn simulate_at(&self, offered_pps: Option<f64>) -> Result<(Outcome, Config), ConfigError> {
        let mut config = self.machine()?;
        config.traffic.offered_pps = offered_pps;
        Ok((simulate(&config)?, config))
    }

    fn point(&self, outcome: &Outcome, offered_pps: Option<f64>, loss_free_pps: f64) -> Point {
        let mut point = Point { values: outcome.results() };
        for (name, value) in [
            ("tx", json!(self.tx.label)),
            ("rx", json!(self.rx.label)),
            ("frame_size_bytes", json!(self.frame_size_bytes)),
            ("asked_pps", json!(offered_pps)),
            ("loss_ratio", json!(outcome.window.lost as f64 / outcome.window.sent.max(1) as f64)),
            ("loss_free_pps", json!(loss_free_pps)),
        ] {
            point.values.insert(name.into(), value);
        }
        point
    }

    fn trial(&self, outcome: &Outcome, config: &Config, number: u32) -> Trial {
        let labels = Labels { tx: self.tx.label.clone(), rx: self.rx.label.clone() };
        let trial = outcome.trial(config, &labels, number);
        // as in a measurement: packets that leave the buffers afterwards were delivered too
        let delivered_pps = trial.delivered as f64 / trial.duration_s;
        Trial { tx: self.tx.clone(), rx: self.rx.clone(), delivered_pps, ..trial }
    }
}
