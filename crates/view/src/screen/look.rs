//! What keys change of the screen.

/// How the screen is looked at.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) is_paused: bool,
    pub(super) is_masked: bool,
    pub(super) is_stopping: bool,
    /// Rows are sorted by size and not in their own order.
    pub(super) by_size: bool,
    /// The pane that has the screen to itself; 0 shows all.
    pub(super) alone: usize,
    /// Panes of the last frame.
    pub(super) panes: usize,
}

impl Look {
    /// The next pane gets the screen; all of them after the last.
    pub(super) fn next_pane(&mut self) {
        self.alone = (self.alone + 1) % (self.panes + 1);
    }
}
