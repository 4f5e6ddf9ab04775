//! Facts that a test run must show although its tests pass: what was not tested here, and what was measured more than once.
//!
//! libtest captures what a passing test prints with `eprintln!`. These lines go to the real standard error, and
//! to the file that `LINERATE_TEST_LOG` names, from which `scripts/test` makes its list and its counts.

use std::{
    env,
    fmt::Display,
    fs::OpenOptions,
    io::{self, Write},
    panic::Location,
    thread,
};

/// Names the file that a line is appended to for each skip and each repeat.
const LOG: &str = "LINERATE_TEST_LOG";

/// The most attempts of a measurement.
pub const ATTEMPTS: u32 = 10;

/// Reports that a test, or a part of it, cannot run here.
///
/// # Panics
/// When nothing may be skipped: `LINERATE_REQUIRE_ALL` is set.
#[track_caller]
pub fn skip(why: impl Display) {
    assert!(!is_all_required(), "must not be skipped here: {why}");
    write("SKIPPED", &why.to_string());
}

/// Whether nothing may be skipped.
pub(crate) fn is_all_required() -> bool {
    env::var_os("LINERATE_REQUIRE_ALL").is_some()
}

/// Repeats a measurement that a lack of CPU time can spoil until its claim holds: at most [`ATTEMPTS`] times, each time
/// the whole measurement with the whole claim. `measure` receives the number of the attempt, from 1, and returns an error
/// only for what starvation explains (nothing sent in the window, no sample taken); it asserts everything else, which
/// fails the test at once. Each repeat is printed and counted.
///
/// # Panics
/// With the last error, after the last attempt.
#[track_caller]
pub fn repeat<T>(why: &str, mut measure: impl FnMut(u32) -> Result<T, String>) -> T {
    for attempt in 1..ATTEMPTS {
        match measure(attempt) {
            Ok(measured) => return measured,
            Err(error) => repeated(&format!("{why}, attempt {attempt} of {ATTEMPTS}: {error}")),
        }
    }
    measure(ATTEMPTS).unwrap_or_else(|error| panic!("{why}, in each of {ATTEMPTS} attempts, last: {error}"))
}

/// Reports that a measurement is repeated.
#[track_caller]
pub(crate) fn repeated(why: &str) {
    write("REPEATED", why);
}

/// One line: what happened, the test binary, the test, why; separated by tabs.
#[track_caller]
fn write(what: &str, why: &str) {
    let line = format!("{what}\t{}\t{}\t{}\n", binary(), test(), one_line(why));
    // One write per line, so that lines of concurrent tests do not mix.
    io::stderr().write_all(line.as_bytes()).ok();
    let Some(path) = env::var_os(LOG) else { return };
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let written = log.and_then(|mut log| log.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot append to {LOG}={}: {error}", path.display()));
}

/// The name of the executable, with cargo's hash: several crates have tests with the same name.
fn binary() -> String {
    let path = env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// libtest names a test's thread after it; elsewhere the location in the source.
#[track_caller]
fn test() -> String {
    match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => Location::caller().to_string(),
    }
}

/// At most 300 characters without line breaks and tabs.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, panic, process::Command};

    use super::*;

    /// In the environment of this executable when a test starts it again.
    const ROLE: &str = "TESTING_ROLE";

    #[test]
    fn a_claim_that_holds_is_measured_once_and_another_until_it_holds() {
        if env::var_os(ROLE).is_some() {
            skip("this is a trial\nof two lines");
            let measured = repeat("too little CPU time", |attempt| match attempt {
                1 | 2 => Err(format!("{attempt} packets")),
                _ => Ok(attempt),
            });
            return assert_eq!(measured, 3);
        }
        assert_eq!(repeat("never", Ok), 1);
    }

    #[test]
    fn the_last_attempt_s_error_fails_the_test() {
        if env::var_os(ROLE).is_some() {
            let mut attempts = Vec::new();
            let failed = panic::catch_unwind(panic::AssertUnwindSafe(|| {
                repeat("too little CPU time", |attempt| {
                    attempts.push(attempt);
                    Err::<(), _>(format!("{attempt} packets"))
                });
            }));
            let words = failed.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(*words, "too little CPU time, in each of 10 attempts, last: 10 packets");
            assert_eq!(attempts, Vec::from_iter(1..=10));
            return;
        }
        let (_, told) = once_more("the_last_attempt_s_error_fails_the_test", &[]);
        assert_eq!(told.matches("REPEATED\t").count(), 9, "{told}");
    }

    #[test]
    fn what_a_passing_test_skips_and_repeats_is_on_standard_error_and_in_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let name = "a_claim_that_holds_is_measured_once_and_another_until_it_holds";
        let (passed, told) = once_more(name, &[(LOG, log.to_str().unwrap())]);
        assert!(passed, "{told}");
        let rest = format!("{}\trecord::tests::{name}", binary());
        let lines = format!(
            "SKIPPED\t{rest}\tthis is a trial of two lines\n\
             REPEATED\t{rest}\ttoo little CPU time, attempt 1 of 10: 1 packets\n\
             REPEATED\t{rest}\ttoo little CPU time, attempt 2 of 10: 2 packets\n"
        );
        assert_eq!(fs::read_to_string(&log).unwrap(), lines);
        assert_eq!(told, lines);
    }

    #[test]
    fn where_everything_is_required_a_skip_fails_and_is_no_skip() {
        let name = "a_claim_that_holds_is_measured_once_and_another_until_it_holds";
        let (passed, told) = once_more(name, &[("LINERATE_REQUIRE_ALL", "1")]);
        assert!(!passed && !told.contains("SKIPPED"), "{told}");
    }

    /// Runs one of these tests in a separate process under libtest; returns whether it passed, and its standard error.
    fn once_more(name: &str, environment: &[(&str, &str)]) -> (bool, String) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", &format!("record::tests::{name}"), "--test-threads", "2"]);
        command.env(ROLE, "1").env_remove(LOG).env_remove("LINERATE_REQUIRE_ALL");
        let output = command.envs(environment.iter().copied()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }
}
