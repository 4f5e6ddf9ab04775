//! A table as plain data, one column at a time, and its form for a terminal.
//!
//! Own code: table libraries measure colour sequences as text unless they depend on a terminal library,
//! and none leaves out columns to fit. Markdown and HTML write the same tables from the same data.

use std::io::{self, Write};

use crate::{
    escape,
    style::{Style, Tone},
};

/// Columns of equal length under a title.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    /// The legend of the columns.
    pub(crate) legend: String,
}

/// A column: its title, the unit beneath, its cells.
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) right: bool,
    /// 0 stays; of the others a narrow terminal hides the highest first.
    gives_way: u8,
    pub(crate) cells: Vec<Cell>,
}

/// One cell: what is shown (raw, escaped on writing) and the number behind it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// The value in the record's unit, if it is a number.
    pub(crate) value: Option<f64>,
    pub(crate) tone: Tone,
}

const GAP: usize = 2;
const UNKNOWN: &str = "-";

impl Cell {
    /// Words.
    pub(crate) fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number in the form of `shown`; a dash when it is unknown.
    pub(crate) fn figure(value: impl Into<Option<f64>>, shown: impl Fn(f64) -> String) -> Self {
        let value = value.into();
        Self { text: value.map_or_else(|| UNKNOWN.into(), shown), value, tone: Tone::Plain }
    }

    /// Packets, or another count.
    pub(crate) fn count(number: u64) -> Self {
        Self { text: crate::number::count(number), value: Some(number as f64), tone: Tone::Plain }
    }

    /// `yes` or `NO`.
    pub(crate) fn yes(is: bool) -> Self {
        let (text, tone) = if is { ("yes", Tone::Good) } else { ("NO", Tone::Bad) };
        Self { text: text.into(), value: None, tone }
    }

    /// The same cell, marked as bad when it is.
    pub(crate) fn bad_if(mut self, bad: bool) -> Self {
        if bad {
            self.tone = Tone::Bad;
        }
        self
    }
}

impl Column {
    /// Words, flush left.
    pub(crate) fn words(title: &str, cells: impl IntoIterator<Item = Cell>) -> Self {
        let cells = cells.into_iter().collect();
        Self { title: title.into(), unit: String::new(), right: false, gives_way: 0, cells }
    }

    /// Figures, flush right, in a unit.
    pub(crate) fn figures(title: &str, unit: &str, cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { unit: unit.into(), right: true, ..Self::words(title, cells) }
    }

    /// Hidden when a terminal is too narrow, the highest `order` first.
    pub(crate) fn gives_way(mut self, order: u8) -> Self {
        self.gives_way = order;
        self
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.text.chars().count());
        cells.chain([self.title.chars().count(), self.unit.chars().count()]).max().unwrap_or(0)
    }
}

impl Table {
    /// The table as CSV: units in the headings, figures as they are shown, without the commas of thousands.
    pub(crate) fn to_csv(&self) -> String {
        let heading = |column: &Column| match (column.title.is_empty(), column.unit.is_empty()) {
            (false, false) => format!("{} ({})", column.title, column.unit),
            (true, _) => column.unit.clone(),
            (false, true) => column.title.clone(),
        };
        let line = |cells: Vec<String>| {
            cells.iter().map(|cell| escape::csv(cell)).collect::<Vec<_>>().join(",") + "\n"
        };
        let exact = |cell: &Cell| match cell.value {
            Some(_) => cell.text.replace(',', ""),
            None => cell.text.clone(),
        };
        let row = |row: usize| line(self.columns.iter().map(|column| exact(&column.cells[row])).collect());
        line(self.columns.iter().map(heading).collect()) + &(0..self.rows()).map(row).collect::<String>()
    }

    pub(crate) fn titled(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a column, unless all its cells are unknown.
    pub(crate) fn push(&mut self, mut column: Column) {
        if let Some(first) = self.columns.first() {
            assert_eq!(first.cells.len(), column.cells.len(), "columns of equal length");
        }
        if !column.cells.iter().all(|cell| cell.text == UNKNOWN) {
            column.title = escape::text(&column.title);
            for cell in &mut column.cells {
                cell.text = escape::text(&cell.text);
            }
            self.columns.push(column);
        }
    }

    /// The same without title, legend and units: its first column names the unit of all others.
    pub(crate) fn tight(mut self) -> Self {
        let unit = self.columns.iter().map(|column| column.unit.as_str()).find(|unit| !unit.is_empty());
        let unit = unit.unwrap_or_default().to_owned();
        if let Some(first) = self.columns.first_mut().filter(|_| !unit.is_empty()) {
            first.title += &format!(", {unit}");
        }
        self.columns.iter_mut().for_each(|column| column.unit.clear());
        (self.title, self.legend) = Default::default();
        self
    }

    pub(crate) fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// Writes titles, units and rows, and returns the titles of the columns left out, with units where others have the
    /// same title.
    pub(crate) fn write_text(&self, style: Style, out: &mut impl Write) -> io::Result<Vec<String>> {
        let (shown, left_out) = self.fitting(style.width);
        write_line(&shown, |column| (&column.title, Tone::Heading), style, out)?;
        if shown.iter().any(|column| !column.unit.is_empty()) {
            write_line(&shown, |column| (&column.unit, Tone::Plain), style, out)?;
        }
        for row in 0..self.rows() {
            write_line(&shown, |column| (&column.cells[row].text, column.cells[row].tone), style, out)?;
        }
        let is_alone = |title: &str| self.columns.iter().filter(|column| column.title == title).count() == 1;
        let name = |column: &Column| match &column.title {
            title if is_alone(title) => title.clone(),
            title => format!("{title} {}", column.unit),
        };
        Ok(left_out.into_iter().map(name).collect())
    }

    fn fitting(&self, width: usize) -> (Vec<&Column>, Vec<&Column>) {
        let mut shown: Vec<&Column> = self.columns.iter().collect();
        let mut left_out = Vec::new();
        while shown.iter().map(|column| column.width() + GAP).sum::<usize>() > width + GAP {
            let yielding = shown.iter().enumerate().filter(|(_, column)| column.gives_way > 0);
            let Some((first, _)) = yielding.max_by_key(|(_, column)| column.gives_way) else {
                break;
            };
            left_out.push(shown.remove(first));
        }
        (shown, left_out)
    }
}

fn write_line<'t>(
    shown: &[&'t Column],
    cell: impl Fn(&'t Column) -> (&'t String, Tone),
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    let (mut line, mut pending) = (String::new(), 0);
    for column in shown {
        let (text, tone) = cell(column);
        let padding = column.width() - text.chars().count();
        let (before, after) = if column.right { (padding, 0) } else { (0, padding) };
        // trailing blanks are deferred, so that lines end where their text ends
        pending += before;
        if !text.is_empty() {
            line.extend(std::iter::repeat_n(' ', pending));
            let blanks = text.len() - text.trim_end().len();
            line.push_str(&style.paint(text.trim_end(), tone));
            pending = blanks;
        }
        pending += after + GAP;
    }
    writeln!(out, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number;

    fn written(style: Style) -> (String, Vec<String>) {
        let mut table = Table::default();
        let mpps = |pps| Cell::figure(pps, |v| format!("{v:.3}"));
        table.push(Column::words("path", ["udp", "packet"].map(Cell::words)));
        table.push(Column::figures("rate", "Mpps", [0.298, 12.0].map(mpps)));
        table.push(
            Column::figures("cost", "ns", [Some(3300.0), None].map(|v| Cell::figure(v, number::plain)))
                .gives_way(2),
        );
        table.push(Column::figures("cycles", "", [None, None].map(|v| Cell::figure(v, number::plain))));
        table.push(Column::words("held", [true, false].map(Cell::yes)));
        let mut out = Vec::new();
        let left_out = table.write_text(style, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), left_out)
    }

    #[test]
    fn figures_are_flush_right_under_title_and_unit() {
        let (text, left_out) = written(Style::default());
        let wanted = "path      rate   cost  held\n          Mpps     ns\nudp      0.298  3,300  yes\npacket  12.000      -  NO\n";
        assert_eq!(text, wanted);
        assert!(left_out.is_empty());
    }

    #[test]
    fn the_least_important_column_gives_way() {
        let (text, left_out) = written(Style { width: 24, ..Style::default() });
        assert_eq!(left_out, ["cost"]);
        assert!(text.starts_with("path      rate  held\n"), "{text}");
    }

    #[test]
    fn hidden_columns_of_one_title_are_listed_with_their_units() {
        let mut table = Table::default();
        table.push(Column::words("path", [Cell::words("udp")]));
        for unit in ["ns", "cyc"] {
            let cell = Cell::figure(1.0, number::plain);
            table.push(Column::figures("send", unit, [cell]).gives_way(1));
        }
        let left_out = table.write_text(Style { width: 4, ..Style::default() }, &mut Vec::new()).unwrap();
        assert_eq!(left_out, ["send cyc", "send ns"]);
    }

    #[test]
    fn colour_does_not_shift_columns() {
        let (text, _) = written(Style { colour: true, ..Style::default() });
        assert!(text.contains("3,300  \x1b[32myes\x1b[0m\n"), "{text}");
    }

    #[test]
    fn a_column_without_known_values_is_left_out() {
        assert!(!written(Style::default()).0.contains("cycles"));
    }

    #[test]
    fn a_hostile_name_reaches_no_terminal() {
        let mut table = Table::default();
        table.push(Column::words("a\x1b", [Cell::words("\x07\n")]));
        assert_eq!(
            (table.columns[0].title.as_str(), table.columns[0].cells[0].text.as_str()),
            ("a\\u{1b}", "\\u{7}\\n")
        );
    }
}
