//! After the ladder: the best sender towards each receiver with increasing numbers of CPUs.

use measure::{SCALING, STAGE, Trial};
use serde_json::json;
use traffic::RxLayer;
use trial::{Pair, TrialPlan};

use crate::{
    plan::BenchPlan,
    recorder::{Coming, Recorder, Stopped, Watcher},
    row::Row,
    scale_plan::{ScalePlan, ScaleStep, ScaledReceiver},
};

/// Runs each receiver with its best sender in the ladder, in turns, so that drift of the machine
/// does not look like scaling.
pub(crate) fn run(
    plan: &BenchPlan,
    scale: &ScalePlan,
    recorder: &mut Recorder<'_, impl Watcher>,
) -> Result<(), Stopped> {
    let best: Vec<Pair> =
        scale.receivers.iter().filter_map(|receiver| best_pair(plan, receiver, recorder.trials())).collect();
    for trial in 1..=plan.trials {
        for step in &scale.steps {
            for pair in &best {
                let parameters = [(STAGE.into(), json!(SCALING)), ("threads".into(), json!(step.threads))];
                let point = BenchPlan {
                    trial: with_threads(&plan.trial, step, pair),
                    parameters: parameters.into(),
                    ..plan.clone()
                };
                let threads = step.threads;
                let what = if threads == 1 {
                    "1 thread per side".into()
                } else {
                    format!("{threads} threads per side")
                };
                let coming = Coming::of(Row::Ours(pair), what);
                recorder.trial(&point, trial, coming)?;
            }
        }
    }
    Ok(())
}

/// The receiver with its best sender in the ladder; `None` if the ladder has no trial of it.
fn best_pair(plan: &BenchPlan, receiver: &ScaledReceiver, trials: &[Trial]) -> Option<Pair> {
    let delivered = |pair: &&Pair| median_of(trials, pair, |trial| trial.delivered_pps);
    let pairs = plan.pairs.iter().filter(|pair| pair.rx == receiver.ladder);
    let measured = pairs.filter_map(|pair| Some((delivered(&pair)?, pair)));
    let (_, best) = measured.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Pair { tx: best.tx.clone(), rx: receiver.rx.clone() })
}

/// The median of a value over a pair's trials in the ladder.
pub(crate) fn median_of(trials: &[Trial], pair: &Pair, value: impl Fn(&Trial) -> f64) -> Option<f64> {
    let (tx, rx) = (pair.tx.to_string(), pair.rx.to_string());
    let own = trials.iter().filter(|trial| trial.stage().is_none());
    let own = own.filter(|trial| (&trial.tx.label, &trial.rx.label) == (&tx, &rx));
    measure::median(&own.map(value).collect::<Vec<f64>>())
}

fn with_threads(plan: &TrialPlan, step: &ScaleStep, pair: &Pair) -> TrialPlan {
    let mut trial = alone(plan, pair);
    trial.tx_threads = step.threads;
    trial.rx_threads = step.threads;
    trial.flows = plan.flows.max(step.threads);
    trial.cpus = step.cpus.clone();
    let napi = |cpus: Vec<u32>| if cpus.is_empty() { cpus } else { step.cpus.napi.clone() };
    trial.separate_softirq = trial.separate_softirq.map(napi);
    if trial.lab.interfaces.is_none() {
        trial.lab.queues = trial.lab.queues.max(step.threads as u32);
    }
    trial
}

/// The same trial without the measurements of the ladder alone. A program in XDP works in the sender's softirq, which
/// leaves the sender all CPUs.
pub(crate) fn alone(plan: &TrialPlan, pair: &Pair) -> TrialPlan {
    let needs_none = pair.rx.facts().reads == RxLayer::XdpProgram;
    let separate_softirq = plan.separate_softirq.clone().filter(|_| !needs_none);
    TrialPlan { separate_softirq, statistics: None, profile: false, ..plan.clone() }
}

#[cfg(test)]
mod tests {
    use measure::Endpoint;

    use super::*;

    fn trial(tx: &str, rx: &str, delivered_pps: f64) -> Trial {
        let end = |label: &str| Endpoint { label: label.into(), ..Endpoint::default() };
        Trial { tx: end(tx), rx: end(rx), delivered_pps, ..Trial::default() }
    }

    #[test]
    fn a_receiver_scales_with_its_best_sender() {
        let pair = |tx: &str, rx: &str| Pair { tx: tx.parse().unwrap(), rx: rx.parse().unwrap() };
        let plan = BenchPlan {
            pairs: vec![pair("udp", "udp"), pair("packet", "udp"), pair("packet", "xdp")],
            ..BenchPlan::sample()
        };
        let receiver = |ladder: &str, rx: &str| ScaledReceiver {
            ladder: ladder.parse().unwrap(),
            rx: rx.parse().unwrap(),
        };
        let mut trials =
            vec![trial("udp", "udp", 3.0), trial("packet", "udp", 2.0), trial("packet", "xdp", 9.0)];
        let best = best_pair(&plan, &receiver("udp", "udp+reuseport"), &trials).unwrap();
        assert_eq!(best, pair("udp", "udp+reuseport"));
        assert_eq!(best_pair(&plan, &receiver("xsk", "xsk"), &trials), None);
        // The measurements of the stages are not the ladder's.
        trials[1].delivered_pps = 100.0;
        trials[1].parameters = [(STAGE.to_owned(), json!(SCALING))].into();
        assert_eq!(best_pair(&plan, &receiver("udp", "udp"), &trials), Some(pair("udp", "udp")));
    }

    #[test]
    fn every_thread_has_a_flow_and_the_lab_a_queue_for_it() {
        let step = ScaleStep { threads: 4, cpus: trial::place(&[0, 1, 2, 3, 4, 5, 6, 7], 4, 4) };
        let plan = TrialPlan { separate_softirq: Some(vec![1]), ..BenchPlan::sample().trial };
        let pair = |rx: &str| Pair { tx: "udp".parse().unwrap(), rx: rx.parse().unwrap() };
        let scaled = with_threads(&plan, &step, &pair("udp"));
        assert_eq!((scaled.tx_threads, scaled.rx_threads, scaled.flows, scaled.lab.queues), (4, 4, 4, 4));
        assert_eq!(scaled.separate_softirq.unwrap(), [4, 5, 6, 7]);
        assert_eq!(with_threads(&plan, &step, &pair("xdp")).separate_softirq, None);
    }
}
