//! The panes of a screen, each as lines that fit a number of rows.

use ratatui_core::{
    style::{Color, Style},
    text::{Line, Span},
};
use report::words;

use super::words::{BOLD, DIM, cut};
use crate::snapshot::{Cell, CellState, Grid, Phase, Queue, Snapshot, Table, Traffic, Waterfall};

/// A part of the screen: a title, rows that are always seen before and behind those that may be left out.
#[derive(Debug, Default)]
pub(super) struct Pane {
    title: Line<'static>,
    before: Vec<Line<'static>>,
    rows: Vec<Line<'static>>,
    after: Vec<Line<'static>>,
    /// Of rows that do not fit, the last ones are seen.
    from_the_end: bool,
}

impl Pane {
    fn fixed(&self) -> usize {
        1 + self.before.len() + self.after.len()
    }

    /// Rows below which it says nothing.
    pub(super) fn least(&self) -> usize {
        self.fixed() + self.rows.len().min(1)
    }

    /// Rows with which it is whole.
    pub(super) fn most(&self) -> usize {
        self.fixed() + self.rows.len()
    }

    /// The pane in so many rows; nothing in too few.
    pub(super) fn lines(&self, height: usize) -> Vec<Line<'static>> {
        if height < self.least() {
            return Vec::new();
        }
        let room = height - self.fixed();
        let left_out = self.rows.len().saturating_sub(room);
        let mut lines = vec![self.title.clone()];
        lines.extend(self.before.iter().cloned());
        if left_out == 0 {
            lines.extend(self.rows.iter().cloned());
        } else if self.from_the_end {
            lines.extend(self.rows[left_out..].iter().cloned());
        } else {
            lines.extend(self.rows[..room - 1].iter().cloned());
            lines.push(Line::styled(format!("  … {} more (tab shows one pane alone)", left_out + 1), DIM));
        }
        lines.extend(self.after.iter().cloned());
        lines
    }
}

/// All panes that the snapshot fills.
pub(super) fn panes(snapshot: &Snapshot, by_size: bool, width: usize) -> Vec<Pane> {
    let mut panes = Vec::new();
    panes.extend(
        snapshot.traffic.as_ref().filter(|traffic| !traffic.rates.is_empty()).map(|t| rates(t, width)),
    );
    panes.extend(snapshot.waterfall.as_ref().map(|fall| waterfall(fall, snapshot, by_size, width)));
    panes.extend(
        snapshot.grid.as_ref().filter(|grid| !grid.cells.is_empty()).map(|g| grid(g, by_size, width)),
    );
    panes.extend((!snapshot.queues.is_empty()).then(|| queues(snapshot, by_size, width)));
    panes.extend((snapshot.queues.is_empty() && !snapshot.cpus.is_empty()).then(|| cpus(snapshot, width)));
    panes.extend(snapshot.tables.iter().map(|t| table(t, by_size, width)));
    if !snapshot.messages.is_empty() {
        let rows = snapshot.messages.iter().map(|line| Line::raw(cut(line, width))).collect();
        panes.push(Pane {
            title: heading("messages", "", width),
            rows,
            from_the_end: true,
            ..Pane::default()
        });
    }
    panes
}

fn heading(title: &str, note: &str, width: usize) -> Line<'static> {
    let text = if note.is_empty() { format!("── {title} ") } else { format!("── {title}, {note} ") };
    let text = cut(&text, width);
    let rest = width.saturating_sub(text.chars().count());
    Line::from(vec![Span::styled(text, Style::new().fg(Color::Cyan)), Span::styled("─".repeat(rest), DIM)])
}

fn rates(traffic: &Traffic, width: usize) -> Pane {
    let most = traffic.rates.iter().filter_map(|rate| rate.pps).fold(0.0, f64::max);
    let bar_width = width.saturating_sub(46);
    let row = |rate: &crate::snapshot::Rate| {
        let value = rate.pps.map_or_else(|| "-".into(), words::rate);
        Line::from(vec![
            Span::raw(format!("{:<12}", rate.name)),
            Span::styled(format!("{value:>12}  "), BOLD),
            Span::styled(
                bar(rate.pps.unwrap_or(0.0) / most.max(1e-9), bar_width),
                Style::new().fg(Color::Blue),
            ),
            Span::styled(cut(&format!(" {}", rate.note), 20), DIM),
        ])
    };
    let mut before: Vec<Line<'static>> = traffic.rates.iter().map(row).collect();
    if !traffic.receipt.is_empty() {
        before.push(Line::styled(cut(&traffic.receipt, width), DIM));
    }
    Pane { title: heading("rates", "packets per second", width), before, ..Pane::default() }
}

/// What came in, what each place took of it, and what is left: every bar begins where the one above ends.
fn waterfall(fall: &Waterfall, snapshot: &Snapshot, by_size: bool, width: usize) -> Pane {
    // A narrow terminal keeps names and numbers.
    let is_narrow = width < 60;
    let names = (width / 3).clamp(16, 26);
    let numbers = if is_narrow { 13 } else { 16 };
    let share_width = if is_narrow { 1 } else { 10 };
    let whole = fall.from.1.max(1) as f64;
    let bar_width = width.saturating_sub(names + numbers + share_width);
    let row = |name: &str, packets: String, from: f64, to: f64, style: Style| {
        let share = match is_narrow {
            true => String::from(" "),
            false => format!(" {:>6} % ", words::percent((to - from).abs() / whole)),
        };
        Line::from(vec![
            Span::raw(format!("{:<names$}", cut(name, names - 1))),
            Span::styled(format!("{packets:>numbers$}"), BOLD),
            Span::styled(share, DIM),
            Span::styled(piece(from / whole, to / whole, bar_width), style),
        ])
    };
    let mut places: Vec<_> = fall.places.iter().collect();
    if by_size {
        places.sort_by_key(|place| std::cmp::Reverse(place.packets));
    }
    let mut left = whole;
    let mut rows = Vec::new();
    for place in places {
        let next = if place.is_loss { (left - place.packets as f64).max(0.0) } else { left };
        let note = match place.pps {
            Some(pps) if pps > 0.0 => {
                format!("{}  {}/s", words::count(place.packets), words::count(pps as u64))
            }
            _ => words::count(place.packets),
        };
        let sign = if place.is_loss { "−" } else { "" };
        rows.push(row(
            &format!("  {}", place.name),
            format!("{sign}{note}"),
            next,
            left,
            Style::new().fg(Color::Red),
        ));
        left = next;
    }
    let residual = fall.residual;
    let (name, color) = match (residual, fall.provisional) {
        (0, _) => ("unexplained", Color::Green),
        (_, true) => ("unexplained (yet)", Color::Yellow),
        (_, false) => ("unexplained", Color::Red),
    };
    let next = (left - residual.max(0) as f64).max(0.0);
    let sign = if residual > 0 {
        "−"
    } else if residual < 0 {
        "+"
    } else {
        ""
    };
    let packets = format!("{sign}{}", words::count(residual.unsigned_abs()));
    let mut after = vec![row(&format!("  {name}"), packets, next, left, Style::new().fg(color))];
    match &fall.to {
        Some((name, packets)) => {
            after.push(row(name, words::count(*packets), 0.0, *packets as f64, Style::new().fg(Color::Blue)))
        }
        None => after.push(Line::styled(cut(&fall.to_unknown, width), DIM)),
    }
    let age = match snapshot.phase {
        Phase::Ended => "final".into(),
        _ if fall.provisional => format!("provisional until drained, counters {:.1} s old", snapshot.age_s),
        _ => format!("counters {:.1} s old", snapshot.age_s),
    };
    let before = vec![row(
        &fall.from.0,
        words::count(fall.from.1),
        0.0,
        fall.from.1 as f64,
        Style::new().fg(Color::Blue),
    )];
    Pane {
        title: heading(&format!("ledger of {}", fall.of), &age, width),
        before,
        rows,
        after,
        ..Pane::default()
    }
}

fn grid(grid: &Grid, by_size: bool, width: usize) -> Pane {
    let first = grid.rows.iter().map(|row| row.chars().count()).max().unwrap_or(0).clamp(6, 24);
    // Narrower where that shows every column.
    let room = width.saturating_sub(first);
    let cell_width = (room / grid.columns.len().max(1)).clamp(11, 13);
    let columns = (room / cell_width).max(1).min(grid.columns.len());
    let hidden = grid.columns.len() - columns;
    let best = grid.cells.iter().filter_map(|cell| cell.pps).fold(0.0, f64::max);
    let mut rows: Vec<usize> = (0..grid.rows.len()).collect();
    let of_row = |row: usize| grid.cells.iter().filter(move |cell| cell.row == row);
    if by_size {
        let most = |row: usize| of_row(row).filter_map(|cell| cell.pps).fold(0.0, f64::max);
        rows.sort_by(|a, b| most(*b).total_cmp(&most(*a)));
    }
    // The running column is seen.
    let running = grid.cells.iter().find(|cell| cell.state == CellState::Running);
    let from = running.map_or(0, |cell| cell.column.saturating_sub(columns - 1));
    let shown = from..from + columns;
    let header =
        shown.clone().map(|column| format!("{:>cell_width$}", cut(&grid.columns[column], cell_width - 1)));
    let header = format!("{:<first$}{}", "", header.collect::<String>());
    let row = |row: &usize| {
        let mut spans = vec![Span::raw(format!("{:<first$}", cut(&grid.rows[*row], first)))];
        for column in shown.clone() {
            let cell = of_row(*row).find(|cell| cell.column == column);
            let (text, style) = cell.map_or(("·".into(), DIM), |cell| words_of(cell, best));
            spans.push(Span::styled(format!("{:>cell_width$}", cut(&text, cell_width)), style));
        }
        Line::from(spans)
    };
    let note = match hidden {
        0 => "delivered Mpps ±spread, ! loss".to_owned(),
        1 => "delivered Mpps ±spread, ! loss; 1 column does not fit".to_owned(),
        hidden => format!("delivered Mpps ±spread, ! loss; {hidden} columns do not fit"),
    };
    Pane {
        title: heading(&format!("{} × {}", grid.axes.0, grid.axes.1), &note, width),
        before: vec![Line::styled(header, DIM)],
        rows: rows.iter().map(row).collect(),
        ..Pane::default()
    }
}

fn words_of(cell: &Cell, best: f64) -> (String, Style) {
    let mut text = match cell.pps {
        Some(pps) if pps >= 10e6 => format!("{:.2}", pps / 1e6),
        Some(pps) => format!("{:.3}", pps / 1e6),
        None => String::new(),
    };
    if let Some(spread) = cell.spread_ratio {
        text += &format!("±{:.0}%", spread * 50.0);
    }
    if cell.loss_ratio > 0.0 {
        text.push('!');
    }
    let style = match cell.state {
        CellState::Running => {
            text = format!("▶{text}");
            Style::new().fg(Color::Yellow)
        }
        CellState::Failed => Style::new().fg(Color::Red),
        CellState::Waiting => DIM,
        CellState::Measured if cell.pps == Some(best) => Style::new().fg(Color::Green),
        CellState::Measured => Style::new(),
    };
    (text, style)
}

/// Queue, interrupt, CPU: how much each has to do.
fn queues(snapshot: &Snapshot, by_size: bool, width: usize) -> Pane {
    let mut queues: Vec<&Queue> = snapshot.queues.iter().collect();
    if by_size {
        queues.sort_by(|a, b| b.pps.total_cmp(&a.pps));
    }
    let most = queues.iter().map(|queue| queue.pps).fold(0.0, f64::max);
    let row = |queue: &&Queue| {
        let busy = queue.cpu.and_then(|cpu| snapshot.cpus.iter().find(|known| known.cpu == cpu));
        let cpu = queue.cpu.map_or_else(|| "CPU ?".into(), |cpu| format!("CPU {cpu}"));
        let interrupts = queue.interrupts_per_s.map_or_else(|| "-".into(), |rate| words::count(rate as u64));
        let mut spans = vec![
            Span::raw(format!("{:<7}", queue.name)),
            Span::styled(format!("{:>11} ", words::rate(queue.pps)), BOLD),
            Span::styled(bar(queue.pps / most.max(1e-9), 10), Style::new().fg(Color::Blue)),
            Span::raw(format!(" → {interrupts:>8} irq/s → {cpu:<7}")),
        ];
        if let Some(cpu) = busy {
            spans.push(Span::styled(bar(cpu.busy, 10), heat(cpu.busy)));
            spans.push(Span::raw(format!("{:>4.0} %", cpu.busy * 100.0)));
        }
        if queue.drop_pps > 0.0 {
            spans.push(Span::styled(
                format!(" −{}", words::rate(queue.drop_pps)),
                Style::new().fg(Color::Red),
            ));
        }
        Line::from(spans)
    };
    let rows = queues.iter().map(row).collect();
    Pane { title: heading("queue → interrupt → CPU", "", width), rows, ..Pane::default() }
}

fn cpus(snapshot: &Snapshot, width: usize) -> Pane {
    let rows = snapshot.cpus.iter().map(|cpu| {
        Line::from(vec![
            Span::raw(format!("CPU {:<4}", cpu.cpu)),
            Span::styled(bar(cpu.busy, 20), heat(cpu.busy)),
            Span::raw(format!("{:>4.0} % busy, {:>3.0} % softirq", cpu.busy * 100.0, cpu.softirq * 100.0)),
            Span::styled(cpu.pps.map_or_else(String::new, |pps| format!("  {}", words::rate(pps))), DIM),
        ])
    });
    Pane { title: heading("CPUs", "", width), rows: rows.collect(), ..Pane::default() }
}

fn heat(busy: f64) -> Style {
    Style::new().fg(match busy {
        b if b > 0.9 => Color::Red,
        b if b > 0.6 => Color::Yellow,
        _ => Color::Green,
    })
}

fn table(table: &Table, by_size: bool, width: usize) -> Pane {
    let columns = table.columns.len();
    let widest = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column)).chain(table.columns.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let is_number = |column: usize| {
        table.rows.iter().all(|row| row.get(column).is_none_or(|cell| starts_as_number(cell)))
    };
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).enumerate();
        let padded = cells.map(|(at, (cell, width))| match is_number(at) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cut(&padded.collect::<Vec<_>>().join("  "), width)
    };
    let mut rows: Vec<&Vec<String>> = table.rows.iter().collect();
    if by_size {
        rows.sort();
    }
    Pane {
        title: heading(&table.title, "", width),
        before: vec![Line::styled(line(&table.columns), DIM)],
        rows: rows.into_iter().map(|row| Line::raw(line(row))).collect(),
        ..Pane::default()
    }
}

fn starts_as_number(cell: &str) -> bool {
    cell.is_empty() || cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit() || "+−-".contains(c))
}

/// A bar from the left.
fn bar(ratio: f64, width: usize) -> String {
    piece(0.0, ratio, width)
}

/// A piece of a bar, in eighths of a cell at its end; what is more than nothing is seen.
fn piece(from: f64, to: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    if to.partial_cmp(&from) != Some(std::cmp::Ordering::Greater) {
        return " ".repeat(width);
    }
    let (from, to) = (from.clamp(0.0, 1.0), to.clamp(0.0, 1.0));
    let cells = width as f64;
    let start = ((from * cells).floor() as usize).min(width.saturating_sub(1));
    let eighths = (((to * cells - start as f64) * 8.0).round() as usize).max(1);
    let (whole, part) = ((eighths / 8).min(width - start.min(width)), eighths % 8);
    let mut text = " ".repeat(start) + &"█".repeat(whole);
    if part > 0 && start + whole < width {
        text.push(EIGHTHS[part]);
    }
    let length = text.chars().count();
    text + &" ".repeat(width.saturating_sub(length))
}
