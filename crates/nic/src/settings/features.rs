//! `feature.*`: offloads by the kernel's names (`rx-gro`, `tx-tcp-segmentation`, …).

use super::kind::{Kind, Wrong};
use crate::{
    Card, NicError,
    setting::{on_off, switch},
};

pub(super) struct Features;

impl Kind for Features {
    fn prefix(&self) -> &'static str {
        "feature"
    }

    fn interrupts_the_link(&self) -> bool {
        true
    }

    /// The requested state, not the active one: a feature that depends on another one must be requested again.
    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        let features = card.ethtool.features(card.name())?;
        let changeable = features.into_iter().filter(|feature| feature.changeable);
        Ok(changeable.map(|feature| (feature.name, on_off(feature.requested).to_owned())).collect())
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        let known = self.read(card).map_err(Wrong::Unreadable)?;
        known.iter().find(|(name, _)| name == key).ok_or(Wrong::NoSuchKey)?;
        let on = switch(value).ok_or_else(|| Wrong::Expected("on or off".into()))?;
        Ok(on_off(on).into())
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        let wanted: Vec<(&str, bool)> =
            changes.iter().map(|(key, value)| (*key, switch(value) == Some(true))).collect();
        match card.ethtool.set_features(card.name(), &wanted) {
            // Not active, but requested: the value shows the difference, and restoring brings the request back.
            Err(sys::ethtool::EthtoolError::FeatureFixed { .. }) => Ok(()),
            other => Ok(other?),
        }
    }
}
