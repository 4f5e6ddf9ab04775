//! What the tests of this crate share.

use lab::{Access, Lab, LabPlan};

/// A lab as root, or `None` with a loud word; a failure where everything is required.
pub(crate) fn lab(plan: &LabPlan) -> Option<Lab> {
    if let Ok(Access::Privileged) = lab::gain_access() {
        return Some(Lab::create(plan).unwrap());
    }
    testing::skip("BPF programs need root");
    None
}
