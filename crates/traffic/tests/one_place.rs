//! An engine's details are in its file: no other code names an engine's type or compares with its name.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The types that implement an engine, by the files in `engines/`.
fn engine_types(engines: &Path) -> Vec<String> {
    let mut files = Vec::new();
    sources(engines, &mut files);
    let mut types = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        for implementation in ["impl TxEngine for ", "impl RxEngine for "] {
            let after = text.split(implementation).skip(1);
            types.extend(after.map(|rest| rest.split([' ', '{']).next().unwrap().to_owned()));
        }
    }
    types
}

#[test]
fn no_source_outside_of_engines_names_an_engine_s_type() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let engines = crates.join("traffic/src/engines");
    let types = engine_types(&engines);
    assert!(types.len() >= traffic::engines().len(), "{types:?}");
    let mut files = Vec::new();
    for folder in fs::read_dir(&crates).unwrap() {
        let source = folder.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    let engines = engines.canonicalize().unwrap();
    files.retain(|file| !file.canonicalize().unwrap().starts_with(&engines));
    assert!(files.len() > 300, "{} files", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_word = |at: usize, word: &str| {
            let is_part = |letter: Option<char>| letter.is_some_and(|it| it.is_alphanumeric() || it == '_');
            !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
        };
        for name in &types {
            let named = text.match_indices(name.as_str()).any(|(at, _)| is_word(at, name));
            assert!(!named, "{} names {name}: call the engine's object instead", file.display());
        }
    }
}
