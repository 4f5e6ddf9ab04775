//! No two modules of a crate import each other, directly or indirectly: a module can be read and tested with the modules
//! below it. Determined from the sources, file by file.
//!
//! A file imports another when a `use` or a path in it (`crate::`, `super::`, `self::`, a submodule's name) leads to an
//! item defined there; re-exports are followed to the definition. Not counted: `mod` lines, re-exports that the file
//! itself does not use, all re-exports of a crate's root, and everything under `#[cfg(test)]`.

mod graph;
mod source;

use std::{collections::BTreeMap, fs, path::Path};

use graph::Graph;
use source::Source;

#[test]
fn no_modules_of_a_crate_import_each_other() {
    let mut wrong = Vec::new();
    for (name, sources) in crates() {
        let circles = Graph::of(&sources).circles();
        wrong.extend(circles.iter().map(|circle| format!("crate {name}:\n{circle}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_way_to_import_is_seen() {
    let circles = |files: &[(&str, &str)]| {
        let sources = files.iter().map(|(path, text)| Source::read(path, text));
        Graph::of(&sources.collect::<Vec<_>>()).circles()
    };
    let root = ("lib.rs", "mod a; mod b; pub use a::{One, inner::Deep}; pub use b::Two;");
    let a = |text| ("a.rs", text);
    let b = |text| ("b.rs", text);
    for (files, expected) in [
        (&[root, a("use crate::b::Two;"), b("use super::a::One;")][..], "a -> b: Two\n  b -> a: One"),
        (&[root, a("use crate::{Two};"), b("fn f() { crate::One }")], "a -> b: Two\n  b -> a: One"),
        (&[root, a("use crate::b::{self as c};"), b("use crate::a as d;")], "a -> b: b\n  b -> a: a"),
        (&[root, a("use super::b::*;"), b("use crate::a::One;")], "a -> b: *\n  b -> a: One"),
        (
            &[root, a("mod inner; use inner::Deep;"), ("a/inner.rs", "use super::One;"), b("")],
            "a -> a::inner: Deep\n  a::inner -> a: One",
        ),
        (
            &[
                root,
                a("mod inner; fn f() { inner::f() }"),
                ("a/inner.rs", "use crate::b::Two;"),
                b("use crate::a;"),
            ],
            "a -> a::inner: f\n  a::inner -> b: Two\n  b -> a: a",
        ),
        (
            &[("lib.rs", "mod a; struct One; use a::Two;"), a("use crate::One;")],
            "crate -> a: Two\n  a -> crate: One",
        ),
        (
            &[root, a("mod deep { use super::super::b::Two; }"), b("use crate::a::One;")],
            "a -> b: Two\n  b -> a: One",
        ),
    ] {
        assert_eq!(circles(files), [format!("  {expected}\n")], "{files:?}");
    }
    for files in [
        &[root, a("use crate::b::Two;"), b("#[cfg(test)] mod tests { use crate::a::One; }")][..],
        &[
            root,
            a("use crate::b::Two;"),
            b("#[cfg(test)] #[rustfmt::skip] mod a;"),
            ("b/a.rs", "use crate::a::One;"),
        ],
        &[
            root,
            a("use crate::b::Two;"),
            b("// use crate::a::One;\n/* crate::a::One */ const A: &str = \"crate::a::One\";"),
        ],
        &[
            root,
            a("mod inner; pub use inner::Deep;"),
            ("a/inner.rs", "use crate::b::Two;"),
            b("use crate::Deep;"),
        ],
        &[("lib.rs", "mod a; struct One; pub use a::Two;"), a("use crate::One;")],
        &[
            root,
            a("use crate::b::Two;"),
            b("use std::a::One; fn f(it: &'static str) -> char { other::a::f('\"') }"),
        ],
    ] {
        let expected: &[String] = if files.len() == 4 && files[2].0 == "a/inner.rs" {
            &["  a::inner -> b: Two\n  b -> a::inner: Deep\n".into()]
        } else {
            &[]
        };
        assert_eq!(circles(files), expected, "{files:?}");
    }
}

/// The sources of each crate of the workspace, by its folder's name.
fn crates() -> BTreeMap<String, Vec<Source>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let mut crates = BTreeMap::new();
    for found in fs::read_dir(folder).expect("crates").map(|found| found.expect("a crate").path()) {
        let mut sources = Vec::new();
        read_folder(&found.join("src"), "", &mut sources);
        let name = found.file_name().expect("a name").to_string_lossy().into_owned();
        crates.insert(name, sources);
    }
    assert!(crates.len() > 10, "{:?}", crates.keys());
    crates
}

fn read_folder(folder: &Path, below: &str, sources: &mut Vec<Source>) {
    for found in fs::read_dir(folder).into_iter().flatten().map(|found| found.expect("a file").path()) {
        let name = found.file_name().expect("a name").to_string_lossy().into_owned();
        if found.is_dir() {
            read_folder(&found, &format!("{below}{name}/"), sources);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&found).expect("readable");
            sources.push(Source::read(&format!("{below}{name}"), &text));
        }
    }
}
