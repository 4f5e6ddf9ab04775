//! Frames as bytes: only cells that changed since the last frame are written.

use std::io::Write;

use ratatui_core::{
    buffer::{Buffer, Cell},
    layout::Rect,
    style::{Color, Modifier},
};

use super::{draw::draw, look::Look};
use crate::snapshot::Snapshot;

/// What is on the terminal.
#[derive(Default)]
pub(super) struct Painter {
    on_it: Buffer,
    no_color: bool,
}

impl Painter {
    /// Of an empty screen.
    pub(super) fn new(no_color: bool) -> Self {
        Self { on_it: Buffer::empty(Rect::ZERO), no_color }
    }

    /// The bytes that turn the last frame into this one. Everything is cleared only after the terminal changed its size.
    pub(super) fn frame(
        &mut self,
        snapshot: &Snapshot,
        look: &mut Look,
        (width, height): (u16, u16),
    ) -> Vec<u8> {
        let area = Rect::new(0, 0, width, height);
        let mut bytes = Vec::new();
        if self.on_it.area != area {
            bytes.extend(b"\x1b[0m\x1b[2J");
            self.on_it = Buffer::empty(area);
        }
        let mut next = Buffer::empty(area);
        draw(snapshot, look, &mut next);
        let mut written: Option<(u16, u16)> = None;
        let mut style = None;
        for (x, y, cell) in self.on_it.diff(&next) {
            if written != Some((x, y)) {
                write!(bytes, "\x1b[{};{}H", y + 1, x + 1).expect("memory takes everything");
            }
            let wanted = self.style(cell);
            if style.as_ref() != Some(&wanted) {
                bytes.extend(wanted.as_bytes());
                style = Some(wanted);
            }
            bytes.extend(cell.symbol().as_bytes());
            written = Some((x + 1, y));
        }
        if style.is_some() {
            bytes.extend(b"\x1b[0m");
        }
        self.on_it = next;
        bytes
    }

    fn style(&self, cell: &Cell) -> String {
        let mut codes = String::from("0");
        for (modifier, code) in [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)] {
            if cell.modifier.contains(modifier) {
                codes += &format!(";{code}");
            }
        }
        if !self.no_color {
            let code = match cell.fg {
                Color::Red => Some(31),
                Color::Green => Some(32),
                Color::Yellow => Some(33),
                Color::Blue => Some(34),
                Color::Cyan => Some(36),
                _ => None,
            };
            codes.extend(code.map(|code| format!(";{code}")));
        }
        format!("\x1b[{codes}m")
    }
}
