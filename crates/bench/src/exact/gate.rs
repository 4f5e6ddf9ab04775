//! Counted instructions compared with committed ones: `make exact` and the file `benches/exact.toml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use serde::{Deserialize, Serialize};

/// A larger relative change is a regression.
const MOST_GROWTH_RATIO: f64 = 0.01;
/// A smaller change in instructions per packet is ignored: one block more or less in a whole trial.
const LEAST_GROWTH: f64 = 0.5;

/// The instructions per packet of one build, by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ExactTable {
    /// The compiler, as `rustc --version` prints it: another one generates different code.
    pub compiler: String,
    /// The guest's kernel: its scheduling determines how many packets a worker moves at a time.
    pub kernel: String,
    /// Instructions per packet that are the same on every kernel.
    pub values: BTreeMap<String, f64>,
    /// Instructions per packet of workers, on that kernel.
    pub of_kernel: BTreeMap<String, f64>,
}

/// The tables of a file, by build.
pub type ExactTables = BTreeMap<String, ExactTable>;

/// The conclusion of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExactVerdict {
    /// Nothing grew, and both have the same names.
    Passed,
    /// A value grew by more than 1 %, is not committed, or was not counted.
    Failed,
    /// No comparable value grew, and some belong to another compiler or kernel.
    NotComparable,
}

/// Compares counted with committed values, and writes one row per value.
///
/// # Errors
/// Those of `out`.
pub fn judge_exact(
    committed: &ExactTable,
    counted: &ExactTable,
    out: &mut impl Write,
) -> io::Result<ExactVerdict> {
    let is_known = !committed.values.is_empty();
    let is_other_compiler = is_known && committed.compiler != counted.compiler;
    let is_other_kernel = is_known && committed.kernel != counted.kernel;
    let mut failed = false;
    writeln!(out, "{:<52} {:>10} {:>10} {:>9}", "instructions per packet", "committed", "counted", "change")?;
    for (committed, counted, is_other) in [
        (&committed.values, &counted.values, is_other_compiler),
        (&committed.of_kernel, &counted.of_kernel, is_other_compiler || is_other_kernel),
    ] {
        let names: BTreeSet<&String> = committed.keys().chain(counted.keys()).collect();
        for name in names {
            let (before, after) = (committed.get(name), counted.get(name));
            let word = match (before, after) {
                (None, _) => "NOT COMMITTED",
                (_, None) => "NOT COUNTED",
                (Some(_), Some(_)) if is_other => "not comparable",
                (Some(before), Some(after)) if grew(*before, *after) => "GREW",
                (Some(before), Some(after)) if grew(*after, *before) => "fell",
                (Some(_), Some(_)) => "",
            };
            failed |= !matches!(word, "" | "fell" | "not comparable");
            let shown = |value: Option<&f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
            let change =
                before.zip(after).map(|(before, after)| format!("{:+.2} %", (after / before - 1.0) * 100.0));
            let (before, after, change) = (shown(before), shown(after), change.unwrap_or_default());
            let row = format!("{name:<52} {before:>10} {after:>10} {change:>9} {word}");
            writeln!(out, "{}", row.trim_end())?;
        }
    }
    if failed {
        writeln!(out, "make bless-exact accepts the counted values; give the reason in the commit message")?;
        return Ok(ExactVerdict::Failed);
    }
    let mut verdict = ExactVerdict::Passed;
    for (what, is_other, before, after) in [
        ("compiler", is_other_compiler, &committed.compiler, &counted.compiler),
        ("kernel", is_other_kernel, &committed.kernel, &counted.kernel),
    ] {
        if is_other {
            verdict = ExactVerdict::NotComparable;
            writeln!(
                out,
                "the committed values are for {what} {before}, these for {after}: make bless-exact accepts them"
            )?;
        }
    }
    Ok(verdict)
}

fn grew(before: f64, after: f64) -> bool {
    after > before * (1.0 + MOST_GROWTH_RATIO) && after - before > LEAST_GROWTH
}

/// The file's text, one value per line.
pub fn write_exact_tables(tables: &ExactTables, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "# Instructions per packet that linerate itself executes: make exact compares, make bless-exact rewrites.\n\
         # Hot functions are counted in a loop; workers are the own code of threads in the ladder of an emulated machine.\n\
         # \"release\" is the build of make build, \"tests\" the build that the tests use."
    )?;
    for (build, table) in tables {
        let [compiler, kernel] = [&table.compiler, &table.kernel].map(|text| quoted(text));
        writeln!(out, "\n[{build}]\ncompiler = {compiler}\nkernel = {kernel}")?;
        for (key, values) in [("values", &table.values), ("of-kernel", &table.of_kernel)] {
            writeln!(out, "\n[{build}.{key}]")?;
            for (name, value) in values {
                writeln!(out, "{} = {value:.1}", quoted(name))?;
            }
        }
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    // Names and versions have no character that the two languages escape differently.
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(&str, f64)]) -> BTreeMap<String, f64> {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn table(values: &[(&str, f64)]) -> ExactTable {
        let (compiler, kernel) = ("rustc 1.95.0".into(), "7.3.4".into());
        ExactTable { compiler, kernel, values: of(values), of_kernel: of(&[("worker", 200.0)]) }
    }

    fn judged(committed: &ExactTable, counted: &ExactTable) -> (ExactVerdict, String) {
        let mut text = Vec::new();
        let verdict = judge_exact(committed, counted, &mut text).unwrap();
        (verdict, String::from_utf8(text).unwrap())
    }

    #[test]
    fn more_than_one_percent_fails_and_less_does_not() {
        let committed = table(&[("read", 1000.0), ("stamp", 54.0)]);
        for (counted, verdict) in [
            ([1000.0, 54.0], ExactVerdict::Passed),
            ([1010.0, 54.0], ExactVerdict::Passed),
            ([1010.1, 54.0], ExactVerdict::Failed),
            ([1000.0, 54.5], ExactVerdict::Passed),
            ([1000.0, 55.0], ExactVerdict::Failed),
            ([900.0, 50.0], ExactVerdict::Passed),
        ] {
            let counted = table(&[("read", counted[0]), ("stamp", counted[1])]);
            let (found, text) = judged(&committed, &counted);
            assert_eq!(found, verdict, "{text}");
            assert_eq!(text.contains("GREW"), verdict == ExactVerdict::Failed, "{text}");
        }
        let (_, text) = judged(&committed, &table(&[("read", 900.0), ("stamp", 54.0)]));
        assert!(text.contains("-10.00 % fell"), "{text}");
        let counted = ExactTable { of_kernel: of(&[("worker", 203.0)]), ..committed.clone() };
        assert_eq!(judged(&committed, &counted).0, ExactVerdict::Failed);
    }

    #[test]
    fn a_value_on_one_side_only_fails() {
        let (one, two) = (table(&[("read", 85.0)]), table(&[("read", 85.0), ("stamp", 54.0)]));
        let (verdict, text) = judged(&one, &two);
        assert_eq!(verdict, ExactVerdict::Failed);
        assert!(text.contains("NOT COMMITTED") && text.contains("make bless-exact"), "{text}");
        let (verdict, text) = judged(&two, &one);
        assert_eq!(verdict, ExactVerdict::Failed);
        assert!(text.contains("NOT COUNTED"), "{text}");
        assert_eq!(
            judged(&ExactTable::default(), &one).0,
            ExactVerdict::Failed,
            "an empty file passes nothing"
        );
    }

    #[test]
    fn with_another_compiler_or_kernel_only_comparable_values_count() {
        let committed = table(&[("read", 85.0)]);
        let counted = ExactTable { compiler: "rustc 1.99.0".into(), ..table(&[("read", 99.0)]) };
        let (verdict, text) = judged(&committed, &counted);
        assert_eq!(verdict, ExactVerdict::NotComparable);
        assert!(text.contains("are for compiler rustc 1.95.0, these for rustc 1.99.0"), "{text}");
        let of_kernel = of(&[("worker", 400.0)]);
        let other = ExactTable { kernel: "7.4.1".into(), of_kernel, ..committed.clone() };
        let (verdict, text) = judged(&committed, &other);
        assert_eq!(verdict, ExactVerdict::NotComparable);
        assert!(text.contains("+100.00 % not comparable"), "{text}");
        let counted = ExactTable { values: of(&[("read", 99.0)]), ..other };
        assert_eq!(
            judged(&committed, &counted).0,
            ExactVerdict::Failed,
            "a loop is the same on every kernel"
        );
    }

    #[test]
    fn the_file_reads_back_as_written() {
        let tables = ExactTables::from([("tests".to_owned(), table(&[("classify: 1 rule", 167.0)]))]);
        let mut text = Vec::new();
        write_exact_tables(&tables, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(toml::from_str::<ExactTables>(&text).unwrap(), tables, "{text}");
    }
}
