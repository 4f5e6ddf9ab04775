//! Sending on request, to the host that requested it, within the limits of this host's user.

use std::net::SocketAddr;

use measure::Trial;
use serde::{Deserialize, Serialize};
use session::{Key, Wanted};
use traffic::{Departures, Limit, SenderPlan, TxSpec, TxTraffic};
use wire::FrameSpec;

use crate::{
    endpoint::tx_endpoint,
    frame_path::GivenMacs,
    hosts::{HostPlan, run_host_trial},
    plan::{any_like, workers_towards},
};

/// Limits of another host's request.
const MOST_THREADS: usize = 64;
const MOST_FLOWS: usize = 65_535;
const MOST_SECONDS: u64 = 3600;

/// The request to the other host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackPlan {
    /// The sending engine.
    pub engine: TxSpec,
    /// Sending threads.
    pub threads: usize,
    /// Total flows.
    pub flows: usize,
    /// The packets; addresses and MACs are those of the path.
    pub frames: FrameSpec,
    /// Packets per second; `None` is the maximum.
    pub rate_pps: Option<f64>,
    /// The pattern of departures.
    pub departures: Departures,
    /// Nanoseconds.
    pub duration_ns: u64,
    /// Packets per call, at most.
    pub batch_size: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Mean frame size.
    pub frame_size_bytes: u32,
    /// Mean payload.
    pub payload_bytes: u32,
    /// The smallest payload.
    pub smallest_payload_bytes: u32,
    /// The engine that receives here.
    pub receiver: Option<Wanted>,
    /// Count these packets alone at both drivers.
    pub witness: bool,
}

/// The terms on which a receiver sends on request.
#[derive(Debug, Clone, Default)]
pub(crate) struct SendingTerms {
    /// The highest rate.
    pub(crate) most_pps: Option<f64>,
    /// Names of the engines that it may use; `None` is every one.
    pub(crate) allowed: Option<Vec<String>>,
    /// The interface to send from.
    pub(crate) interface: Option<String>,
    /// CPUs of the workers.
    pub(crate) cpus: Vec<u32>,
    /// The secret that the receiver must have.
    pub(crate) key: Option<Key>,
}

/// Sends the requested packets to `to`, which must agree.
///
/// # Errors
/// The reason, as text.
pub(crate) fn send_back(
    to: SocketAddr,
    plan: &serde_json::Value,
    terms: &SendingTerms,
    go_on: impl Fn() -> bool,
) -> Result<Box<Trial>, String> {
    let plan: BackPlan =
        serde_json::from_value(plan.clone()).map_err(|error| format!("invalid plan: {error}"))?;
    let plan = plan.within(to, terms)?;
    let run = run_host_trial(&plan, 1, go_on, |_, _| ()).map_err(|error| in_words(&error))?;
    match run.error {
        Some(error) => Err(in_words(&error)),
        None => Ok(Box::new(run.trial)),
    }
}

impl BackPlan {
    /// The complete plan, only towards that address, within the limits of the receiver's user.
    pub(crate) fn within(self, to: SocketAddr, terms: &SendingTerms) -> Result<HostPlan, String> {
        let name = self.engine.name();
        if terms.allowed.as_ref().is_some_and(|allowed| allowed.iter().all(|other| other != name)) {
            return Err(format!("this receiver does not allow the engine {name} (recv --allow-engines)"));
        }
        if self.engine.facts().message_bytes.is_some() {
            return Err(format!("the engine {name} sends only in the lab"));
        }
        if let Some(most) = terms.most_pps
            && self.rate_pps.is_none_or(|pps| pps > most)
        {
            return Err(format!(
                "this receiver sends at most {most} packets per second: request at most this rate"
            ));
        }
        if self.rate_pps.is_some_and(|pps| pps.is_nan() || pps <= 0.0) {
            return Err("a rate must be greater than zero".into());
        }
        if !(1..=MOST_THREADS).contains(&self.threads) || !(self.threads..=MOST_FLOWS).contains(&self.flows) {
            return Err(format!(
                "a request must have 1 to {MOST_THREADS} threads and at most {MOST_FLOWS} flows"
            ));
        }
        if self.duration_ns > MOST_SECONDS * 1_000_000_000 || !(1..=16_384).contains(&self.batch_size) {
            return Err(format!(
                "a request must be at most {MOST_SECONDS} seconds with at most 16384 packets per call"
            ));
        }
        if let Some(problem) = self.frames.problems().first() {
            return Err(problem.to_string());
        }
        Ok(HostPlan {
            handshake: true,
            endpoint: tx_endpoint(&self.engine, self.threads, &terms.cpus, self.batch_size, self.flows),
            sender: SenderPlan {
                engine: self.engine,
                traffic: TxTraffic {
                    workers: workers_towards(&[to], any_like(to.ip()), self.flows, self.threads),
                    interface: terms.interface.clone(),
                    frames: FrameSpec { vlan: Vec::new(), ..self.frames },
                    rate_pps: self.rate_pps,
                    departures: self.departures,
                    limit: Limit { count: None, duration_ns: Some(self.duration_ns) },
                    batch_size: self.batch_size,
                    seed: self.seed,
                },
            },
            cpus: terms.cpus.clone(),
            frame_size_bytes: self.frame_size_bytes,
            payload_bytes: self.payload_bytes,
            smallest_payload_bytes: self.smallest_payload_bytes,
            interval_ns: 500_000_000,
            profile: false,
            macs: GivenMacs::default(),
            receiver: self.receiver,
            witness: self.witness,
            key: terms.key.clone(),
        })
    }
}

fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}

#[cfg(test)]
impl BackPlan {
    /// A short trial of few packets.
    pub(crate) fn of_tests() -> Self {
        Self {
            engine: "udp".parse().unwrap(),
            threads: 1,
            flows: 1,
            frames: FrameSpec::default(),
            rate_pps: Some(1e6),
            departures: Departures::Constant,
            duration_ns: 1_000_000,
            batch_size: 64,
            seed: 1,
            frame_size_bytes: 64,
            payload_bytes: 18,
            smallest_payload_bytes: 18,
            receiver: None,
            witness: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> BackPlan {
        BackPlan::of_tests()
    }

    #[test]
    fn packets_go_only_to_the_address_that_requested_them() {
        let to = "192.0.2.7:4321".parse().unwrap();
        let mut asked = plan();
        asked.frames.dst_addr = wire::Values::Fixed("203.0.113.1".parse().unwrap());
        let whole = asked.within(to, &SendingTerms::default()).unwrap();
        assert!(whole.handshake && whole.sender.traffic.workers.iter().all(|worker| worker.target == to));
        assert!(whole.macs == GivenMacs::default());
    }

    #[test]
    fn a_request_beyond_the_terms_is_refused_with_the_reason() {
        let terms = SendingTerms {
            most_pps: Some(2e6),
            allowed: Some(vec!["udp".into()]),
            ..SendingTerms::default()
        };
        let to = "192.0.2.7:4321".parse().unwrap();
        assert!(plan().within(to, &terms).is_ok());
        type Change = fn(&mut BackPlan);
        let beyond: [(Change, &str); 7] = [
            (|plan| plan.rate_pps = None, "this receiver sends at most 2000000 packets per second"),
            (|plan| plan.rate_pps = Some(3e6), "this receiver sends at most 2000000 packets per second"),
            (|plan| plan.rate_pps = Some(-1.0), "a rate must be greater than zero"),
            (
                |plan| plan.engine = "xdp".parse().unwrap(),
                "does not allow the engine xdp (recv --allow-engines)",
            ),
            (|plan| plan.threads = 65, "must have 1 to 64 threads"),
            (|plan| plan.duration_ns = u64::MAX, "at most 3600 seconds"),
            (|plan| plan.batch_size = 0, "at most 16384 packets per call"),
        ];
        for (change, said) in beyond {
            let mut plan = plan();
            change(&mut plan);
            let error = plan.within(to, &terms).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let error = send_back(to, &serde_json::json!({"engine": "udp"}), &terms, || true).unwrap_err();
        assert!(error.starts_with("invalid plan: missing field"), "{error}");
    }
}
