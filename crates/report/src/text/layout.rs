//! Tables and paragraphs on a terminal.

use std::io::{self, Write};

use crate::{
    escape,
    style::{Style, Tone, wrap},
    table::Table,
};

/// Title, table, legend.
pub(crate) fn write_table(table: &Table, style: Style, out: &mut impl Write) -> io::Result<()> {
    if !table.title.is_empty() {
        writeln!(out, "{}", style.paint(&table.title, Tone::Heading))?;
    }
    let left_out = table.write_text(style, out)?;
    if !table.legend.is_empty() {
        paragraph(&table.legend, "", style, out)?;
    }
    if !left_out.is_empty() {
        paragraph(
            &format!("Columns hidden (terminal too narrow): {}.", left_out.join(", ")),
            "",
            style,
            out,
        )?;
    }
    Ok(())
}

/// Escapes and wraps; further lines are indented to align with the first.
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
