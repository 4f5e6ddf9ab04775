//! The JSON Schema of a run, as published in the repository.

/// JSON Schema (2020-12) of the output of [`write_json`](crate::write_json); generated from the types of
/// `measure`, which a test compares with this file.
pub const RUN_SCHEMA: &str = include_str!("../../../schema/linerate.run.1.schema.json");
