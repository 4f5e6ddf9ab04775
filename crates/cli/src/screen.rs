//! A view that is redrawn each tick: in place on a terminal, else one block after another.

use std::io::{self, IsTerminal};

use console::Term;

use crate::{
    failure::Failure,
    output::{print_line, printed},
};

/// Standard output as one screen.
pub(crate) struct Screen {
    term: Option<Term>,
}

impl Screen {
    /// Takes over the terminal's screen; a pipe, a file or a dumb terminal gets blocks of lines.
    pub(crate) fn new() -> Result<Self, Failure> {
        let redrawn =
            io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let term = redrawn.then(Term::buffered_stdout);
        if let Some(term) = &term {
            printed(term.hide_cursor().and_then(|()| term.clear_screen()))?;
        }
        Ok(Self { term })
    }

    /// Columns at which lines are cut; `None` outside a terminal.
    pub(crate) fn columns(&self) -> Option<usize> {
        self.term.as_ref().map(|term| usize::from(term.size().1))
    }

    /// Shows as much of `view` as fits, top first.
    pub(crate) fn draw(&mut self, view: &str) -> Result<(), Failure> {
        let Some(term) = &self.term else { return print_line(view) };
        let (rows, columns) = term.size();
        let drawn = term.move_cursor_to(0, 0).and_then(|()| {
            for line in view.lines().take(usize::from(rows).saturating_sub(1)) {
                let line = console::truncate_str(line, columns.into(), "…");
                // Clears what the last view left on the rest of the line.
                term.clear_line()?;
                term.write_line(&line)?;
            }
            term.clear_to_end_of_screen()?;
            term.flush()
        });
        printed(drawn)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(term) = &self.term {
            term.show_cursor().and_then(|()| term.flush()).ok();
        }
    }
}
