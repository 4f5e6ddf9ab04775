//! The right to make labs.

use lab::Access;

use crate::failure::{Failure, Status};

/// Labs need rights over namespaces, or the right to make some.
pub(crate) fn gain_access() -> Result<Access, Failure> {
    lab::gain_access().map_err(|error| {
        Failure::of(Status::Missing, &error)
            .hint("run as root, or allow user namespaces: sysctl user.max_user_namespaces=10000")
    })
}
