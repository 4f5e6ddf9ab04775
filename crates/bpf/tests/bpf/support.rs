//! Helpers of this crate's tests.

use lab::{Lab, LabPlan};

/// A lab as root, or `None` with a message; a failure where everything is required.
pub(crate) fn lab(plan: &LabPlan) -> Option<Lab> {
    testing::root_lab(plan, "BPF programs need root")
}
