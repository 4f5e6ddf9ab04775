//! Getting the rights that a lab needs.

use sys::capability::Capability;
use sys::netns::{UserNamespaceError, become_root_in_user_namespace};

/// By which right this process creates labs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It has the capabilities over the machine.
    Privileged,
    /// It is root of a user namespace: enough for labs, sockets and packet rings, not for BPF or for placing
    /// kernel threads on CPUs.
    UserNamespace,
}

/// Makes sure that this process may create labs: it stays as it is when it has CAP_SYS_ADMIN and CAP_NET_ADMIN,
/// else it becomes root of a new user namespace, for which it must have one thread.
pub fn gain_access() -> Result<Access, UserNamespaceError> {
    if Capability::SysAdmin.held() && Capability::NetAdmin.held() {
        return Ok(Access::Privileged);
    }
    become_root_in_user_namespace().map(|()| Access::UserNamespace)
}
