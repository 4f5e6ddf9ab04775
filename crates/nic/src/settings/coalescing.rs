//! `coalesce.*`: how long, or for how many frames, a card waits before it interrupts.

use super::group::GroupKind;

pub(super) const COALESCING: GroupKind =
    GroupKind { prefix: "coalesce", group: &sys::ethtool::COALESCING, interrupts_the_link: false };
