//! Compiles the emulator's plugin with the C compiler that also links Rust programs.

use std::{env, fs, path::PathBuf, process::Command};

const FOLDER: &str = "src/vm/counter";

fn main() {
    println!("cargo::rerun-if-changed={FOLDER}");
    println!("cargo::rerun-if-env-changed=CC");
    let made = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("counter.so");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return fs::write(&made, []).expect("cargo's OUT_DIR is writable");
    }
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers"]);
    command
        .args(["-fPIC", "-shared", "-fvisibility=hidden", "-s", "-o"])
        .arg(&made)
        .arg(format!("{FOLDER}/counter.c"));
    let status =
        command.status().unwrap_or_else(|error| panic!("cannot run {}: {error}", compiler.display()));
    assert!(status.success(), "{} cannot compile {FOLDER}/counter.c: {status}", compiler.display());
}
