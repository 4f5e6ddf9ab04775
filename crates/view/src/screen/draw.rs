//! One frame: a head, as many panes as fit, and a foot with the keys and what the view costs.

use ratatui_core::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
    text::{Line, Span},
};
use report::words;

use super::{
    look::Look,
    mask::masked,
    panes::{Pane, panes},
    words::{BOLD, DIM, cut},
};
use crate::snapshot::{Phase, Snapshot};

/// Rows of the head and the foot.
const HEAD: u16 = 2;
const FOOT: u16 = 1;

/// Draws a frame.
pub(super) fn draw(snapshot: &Snapshot, look: &mut Look, to: &mut Buffer) {
    let masked = look.is_masked.then(|| masked(snapshot.clone()));
    let snapshot = masked.as_ref().unwrap_or(snapshot);
    let (width, height) = (to.area.width, to.area.height);
    if width == 0 || height == 0 {
        return;
    }
    let all = panes(snapshot, look.by_size, width.into());
    look.panes = all.len();
    look.alone = look.alone.min(all.len());
    to.set_line(0, 0, &head(snapshot, look, width.into()), width);
    if height > 1 {
        to.set_line(0, 1, &second(snapshot, width.into()), width);
    }
    if height <= HEAD + FOOT {
        return;
    }
    let rows = usize::from(height - HEAD - FOOT);
    let shown: Vec<&Pane> = match look.alone {
        0 => all.iter().collect(),
        one => vec![&all[one - 1]],
    };
    let mut y = HEAD;
    for (pane, rows) in shown.iter().zip(shares(&shown, rows)) {
        for line in pane.lines(rows) {
            to.set_line(0, y, &line, width);
            y += 1;
        }
    }
    to.set_line(0, height - FOOT, &foot(snapshot, look, width.into()), width);
}

/// Rows for each pane: the least that says something in their order, and then what they want.
fn shares(panes: &[&Pane], rows: usize) -> Vec<usize> {
    let mut left = rows;
    let mut shares: Vec<usize> = Vec::new();
    for pane in panes {
        let least = pane.least().min(pane.most());
        let share = if least <= left { least } else { 0 };
        left -= share;
        shares.push(share);
    }
    for (pane, share) in panes.iter().zip(&mut shares).filter(|(_, share)| **share > 0) {
        let more = (pane.most() - *share).min(left);
        left -= more;
        *share += more;
    }
    shares
}

fn head(snapshot: &Snapshot, look: &Look, width: usize) -> Line<'static> {
    let phase = match snapshot.phase {
        _ if look.is_paused => ("PAUSED, the run goes on".into(), Color::Yellow),
        _ if look.is_stopping && snapshot.phase != Phase::Ended => ("stopping".into(), Color::Yellow),
        phase => (phase.word().to_owned(), Color::Green),
    };
    let mut right = clock(snapshot.elapsed_s);
    if let Some(left) = snapshot.left_s.and_then(words::left) {
        right = format!("{left}  {right}");
    }
    let name = format!("linerate {}", snapshot.command);
    let interfaces = match snapshot.interfaces.is_empty() {
        true => String::new(),
        false => format!("  {}", snapshot.interfaces.join(", ")),
    };
    let title = if snapshot.title.is_empty() { interfaces } else { format!("  {}", snapshot.title) };
    let used = name.chars().count() + phase.0.chars().count() + right.chars().count() + 4;
    let title = cut(&title, width.saturating_sub(used));
    let gap = width.saturating_sub(used + title.chars().count());
    Line::from(vec![
        Span::styled(name, BOLD),
        Span::raw(title),
        Span::raw("  "),
        Span::styled(phase.0, Style::new().fg(phase.1)),
        Span::raw(" ".repeat(gap + 2)),
        Span::raw(right),
    ])
}

/// The progress and the answer so far.
fn second(snapshot: &Snapshot, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut left = width;
    if let Some(ratio) = snapshot.done_ratio {
        const BAR: usize = 20;
        let full = ((ratio * BAR as f64) as usize).min(BAR);
        spans.push(Span::styled("█".repeat(full), Style::new().fg(Color::Green)));
        spans.push(Span::styled("░".repeat(BAR - full), DIM));
        spans.push(Span::raw(format!(" {:>3.0} %  ", ratio * 100.0)));
        left = left.saturating_sub(BAR + 8);
    }
    spans.push(Span::styled(cut(&snapshot.verdict, left), BOLD));
    Line::from(spans)
}

fn foot(snapshot: &Snapshot, look: &Look, width: usize) -> Line<'static> {
    let on = |is_on: bool| if is_on { BOLD.add_modifier(Modifier::REVERSED) } else { DIM };
    let own = &snapshot.own;
    let cost = format!("view {:.1} % CPU, {} missed", own.cpu_ratio * 100.0, own.missed);
    let keys = [
        ("p pause", look.is_paused),
        ("s sort", look.by_size),
        ("tab pane", look.alone > 0),
        ("m mask", look.is_masked),
        ("q stop and report", look.is_stopping),
    ];
    let mut spans = Vec::new();
    let mut used = 0;
    for (words, is_on) in keys {
        used += words.len() + 2;
        spans.push(Span::styled(words, on(is_on)));
        spans.push(Span::raw("  "));
    }
    if used + cost.len() <= width {
        spans.push(Span::raw(" ".repeat(width - used - cost.len())));
        spans.push(Span::styled(cost, DIM));
    }
    Line::from(spans)
}

fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds / 3600 {
        0 => format!("{:02}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}
