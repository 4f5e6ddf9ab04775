//! The style of text, set by the caller, because only the caller knows the terminal.

/// Width and colour of text output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Characters per line; tables hide their least important columns to fit, and list them.
    pub width: usize,
    /// Whether good and bad are coloured by ANSI sequences.
    pub colour: bool,
    /// Lines of the terminal that the text should fit if possible; `None` for any length.
    pub lines: Option<usize>,
    /// Whether to show every figure, not only those that need attention.
    pub verbose: bool,
    /// Whether the verdict comes last, as on a terminal, whose last lines are visible.
    pub verdict_last: bool,
}

impl Default for Style {
    /// 100 characters, no colour, any length, the verdict first.
    fn default() -> Self {
        Self { width: 100, colour: false, lines: None, verbose: false, verdict_last: false }
    }
}

/// The meaning of a piece of text that colour can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Heading,
    Good,
    Bad,
}

impl Style {
    /// The text in its tone.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => return text.to_string(),
            Tone::Heading => "1",
            Tone::Good => "32",
            Tone::Bad => "31",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// Words wrapped into lines of at most `width` characters; a longer word gets its own line.
pub fn wrap(words: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let line = lines.last_mut().expect("one line at least");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_string());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_colour_leaves_the_text_alone() {
        assert_eq!(Style::default().paint("no", Tone::Bad), "no");
        assert_eq!(
            Style { width: 80, colour: true, ..Style::default() }.paint("no", Tone::Bad),
            "\x1b[31mno\x1b[0m"
        );
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("abcdefg h", 4), ["abcdefg", "h"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
