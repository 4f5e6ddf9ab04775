//! Why a trial in a lab could not run.

use std::{io, process::ExitStatus, time::Duration};

use lab::LabError;
use ledger::{CounterError, DropError};
use sys::procfs;
use thiserror::Error;
use traffic::EngineError;

use crate::profile::ProfileError;

/// Why a trial could not run.
#[derive(Debug, Error)]
pub enum TrialError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A worker or its port.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A card that breaks what the sender relies on.
    #[error(transparent)]
    Segmentation(#[from] BrokenSegmentation),
    /// The sockets that probe a card.
    #[error("cannot probe {interface} with a few datagrams")]
    Probe {
        /// The card's interface.
        interface: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The socket that takes the originals of the packets that a packet socket copies.
    #[error("cannot open the socket that drops the originals of copied packets")]
    Sink(#[source] io::Error),
    /// The network namespace of one end.
    #[error("cannot use the network namespace of {interface}")]
    Namespace {
        /// The end's interface.
        interface: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Another generator.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// Counters of an end.
    #[error(transparent)]
    Counters(#[from] CounterError),
    /// The kernel's drop reasons.
    #[error(transparent)]
    Drops(#[from] DropError),
    /// The settings of a real interface.
    #[error(transparent)]
    Settings(#[from] nic::SessionError),
    /// The machine's CPU times.
    #[error(transparent)]
    Cpus(#[from] procfs::ProcError),
}

/// A card that does not segment UDP messages as it says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{interface} breaks hardware UDP segmentation: of {sent} datagrams sent as one message {intact} arrived intact, sent \
     singly all of them (ethtool -K {interface} tx-udp-segmentation off leaves it to the kernel)"
)]
pub struct BrokenSegmentation {
    /// The sending interface.
    pub interface: String,
    /// Datagrams of a message.
    pub sent: usize,
    /// The most of them that arrived intact.
    pub intact: usize,
}

/// Why another program did not send or receive.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The program could not be started.
    #[error("cannot start {program}")]
    NotStarted {
        /// The program.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It ended with its own error.
    #[error("{peer} failed ({status}): {words}")]
    Failed {
        /// The peer's name.
        peer: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// The last line of its output.
        words: String,
    },
    /// Its receiver never listened.
    #[error("{peer}'s receiver did not listen within {after:?}")]
    NotListening {
        /// The peer's name.
        peer: &'static str,
        /// How long the trial waited for it.
        after: Duration,
    },
}

#[cfg(test)]
mod tests {
    use std::{error::Error, os::unix::process::ExitStatusExt};

    use super::*;

    #[test]
    fn every_message_names_the_failure_and_its_object() {
        let cause = || io::Error::from_raw_os_error(2);
        let peer = "iperf3";
        let errors: [(Box<dyn Error>, &str); 7] = [
            (
                Box::new(TrialError::from(BrokenSegmentation {
                    interface: "eth1".into(),
                    sent: 8,
                    intact: 1,
                })),
                "eth1 breaks hardware UDP segmentation: of 8 datagrams sent as one message 1 arrived intact, sent singly \
                 all of them (ethtool -K eth1 tx-udp-segmentation off leaves it to the kernel)",
            ),
            (
                Box::new(TrialError::Probe { interface: "eth1".into(), source: cause() }),
                "cannot probe eth1 with a few datagrams",
            ),
            (
                Box::new(TrialError::Sink(cause())),
                "cannot open the socket that drops the originals of copied packets",
            ),
            (
                Box::new(TrialError::Namespace { interface: "lab-rx".into(), source: cause() }),
                "cannot use the network namespace of lab-rx",
            ),
            (
                Box::new(PeerError::NotStarted { program: "unshare".into(), source: cause() }),
                "cannot start unshare",
            ),
            (
                Box::new(PeerError::Failed {
                    peer,
                    status: ExitStatus::from_raw(1 << 8),
                    words: "unable to connect".into(),
                }),
                "iperf3 failed (exit status: 1): unable to connect",
            ),
            (
                Box::new(PeerError::NotListening { peer, after: Duration::from_secs(15) }),
                "iperf3's receiver did not listen within 15s",
            ),
        ];
        for (error, message) in errors {
            assert_eq!(error.to_string(), message);
        }
    }
}
