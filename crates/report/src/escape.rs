//! Names come from users, drivers and other hosts: what they contain must not act in a terminal, a page or
//! a table.

/// Control characters and those that reorder or hide text become visible escapes.
pub(crate) fn text(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len());
    for character in raw.chars() {
        if acts(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_no_control_characters() {
        assert_eq!(text("a\x1b[31mb\nc\u{202e}d\u{7f}"), "a\\u{1b}[31mb\\nc\\u{202e}d\\u{7f}");
        assert_eq!(text("udp+gso → é"), "udp+gso → é");
    }
}
