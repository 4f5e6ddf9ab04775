//! Offsets in `struct ethtool_rxnfc`, which both flow rules and hashed fields use.

/// Length of `struct ethtool_rxnfc` with its padding.
pub(super) const LEN: usize = 192;
/// Offsets of the count or RSS context, and of the list of locations.
pub(super) const COUNT: usize = 184;
pub(super) const PLACES: usize = 188;
