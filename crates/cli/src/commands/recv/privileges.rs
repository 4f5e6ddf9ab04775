//! What a receiver gives up before it listens: strangers talk to it.

use serde::Serialize;
use sys::{
    capability::Capability::{
        self, Bpf, DacOverride, IpcLock, NetAdmin, NetBindService, NetRaw, Perfmon, SysNice, Syslog,
    },
    confine::{confine, refused_calls},
};

use crate::{args::RecvArgs, failure::in_words};

/// As printed and recorded.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Privileges {
    /// Capabilities kept where they are held; all others are dropped.
    capabilities: Vec<&'static str>,
    /// System calls that are refused from then on.
    refused_calls: Vec<&'static str>,
    /// `None`: it keeps everything.
    #[serde(skip)]
    kept: Option<Vec<Capability>>,
}

impl Privileges {
    pub(super) fn of(args: &RecvArgs) -> Self {
        // Taking and returning a card needs root's rights on files of the kernel, and starts a guard.
        if args.measure.take_device {
            return Self { capabilities: vec!["all"], refused_calls: Vec::new(), kept: None };
        }
        // Engines are opened and programs attached while senders come and go; the kernel's drops are named by its functions.
        let mut kept = vec![NetBindService, NetAdmin, NetRaw, IpcLock, SysNice, Syslog, Perfmon, Bpf];
        // Root saves in folders of others.
        kept.extend((args.output.save.is_some() || args.measure.plot.is_some()).then_some(DacOverride));
        Self {
            capabilities: kept.iter().map(|capability| capability.name()).collect(),
            refused_calls: refused_calls(),
            kept: Some(kept),
        }
    }

    /// Gives the rest up. A kernel without seccomp serves all the same.
    pub(super) fn reduce(&self) {
        if let Some(kept) = &self.kept
            && let Err(error) = confine(kept)
        {
            eprintln!("keeps more privileges than it needs: {}", in_words(&error));
        }
    }
}
