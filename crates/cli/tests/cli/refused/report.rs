//! What `linerate report` and `linerate compare` refuse.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["compare", "one.json"], 2, &["cannot compare a single run"]),
    (&["compare", "/nope", "/nope"], 4, &["cannot read /nope", "hint:  name a run that linerate saved"]),
    (&["compare", "--confidence", "2", "/nope", "/nope"], 2, &["--confidence must be from 0.5 to 0.9999"]),
    (&["compare", "--history", "/nonexistent"], 4, &["no run in /nonexistent"]),
    (&["report", "--chart", "ladder"], 2, &["--chart needs --format svg"]),
    (&["report", "/etc/passwd"], 4, &["/etc/passwd: line 1 is not valid in a linerate run (linerate.run/1)"]),
];
