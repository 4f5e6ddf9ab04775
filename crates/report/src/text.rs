//! A run as text: capacities, the ladder as a matrix or in rows, where packets were lost, the rate receipts, skipped pairs,
//! and the verdict.

mod layout;
mod trial;

use std::io::{self, Write};

use measure::Run;

use crate::{
    capacity, cpus, escape, fleet, instructions,
    ladder::{Rung, of_searches},
    matrix, number,
    occasion::{self, machine, occasion, place},
    profile, queues,
    style::{Style, Tone},
    table::Table,
    tables, throughput, tuned, value, verdict,
};

pub(crate) use layout::{paragraph, write_table};
pub use trial::write_trial;

/// The most queues in a terminal; the HTML page has all.
const QUEUES_SHOWN: usize = 16;
/// The most points in a terminal; the rest is in the JSON.
const POINTS_SHOWN: usize = 40;

/// Writes the whole run. A run other than `bench` with one trial gets that trial's summary, because a comparison needs
/// more; a ladder of several senders and receivers is a matrix. Pairs without loss are only counted, unless the style
/// is verbose. The verdict comes first, or last if the style requests it.
pub fn write_text(run: &Run, style: Style, out: &mut impl Write) -> io::Result<()> {
    let text = match style.lines {
        None => compose(run, style, Room::default())?,
        // The fullest form that fits.
        Some(lines) => {
            let mut text = String::new();
            for room in Room::STEPS {
                text = compose(run, style, room)?;
                if text.lines().count() < lines {
                    break;
                }
            }
            text
        }
    };
    out.write_all(text.as_bytes())
}

/// The parts that a text omits to be shorter.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    /// No empty lines between sections.
    is_close: bool,
    /// The most pairs with their losses.
    most_losses: Option<usize>,
    /// One line each for the heading and for all losses, no titles, units, legends and remedies; of scaling only the end, which
    /// the capacities have.
    is_tight: bool,
}

impl Room {
    /// From everything to the minimum.
    const STEPS: [Self; 4] = [
        Self { is_close: false, most_losses: None, is_tight: false },
        Self { is_close: true, most_losses: None, is_tight: false },
        Self { is_close: true, most_losses: Some(8), is_tight: false },
        Self { is_close: true, most_losses: Some(0), is_tight: true },
    ];
}

fn compose(run: &Run, style: Style, room: Room) -> io::Result<String> {
    let sections = sections(run, style, room)?;
    let gap = if room.is_close { "" } else { "\n" };
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    Ok(sections.join(gap))
}

/// The parts of the text, each of whole lines.
fn sections(run: &Run, style: Style, room: Room) -> io::Result<Vec<String>> {
    // A search has one trial per load, each an intermediate step, shown in the other forms.
    let (_, rungs) = of_searches(run);
    let matrix = matrix::matrix(&rungs).filter(|_| !style.verbose && !instructions::is_counted(run));
    let is_tight = room.is_tight && matrix.is_some();
    let table = |table: Table| {
        let table = if is_tight { table.tight() } else { table };
        section(|out| if table.rows() > 0 { write_table(&table, style, out) } else { Ok(()) })
    };
    let mut sections = vec![section(|out| match is_tight {
        true => write_short_heading(run, style, out),
        false => write_heading(run, style, out),
    })?];
    // A matrix marks trials that disagree.
    let remarks = if matrix.is_some() { verdict::remarks_beside_marks(run) } else { verdict::remarks(run) };
    let verdict = section(|out| paragraph(&verdict::verdict(run), "", style, out))?;
    let remarks = section(|out| remarks.iter().try_for_each(|remark| paragraph(remark, "! ", style, out)))?;
    if !style.verdict_last {
        sections.push(format!("{verdict}{remarks}"));
    }
    for summary in summaries(run) {
        sections.push(table(summary)?);
    }
    sections.push(table(capacity::table(run))?);
    let is_matrix = matrix.is_some();
    sections.push(match (run.end.trials.as_slice(), matrix) {
        _ if rungs.is_empty() => String::new(),
        _ if instructions::is_counted(run) => {
            let tables =
                instructions::tables(&rungs).into_iter().map(table).collect::<io::Result<Vec<_>>>()?;
            tables.join(if room.is_close { "" } else { "\n" })
        }
        ([only], _) if run.start.command != "bench" => section(|out| write_trial(only, style, out))?,
        (_, Some(matrix)) => table(matrix)?,
        _ => table(tables::ladder(&rungs))?,
    });
    if !is_tight {
        sections.push(table(capacity::scaling(run))?);
    }
    for (title, lines) in tuned::lines(run) {
        sections.push(section(|out| {
            writeln!(out, "{}", style.paint(title, Tone::Heading))?;
            lines.iter().try_for_each(|line| writeln!(out, "  {}", escape::text(line)))
        })?);
    }
    sections.push(match (is_matrix, is_tight) {
        (true, true) => section(|out| paragraph(&matrix::losses_in_short(&rungs), "", style, out))?,
        (true, false) => table(matrix::losses(&rungs, room.most_losses.unwrap_or(usize::MAX)))?,
        (false, _) => section(|out| write_ledgers(&rungs, style, out))?,
    });
    if !is_tight {
        sections.push(section(|out| {
            let mut remedies = tables::remedies(&rungs).into_iter();
            remedies.try_for_each(|remedy| paragraph(&remedy, "try: ", style, out))
        })?);
    }
    let profiles = profile::of_pairs(&rungs);
    let mut more = vec![tables::receipts(&rungs)];
    if !profiles.is_empty() {
        more.extend([profile::stages(&profiles), cpus::softirqs(&rungs)]);
    }
    let mut sides = queues::of_pairs(&rungs);
    sides.retain(|side| side.queues.len() > 1);
    let queues = queues::table(&sides);
    if queues.rows() <= QUEUES_SHOWN && !is_matrix {
        more.push(queues);
    }
    // The table of scaling is written from the same points.
    if run.end.capacities.is_empty() || style.verbose {
        more.extend(tables::points_by_step(&run.end.points, POINTS_SHOWN));
    }
    for one in more {
        sections.push(table(one)?);
    }
    sections.push(section(|out| write_skipped(run, style, out))?);
    if style.verdict_last {
        sections.push(format!("{remarks}{verdict}"));
    }
    Ok(sections)
}

fn section(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<String> {
    let mut text = Vec::new();
    write(&mut text)?;
    String::from_utf8(text).map_err(io::Error::other)
}

/// The ledgers of pairs that lost packets, and how many lost nothing; of all pairs if the style is verbose, and of a
/// single pair always.
fn write_ledgers(rungs: &[Rung], style: Style, out: &mut Vec<u8>) -> io::Result<()> {
    let is_lossy = |rung: &Rung| {
        let ledger = rung.ledger();
        ledger.lost() > 0 || ledger.unexplained != 0
    };
    let lossy: Vec<&Rung> =
        rungs.iter().filter(|rung| style.verbose || rungs.len() == 1 || is_lossy(rung)).collect();
    if rungs.is_empty() {
        return Ok(());
    }
    if !lossy.is_empty() {
        write_table(&tables::ledgers(lossy.iter().copied()), style, out)?;
    }
    match rungs.len() - lossy.len() {
        0 => Ok(()),
        1 => paragraph("1 pair lost nothing; --verbose shows its ledger.", "", style, out),
        n => paragraph(&format!("{n} pairs lost nothing; --verbose shows their ledgers."), "", style, out),
    }
}

/// The tables of results beyond the ladder.
pub(crate) fn summaries(run: &Run) -> Vec<Table> {
    let of_others = [tuned::waterfall(run), tuned::rejected(run), fleet::hosts(run)];
    of_others.into_iter().filter(|table| table.rows() > 0).chain(found(run)).collect()
}

/// Published figures beside this run's, and the results of throughput searches.
pub(crate) fn found(run: &Run) -> Vec<Table> {
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

/// One line, for a terminal with few.
fn write_short_heading(run: &Run, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
    let title = escape::text(&format!("linerate {}", run.start.command));
    let cpus = occasion::placement(run).map_or_else(String::new, |cpus| format!(", {cpus}"));
    let (place, seconds) = (place(run.start.origin), number::seconds(run.end.duration_s));
    writeln!(out, "{} {place}, {seconds}{cpus}", style.paint(&title, Tone::Heading))
}

fn write_heading(run: &Run, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
    let start = &run.start;
    let title = escape::text(&format!("linerate {}", start.command));
    let (place, occasion) = (place(start.origin), escape::text(&occasion(run)));
    writeln!(out, "{} {place}, {occasion}", style.paint(&title, Tone::Heading))?;
    let is_short = start.command == "bench" && !style.verbose;
    let placement = occasion::placement(run).map(|cpus| if is_short { format!(", {cpus}") } else { cpus });
    let machine = if is_short { occasion::machine_in_short(&start.machine) } else { machine(&start.machine) };
    if is_short {
        return paragraph(&format!("{machine}{}", placement.unwrap_or_default()), "", style, out);
    }
    if !machine.is_empty() {
        paragraph(&machine, "", style, out)?;
    }
    if let Some(cpus) = placement {
        paragraph(&cpus, "", style, out)?;
    }
    // Nested settings are only in the JSON.
    let plain =
        start.asked.iter().filter(|(_, value)| !value.is_object() && !value.is_array() && !value.is_null());
    let asked = plain.map(|(name, value)| format!("{name}={}", value::plain(value)));
    let asked = asked.collect::<Vec<_>>().join(" ");
    if !asked.is_empty() {
        paragraph(&asked, "request: ", style, out)?;
    }
    Ok(())
}

fn write_skipped(run: &Run, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
    if run.end.skipped.is_empty() {
        return Ok(());
    }
    if style.lines.is_none() {
        writeln!(out, "{}", style.paint("Skipped", Tone::Heading))?;
    }
    for skipped in &run.end.skipped {
        let before = if style.lines.is_some() { "skipped: " } else { "" };
        paragraph(&skipped.reason, &format!("{before}{}: ", escape::text(&skipped.engine)), style, out)?;
    }
    Ok(())
}
