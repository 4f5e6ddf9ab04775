//! What `linerate probe` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["probe", "lo"], 2, &["probing attaches XDP programs to lo", "hint:  add --try"]),
    (&["probe", "nope0", "--try"], 4, &["cannot use nope0"]),
];
