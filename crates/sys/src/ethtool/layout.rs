//! Where fields are in `struct ethtool_rxnfc`: flow rules and hashed fields are asked for by the same one.

/// Length of `struct ethtool_rxnfc` with its padding.
pub(super) const LEN: usize = 192;
/// Where the count or the RSS context is, and the list of places.
pub(super) const COUNT: usize = 184;
pub(super) const PLACES: usize = 188;
