//! Permission to make labs.

use lab::Access;

use crate::failure::{Failure, Status};

/// Labs need privileges over network namespaces, or permission to create user namespaces.
pub(crate) fn gain_access() -> Result<Access, Failure> {
    lab::gain_access().map_err(|error| {
        Failure::of(Status::Missing, &error)
            .hint("run as root, or allow user namespaces: sysctl user.max_user_namespaces=10000")
    })
}
