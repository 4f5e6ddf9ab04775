//! Permission to make labs, and to take cards from their drivers.

use lab::Access;

use crate::failure::{Failure, Status};

/// Labs need privileges over network namespaces, or permission to create user namespaces.
pub(crate) fn gain_access() -> Result<Access, Failure> {
    lab::gain_access().map_err(|error| {
        Failure::of(Status::Missing, &error)
            .hint("run as root, or allow user namespaces: sysctl user.max_user_namespaces=10000")
    })
}

/// What is wrong when a command line and its engine disagree on `--take-device`. `how` completes the hint for an engine that takes the card.
pub(crate) fn device_consent(engine: &str, takes_card: bool, is_given: bool, how: &str) -> Option<Failure> {
    match (takes_card, is_given) {
        (true, false) => Some(
            Failure::new(Status::Usage, format!("the engine {engine} takes the card from its kernel driver"))
                .hint(format!("allow it: --take-device{how}")),
        ),
        (false, true) => Some(
            Failure::new(Status::Usage, format!("the engine {engine} takes no card"))
                .hint("omit --take-device, or use --engine pci"),
        ),
        _ => None,
    }
}
