//! `linerate lab`: messages before any virtual machine starts.

use crate::support::{linerate, words};

#[test]
fn missing_packages_are_reported_with_the_command_that_gets_them() {
    let mut command = linerate(&["lab", "vm", "--kernel", "6.12", "--", "true"]);
    command.env("XDG_CACHE_HOME", "/nowhere");
    let (status, out, err) = words(command.output().unwrap());
    assert_eq!((status, out.as_str()), (3, ""), "{err}");
    assert!(
        err.contains("needs an emulator and a kernel, which /nowhere/linerate/vm does not contain"),
        "{err}"
    );
    assert!(err.contains("linerate lab vm --kernel 6.12 --get"), "{err}");
}
