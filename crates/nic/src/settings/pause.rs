//! `pause.*`: flow control between link partners; it turns a receiver's overload into the sender's.

use super::group::GroupKind;

pub(super) const PAUSE: GroupKind =
    GroupKind { prefix: "pause", group: &sys::ethtool::PAUSE, interrupts_the_link: true };
