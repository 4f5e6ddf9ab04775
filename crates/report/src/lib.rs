//! [`measure::Run`] as text, JSON and other forms: one file per format, `fn write_xxx(run, out)`; and the documents of
//! commands without a run: the ledger of a live machine and a diversion's status.
//!
//! Pure: the output depends on the run alone, and the caller chooses its destination. Names in a run may come
//! from users or other hosts; every format escapes what would act in it.
//!
//! ```
//! use report::{Style, read_json, write_text};
//!
//! fn show(saved: &str) -> Result<String, report::ReadError> {
//!     let run = read_json(saved)?;
//!     let mut text = Vec::new();
//!     write_text(&run, Style::default(), &mut text).expect("memory accepts everything");
//!     Ok(String::from_utf8_lossy(&text).into_owned())
//! }
//!
//! let other = show("{\"schema\": \"linerate.run/9\"}").unwrap_err();
//! assert!(other.to_string().ends_with("this version reads linerate.run/1"));
//! ```
#![forbid(unsafe_code)]

mod answers;
mod bends;
mod capacity;
mod compare;
mod cpus;
mod csv;
mod diversion;
mod escape;
mod figures;
mod filters;
mod fleet;
mod html;
mod idle;
mod instructions;
mod iperf3;
mod json;
mod ladder;
mod ledger;
mod lines;
mod markdown;
mod matrix;
mod number;
mod occasion;
mod points;
mod policies;
mod profile;
mod queues;
mod reception;
mod schema;
mod style;
mod table;
mod tables;
mod text;
mod throughput;
mod tuned;
mod value;
mod verdict;

/// Numbers as people read them.
pub mod words {
    pub use crate::number::{count, left, nanos, percent, rate};
}

pub use compare::{
    COMPARISON_SCHEMA, CompareOptions, Comparison, ConditionDifference, Gate, History, HistoryPoint,
    HistorySeries, INSTRUCTION_COMPARISON_SCHEMA, InstructionChange, InstructionComparison, Metric,
    MetricComparison, NamedRun, compare, compare_instructions, history, write_comparison_json,
    write_comparison_markdown, write_comparison_text, write_history_json, write_history_markdown,
    write_history_text, write_instruction_comparison_json, write_instruction_comparison_markdown,
    write_instruction_comparison_text,
};
pub use csv::{write_csv, write_points_csv};
pub use diversion::{
    DIVERSION_SCHEMA, diversion_document, diversion_interval, diversion_queues, diversion_steering,
    write_diversion, write_diversion_heading,
};
pub use html::{Drawing, drawings, write_html};
pub use iperf3::write_iperf3;
pub use json::{
    Event, Opening, ReadError, read_json, write_compact_json, write_event, write_json, write_json_stream,
};
pub use ledger::{
    DropReason, LEDGER_SCHEMA, LedgerDocument, LossRate, PerPacket, UdpSocketUse, UnknownCounter, WatchCost,
};
pub use lines::write_interval_line;
pub use markdown::write_markdown;
pub use reception::{write_reception_human, write_reception_script};
pub use schema::RUN_SCHEMA;
pub use style::{Style, wrap};
pub use text::{write_text, write_trial};
pub use verdict::verdict;
