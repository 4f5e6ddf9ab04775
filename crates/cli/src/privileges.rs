//! What a command that others talk to gives up before it listens to them.

use serde::Serialize;
use sys::{
    capability::Capability::{
        self, Bpf, DacOverride, IpcLock, NetAdmin, NetBindService, NetRaw, Perfmon, SysNice, Syslog,
    },
    confine::{confine, refused_calls},
};

use crate::failure::in_words;

/// As printed and recorded.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Privileges {
    /// Capabilities kept where they are held, or `all`; the others are dropped.
    capabilities: Vec<&'static str>,
    /// System calls that are refused from then on.
    refused_calls: Vec<&'static str>,
    /// `None`: all capabilities.
    #[serde(skip)]
    kept: Option<Vec<Capability>>,
    #[serde(skip)]
    needed: &'static [&'static str],
}

/// Engines are opened and programs attached while others come and go; the kernel's drops are named by its functions.
const FOR_TRAFFIC: [Capability; 8] =
    [NetBindService, NetAdmin, NetRaw, IpcLock, SysNice, Syslog, Perfmon, Bpf];

impl Privileges {
    /// All that the process has: taking a card needs root's rights on files of the kernel, and starts a guard.
    pub(crate) fn all() -> Self {
        Self { refused_calls: Vec::new(), ..Self::new(None, &[]) }
    }

    /// A receiver's. Root saves in folders of others.
    pub(crate) fn of_receiver(saves: bool) -> Self {
        Self::new(Some([&FOR_TRAFFIC[..], if saves { &[DacOverride] } else { &[] }].concat()), &[])
    }

    /// An agent's. One that diverts starts a program that changes a card. One with a network namespace enters it for each
    /// trial, and may open the namespace of another process only with all of that process's capabilities.
    #[cfg(feature = "fleet")]
    pub(crate) fn of_agent(diverts: bool, enters_namespace: bool) -> Self {
        let needed: &[&str] = match (diverts, enters_namespace) {
            (true, true) => &["execve", "setns"],
            (true, false) => &["execve"],
            (false, true) => &["setns"],
            (false, false) => &[],
        };
        Self::new(needed.is_empty().then(|| FOR_TRAFFIC.into()), needed)
    }

    fn new(kept: Option<Vec<Capability>>, needed: &'static [&'static str]) -> Self {
        Self {
            capabilities: match &kept {
                Some(kept) => kept.iter().map(|capability| capability.name()).collect(),
                None => vec!["all"],
            },
            refused_calls: refused_calls(needed),
            kept,
            needed,
        }
    }

    /// Gives the rest up. A kernel without seccomp serves all the same.
    pub(crate) fn reduce(&self) {
        if self.refused_calls.is_empty() {
            return;
        }
        if let Err(error) = confine(self.kept.as_deref(), self.needed) {
            eprintln!("keeps more privileges than it needs: {}", in_words(&error));
        }
    }
}
