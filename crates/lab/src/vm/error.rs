//! Errors of virtual machines.

use std::io;
use std::path::PathBuf;

use super::plan::VmPlanError;

/// Why a virtual machine could not be prepared or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// The plan is invalid.
    #[error("invalid plan of a virtual machine: {}", one_after_the_other(.problems))]
    Plan {
        /// Every reason.
        problems: Vec<VmPlanError>,
    },
    /// Packages must be downloaded first.
    #[error("the virtual machine needs {what}, which {path} does not contain yet")]
    NotThere {
        /// What is missing.
        what: String,
        /// Where it belongs.
        path: PathBuf,
    },
    /// The packages come from Debian's archive, but this machine's apt has no such source.
    #[error("cannot find the packages of the virtual machine: {reason}")]
    NoArchive {
        /// Why.
        reason: String,
    },
    /// No home and no cache folder in the environment.
    #[error("no folder for the virtual machine's packages: neither XDG_CACHE_HOME nor HOME is set")]
    NoFolder,
    /// A required program could not be started.
    #[error("cannot run {program}")]
    Start {
        /// Its name.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// A program said no.
    #[error("{program} failed: {said}")]
    Failed {
        /// Its name.
        program: String,
        /// The end of its standard error.
        said: String,
    },
    /// A file or folder of the cache could not be read or written.
    #[error("cannot use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A package has unexpected contents.
    #[error("{what} is not in the packages of Linux {version}")]
    Package {
        /// What is missing.
        what: String,
        /// The version.
        version: String,
    },
    /// No network namespace for the emulator: CAP_SYS_ADMIN is missing; see [`gain_access`](crate::gain_access).
    #[error("cannot create the virtual machine's network namespace")]
    Namespace {
        /// The cause.
        source: io::Error,
    },
    /// Cards with several queues need `/dev/net/tun`.
    #[error("cannot create the wire of cards with several queues (/dev/net/tun)")]
    Wire {
        /// The cause.
        source: io::Error,
    },
    /// They also need the kernel's bridge.
    #[error("cannot lay the wire of cards with several queues")]
    Bridge {
        /// The cause.
        source: sys::NetlinkError,
    },
    /// The streams for frames between two machines failed.
    #[error("cannot create the cables between the virtual machines")]
    Cable {
        /// The cause.
        source: io::Error,
    },
    /// The guest's output could not be passed on.
    #[error("cannot pass on the virtual machine's output")]
    Output {
        /// The cause.
        source: io::Error,
    },
}

fn one_after_the_other(problems: &[VmPlanError]) -> String {
    problems.iter().map(VmPlanError::to_string).collect::<Vec<_>>().join("; ")
}
