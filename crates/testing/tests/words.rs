//! `scripts/words` on scratch files: each row of its table finds its sentence, and plain English passes.

use std::{fs, path::Path, process::Command};

/// A sentence for each row of `scripts/words.patterns`, in its order.
const FOUND: &[&str] = &[
    "The driver is told the address.",
    "The counter tells where it was lost.",
    "The rate we told was too high.",
    "It asks for two rings.",
    "Nothing is asked of the card.",
    "The values are compared as they stand.",
    "The line stands in the table.",
    "The console stood.",
    "The packets standing in the ring are lost.",
    "The ring gives back its slots.",
    "The thread goes before NAPI.",
    "Whoever reads the ring frees it.",
    "The thread who fills the ring waits.",
    "Nothing of eth0 is saved.",
    "The settings are to be restored.",
    "For that there is only one reason.",
    "There is `udp`, `packet` and `xsk`.",
    "It is not what a run describes.",
    "It is said once.",
    "A line says so.",
    "It works like usual.",
    "It is hidden for want of width.",
    "It loses packets at that.",
    "The card does it by itself.",
    "The cost drowned in noise.",
    "One path does not work here.",
    "From 1 to 64 are possible.",
    "It polls in vain.",
    "What becomes of the packets is counted.",
    "The crew starts.",
    "A stage has two outlets.",
];

/// Phrases that only look like the ones above.
const PASSES: &[&str] = &[
    "The standard asks in the interest of outstanding understanding; it stands for Request For Comments.",
    "People who read this, and the user who typed it, see the loss at that rate and at that high rate.",
    "A foretold crewed ship is possible, by itself_, as usually, sought and unasked.",
];

/// Exit status and output of the script on these files of a folder; only the exceptions of the project's files apply.
fn words(folder: &Path, files: &[&str]) -> (i32, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/words");
    let output = Command::new(script).arg("--root").arg(folder).args(files).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn rows() -> Vec<String> {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/words.patterns");
    let table = fs::read_to_string(table).unwrap();
    table.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn every_row_finds_its_sentence_in_every_kind_of_file() {
    let folder = testing::own_folder();
    let rows = rows();
    assert_eq!(rows.len(), FOUND.len(), "a sentence for each row");
    for (row, sentence) in rows.iter().zip(FOUND) {
        let (pattern, rest) = row.split_once('\t').unwrap();
        let advice = rest.split('\t').next().unwrap();
        for (name, text) in [
            ("comment.rs", format!("/// {sentence}\nfn f() {{}}\n")),
            ("string.rs", format!("const A: &str = \"{sentence}\";\n")),
            ("raw.rs", format!("const A: &str = r#\"\n{sentence}\n\"#;\n")),
            ("page.md", format!("# Page\n\n{sentence}\n")),
            ("code.c", format!("int x; /* {sentence} */\n")),
            ("script.sh", format!("# {sentence}\n")),
            ("plan.toml", format!("# {sentence}\nkey = 1\n")),
        ] {
            fs::write(folder.join(name), text).unwrap();
            let (status, out) = words(&folder, &[name]);
            assert_eq!(status, 1, "{name}: {sentence}");
            assert!(out.contains(&format!("\"{pattern}\": {advice}\n")), "{name}: {sentence}\n{out}");
            assert!(out.contains(sentence), "{out}");
        }
    }
}

#[test]
fn plain_english_and_code_pass() {
    let folder = testing::own_folder();
    let page = PASSES.join("\n\n");
    // Names are no sentences; a quote as a character opens no string.
    let code = "fn told(who: Stands) -> char {\n    let tells = who.asks;\n    '\"'\n}\nlet crew = b'\\'';\n";
    for (name, text) in [("page.md", page), ("code.rs", code.to_owned())] {
        fs::write(folder.join(name), text).unwrap();
        assert_eq!(words(&folder, &[name]), (0, String::new()));
    }
}

#[test]
fn a_phrase_over_two_lines_is_found_once() {
    let folder = testing::own_folder();
    for (name, text) in [
        ("comment.rs", "    // What the card gives\n    // back is new.\n    // The end.\n"),
        ("string.rs", "let a = \"what the card gives \\\n    back\";\n"),
        ("page.md", "What the card gives\nback is new.\nThe end.\n"),
    ] {
        fs::write(folder.join(name), text).unwrap();
        let (status, out) = words(&folder, &[name]);
        assert_eq!((status, out.lines().count()), (1, 2), "{out}");
        assert!(out.starts_with(&format!("{name}:2: ")), "{out}");
    }
    // Two strings are two sentences.
    fs::write(folder.join("two.rs"), "let a = (\"what it gives\",\n    \"back\");\n").unwrap();
    assert_eq!(words(&folder, &["two.rs"]), (0, String::new()));
}
