//! `linerate lab`: what it says before any virtual machine is started.

use crate::support::{linerate, words};

#[test]
fn packages_that_are_not_there_are_named_with_the_command_that_gets_them() {
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
