//! `make bench-hosts`: the cost of a trial between two hosts relative to the same pair in the lab: one veth pair, both turn
//! by turn, medians and the ratio of the rates with its 95 % interval. Between hosts: a control connection, routes and
//! neighbours, the counting programs at both ends.

#[path = "plans/one_thread.rs"]
mod one_thread;

use std::error::Error;

use lab::{Lab, LabPlan};
use measure::{Effect, EffectScale, Trial, median};
use traffic::{
    Departures, Limit, ReceiverPlan, RxTraffic, SenderPlan, TxFacts, TxSpec, TxTraffic, TxWorkerPlan,
};
use trial::{
    EngineChoice, GivenMacs, HostPlan, Pair, Policy, Reception, Wanted, run_host_trial, run_trial_in,
    tx_endpoint,
};
use wire::FrameSpec;

use one_thread::{BATCH, one_thread};

type Outcome<T> = Result<T, Box<dyn Error>>;

const TURNS: usize = 15;
const TRIAL_NS: u64 = 300_000_000;
/// The required share of the lab's rate between hosts.
const LEAST: f64 = 0.97;
const PAIRS: [(&str, &str); 4] = [("xdp", "xdp"), ("xsk", "xdp"), ("packet", "xdp"), ("packet", "udp")];

fn main() -> Outcome<()> {
    lab::gain_access()?;
    println!(
        "{TURNS} turns of {} ms, one thread on CPU 0, frames of 64 bytes; Mpps sent and delivered",
        TRIAL_NS / 1_000_000
    );
    let mut misses = 0;
    for (tx, rx) in PAIRS {
        let pair = Pair { tx: tx.parse()?, rx: rx.parse()? };
        // The same veth for both; with GRO, it has rings all the time.
        let lab = Lab::create(&LabPlan { gro: true, ..LabPlan::default() })?;
        let ways: [(&str, &dyn Fn() -> Outcome<Trial>); 3] = [
            ("in the lab", &|| in_lab(&lab, &pair)),
            ("between hosts", &|| between(&lab, &pair, true)),
            ("--no-witness", &|| between(&lab, &pair, false)),
        ];
        let mut rates: [Vec<f64>; 3] = Default::default();
        let mut delivered: [Vec<f64>; 3] = Default::default();
        for turn in 0..=TURNS {
            for (at, (_, trial)) in ways.iter().enumerate() {
                let trial = trial()?;
                // The first turn warms up.
                if turn > 0 {
                    rates[at].push(trial.sent_pps);
                    delivered[at].push(trial.delivered_pps);
                }
            }
        }
        let [lab_rates, ..] = &rates;
        println!("{tx} → {rx}");
        for (((name, _), own), delivered) in ways.iter().zip(&rates).zip(&delivered) {
            let [mpps, delivered] = [own, delivered].map(|pps| median(pps).unwrap_or(0.0) / 1e6);
            let effect = Effect::of(lab_rates, own, EffectScale::Ratio, 0.95);
            let ratio = effect
                .filter(|_| *name != ways[0].0)
                .map(|effect| [effect.estimate, effect.low, effect.high].map(|change| 1.0 + change));
            let words = ratio.map_or_else(String::new, |[ratio, low, high]| {
                format!("  {ratio:.3} of the lab ({low:.3} to {high:.3})")
            });
            println!("  {name:<14} {mpps:>7.3} {delivered:>7.3}{words}");
            misses += usize::from(*name == ways[1].0 && ratio.is_some_and(|[ratio, ..]| ratio < LEAST));
        }
    }
    println!("{misses} of {} pairs are below {LEAST} of the lab between hosts", PAIRS.len());
    Ok(())
}

fn in_lab(lab: &Lab, pair: &Pair) -> Outcome<Trial> {
    let plan = one_thread(TRIAL_NS, 500_000_000);
    Ok(run_trial_in(lab, &plan, pair, 1, |_| true)?.trial)
}

fn between(lab: &Lab, pair: &Pair, witness: bool) -> Outcome<Trial> {
    let receiver =
        ReceiverPlan { engine: "udp".parse()?, traffic: RxTraffic::at((lab.rx().ipv4()[0], 0).into()) };
    let engines = EngineChoice { may_attach: true, ..EngineChoice::default() };
    let policy = Policy { engines, ..Policy::default() };
    let reception = lab.rx().run(|| Reception::start(&receiver, &[1], None, policy))??;
    let target = reception.address().ok_or("the receiver has no address")?;
    let plan = host_plan(&pair.tx, target, (pair.rx.to_string(), witness));
    let trial = lab.tx().run(|| run_host_trial(&plan, 1, || true, |_, _| ()))??;
    reception.stop();
    match trial.error {
        Some(error) => Err(error.into()),
        None => Ok(trial.trial),
    }
}

fn host_plan(engine: &TxSpec, target: std::net::SocketAddr, (rx, witness): (String, bool)) -> HostPlan {
    let TxFacts { makes_frames, .. } = engine.facts();
    debug_assert!(makes_frames, "sockets choose their own path");
    HostPlan {
        handshake: true,
        endpoint: tx_endpoint(engine, 1, &[0], BATCH, 1),
        sender: SenderPlan {
            engine: engine.clone(),
            traffic: TxTraffic {
                workers: vec![TxWorkerPlan {
                    target,
                    local: (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
                    flows: 1,
                    stream: 0,
                }],
                interface: None,
                frames: FrameSpec::default(),
                rate_pps: None,
                departures: Departures::Constant,
                limit: Limit { count: None, duration_ns: Some(TRIAL_NS) },
                batch_size: BATCH,
                seed: 1,
            },
        },
        cpus: vec![0],
        frame_size_bytes: 64,
        payload_bytes: 18,
        smallest_payload_bytes: 18,
        interval_ns: 500_000_000,
        profile: false,
        macs: GivenMacs::default(),
        receiver: Some(Wanted { engine: rx, threads: 1 }),
        witness,
        key: None,
    }
}
