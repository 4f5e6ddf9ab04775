//! Declarations, imports and paths of a source file.

use std::collections::BTreeSet;

/// A module that has a file.
#[derive(Debug)]
pub(crate) struct Source {
    /// The module's path; empty for the crate's root.
    pub(crate) module: Vec<String>,
    /// Submodules that are only compiled for tests.
    pub(crate) test_modules: Vec<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths in the code, each with its enclosing module.
    pub(crate) paths: Vec<(Vec<String>, Vec<String>)>,
    /// Words outside `use` lines.
    pub(crate) words: BTreeSet<String>,
}

/// One name of a `use`.
#[derive(Debug)]
pub(crate) struct Import {
    /// Its enclosing module: the file's, or one in braces.
    pub(crate) within: Vec<String>,
    pub(crate) path: Vec<String>,
    /// Its local name; `*` for everything.
    pub(crate) name: String,
    pub(crate) is_public: bool,
}

impl Source {
    /// From a path below `src` and the text.
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let module = match path {
            "lib.rs" | "main.rs" => Vec::new(),
            path => path.trim_end_matches(".rs").split('/').map(str::to_owned).collect(),
        };
        let tokens = tokens(text);
        let (test_modules, imports, paths, words) = Default::default();
        let source = Self { module, test_modules, imports, paths, words };
        Reader { tokens: &tokens, at: 0, source }.read()
    }
}

struct Reader<'t> {
    tokens: &'t [String],
    at: usize,
    source: Source,
}

impl Reader<'_> {
    fn read(mut self) -> Source {
        // Inline modules, and the brace depth at which each began.
        let (mut within, mut begun, mut depth) = (self.source.module.clone(), Vec::new(), 0);
        while let Some(token) = self.token(0) {
            match token {
                "#" if self.is_cfg_test() => {
                    self.skip_item();
                    continue;
                }
                "mod" if self.token(2) == Some("{") => {
                    within.push(self.token(1).expect("a name").to_owned());
                    begun.push(depth);
                    self.at += 2;
                    continue;
                }
                "mod" => {
                    self.at += 2;
                    continue;
                }
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if begun.last() == Some(&depth) {
                        begun.pop();
                        within.pop();
                    }
                }
                // Not `impl Trait + use<'a>`.
                "use" if self.token(1) != Some("<") => {
                    let is_public = self.at > 0 && ["pub", ")"].contains(&self.tokens[self.at - 1].as_str());
                    self.at += 1;
                    self.import(&within, &[], is_public);
                    continue;
                }
                token if is_word(token) && self.token(1) == Some("::") && !self.follows_a_path() => {
                    let mut path = vec![token.to_owned()];
                    while self.token(1) == Some("::") && self.token(2).is_some_and(is_word) {
                        self.at += 2;
                        path.push(self.token(0).expect("seen").to_owned());
                    }
                    self.source.paths.push((within.clone(), path));
                }
                _ => {}
            }
            self.source.words.extend(self.token(0).map(str::to_owned));
            self.at += 1;
        }
        self.source
    }

    fn token(&self, ahead: usize) -> Option<&str> {
        self.tokens.get(self.at + ahead).map(String::as_str)
    }

    fn follows_a_path(&self) -> bool {
        self.at > 0 && ["::", "."].contains(&self.tokens[self.at - 1].as_str())
    }

    fn is_cfg_test(&self) -> bool {
        let attribute = ["#", "[", "cfg", "(", "test", ")", "]"];
        attribute.iter().enumerate().all(|(ahead, token)| self.token(ahead) == Some(token))
    }

    /// The position after the item that an attribute belongs to.
    fn skip_item(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.token(0) {
            match token {
                "mod" if depth == 0 && self.token(2) == Some(";") => {
                    let name = self.token(1).expect("a name").to_owned();
                    self.source.test_modules.push(name);
                }
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            let ends = depth == 0 && [";", "}"].contains(&self.token(0).expect("seen"));
            self.at += 1;
            if ends {
                break;
            }
        }
    }

    /// One tree of a `use`, up to its end.
    fn import(&mut self, within: &[String], before: &[String], is_public: bool) {
        let mut path = before.to_vec();
        let mut name = None;
        while let Some(token) = self.token(0) {
            match token {
                "{" => {
                    self.at += 1;
                    while self.token(0).is_some_and(|token| ![";", "}"].contains(&token)) {
                        self.import(within, &path, is_public);
                        self.at += usize::from(self.token(0) == Some(","));
                    }
                    self.at += 1;
                    return;
                }
                "as" => {
                    name = self.token(1).map(str::to_owned);
                    self.at += 1;
                }
                "," | ";" | "}" => break,
                "self" if !path.is_empty() => {}
                "::" => {}
                word => path.push(word.to_owned()),
            }
            self.at += 1;
        }
        let last = path.last().cloned().unwrap_or_default();
        let is_glob = last == "*";
        path.truncate(path.len() - usize::from(is_glob));
        let name = name.unwrap_or(last);
        self.source.imports.push(Import { within: within.to_vec(), path, name, is_public });
    }
}

/// Words, `::` and single signs; comments, strings, characters and lifetimes are left out.
fn tokens(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let from = |skipped: usize, end: &[u8]| {
            let found = rest[skipped..].windows(end.len()).position(|bytes| bytes == end);
            found.map_or(rest.len(), |found| skipped + found + end.len())
        };
        at += match rest {
            [b'/', b'/', ..] => from(2, b"\n"),
            [b'/', b'*', ..] => from(2, b"*/"),
            [b'r', b'"', ..] => from(2, b"\""),
            [b'r', b'#', b'"', ..] => from(3, b"\"#"),
            [b'"', ..] => 1 + quoted(&rest[1..], b'"'),
            [b'\'', b'\\', ..] => 1 + quoted(&rest[1..], b'\''),
            [b'\'', _, b'\'', ..] => 3,
            // A lifetime, or a character of several bytes.
            [b'\'', first, ..] if first.is_ascii() => 1 + word_len(&rest[1..]),
            [b'\'', ..] => from(1, b"'"),
            [b':', b':', ..] => {
                tokens.push("::".to_owned());
                2
            }
            [first, ..] if word_len(&[*first]) > 0 => {
                let len = word_len(rest);
                tokens.push(text[at..at + len].to_owned());
                len
            }
            [first, ..] => {
                if !first.is_ascii_whitespace() && first.is_ascii() {
                    tokens.push(char::from(*first).to_string());
                }
                1
            }
            [] => unreachable!("the loop's condition"),
        };
    }
    tokens
}

/// The length of the quoted text, including its end.
fn quoted(rest: &[u8], end: u8) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != end {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn word_len(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count()
}

fn is_word(token: &str) -> bool {
    word_len(token.as_bytes()) == token.len() && !token.starts_with(|first: char| first.is_ascii_digit())
}
