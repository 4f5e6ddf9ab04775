//! Keys: senders with the receiver's secret are served over an encrypted connection.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::support::{Recv, json, own_folder, run};

fn key(name: &str, secret: &str) -> String {
    let path = own_folder().join(name);
    fs::write(&path, secret).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn only_senders_with_the_receivers_secret_are_served() {
    let (ours, other) = (key("ours", "correct horse battery\n"), key("other", "another secret, as long\n"));
    let receiver = Recv::start(&["--key", &ours]);
    let target = receiver.address.to_string();
    let send = |args: &[&str]| {
        let all = ["send", &target, "--count", "100", "--rate", "10kpps", "--no-save", "--json"];
        json(&[&all[..], args].concat())
    };
    let (_, record) = send(&["--key", &ours]);
    assert_eq!(record["end"]["trials"][0]["delivered"], 100, "{record}");
    assert!(!record.to_string().contains("correct horse"), "no record contains the secret");
    for (args, said) in [
        (vec![], "refused: it serves only senders with its key (--key FILE)"),
        (vec!["--key", other.as_str()], "refused: it has another key"),
    ] {
        let all = ["send", &target, "--count", "100", "--no-save"];
        let (status, _, err) = run(&[&all[..], &args[..]].concat());
        assert_eq!(status, 4, "{err}");
        assert!(err.contains(said), "{err}");
    }
    let open = Recv::start(&[]);
    let (status, _, err) =
        run(&["send", &open.address.to_string(), "--count", "1", "--key", &ours, "--no-save"]);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("refused: it has no key: start it with --key FILE"), "{err}");
}

#[test]
fn a_key_that_others_can_read_or_that_is_short_is_refused() {
    let path = key("loose", "correct horse battery");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let (status, _, err) = run(&["send", "127.0.0.1:1", "--key", &path]);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("loose can be read by other users") && err.contains("hint:  chmod 600"), "{err}");
    let short = key("short", "12345");
    let (status, _, err) = run(&["recv", "127.0.0.1:0", "--key", &short]);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("has 5 bytes: must be 16 to 4096"), "{err}");
}
