//! Obtains the privileges that a lab needs.

use sys::capability::Capability;
use sys::netns::{UserNamespaceError, become_root_in_user_namespace};

/// The privilege by which this process creates labs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It has the capabilities over the machine.
    Privileged,
    /// It is root of a user namespace: enough for labs, sockets and packet rings, not for BPF or for placing
    /// kernel threads on CPUs.
    UserNamespace,
}

/// Ensures that this process may create labs: it changes nothing when it has CAP_SYS_ADMIN and CAP_NET_ADMIN,
/// otherwise it becomes root of a new user namespace, for which it must be single-threaded.
pub fn gain_access() -> Result<Access, UserNamespaceError> {
    if Capability::SysAdmin.held() && Capability::NetAdmin.held() {
        return Ok(Access::Privileged);
    }
    become_root_in_user_namespace().map(|()| Access::UserNamespace)
}
