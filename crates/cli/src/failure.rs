//! Failures for a person and for a script: error, hint, exit status.

use std::{error::Error, fmt, io, path::Path};

use session::{Key, KeyError, SessionError};
use trial::{FramePathError, HostTrialError};

pub(crate) use bench::in_words;

/// Exit statuses, the same for all commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Completed, but missed a goal.
    GoalMissed = 1,
    /// Usage error.
    Usage = 2,
    /// Missing capability or kernel feature.
    Missing = 3,
    /// Refused by the environment.
    Refused = 4,
    /// Bug in linerate.
    Internal = 5,
}

/// Why a command failed: one or more problems.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    problems: Vec<Problem>,
}

#[derive(Debug)]
struct Problem {
    error: String,
    hint: Option<String>,
}

impl Failure {
    /// One problem, as text.
    pub(crate) fn new(status: Status, error: impl fmt::Display) -> Self {
        Self { status, problems: vec![Problem { error: error.to_string(), hint: None }] }
    }

    /// One problem from an error and its causes; a missing privilege overrides `status`.
    pub(crate) fn of(status: Status, error: &(dyn Error + 'static)) -> Self {
        let status = if lacks_privilege(error) { Status::Missing } else { status };
        Self::new(status, in_words(error))
    }

    /// Adds a hint on what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(problem) = self.problems.last_mut() {
            problem.hint = Some(hint.into());
        }
        self
    }

    /// The same failure with another exit status, for a run that measured something before it failed.
    #[must_use]
    pub(crate) fn with_status(self, status: Status) -> Self {
        Self { status, ..self }
    }

    /// All problems on one line.
    pub(crate) fn words(&self) -> String {
        let all: Vec<&str> = self.problems.iter().map(|problem| problem.error.as_str()).collect();
        all.join("; ")
    }

    /// All problems of several failures; the first one sets the status. `None` if there are none.
    pub(crate) fn all(failures: Vec<Self>) -> Option<Self> {
        failures.into_iter().reduce(|mut first, next| {
            first.problems.extend(next.problems);
            first
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "error: {}", problem.error)?;
            if let Some(hint) = &problem.hint {
                write!(f, "\nhint:  {hint}")?;
            }
        }
        Ok(())
    }
}

/// Why CPUs cannot be profiled, and what would permit it.
pub(crate) fn unprofiled(error: &trial::ProfileError) -> Failure {
    let failure = Failure::of(Status::Missing, error);
    match os_error(error) {
        Some(libc::EPERM | libc::EACCES) => {
            failure.hint("run as root, or with CAP_PERFMON, or set kernel.perf_event_paranoid to 0")
        }
        None => failure.hint("run as root, or with CAP_SYSLOG and kernel.kptr_restrict at 0 or 1"),
        _ => failure,
    }
}

/// Why a trial towards another host failed, and what to do.
pub(crate) fn unsent(error: &HostTrialError) -> Failure {
    let failure = Failure::of(Status::Refused, error);
    match error {
        HostTrialError::Session(SessionError::Unreachable { .. }) => {
            failure.hint("start linerate recv there, or use --no-handshake where that is allowed")
        }
        HostTrialError::Session(SessionError::NotAReceiver { .. }) => {
            failure.hint("give the port that linerate recv listens on: ADDRESS:PORT")
        }
        // A refusal's reason, in the receiver's words, names the option.
        HostTrialError::Session(SessionError::NoReflector { .. }) => {
            failure.hint("start it with linerate recv --reflect, or send without --reflect")
        }
        HostTrialError::Session(SessionError::OtherKey { .. }) => {
            failure.hint("use the same --key file on both hosts")
        }
        HostTrialError::OtherWayBack { .. } => {
            failure.hint("omit --bind, or give it the source address of the route to the receiver")
        }
        HostTrialError::Path(error) => without_way(failure, error),
        HostTrialError::Session(SessionError::Gone { .. }) => {
            failure.hint("results up to that point are shown above")
        }
        _ => match os_error(error) {
            Some(libc::ENODEV) => failure.hint("ip link lists the interfaces of this host"),
            Some(libc::EADDRNOTAVAIL) => failure.hint("--bind takes an address of this host"),
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => failure.hint("there is no route to that address"),
            Some(libc::EMSGSIZE) => {
                failure.hint("the frame is larger than the path's MTU: try a smaller --frame-size")
            }
            Some(libc::EIO | libc::EINVAL) => {
                failure.hint("omit --gso: not every kernel and interface supports it")
            }
            _ => failure,
        },
    }
}

/// The secret in the file of `--key`.
pub(crate) fn read_key(path: Option<&Path>, problems: &mut Vec<Failure>) -> Option<Key> {
    let read = Key::read(path?);
    let failed = |error: KeyError| {
        let failure = Failure::of(Status::Refused, &error);
        match error {
            KeyError::NotSecret { path } => failure.hint(format!("chmod 600 {}", path.display())),
            KeyError::Length { .. } => failure.hint("create one with: head -c 32 /dev/urandom | base64"),
            KeyError::Unreadable { .. } => failure,
        }
    };
    read.map_err(|error| problems.push(failed(error))).ok()
}

/// What to do when whole frames have no path to a receiver.
fn without_way(failure: Failure, error: &FramePathError) -> Failure {
    match error {
        FramePathError::NoRoute { target, .. } => failure.hint(format!("see ip route get {target}")),
        FramePathError::Local { .. } | FramePathError::NotEthernet { .. } => {
            failure.hint("use --engine udp, which sends through sockets")
        }
        FramePathError::NoNeighbour { next_hop, interface } => failure.hint(format!(
            "is it up, and on the same network? see ip neigh show {next_hop} dev {interface}, or set --dst-mac"
        )),
        FramePathError::NoSource { .. } => failure.hint("set the source address with --bind"),
        FramePathError::TooLarge { .. } => {
            failure.hint("try a smaller --frame-size, or --engine udp, which sends fragments")
        }
        FramePathError::Netlink(_) if matches!(os_error(error), Some(libc::EPERM)) => {
            failure.hint("run as root, or with CAP_NET_ADMIN and CAP_NET_RAW; --engine udp needs neither")
        }
        FramePathError::Netlink(_) if matches!(os_error(error), Some(libc::ENODEV)) => {
            failure.hint("ip link lists the interfaces of this host")
        }
        FramePathError::SeveralPaths { .. } => failure.hint("send to each target in a separate run"),
        _ => failure,
    }
}

/// The kernel's error number behind an error.
pub(crate) fn os_error(error: &(dyn Error + 'static)) -> Option<i32> {
    std::iter::once(error)
        .chain(causes(error))
        .find_map(|cause| cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error))
}

fn lacks_privilege(error: &(dyn Error + 'static)) -> bool {
    matches!(os_error(error), Some(libc::EPERM | libc::EACCES))
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause: &&'e (dyn Error + 'static)| (*cause).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);
    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot bind UDP 127.0.0.1:1")
        }
    }
    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_failure_names_the_cause_and_the_hint() {
        let error = Outer(io::Error::from_raw_os_error(libc::EADDRINUSE));
        let failure = Failure::of(Status::Refused, &error).hint("try another port");
        assert_eq!(failure.status, Status::Refused);
        assert_eq!(
            failure.to_string(),
            "error: cannot bind UDP 127.0.0.1:1: Address already in use (os error 98)\nhint:  try another port"
        );
    }

    #[test]
    fn a_missing_privilege_has_its_own_status() {
        let error = Outer(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(Failure::of(Status::Refused, &error).status, Status::Missing);
    }

    #[test]
    fn several_problems_are_reported_at_once() {
        let failures = vec![Failure::new(Status::Usage, "one").hint("a"), Failure::new(Status::Usage, "two")];
        assert_eq!(Failure::all(failures).unwrap().to_string(), "error: one\nhint:  a\nerror: two");
        assert!(Failure::all(Vec::new()).is_none());
    }
}
