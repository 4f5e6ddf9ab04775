//! `ring.*`: descriptors of each ring. Longer rings hold longer bursts; shorter ones stay in the cache.

use super::group::GroupKind;

pub(super) const RINGS: GroupKind =
    GroupKind { prefix: "ring", group: &sys::ethtool::RINGS, interrupts_the_link: true };
