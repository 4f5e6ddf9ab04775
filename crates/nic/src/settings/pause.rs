//! `pause.*`: flow control between link partners; it moves a receiver's overload to the sender.

use super::group::GroupKind;

pub(super) const PAUSE: GroupKind =
    GroupKind { prefix: "pause", group: &sys::ethtool::PAUSE, interrupts_the_link: true };
