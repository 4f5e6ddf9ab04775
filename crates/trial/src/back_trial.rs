//! Trials in the other direction: the other host sends on request, and this one receives as `linerate recv` does.

use std::{net::SocketAddr, thread, time::Duration};

use measure::Trial;
use serde_json::json;
use session::{Admission, HostEvent, Key, Network, PROTOCOL, Request, SessionError, request};
use thiserror::Error;
use traffic::{ReceiverPlan, RxOptions, RxTraffic};

use crate::{
    back::BackPlan,
    plan::any_like,
    reception::{EngineChoice, Policy, Reception, ReceptionError},
};

/// Interval of the receiver's event loop.
const LOOK: Duration = Duration::from_millis(20);
/// The summary of a trial must arrive within this time after its sender has finished.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Why the other host did not send.
#[derive(Debug, Error)]
pub enum BackError {
    /// The receiver here.
    #[error(transparent)]
    Reception(#[from] ReceptionError),
    /// The other host.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// It sent, but the trial did not finish.
    #[error("{peer} sent, and its trial is missing: {reason}")]
    NoTrial {
        /// The host.
        peer: SocketAddr,
        /// What happened to it.
        reason: String,
    },
}

/// Receives one trial that the host at `peer` sends; the receiver here serves no other host.
///
/// # Errors
/// [`BackError`].
pub fn run_back_trial(
    peer: SocketAddr,
    plan: &BackPlan,
    key: Option<&Key>,
    go_on: impl Fn() -> bool + Sync,
) -> Result<Trial, BackError> {
    let receiver = ReceiverPlan {
        engine: "udp".parse().expect("the engine of sockets"),
        traffic: RxTraffic::at((any_like(peer.ip()), 0).into()),
    };
    let network: Network = peer.ip().to_string().parse().expect("an address is a network");
    let policy = Policy {
        admission: Admission::of(vec![network]),
        most_pps: None,
        engines: EngineChoice { may_attach: true, options: RxOptions::default(), ..EngineChoice::default() },
        key: key.cloned(),
        ptp4l: None,
    };
    let reception = Reception::start(&receiver, &[], None, policy)?;
    let port = reception.address().map_or(0, |address| address.port());
    let asked =
        Request { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").into(), port, plan: json!(plan) };
    let mut reason = None;
    let mut received = None;
    let asked = thread::scope(|scope| {
        let asking = scope.spawn(|| request(peer, &asked, key, &go_on));
        let mut looks_left = LAST_WORDS.as_millis() / LOOK.as_millis();
        while received.is_none() && reason.is_none() && looks_left > 0 {
            thread::sleep(LOOK);
            looks_left -= u128::from(asking.is_finished());
            for event in reception.events() {
                match event {
                    HostEvent::Finished { trial, .. } => received = trial,
                    HostEvent::Disputed { error, .. } => reason = Some(error.to_string()),
                    HostEvent::Refused { reason: why, .. } => reason = Some(why),
                    HostEvent::Lost { error, .. } => reason = Some(error.to_string()),
                    HostEvent::Joined { .. } | HostEvent::Sent { .. } => {}
                }
            }
        }
        asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    reception.stop();
    asked?;
    received.map(|trial| *trial).ok_or_else(|| BackError::NoTrial {
        peer,
        reason: reason.unwrap_or_else(|| "no result was received".into()),
    })
}
