//! The form of a figure for people: its unit's name in a heading, its value in a cell, both in a sentence.

use super::quantity::Quantity;
use crate::number::{self, RateUnit};

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Packets,
    /// Packets per second; a table has one unit for all its rates.
    Rate,
    /// Bits of frames per second.
    FrameBits,
    GigabitsPerSecond,
    /// A share of 1.
    Percent,
    /// A relative difference, as a share of 1.
    Deviation,
    /// Nanoseconds, shown as microseconds.
    Micros,
    /// CPU time per packet.
    NanosEach,
    CyclesEach,
    InstructionsEach,
    CacheMissesEach,
    /// Instructions counted one by one.
    ExactInstructionsEach,
    /// Instructions per nanosecond of CPU time.
    InstructionsPerNano,
    BytesEach,
}

impl Unit {
    pub(crate) fn heading(self, rate: RateUnit) -> &'static str {
        match self {
            Self::Packets => "",
            Self::Rate => rate.name(),
            Self::FrameBits => "b/s",
            Self::GigabitsPerSecond => "Gb/s",
            Self::Percent | Self::Deviation => "%",
            Self::Micros => "µs",
            Self::NanosEach => "ns/pkt",
            Self::CyclesEach => "cyc/pkt",
            Self::InstructionsEach | Self::ExactInstructionsEach => "ins/pkt",
            Self::InstructionsPerNano => "ins/ns",
            Self::BytesEach => "B/pkt",
            Self::CacheMissesEach => "miss/pkt",
        }
    }

    pub(super) fn cell(self, value: f64, rate: RateUnit) -> String {
        match self {
            Self::Packets => number::signed_count(value as i64),
            Self::Rate => rate.figure(value),
            Self::FrameBits => format!("{value:.0}"),
            Self::GigabitsPerSecond => format!("{:.3}", value / 1e9),
            Self::Percent => number::percent(value),
            Self::Deviation => format!("{:+.3}", value * 100.0),
            Self::Micros => format!("{:.1}", value / 1e3),
            Self::NanosEach | Self::CyclesEach | Self::InstructionsEach => {
                number::count(value.round() as u64)
            }
            Self::CacheMissesEach | Self::ExactInstructionsEach | Self::BytesEach => format!("{value:.1}"),
            Self::InstructionsPerNano => format!("{value:.2}"),
        }
    }

    pub(super) fn words(self, quantity: &Quantity) -> String {
        let packets = match quantity {
            Quantity::Count(packets) => Some(number::count(*packets)),
            Quantity::Signed(packets) => Some(number::signed_count(*packets)),
            _ => None,
        };
        let value = quantity.number().unwrap_or_default();
        match (self, packets) {
            (Self::Packets, Some(packets)) => format!("{packets} packets"),
            (Self::Packets, None) => format!("{} packets", number::plain(value)),
            (Self::Rate, _) => number::rate(value),
            (Self::FrameBits, _) => format!("{} of frames", number::bits_per_second(value)),
            (Self::GigabitsPerSecond, _) => number::bits_per_second(value),
            (Self::Percent, _) => format!("{} %", number::percent(value)),
            (Self::Deviation, _) => number::change(value),
            (Self::Micros, _) => number::nanos(value),
            (Self::NanosEach, _) => format!("{} per packet", number::nanos(value)),
            (Self::CyclesEach, _) => format!("{} cycles per packet", number::plain(value.round())),
            (Self::BytesEach, _) => format!("{value:.1} bytes per packet"),
            (Self::InstructionsEach | Self::ExactInstructionsEach, _) => {
                format!("{value:.1} instructions per packet")
            }
            (Self::InstructionsPerNano, _) => format!("{value:.2} instructions per ns"),
            (Self::CacheMissesEach, _) => format!("{value:.1} cache misses per packet"),
        }
    }
}
