//! Common parts of the lab's tests.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The user without any rights.
const NOBODY: u32 = 65534;

/// This executable again, with its role in `LAB_TEST`.
///
/// By `/proc`, because another user may not be able to walk the path to it.
pub(crate) fn again(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.env("LAB_TEST", role);
    command
}

/// The role that [`again`] gave this process.
pub(crate) fn role() -> Option<String> {
    env::var("LAB_TEST").ok()
}

/// Makes the command run as a user without privileges; only root can.
pub(crate) fn as_nobody(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY)
}

/// Ends a test that cannot run here: loudly, and as a failure when everything is required.
pub(crate) fn skipped(reason: &str) -> ExitCode {
    testing::skip(reason);
    ExitCode::SUCCESS
}
