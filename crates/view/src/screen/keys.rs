//! Keys and what they change of the screen.

use super::look::Look;

/// What was pressed so far.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) look: Look,
    is_quitting: bool,
    /// Within an escape sequence, which means nothing here.
    in_escape: bool,
}

impl Keys {
    /// A byte of a key; whether the screen changes.
    pub(super) fn press(&mut self, key: u8) -> bool {
        if self.in_escape {
            // `ESC [ 1 ; 5 A` ends with its first letter or `~`.
            self.in_escape = matches!(key, b'[' | b'O' | b'0'..=b'9' | b';');
            return false;
        }
        match key {
            b'\x1b' => self.in_escape = true,
            b'p' | b' ' => self.look.is_paused = !self.look.is_paused,
            b's' => self.look.by_size = !self.look.by_size,
            b'm' => self.look.is_masked = !self.look.is_masked,
            b'\t' => self.look.next_pane(),
            b'q' => {
                self.is_quitting = true;
                self.look.is_stopping = true;
            }
            _ => return false,
        }
        key != b'\x1b'
    }

    /// Whether the run is asked to stop, once.
    pub(super) fn quits(&mut self) -> bool {
        std::mem::take(&mut self.is_quitting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_does_one_thing_and_arrows_do_nothing() {
        let mut keys = Keys::default();
        assert!(keys.press(b'p') && keys.look.is_paused);
        assert!(keys.press(b'm') && keys.look.is_masked);
        assert!(keys.press(b's') && keys.look.by_size);
        assert!(!b"\x1b[A\x1b[1;5C\x1bOP".iter().any(|key| keys.press(*key)), "none of them is a key");
        assert!(!keys.quits());
        assert!(keys.press(b'q') && keys.quits() && !keys.quits(), "it is asked once");
    }
}
