//! `linerate lab vm`: a command in a virtual machine with real network drivers.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
};

use lab::{Vm, VmError, VmPlan, VmStatus, VmStore, VmStreams};
use sys::signal;

use crate::{
    access::gain_access,
    args::{LabArgs, LabCommand, VmArgs},
    failure::{Failure, Status},
    output::printed,
};

/// As of timeout(1).
const TIMED_OUT: u8 = 124;
const LOST: u8 = 125;
/// As a shell says that SIGINT ended a command.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(args: &LabArgs) -> Result<bool, Failure> {
    match &args.command {
        LabCommand::Vm(args) => run_vm(args),
    }
}

fn run_vm(args: &VmArgs) -> Result<bool, Failure> {
    let plan = plan(args);
    let problems = plan.problems();
    let problems = problems.iter().map(|problem| Failure::new(Status::Usage, problem)).collect();
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    if args.get {
        let store = VmStore::of_user().map_err(|error| explain(&error, args))?;
        store.get(args.kernel, |step| eprintln!("{step}")).map_err(|error| explain(&error, args))?;
        eprintln!("Linux {} is in {}", args.kernel, store.path().display());
    }
    if args.command.is_empty() {
        return Ok(true);
    }
    let vm = Vm::prepare(&plan).map_err(|error| explain(&error, args))?;
    // The files are found by the rights of the user who asked, so before becoming somebody else.
    gain_access()?;
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let streams = VmStreams { stdout: &mut stdout, stderr: &mut stderr };
    let ended = vm.run(&script(&args.command), streams, || signal::caught() == 0);
    let status = match ended {
        Ok(VmStatus::Exited(status)) => status,
        Ok(VmStatus::TimedOut(words)) => {
            eprint!("{words}");
            eprintln!("the virtual machine was ended after {:?} (--timeout)", args.timeout);
            TIMED_OUT
        }
        Ok(VmStatus::Stopped) => INTERRUPTED,
        Ok(VmStatus::Lost(words)) => {
            eprint!("{words}");
            eprintln!("the virtual machine ended without a status");
            LOST
        }
        Err(VmError::Output { source }) => return printed(Err(source)).map(|()| true),
        Err(error) => return Err(explain(&error, args)),
    };
    // The command's own status, whatever it means: nothing is left to undo here.
    io::stdout().flush().ok();
    std::process::exit(status.into())
}

fn plan(args: &VmArgs) -> VmPlan {
    VmPlan {
        kernel: args.kernel,
        pairs: args.pairs.clone(),
        cpus: args.cpus,
        memory_mib: args.memory,
        time_limit: args.timeout,
        accel: args.accel,
        share: args.share.clone(),
        kernel_options: args.kernel_options.clone(),
        image: None,
    }
}

fn explain(error: &VmError, args: &VmArgs) -> Failure {
    let kernel = args.kernel;
    match error {
        VmError::NotThere { .. } => Failure::of(Status::Missing, error)
            .hint(format!("linerate lab vm --kernel {kernel} --get downloads it (up to 170 MB, once)")),
        VmError::NoArchive { .. } => {
            Failure::of(Status::Missing, error).hint("the packages can be fetched on Debian on x86-64 only")
        }
        VmError::Wire { .. } | VmError::Bridge { .. } => Failure::of(Status::Missing, error)
            .hint("a virtio card with one queue needs neither: --pair virtio"),
        _ => Failure::of(Status::Refused, error),
    }
}

/// The command as a line of a shell script.
fn script(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    format!("exec {}\n", words.join(" "))
}

fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_words_of_a_command_as_they_were() {
        let words = ["printf", "%s|", "it's", "a b", "$HOME", "", "\\"].map(OsString::from);
        let output = std::process::Command::new("sh").arg("-c").arg(script(&words)).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's|a b|$HOME||\\|");
    }
}
