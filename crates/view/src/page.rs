//! The page that browsers get: one document without any request elsewhere.

/// The page; `nonce` marks its own script and style as the only ones.
pub(crate) fn page(nonce: &str) -> String {
    include_str!("page.html").replace("NONCE", nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else() {
        let page = page("n0");
        for word in ["http://", "https://", "src=", "//cdn", "@import", "url(", "innerHTML", "eval("] {
            assert!(!page.contains(word), "{word}");
        }
        assert_eq!(page.matches("nonce=\"n0\"").count(), 2);
    }
}
