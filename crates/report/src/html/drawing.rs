//! A chart as a separate image: its name and its text.

/// A chart under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    /// Its content, in lower-case words joined by hyphens; in a step of a scenario prefixed by the step's name.
    pub name: String,
    /// The image.
    pub svg: String,
}

/// A title as a name.
pub(super) fn name(title: &str) -> String {
    let words = title.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_the_title_s_words() {
        assert_eq!(name("tx_ns_per_packet against frame size, µs"), "tx-ns-per-packet-against-frame-size-µs");
    }
}
