//! What `linerate report` and `linerate compare` refuse.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["compare", "one.json"], 2, &["one run alone cannot be compared"]),
    (&["compare", "/nope", "/nope"], 4, &["cannot read /nope", "hint:  give a run that linerate saved"]),
    (&["compare", "--confidence", "2", "/nope", "/nope"], 2, &["confidence 2 is out of range"]),
    (&["compare", "--history", "/nonexistent"], 4, &["there is no run in /nonexistent"]),
    (&["report", "--chart", "ladder"], 2, &["--chart is for --format svg"]),
    (&["report", "/etc/passwd"], 4, &["/etc/passwd: line 1 is not valid in a linerate run (linerate.run/1)"]),
];
