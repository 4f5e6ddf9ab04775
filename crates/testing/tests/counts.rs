//! `scripts/count-tests` on invented runs: its output at the end of `make test`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// How a program or a check ended: its label, `status kind expected`, and its output.
type Ended<'t> = (&'t str, &'t str, &'t str);

const PASSED: &str = "program: wire-0a1b\ntest a ... ok\n\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
const FAILED: &str = "program: cli-0a1b\ntest bench::a ... FAILED\ntest bench::b ... ok\nfailures:\n---- bench::a stdout ----\n\
    test result: ok. 70 passed; 0 failed; 0 ignored; of a program that it ran\n\
    test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";

/// Exit status and output.
fn counted(ended: &[Ended], notes: &str) -> (i32, String) {
    let folder = testing::own_folder().join("run");
    fs::remove_dir_all(&folder).ok();
    for part in ["logs", "ended"] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    for (label, how, output) in ended {
        let how = format!("{label}\t{}\n", how.replace(' ', "\t"));
        fs::write(folder.join("ended").join(label), how).unwrap();
        fs::write(folder.join("logs").join(label), output).unwrap();
    }
    fs::write(folder.join("notes"), notes).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/count-tests");
    let output = Command::new(script).arg(folder).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn tests_of_all_programs_are_added_up() {
    let harness = ("lab-rules", "0 tests -", "program: rules-0a1b\nall rules hold\n");
    let docs = (
        "docs",
        "0 docs -",
        "test result: ok. 2 passed; 0 failed; 0 ignored;\ntest result: ok. 5 passed; 0 failed; 0 ignored;\n",
    );
    let clippy = ("clippy", "0 check -", "");
    let (status, told) = counted(&[("wire", "0 tests 4", PASSED), harness, docs, clippy], "");
    assert_eq!((status, told.as_str()), (0, "0 repeated\n11 passed, 0 failed, 1 skipped\n"));
}

#[test]
fn a_test_that_skipped_or_repeated_is_listed_and_a_skipped_one_has_not_passed() {
    let notes = "SKIPPED\twire-0a1b\ta\tneeds root\nSKIPPED\twire-0a1b\ta\tneeds nft\n\
                 REPEATED\twire-0a1b\tb\tno packets\nREPEATED\tscripts/test-vm\tLinux 6.1\tlost\n";
    let (status, told) = counted(&[("wire", "0 tests -", PASSED)], notes);
    let expected = "skipped:\n  wire a: needs root\n  wire a: needs nft\n\
                    repeated:\n  wire b: no packets\n  scripts/test-vm Linux 6.1: lost\n\
                    2 repeated\n2 passed, 0 failed, 2 skipped\n";
    assert_eq!((status, told.as_str()), (0, expected));
}

#[test]
fn a_failed_test_is_named_and_counted_once_though_it_skipped_a_part() {
    let notes = "SKIPPED\tcli-0a1b\tbench::a\tneeds root\n";
    let (status, told) = counted(&[("cli", "101 tests -", FAILED), ("wire", "0 tests -", PASSED)], notes);
    assert_eq!(status, 1);
    assert!(told.starts_with("failed:\n  cli: bench::a\n"), "{told}");
    assert!(told.ends_with("\n0 repeated\n4 passed, 1 failed, 1 skipped\n"), "{told}");
}

#[test]
fn a_test_that_failed_and_then_passed_alone_is_counted_as_repeated() {
    let notes = "REPEATED\tcli-0a1b\tbench::a\tfailed at first, passed alone\n";
    let (status, told) = counted(&[("cli", "0 tests 2", FAILED), ("wire", "0 tests -", PASSED)], notes);
    let expected = "repeated:\n  cli bench::a: failed at first, passed alone\n\
                    1 repeated\n5 passed, 0 failed, 1 skipped\n";
    assert_eq!((status, told.as_str()), (0, expected));
}

/// Runs a test program of a shell script through `scripts/programs.sh`; returns the last lines.
fn run_of(program: &str) -> String {
    let folder = testing::own_folder().join("again");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("fake-0a1b");
    fs::write(&path, program).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = format!(
        "set -eu; . scripts/programs.sh; begin; run_program fake - testing {}; finish",
        path.display()
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .current_dir(root)
        .env_remove("LINERATE_TEST_RUN")
        .env_remove("LINERATE_TEST_LOG");
    let output = shell.output().unwrap();
    fs::remove_dir_all(folder).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_failed_test_is_run_once_more_by_itself_and_must_pass_then() {
    let fails_in_company = "#!/bin/sh\n[ $# -eq 0 ] || { echo 'test result: ok. 1 passed; 0 failed;'; exit 0; }\n\
                            echo 'test a ... FAILED'; echo 'test result: FAILED. 3 passed; 1 failed;'; exit 101\n";
    let told = run_of(fails_in_company);
    assert!(told.contains("== fake: failed at first, and passed when run again alone:\n"), "{told}");
    assert!(told.ends_with("1 repeated\n4 passed, 0 failed, 0 skipped\n"), "{told}");
    let fails_always =
        "#!/bin/sh\necho 'test a ... FAILED'; echo 'test result: FAILED. 3 passed; 1 failed;'; exit 101\n";
    let told = run_of(fails_always);
    assert!(told.ends_with("failed:\n  fake: a\n0 repeated\n3 passed, 1 failed, 0 skipped\n"), "{told}");
    // Three are too many for one program.
    let fails_much = fails_in_company.replace(
        "echo 'test a ... FAILED'; ",
        "for test in a b c; do echo \"test $test ... FAILED\"; done; ",
    );
    let told = run_of(&fails_much.replace("3 passed; 1 failed", "3 passed; 3 failed"));
    assert!(told.ends_with("0 repeated\n3 passed, 3 failed, 0 skipped\n"), "{told}");
}

#[test]
fn what_fails_without_a_failed_test_is_a_failure() {
    let wire = ("wire", "0 tests -", PASSED);
    for (ended, words) in [
        (("clippy", "101 check -", "error: unused import\n"), "clippy: ended with status 101"),
        (
            ("lab-killed", "101 tests -", "program: killed-0a1b\npanicked\n"),
            "lab-killed: ended with status 101",
        ),
        (("port", "134 tests -", PASSED), "port: ended with status 134"),
        (("vm-6.1-xdp", "0 tests 5", PASSED), "vm-6.1-xdp: 4 tests ran, not the 5 that its filter chooses"),
        (("vm-6.1-xdp", "1 tests 5", "cat: no such file\n"), "vm-6.1-xdp: ended with status 1"),
    ] {
        let (status, told) = counted(&[wire, ended], "");
        assert_eq!(status, 1, "{told}");
        assert!(told.starts_with(&format!("failed:\n  {words}\n")), "{told}");
        assert!(told.contains(" passed, 1 failed, "), "{told}");
    }
}

#[test]
fn a_run_without_a_test_is_an_error() {
    let (status, told) = counted(&[], "");
    assert_eq!((status, told.as_str()), (1, "error: nothing ran\n0 passed, 1 failed, 0 skipped\n"));
    let empty = "program: wire-0a1b\n\ntest result: ok. 0 passed; 0 failed; 0 ignored;\n";
    let (status, told) = counted(&[("wire", "0 tests -", empty)], "");
    let expected = "failed:\n  no test passed\n0 repeated\n0 passed, 1 failed, 0 skipped\n";
    assert_eq!((status, told.as_str()), (1, expected));
}
