//! A run as Markdown with GitHub's tables, to be pasted into an issue or a page.

use std::io::{self, Write};

use measure::Run;

use crate::{
    capacity, escape, instructions,
    ladder::rungs,
    occasion,
    table::{Cell, Column, Table},
    tables, text, tuned,
    value::plain,
    verdict,
};

/// Writes verdict, remarks, the tables of the text form, and the conditions.
pub fn write_markdown(run: &Run, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# linerate {}\n", escape::markdown(&run.start.command))?;
    writeln!(out, "{}\n", escape::markdown(&verdict::verdict(run)))?;
    for remark in verdict::remarks(run) {
        writeln!(out, "- **Note:** {}", escape::markdown(&remark))?;
    }
    for table in text::summaries(run) {
        write_table(&table, out)?;
    }
    write_table(&capacity::table(run), out)?;
    write_table(&capacity::scaling(run), out)?;
    for (title, lines) in tuned::lines(run) {
        writeln!(out, "\n## {title}\n")?;
        lines.iter().try_for_each(|line| writeln!(out, "    {}", escape::text(line)))?;
    }
    let rungs = rungs(run);
    if instructions::is_counted(run) {
        instructions::tables(&rungs).iter().try_for_each(|table| write_table(table, out))?;
    } else {
        write_table(&tables::ladder(&rungs), out)?;
    }
    write_table(&tables::ledgers(&rungs), out)?;
    let remedies = tables::remedies(&rungs);
    if !remedies.is_empty() {
        writeln!(out, "\nHow to reduce loss:\n")?;
    }
    for remedy in remedies {
        writeln!(out, "- {}", escape::markdown(&remedy))?;
    }
    write_table(&tables::receipts(&rungs), out)?;
    tables::points_by_step(&run.end.points, usize::MAX)
        .iter()
        .try_for_each(|table| write_table(table, out))?;
    if !run.end.skipped.is_empty() {
        writeln!(out, "\n## Skipped\n")?;
    }
    for skipped in &run.end.skipped {
        writeln!(out, "- {}: {}", escape::markdown(&skipped.engine), escape::markdown(&skipped.reason))?;
    }
    write_conditions(run, out)
}

fn write_conditions(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let start = &run.start;
    writeln!(out, "\n## Conditions\n")?;
    writeln!(out, "- {}, {}", occasion::place(start.origin), escape::markdown(&occasion::occasion(run)))?;
    let machine = occasion::machine(&start.machine);
    if !machine.is_empty() {
        writeln!(out, "- {}", escape::markdown(&machine))?;
    }
    for (name, value) in &start.asked {
        writeln!(out, "- request: {} = {}", escape::markdown(name), escape::markdown(&plain(value)))?;
    }
    Ok(())
}

/// Writes title, table and legend; nothing for a table without rows.
pub(crate) fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    if table.rows() == 0 {
        return Ok(());
    }
    writeln!(out, "\n## {}\n", escape::markdown(&table.title))?;
    let line = |cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = table.columns.iter().map(cell).collect();
        format!("| {} |", cells.join(" | "))
    };
    writeln!(out, "{}", line(&heading))?;
    writeln!(out, "{}", line(&|column| if column.right { "--:" } else { "---" }.to_string()))?;
    for row in 0..table.rows() {
        writeln!(out, "{}", line(&|column| body(&column.cells[row])))?;
    }
    if !table.legend.is_empty() {
        writeln!(out, "\n{}", escape::markdown(&table.legend))?;
    }
    Ok(())
}

fn heading(column: &Column) -> String {
    let (title, unit) = (escape::markdown(&column.title), escape::markdown(&column.unit));
    if unit.is_empty() { title } else { format!("{title} ({unit})") }
}

fn body(cell: &Cell) -> String {
    escape::markdown(&cell.text)
}
