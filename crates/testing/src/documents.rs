//! The commands that the documents show.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A command of a document, as a shell would read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The document, from the repository's root.
    pub document: String,
    /// Its line in the document, from 1.
    pub line: usize,
    /// The command with its comment; continued lines are joined.
    pub command: String,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.document, self.line, self.command)
    }
}

/// Every command in the README, CONTRIBUTING.md and docs/: each line of a block marked `sh`, and what follows `$ ` or `# ` in
/// a block marked `text`, and commands of linerate in tables' cells. Documents in alphabetical order, commands in the document's.
///
/// # Panics
/// When a document cannot be read.
pub fn shown_commands() -> Vec<Shown> {
    let root = repository();
    let mut documents = vec!["CONTRIBUTING.md".to_owned(), "README.md".into()];
    for folder in ["docs", "docs/design"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("the documents are there") {
            let name = entry.expect("the folder can be listed").file_name().into_string().expect("UTF-8");
            if name.ends_with(".md") {
                documents.push(format!("{folder}/{name}"));
            }
        }
    }
    documents.sort();
    let read = |document: String| {
        let text = std::fs::read_to_string(root.join(&document)).expect("a document can be read");
        commands_of(&document, &text)
    };
    documents.into_iter().flat_map(read).collect()
}

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn commands_of(document: &str, text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let (mut block, mut is_continued) = (None, false);
    for (index, line) in text.lines().enumerate() {
        if let Some(mark) = line.strip_prefix("```") {
            block = if block.is_some() { None } else { Some(mark.to_owned()) };
            is_continued = false;
            continue;
        }
        let command = match block.as_deref() {
            _ if is_continued => Some(line),
            Some("sh") => Some(line).filter(|line| !line.is_empty() && !line.starts_with('#')),
            Some("text") => line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")),
            None if line.starts_with('|') => in_a_cell(line),
            _ => None,
        };
        let Some(command) = command else { continue };
        let (command, goes_on) = match command.strip_suffix('\\') {
            Some(command) => (command, true),
            None => (command, false),
        };
        match found.last_mut().filter(|_| is_continued) {
            Some(last) => last.command.push_str(command),
            None => found.push(Shown { document: document.into(), line: index + 1, command: command.into() }),
        }
        is_continued = goes_on;
    }
    found
}

/// A table's cell that is a command of linerate and nothing else.
fn in_a_cell(row: &str) -> Option<&str> {
    let mut cells = row.split(" | ");
    cells.find_map(|cell| {
        let command = cell.trim().strip_prefix('`')?.strip_suffix('`')?;
        (command.starts_with("linerate ") && !command.contains('`')).then_some(command)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_shell_blocks_and_prompts() {
        let text = "ls\n```sh\na b   # c\n\n# only a comment\nlong \\\n  more\n```\n```text\n$ d\noutput\n# e\n```\n```rust\nf\n```\n| g | `linerate h` | `i` |\n";
        let found = commands_of("x.md", text);
        let words: Vec<(usize, &str)> =
            found.iter().map(|shown| (shown.line, shown.command.as_str())).collect();
        assert_eq!(words, [(3, "a b   # c"), (6, "long   more"), (10, "d"), (12, "e"), (17, "linerate h")]);
    }

    #[test]
    fn the_documents_show_commands() {
        let all = shown_commands();
        assert!(
            all.iter().any(|shown| shown.document == "README.md" && shown.command.starts_with("make bench"))
        );
        assert!(all.len() > 50, "{}", all.len());
    }
}
