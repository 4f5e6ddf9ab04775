//! From an outcome to the record of a run: trials, ledger, receipt, intervals, points.

use std::collections::BTreeMap;

use measure::{
    Cost, CpuShare, End, Endpoint, Histogram, Interval, Ledger, LedgerLine, Point, Receipt, Run, SCHEMA,
    Start, Trial,
};
use serde_json::{Value, json};
use wire::{FrameSize, Layers};

use crate::{
    config::Config,
    outcome::{LossStage, Outcome},
    stages::{ring::RingKind, stack::Path},
};

/// Labels of the two sides of a simulated trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    /// The sender, for example `wire`.
    pub tx: String,
    /// The receiver, for example the preset's name.
    pub rx: String,
}

impl Outcome {
    /// The ledger: every frame sent was delivered or lost at a named place.
    pub fn ledger(&self, config: &Config) -> Ledger {
        let lines = self.losses.iter().map(|loss| line(loss.place, loss.packets, config)).collect();
        Ledger::close(self.total.sent, self.total.delivered, lines)
    }

    /// The simulation as a trial; `number` counts the trials of the same labels from 1.
    pub fn trial(&self, config: &Config, labels: &Labels, number: u32) -> Trial {
        let ledger = self.ledger(config);
        let frame = config.traffic.frame_bytes;
        let payload = FrameSize::new(frame).ok().and_then(|size| size.payload(Layers::default()).ok());
        let ports = f64::from(config.traffic.ports);
        let asked_pps = config.traffic.offered_pps.map(|pps| pps * ports);
        let [irq_s, softirq_s, app_s, sender_s] = self.cpu_s;
        // a sender on this machine can be slower than its schedule; a wire cannot
        let scheduled = match asked_pps {
            Some(pps) if config.traffic.sender_ns > 0.0 => (pps * self.duration_s) as u64,
            _ => self.total.sent,
        };
        let cost = |user_s, system_s, packets: u64| Cost {
            user_s,
            system_s,
            ns_per_packet: (packets > 0).then(|| (user_s + system_s) * 1e9 / packets as f64),
            ..Cost::default()
        };
        let mut receipt =
            Receipt::judge(asked_pps, scheduled, self.total.sent, self.duration_s, &Histogram::new());
        receipt.on_wire = Some(self.total.sent);
        receipt.delivered = self.total.delivered;
        Trial {
            trial: number,
            tx: endpoint(&labels.tx, 1),
            rx: endpoint(&labels.rx, config.app.threads),
            frame_size_bytes: frame,
            payload_bytes: payload.unwrap_or(0),
            asked_pps,
            duration_s: self.duration_s,
            sent: self.total.sent,
            sent_pps: self.sent_pps(),
            delivered: self.total.delivered,
            delivered_pps: self.delivered_pps(),
            loss_ratio: ledger.loss_ratio(),
            tx_cost: cost(0.0, sender_s, self.total.sent),
            rx_cost: cost(app_s, irq_s + softirq_s, self.total.delivered),
            cpus: self.cpus.iter().map(cpu_share).collect(),
            ledger,
            receipt,
            ..Trial::default()
        }
    }

    /// The time series as a trial's intervals.
    pub fn intervals(&self, trial: u32) -> Vec<Interval> {
        let mut before_us = 0.0;
        self.series
            .iter()
            .map(|sample| {
                let length_s = (sample.at_us - before_us) / 1e6;
                before_us = sample.at_us;
                Interval {
                    trial,
                    end_s: sample.at_us / 1e6,
                    length_s,
                    sent: Some(sample.sent),
                    delivered: Some(sample.delivered),
                    // 46 bytes of a frame are not UDP payload
                    payload_bytes: sample.delivered_bytes.saturating_sub(46 * sample.delivered),
                    rx_dropped: Some(sample.lost),
                }
            })
            .collect()
    }

    /// The results of every point of a sweep, by name.
    pub fn results(&self) -> BTreeMap<String, Value> {
        let mut values = BTreeMap::new();
        let mut put = |name: &str, value: f64| values.insert(name.to_string(), json!(value));
        put("sent_pps", self.sent_pps());
        put("sent_bps", self.sent_bps());
        put("received_pps", self.delivered_pps());
        put("received_bps", self.delivered_bps());
        put("lost_pps", self.lost_pps());
        put("interrupts_per_s", self.interrupts_per_s());
        put("interrupts_per_packet", self.interrupts_per_packet());
        for time in &self.functions {
            put(&format!("cpu_{}_ratio", time.function.name().replace(' ', "_")), time.busy_ratio);
        }
        put("packet_buffer_mean_frames", self.occupancy.packet_buffer.mean_frames);
        put("ring_mean_frames", self.occupancy.ring.mean_frames);
        put("socket_mean_frames", self.occupancy.socket.mean_frames);
        put("bus_busy_ratio", self.bus_busy_ratio);
        for place in LossStage::ALL {
            let packets = self.losses.iter().find(|loss| loss.place == place).map_or(0, |loss| loss.packets);
            values.insert(format!("lost_{}", name(place)), json!(packets));
        }
        values
    }
}

/// A record of simulated trials; the caller fills `start`.
pub(crate) fn run(start: Start, trials: Vec<Trial>, intervals: Vec<Interval>, points: Vec<Point>) -> Run {
    let duration_s = trials.iter().map(|trial| trial.duration_s).sum();
    let pairs = measure::PairSummary::of(&trials);
    let notes = vec!["simulated: rates are of simulated time".to_string()];
    let end = End { duration_s, trials, pairs, points, notes, ..End::default() };
    Run { schema: SCHEMA.into(), start, intervals, end }
}

fn endpoint(label: &str, threads: u32) -> Endpoint {
    Endpoint { engine: "model".into(), label: label.into(), threads, ..Endpoint::default() }
}

fn cpu_share(cpu: &crate::outcome::CpuTime) -> CpuShare {
    let busy = cpu.irq_ratio + cpu.softirq_ratio + cpu.app_ratio + cpu.sender_ratio;
    CpuShare {
        cpu: cpu.cpu,
        user_ratio: cpu.app_ratio,
        system_ratio: cpu.sender_ratio,
        irq_ratio: cpu.irq_ratio,
        softirq_ratio: cpu.softirq_ratio,
        steal_ratio: 0.0,
        idle_ratio: (1.0 - busy).max(0.0),
        ..CpuShare::default()
    }
}

fn name(place: LossStage) -> &'static str {
    match place {
        LossStage::PacketBuffer => "packet_buffer",
        LossStage::NoDescriptor => "no_descriptor",
        LossStage::SocketBuffer => "socket_buffer",
    }
}

fn line(place: LossStage, packets: u64, config: &Config) -> LedgerLine {
    let (place, source, remedy) = match place {
        LossStage::PacketBuffer => (
            "packet buffer overrun",
            "model: packet_buffer.bytes (rx_missed_errors of a card)",
            "return descriptors faster: recycle buffers, use more queues or a cheaper path",
        ),
        LossStage::NoDescriptor if config.ring.kind == RingKind::Backlog => (
            "backlog full",
            "model: ring.descriptors (softnet_stat dropped)",
            "a larger backlog absorbs bursts; a steady overload needs a faster receiver",
        ),
        LossStage::NoDescriptor => (
            "no descriptor",
            "model: ring.descriptors (rx_no_buffer_count of a card)",
            "a larger ring absorbs bursts; a steady overload needs a faster driver",
        ),
        LossStage::SocketBuffer if config.stack.path == Path::AfXdp => (
            "AF_XDP receive ring full",
            "model: socket.xsk_slots (XDP_STATISTICS rx_ring_full)",
            "a faster reader, or a larger ring for bursts",
        ),
        LossStage::SocketBuffer => (
            "socket buffer full",
            "model: socket.bytes (SK_MEMINFO_DROPS)",
            "a faster reader, more readers with SO_REUSEPORT, or a larger buffer for bursts",
        ),
    };
    LedgerLine::new(place, packets, source).with_remedy(remedy)
}
