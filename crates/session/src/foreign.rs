//! Text from other machines: it must not control a terminal, nor fill it.

use serde_json::Value;

/// Most characters of a text.
pub(crate) const MOST_CHARACTERS: usize = 1000;

/// Makes all texts of a message harmless, including keys: characters that control the terminal, or reorder or hide text,
/// become visible escapes, and long texts are cut.
pub(crate) fn harmless(value: Value) -> Value {
    match value {
        Value::String(raw) => Value::String(text(&raw)),
        Value::Array(values) => Value::Array(values.into_iter().map(harmless).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (text(&name), harmless(value))).collect())
        }
        other => other,
    }
}

fn text(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len().min(MOST_CHARACTERS));
    for (number, character) in raw.chars().enumerate() {
        if number == MOST_CHARACTERS {
            safe.push('…');
            break;
        }
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
    use serde_json::json;

    use super::*;

    #[test]
    fn no_text_of_a_message_controls_a_terminal() {
        let raw =
            json!({"reason": "\x1b]0;owned\x07", "a\x1bb": [1, {"c": "d\u{202e}e\nf"}, null], "é →": 0.5});
        let safe = json!({
            "reason": "\\u{1b}]0;owned\\u{7}", "a\\u{1b}b": [1, {"c": "d\\u{202e}e\\nf"}, null], "é →": 0.5
        });
        assert_eq!(harmless(raw), safe);
    }

    #[test]
    fn long_texts_are_cut() {
        let cut = harmless(json!("x".repeat(60_000)));
        assert_eq!(cut.as_str().unwrap().chars().count(), MOST_CHARACTERS + 1);
        assert!(cut.as_str().unwrap().ends_with("x…"));
    }
}
