//! Names come from users, drivers and other hosts: what they contain must not act in a terminal, a page or
//! a table.

/// Control characters, and those that reorder or hide text, become visible escapes.
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

/// Safe between tags and inside quoted attributes of HTML and SVG.
pub(crate) fn html(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len());
    for character in text(raw).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Safe in a paragraph or table cell of Markdown.
pub(crate) fn markdown(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len());
    for character in text(raw).chars() {
        if "\\`*_{}[]<>#|!&~$@".contains(character) {
            safe.push('\\');
        }
        safe.push(character);
    }
    safe
}

/// A text field of CSV (RFC 4180), quoted when needed; what a spreadsheet would run as a formula is
/// defused by an apostrophe.
pub(crate) fn csv(raw: &str) -> String {
    let safe = text(raw);
    let defused = if safe.starts_with(['=', '+', '-', '@']) { format!("'{safe}") } else { safe };
    if defused.contains([',', '"', ';']) { format!("\"{}\"", defused.replace('"', "\"\"")) } else { defused }
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

    #[test]
    fn a_page_sees_no_markup() {
        assert_eq!(html("<b a=\"'&\x00"), "&lt;b a=&quot;&#39;&amp;\\u{0}");
    }

    #[test]
    fn a_markdown_cell_stays_one_cell_without_links_or_code() {
        assert_eq!(markdown("a|b\n[x](y)`<i>"), "a\\|b\\\\n\\[x\\](y)\\`\\<i\\>");
    }

    #[test]
    fn a_csv_field_stays_one_field_and_is_no_formula() {
        assert_eq!(csv("udp"), "udp");
        assert_eq!(csv("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv("=1+1"), "'=1+1");
        assert_eq!(csv("a\r\nb"), "a\\r\\nb");
    }
}
