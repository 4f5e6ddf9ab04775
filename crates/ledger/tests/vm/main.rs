//! Losses that only a machine of its own can have: its settings are the whole machine's. The guest runs this same program.

mod machine;
#[path = "../places/scene.rs"]
#[expect(dead_code, reason = "the places of a trial's ledger use the rest")]
mod scene;
#[path = "../places/ways.rs"]
#[expect(dead_code, reason = "the table of the lab's own ways uses the rest")]
mod ways;
