//! The figures of a trial: one row each. CSV, text, Markdown and HTML take a trial's figures from here, so that a new
//! figure is its field in [`measure::Trial`] and one row; a test fails for a number that has neither row nor reason.

mod quantity;
mod unit;

use measure::{Instructions, Lateness, NanosSummary, RingUse, RoundTrips, Stream, Trial, Wire};

use crate::{
    number::RateUnit,
    table::{Cell, Column},
};
pub(crate) use quantity::Quantity;
pub(crate) use unit::Unit;

/// One figure of a trial.
pub(crate) struct Figure {
    /// The members of the record that lead to it, joined by dots; empty when it is derived from others.
    pub(crate) name: &'static str,
    /// Its column in CSV, with its unit; `None` if another column has the same number.
    pub(crate) column: Option<&'static str>,
    /// The figure; `None` where it was not measured.
    pub(crate) of: fn(&Trial) -> Option<Quantity>,
    /// Its title in tables for people.
    heading: &'static str,
    unit: Unit,
    /// The table that shows it, and how early a narrow terminal hides it there (0: never).
    table: Option<(View, u8)>,
    /// The line of a trial's summary that has it.
    line: Option<Line>,
    /// Whether its value is bad news.
    is_bad: fn(&Trial) -> bool,
}

/// A table for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// The ladder's rates.
    LadderRates,
    /// The ladder's loss and costs.
    LadderCosts,
    /// The rate receipts.
    Receipts,
    /// Counted instructions.
    Instructions,
}

/// A line of a trial's summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    Sent,
    Delivered,
    Lost,
    Unexplained,
    SendingCost,
    ReceivingCost,
}

use Line::{Delivered, Lost, ReceivingCost, SendingCost, Sent, Unexplained};
use View::{LadderCosts, LadderRates, Receipts};

/// All, in the order of CSV's columns and of every table.
pub(crate) const FIGURES: &[Figure] = &[
    row("trial", |t| count(t.trial)).csv("trial"),
    row("tx.engine", |t| words(&t.tx.engine)).csv("tx_engine"),
    row("tx.label", |t| words(&t.tx.label)).csv("tx_label"),
    row("tx.threads", |t| count(t.tx.threads)).csv("tx_threads"),
    row("tx.cpus", |t| cpus(&t.tx.cpus)).csv("tx_cpus"),
    row("rx.engine", |t| words(&t.rx.engine)).csv("rx_engine"),
    row("rx.label", |t| words(&t.rx.label)).csv("rx_label"),
    row("rx.threads", |t| count(t.rx.threads)).csv("rx_threads"),
    row("rx.cpus", |t| cpus(&t.rx.cpus)).csv("rx_cpus"),
    row("frame_size_bytes", |t| count(t.frame_size_bytes)).csv("frame_size_bytes"),
    row("payload_bytes", |t| count(t.payload_bytes)).csv("payload_bytes"),
    row("asked_pps", |t| real(t.asked_pps)).csv("asked_pps"),
    row("duration_s", |t| real(t.duration_s)).csv("duration_s"),
    row("sent", |t| count(t.sent)).csv("sent").reads("sent", Unit::Packets).on(Sent),
    row("sent_pps", |t| real(t.sent_pps))
        .csv("sent_pps")
        .reads("sent", Unit::Rate)
        .at(LadderRates, 0)
        .on(Sent),
    row("", |t| real(frame_bps(t, t.sent_pps))).reads("sent", Unit::FrameBits).on(Sent),
    row("delivered", |t| count(observed(t, t.delivered)?))
        .csv("delivered")
        .reads("delivered", Unit::Packets)
        .on(Delivered),
    row("delivered_pps", |t| real(observed(t, t.delivered_pps)))
        .csv("delivered_pps")
        .reads("delivered", Unit::Rate)
        .at(LadderRates, 0)
        .on(Delivered),
    row("", |t| real(observed(t, frame_bps(t, t.delivered_pps))))
        .reads("delivered", Unit::FrameBits)
        .on(Delivered),
    // Bytes matter for streams; their packets are messages.
    row("stream.message_bytes", |t| stream(t, |s| count(s.message_bytes))).csv("stream_message_bytes"),
    row("stream.sent_bytes", |t| stream(t, |s| count(s.sent_bytes))).csv("stream_sent_bytes"),
    row("stream.delivered_bytes", |t| stream(t, |s| count(s.delivered_bytes))).csv("stream_delivered_bytes"),
    row("stream.delivered_bps", |t| stream(t, |s| real(s.delivered_bps)))
        .csv("stream_delivered_bps")
        .reads("streams", Unit::GigabitsPerSecond)
        .at(LadderRates, 0),
    row("stream.tx_packets", |t| stream(t, |s| count(s.tx_packets))).csv("stream_tx_packets"),
    row("stream.rx_packets", |t| stream(t, |s| count(s.rx_packets))).csv("stream_rx_packets"),
    row("stream.acknowledging_packets", |t| stream(t, |s| count(s.acknowledging_packets)))
        .csv("stream_acknowledging_packets"),
    row("stream.retransmitted_segments", |t| stream(t, |s| count(s.retransmitted_segments)))
        .csv("stream_retransmitted_segments"),
    row("", |t| count(observed(t, t.ledger.lost())?)).reads("lost", Unit::Packets).on(Lost),
    row("loss_ratio", |t| real(observed(t, t.loss_ratio)))
        .csv("loss_ratio")
        .reads("loss", Unit::Percent)
        .at(LadderCosts, 0)
        .on(Lost),
    row("ledger.unexplained", |t| Some(Quantity::Signed(t.ledger.unexplained)))
        .csv("unexplained")
        .reads("unexplained", Unit::Packets)
        .on(Unexplained),
    row("receipt.asked_pps", |t| real(t.receipt.asked_pps)).reads("requested", Unit::Rate).at(Receipts, 0),
    row("", |t| real(off_by(t))).reads("off by", Unit::Deviation).at(Receipts, 0),
    row("receipt.scheduled", |t| count(t.receipt.scheduled))
        .csv("scheduled")
        .reads("scheduled", Unit::Packets)
        .at(Receipts, 3),
    row("receipt.handed", |t| count(t.receipt.handed))
        .csv("handed")
        .reads("handed", Unit::Packets)
        .at(Receipts, 0),
    row("receipt.handed_pps", |t| real(t.receipt.handed_pps)).csv("handed_pps"),
    row("receipt.on_wire", |t| count(t.receipt.on_wire?))
        .csv("on_wire")
        .reads("on wire", Unit::Packets)
        .at(Receipts, 4),
    row("receipt.delivered", |t| count(observed(t, t.receipt.delivered)?))
        .reads("delivered", Unit::Packets)
        .at(Receipts, 5),
    row("receipt.shortfall", |t| count(t.receipt.shortfall))
        .csv("shortfall")
        .reads("short", Unit::Packets)
        .at(Receipts, 0)
        .bad_if(|t| !t.receipt.kept_up),
    row("receipt.kept_up", |t| Some(Quantity::Yes(t.receipt.kept_up))).csv("kept_up"),
    row("receipt.lateness.p50_ns", |t| late(t, |l| l.p50_ns))
        .csv("lateness_p50_ns")
        .reads("late p50", Unit::Micros)
        .at(Receipts, 2),
    row("receipt.lateness.p90_ns", |t| late(t, |l| l.p90_ns))
        .csv("lateness_p90_ns")
        .reads("p90", Unit::Micros)
        .at(Receipts, 7),
    row("receipt.lateness.p99_ns", |t| late(t, |l| l.p99_ns))
        .csv("lateness_p99_ns")
        .reads("p99", Unit::Micros)
        .at(Receipts, 0),
    row("receipt.lateness.p999_ns", |t| late(t, |l| l.p999_ns))
        .csv("lateness_p999_ns")
        .reads("p99.9", Unit::Micros)
        .at(Receipts, 6),
    row("receipt.lateness.max_ns", |t| late(t, |l| l.max_ns))
        .csv("lateness_max_ns")
        .reads("max", Unit::Micros)
        .at(Receipts, 0),
    row("receipt.largest_gap_ns", |t| count(t.receipt.largest_gap_ns))
        .csv("largest_gap_ns")
        .reads("gap", Unit::Micros)
        .at(Receipts, 1),
    row("wire.left", |t| wire(t, |w| w.left.and_then(count))).csv("left_driver"),
    row("wire.seen", |t| wire(t, |w| w.seen.and_then(count))).csv("seen_by_driver"),
    row("wire.cost_ns", |t| wire(t, |w| real(w.cost_ns))).csv("witness_ns"),
    row("round_trips.returned", |t| trips(t, |r| count(r.returned))).csv("round_trips_returned"),
    row("round_trips.missing", |t| trips(t, |r| count(r.missing))).csv("round_trips_missing"),
    row("round_trips.dropped_here", |t| trips(t, |r| count(r.dropped_here))).csv("round_trips_dropped_here"),
    row("round_trips.round_trip.mean_ns", |t| round_trip(t, |r| real(r.mean_ns))).csv("round_trip_mean_ns"),
    row("round_trips.round_trip.min_ns", |t| round_trip(t, |r| count(r.min_ns))).csv("round_trip_min_ns"),
    row("round_trips.round_trip.p50_ns", |t| round_trip(t, |r| count(r.p50_ns))).csv("round_trip_p50_ns"),
    row("round_trips.round_trip.p90_ns", |t| round_trip(t, |r| count(r.p90_ns))).csv("round_trip_p90_ns"),
    row("round_trips.round_trip.p99_ns", |t| round_trip(t, |r| count(r.p99_ns))).csv("round_trip_p99_ns"),
    row("round_trips.round_trip.p999_ns", |t| round_trip(t, |r| count(r.p999_ns))).csv("round_trip_p999_ns"),
    row("round_trips.round_trip.max_ns", |t| round_trip(t, |r| count(r.max_ns))).csv("round_trip_max_ns"),
    row("tx_cost.user_s", |t| real(t.tx_cost.user_s)).csv("tx_user_s"),
    row("tx_cost.system_s", |t| real(t.tx_cost.system_s)).csv("tx_system_s"),
    row("tx_cost.ns_per_packet", |t| real(t.tx_cost.ns_per_packet))
        .csv("tx_ns_per_packet")
        .reads("send", Unit::NanosEach)
        .at(LadderCosts, 3)
        .on(SendingCost),
    row("tx_cost.cycles_per_packet", |t| real(t.tx_cost.cycles_per_packet))
        .csv("tx_cycles_per_packet")
        .reads("send", Unit::CyclesEach)
        .at(LadderCosts, 5)
        .on(SendingCost),
    row("tx_cost.instructions_per_packet", |t| real(t.tx_cost.instructions_per_packet))
        .csv("tx_instructions_per_packet")
        .reads("send", Unit::InstructionsEach)
        .at(LadderCosts, 6)
        .on(SendingCost),
    row("tx_cost.cache_misses_per_packet", |t| real(t.tx_cost.cache_misses_per_packet))
        .csv("tx_cache_misses_per_packet")
        .reads("send", Unit::CacheMissesEach)
        .at(LadderCosts, 7)
        .on(SendingCost),
    row("rx_cost.user_s", |t| real(t.rx_cost.user_s)).csv("rx_user_s"),
    row("rx_cost.system_s", |t| real(t.rx_cost.system_s)).csv("rx_system_s"),
    row("rx_cost.ns_per_packet", |t| real(t.rx_cost.ns_per_packet))
        .csv("rx_ns_per_packet")
        .reads("recv", Unit::NanosEach)
        .at(LadderCosts, 3)
        .on(ReceivingCost),
    row("rx_cost.cycles_per_packet", |t| real(t.rx_cost.cycles_per_packet))
        .csv("rx_cycles_per_packet")
        .reads("recv", Unit::CyclesEach)
        .at(LadderCosts, 5)
        .on(ReceivingCost),
    row("rx_cost.instructions_per_packet", |t| real(t.rx_cost.instructions_per_packet))
        .csv("rx_instructions_per_packet")
        .reads("recv", Unit::InstructionsEach)
        .at(LadderCosts, 6)
        .on(ReceivingCost),
    row("rx_cost.cache_misses_per_packet", |t| real(t.rx_cost.cache_misses_per_packet))
        .csv("rx_cache_misses_per_packet")
        .reads("recv", Unit::CacheMissesEach)
        .at(LadderCosts, 7)
        .on(ReceivingCost),
    row("ring.refill_ns", |t| ring(t, |r| real(r.refill_ns)))
        .csv("ring_refill_ns")
        .reads("refill", Unit::NanosEach)
        .at(LadderCosts, 4),
    row("ring.refills", |t| ring(t, |r| count(r.refills))).csv("ring_refills"),
    row("ring.tail_writes", |t| ring(t, |r| count(r.tail_writes))).csv("ring_tail_writes"),
    row("ring.interrupts", |t| ring(t, |r| count(r.interrupts))).csv("ring_interrupts"),
    row("ring.without_descriptor", |t| ring(t, |r| count(r.without_descriptor)))
        .csv("ring_without_descriptor")
        .reads("no descriptor", Unit::Packets)
        .at(LadderCosts, 5),
    row("instructions.total", |t| counted(t, |i| count(i.total))).csv("instructions"),
    row("instructions.sender_user_per_packet", |t| counted(t, |i| real(i.sender_user_per_packet)))
        .csv("sender_user_instructions_per_packet")
        .reads("sender user", Unit::ExactInstructionsEach)
        .at(View::Instructions, 2),
    row("instructions.sender_kernel_per_packet", |t| counted(t, |i| real(i.sender_kernel_per_packet)))
        .csv("sender_kernel_instructions_per_packet")
        .reads("kernel", Unit::ExactInstructionsEach)
        .at(View::Instructions, 2),
    row("instructions.softirq_per_packet", |t| counted(t, |i| real(i.softirq_per_packet)))
        .csv("softirq_instructions_per_packet")
        .reads("softirq", Unit::ExactInstructionsEach)
        .at(View::Instructions, 1),
    row("instructions.receiver_user_per_packet", |t| counted(t, |i| real(i.receiver_user_per_packet)))
        .csv("receiver_user_instructions_per_packet")
        .reads("receiver user", Unit::ExactInstructionsEach)
        .at(View::Instructions, 2),
    row("instructions.receiver_kernel_per_packet", |t| counted(t, |i| real(i.receiver_kernel_per_packet)))
        .csv("receiver_kernel_instructions_per_packet")
        .reads("kernel", Unit::ExactInstructionsEach)
        .at(View::Instructions, 2),
    row("instructions.interrupts_per_packet", |t| counted(t, |i| real(i.interrupts_per_packet)))
        .csv("interrupts_instructions_per_packet")
        .reads("interrupts", Unit::ExactInstructionsEach)
        .at(View::Instructions, 4),
    row("instructions.other_per_packet", |t| counted(t, |i| real(i.other_per_packet)))
        .csv("other_instructions_per_packet")
        .reads("other", Unit::ExactInstructionsEach)
        .at(View::Instructions, 5),
    row("instructions.string_bytes_per_packet", |t| counted(t, |i| real(i.string_bytes_per_packet)))
        .csv("string_bytes_per_packet")
        .reads("strings", Unit::BytesEach)
        .at(View::Instructions, 3),
    row("tx_cost.beside_ns_per_packet", |t| real(t.tx_cost.beside_ns_per_packet))
        .csv("tx_beside_ns_per_packet")
        .reads("sender beside", Unit::NanosEach)
        .at(View::Instructions, 0),
    row("tx_cost.instructions_per_ns", |t| real(t.tx_cost.instructions_per_ns))
        .csv("tx_instructions_per_ns")
        .reads("sender", Unit::InstructionsPerNano)
        .at(View::Instructions, 0),
    row("rx_cost.beside_ns_per_packet", |t| real(t.rx_cost.beside_ns_per_packet))
        .csv("rx_beside_ns_per_packet")
        .reads("receiver beside", Unit::NanosEach)
        .at(View::Instructions, 0),
    row("rx_cost.instructions_per_ns", |t| real(t.rx_cost.instructions_per_ns))
        .csv("rx_instructions_per_ns")
        .reads("receiver", Unit::InstructionsPerNano)
        .at(View::Instructions, 0),
    row("interrupted", |t| Some(Quantity::Yes(t.interrupted))).csv("interrupted"),
];

/// A figure that only the table of all figures shows so far.
const fn row(name: &'static str, of: fn(&Trial) -> Option<Quantity>) -> Figure {
    Figure {
        name,
        column: None,
        of,
        heading: "",
        unit: Unit::Packets,
        table: None,
        line: None,
        is_bad: |_| false,
    }
}

impl Figure {
    const fn csv(mut self, column: &'static str) -> Self {
        self.column = Some(column);
        self
    }

    const fn reads(mut self, heading: &'static str, unit: Unit) -> Self {
        (self.heading, self.unit) = (heading, unit);
        self
    }

    const fn at(mut self, view: View, gives_way: u8) -> Self {
        self.table = Some((view, gives_way));
        self
    }

    const fn on(mut self, line: Line) -> Self {
        self.line = Some(line);
        self
    }

    const fn bad_if(mut self, is_bad: fn(&Trial) -> bool) -> Self {
        self.is_bad = is_bad;
        self
    }

    /// The figure as a number.
    pub(crate) fn number(&self, trial: &Trial) -> Option<f64> {
        (self.of)(trial)?.number()
    }

    /// A column of this figure: one value per row.
    pub(crate) fn column_of(&self, values: impl Iterator<Item = Option<f64>>, rate: RateUnit) -> Column {
        let cells = values.map(|value| Cell::figure(value, |value| self.unit.cell(value, rate)));
        let gives_way = self.table.map_or(0, |(_, gives_way)| gives_way);
        Column::figures(self.heading, self.unit.heading(rate), cells).gives_way(gives_way)
    }

    /// The same with one trial per row, and bad values marked.
    pub(crate) fn column_of_trials(&self, trials: &[&Trial], rate: RateUnit) -> Column {
        let mut column = self.column_of(trials.iter().map(|trial| self.number(trial)), rate);
        for (cell, trial) in column.cells.iter_mut().zip(trials) {
            *cell = std::mem::take(cell).bad_if((self.is_bad)(trial));
        }
        column
    }
}

/// The figures of a table for people.
pub(crate) fn of_view(view: View) -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().filter(move |figure| figure.table.is_some_and(|(known, _)| known == view))
}

/// The known figures of a line of a trial's summary.
pub(crate) fn in_words(line: Line, trial: &Trial) -> Vec<String> {
    let figures = FIGURES.iter().filter(|figure| figure.line == Some(line));
    figures.filter_map(|figure| Some(figure.unit.words(&(figure.of)(trial)?))).collect()
}

fn count(number: impl Into<u64>) -> Option<Quantity> {
    Some(Quantity::Count(number.into()))
}

fn real(number: impl Into<Option<f64>>) -> Option<Quantity> {
    number.into().map(Quantity::Real)
}

fn words(text: &str) -> Option<Quantity> {
    Some(Quantity::Words(text.into()))
}

fn cpus(cpus: &[u32]) -> Option<Quantity> {
    words(&cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
}

/// A figure that depends on delivery, if delivery is known.
fn observed<T>(trial: &Trial, figure: T) -> Option<T> {
    trial.ledger.unknown_because().is_none().then_some(figure)
}

fn counted(trial: &Trial, figure: fn(&Instructions) -> Option<Quantity>) -> Option<Quantity> {
    trial.instructions.as_ref().and_then(figure)
}

fn ring(trial: &Trial, figure: fn(&RingUse) -> Option<Quantity>) -> Option<Quantity> {
    trial.ring.as_ref().and_then(figure)
}

fn stream(trial: &Trial, figure: fn(&Stream) -> Option<Quantity>) -> Option<Quantity> {
    trial.stream.as_ref().and_then(figure)
}

fn trips(trial: &Trial, figure: fn(&RoundTrips) -> Option<Quantity>) -> Option<Quantity> {
    trial.round_trips.as_ref().and_then(figure)
}

fn wire(trial: &Trial, figure: fn(&Wire) -> Option<Quantity>) -> Option<Quantity> {
    trial.wire.as_ref().and_then(figure)
}

fn round_trip(trial: &Trial, figure: fn(&NanosSummary) -> Option<Quantity>) -> Option<Quantity> {
    trial.round_trips.as_ref()?.round_trip.as_ref().and_then(figure)
}

fn late(trial: &Trial, percentile: fn(&Lateness) -> u64) -> Option<Quantity> {
    trial.receipt.lateness.as_ref().and_then(|late| count(percentile(late)))
}

fn frame_bps(trial: &Trial, pps: f64) -> f64 {
    pps * f64::from(trial.frame_size_bytes) * 8.0
}

/// The deviation of the rate handed over from the requested one, as a share of it.
fn off_by(trial: &Trial) -> Option<f64> {
    let asked = trial.receipt.asked_pps.filter(|asked| *asked > 0.0)?;
    Some(trial.receipt.handed_pps / asked - 1.0)
}

#[cfg(test)]
mod tests;
