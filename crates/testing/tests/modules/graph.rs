//! Which file imports which, and where imports form circles.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Import, Source};

/// Imports between the files of a crate, with the imported names.
pub(crate) struct Graph<'s> {
    modules: BTreeMap<&'s [String], &'s Source>,
    edges: BTreeMap<&'s [String], BTreeMap<&'s [String], BTreeSet<String>>>,
}

/// The depth to which re-exports of re-exports are followed.
const FOLLOWED: usize = 16;

impl<'s> Graph<'s> {
    pub(crate) fn of(sources: &'s [Source]) -> Self {
        let is_for_tests = |source: &Source| {
            sources.iter().any(|parent| {
                let below = source.module.strip_prefix(&parent.module[..]);
                below.and_then(<[String]>::first).is_some_and(|name| parent.test_modules.contains(name))
            })
        };
        let modules = sources.iter().filter(|source| !is_for_tests(source));
        let modules = modules.map(|source| (&source.module[..], source)).collect();
        let mut graph = Self { modules, edges: BTreeMap::new() };
        let known: Vec<&Source> = graph.modules.values().copied().collect();
        for source in known {
            let imports = source.imports.iter().filter(|import| {
                let is_root = source.module.is_empty();
                !import.is_public || !is_root && (import.name == "*" || source.words.contains(&import.name))
            });
            let imports = imports.map(|import| (&import.within, &import.path, import.name == "*"));
            let paths = source.paths.iter().map(|(within, path)| (within, path, false));
            for (within, path, is_glob) in imports.chain(paths) {
                if let Some(target) = graph.target(within, path, FOLLOWED)
                    && target != source.module
                {
                    let name = if is_glob { "*" } else { path.last().expect("a word") };
                    let names = graph.edges.entry(&source.module).or_default().entry(target).or_default();
                    names.insert(name.to_owned());
                }
            }
        }
        graph
    }

    /// The file that defines the item of a path; `None` when another crate defines it.
    fn target(&self, within: &[String], path: &[String], follow: usize) -> Option<&'s [String]> {
        let (mut here, mut rest) = (within.to_vec(), path);
        match rest.first()?.as_str() {
            "crate" => {
                here.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    here.pop();
                    rest = &rest[1..];
                }
            }
            // The name of a submodule, or of an item that a `use` imported.
            first => {
                let child = [&here[..], &[first.to_owned()]].concat();
                self.modules.get(&child[..])?;
            }
        }
        self.walk(&here, rest, follow)
    }

    fn walk(&self, from: &[String], path: &[String], follow: usize) -> Option<&'s [String]> {
        let Some((word, rest)) = path.split_first() else { return self.file(from) };
        let child = [from, std::slice::from_ref(word)].concat();
        if self.modules.contains_key(&child[..]) {
            return self.walk(&child, rest, follow);
        }
        let follow = follow.checked_sub(1)?;
        let imports: Vec<&Import> = self.imports_of(from).collect();
        if let Some(import) = imports.iter().find(|import| import.name == *word) {
            let further = [&import.path[..], rest].concat();
            return self.target(&import.within, &further, follow);
        }
        // Names that a glob may import are searched there first.
        let globs = imports.iter().filter(|import| import.name == "*");
        let mut found = globs.filter_map(|glob| {
            let at = self.target(&glob.within, &glob.path, follow)?;
            let child = [at, std::slice::from_ref(word)].concat();
            let is_known =
                self.modules.contains_key(&child[..]) || self.imports_of(at).any(|it| it.name == *word);
            is_known.then(|| self.walk(at, path, follow)).flatten()
        });
        found.next().or_else(|| self.file(from))
    }

    fn imports_of(&self, module: &[String]) -> impl Iterator<Item = &'s Import> {
        let source = self.file(module).and_then(|file| self.modules.get(file).copied());
        let module = module.to_vec();
        source.into_iter().flat_map(|source| &source.imports).filter(move |import| import.within == module)
    }

    /// The file of a module: its own, or that of the enclosing module.
    fn file(&self, module: &[String]) -> Option<&'s [String]> {
        (0..=module.len())
            .rev()
            .find_map(|len| self.modules.get_key_value(&module[..len]))
            .map(|(file, _)| *file)
    }

    /// Every circle: the modules that import each other, line by line.
    pub(crate) fn circles(&self) -> Vec<String> {
        let reached: BTreeMap<&[String], BTreeSet<&[String]>> =
            self.edges.keys().map(|from| (*from, self.reached(from))).collect();
        let leads =
            |from: &[String], to: &[String]| reached.get(from).is_some_and(|reached| reached.contains(to));
        let mut told: BTreeSet<&[String]> = BTreeSet::new();
        let mut circles = Vec::new();
        for first in self.edges.keys().filter(|module| leads(module, module)) {
            let circle: BTreeSet<&[String]> =
                reached[first].iter().copied().filter(|module| leads(module, first)).collect();
            if !told.insert(circle.first().expect("the first itself")) {
                continue;
            }
            let lines = circle.iter().flat_map(|from| {
                let edges = self.edges[from].iter().filter(|(to, _)| circle.contains(*to));
                edges.map(|(to, names)| {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    format!("  {} -> {}: {}\n", in_words(from), in_words(to), names.join(", "))
                })
            });
            circles.push(lines.collect());
        }
        circles
    }

    fn reached(&self, from: &[String]) -> BTreeSet<&'s [String]> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&'s [String]> =
            self.edges.get(from).into_iter().flat_map(|to| to.keys().copied()).collect();
        while let Some(module) = open.pop() {
            if reached.insert(module) {
                open.extend(self.edges.get(module).into_iter().flat_map(|to| to.keys().copied()));
            }
        }
        reached
    }
}

fn in_words(module: &[String]) -> String {
    if module.is_empty() { "crate".into() } else { module.join("::") }
}
