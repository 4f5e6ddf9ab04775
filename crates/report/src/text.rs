//! A run as text for a terminal: the ladder, where the packets went, the rate receipts, what was left out.

mod trial;

use std::io::{self, Write};

use measure::Run;

use crate::{
    cpus, escape,
    ladder::of_searches,
    occasion::{machine, occasion, place},
    profile, queues,
    style::{Style, Tone, wrap},
    table::Table,
    tables, throughput, verdict,
};

pub use trial::write_trial;

/// Queues that a terminal shows; the HTML page has all.
const QUEUES_SHOWN: usize = 16;
/// Points that a terminal shows; the rest is in the JSON.
const POINTS_SHOWN: usize = 40;

/// Writes the whole run. A run that is no `bench` and has one trial gets that trial's summary, there being
/// nothing to compare; any other gets the ladder.
pub fn write_text(run: &Run, style: Style, out: &mut impl Write) -> io::Result<()> {
    write_heading(run, style, out)?;
    // A search's trials are as many as its loads, and each is a step on the way: the other forms have them.
    let (_, rungs) = of_searches(run);
    for table in summaries(run) {
        write_table(&table, style, out)?;
        writeln!(out)?;
    }
    match run.end.trials.as_slice() {
        _ if rungs.is_empty() => {}
        [only] if run.start.command != "bench" => {
            write_trial(only, style, out)?;
            writeln!(out)?;
        }
        _ => {
            write_table(&tables::ladder(&rungs), style, out)?;
            writeln!(out)?;
        }
    }
    paragraph(&verdict::verdict(run), "", style, out)?;
    for remark in verdict::remarks(run) {
        paragraph(&remark, "! ", style, out)?;
    }
    if !rungs.is_empty() {
        writeln!(out)?;
        write_table(&tables::ledgers(&rungs), style, out)?;
        for remedy in tables::remedies(&rungs) {
            paragraph(&remedy, "try: ", style, out)?;
        }
    }
    let profiles = profile::of_pairs(&rungs);
    let mut more = vec![tables::receipts(&rungs)];
    if !profiles.is_empty() {
        more.extend([profile::stages(&profiles), cpus::softirqs(&rungs)]);
    }
    let mut sides = queues::of_pairs(&rungs);
    sides.retain(|side| side.queues.len() > 1);
    let queues = queues::table(&sides);
    if queues.rows() <= QUEUES_SHOWN {
        more.push(queues);
    }
    more.extend(tables::points_by_step(&run.end.points, POINTS_SHOWN));
    for table in more {
        if table.rows() > 0 {
            writeln!(out)?;
            write_table(&table, style, out)?;
        }
    }
    write_skipped(run, style, out)
}

/// The tables of what a run found out, where it was more than a ladder.
pub(crate) fn summaries(run: &Run) -> Vec<Table> {
    let found = &run.end.throughput;
    let all = [
        throughput::figures(&run.end.figures),
        throughput::goals(found),
        throughput::latency(found),
        throughput::frame_loss(found),
        throughput::back_to_back(found),
    ];
    all.into_iter().filter(|table| table.rows() > 0).collect()
}

fn write_heading(run: &Run, style: Style, out: &mut impl Write) -> io::Result<()> {
    let start = &run.start;
    let title = escape::text(&format!("linerate {}", start.command));
    let (place, occasion) = (place(start.origin), escape::text(&occasion(run)));
    writeln!(out, "{} {place}, {occasion}", style.paint(&title, Tone::Heading))?;
    let machine = machine(&start.machine);
    if !machine.is_empty() {
        paragraph(&machine, "", style, out)?;
    }
    // Settings within settings are for the JSON.
    let plain =
        start.asked.iter().filter(|(_, value)| !value.is_object() && !value.is_array() && !value.is_null());
    let asked = plain.map(|(name, value)| format!("{name}={}", tables::plain(value)));
    let asked = asked.collect::<Vec<_>>().join(" ");
    if !asked.is_empty() {
        paragraph(&asked, "asked: ", style, out)?;
    }
    writeln!(out)
}

/// Title, table, legend.
pub(crate) fn write_table(table: &Table, style: Style, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", style.paint(&table.title, Tone::Heading))?;
    let left_out = table.write_text(style, out)?;
    if !table.legend.is_empty() {
        paragraph(&table.legend, "", style, out)?;
    }
    if !left_out.is_empty() {
        paragraph(&format!("Left out for want of width: {}.", left_out.join(", ")), "", style, out)?;
    }
    Ok(())
}

fn write_skipped(run: &Run, style: Style, out: &mut impl Write) -> io::Result<()> {
    if !run.end.skipped.is_empty() {
        writeln!(out, "\n{}", style.paint("Left out", Tone::Heading))?;
    }
    for skipped in &run.end.skipped {
        paragraph(&skipped.reason, &format!("{}: ", escape::text(&skipped.engine)), style, out)?;
    }
    Ok(())
}

/// Escapes and wraps; further lines are indented to stand under the first.
pub(crate) fn paragraph(raw: &str, before: &str, style: Style, out: &mut impl Write) -> io::Result<()> {
    let indent = before.chars().count();
    for (at, line) in wrap(&escape::text(raw), style.width.saturating_sub(indent)).iter().enumerate() {
        match at {
            0 => writeln!(out, "{before}{line}")?,
            _ => writeln!(out, "{:indent$}{line}", "")?,
        }
    }
    Ok(())
}
