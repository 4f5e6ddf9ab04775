//! `linerate lab vm`: a command in a virtual machine with real network drivers.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use lab::{Accel, Vm, VmError, VmHost, VmHosts, VmPlan, VmStatus, VmStore, VmStreams};
use sys::signal;

use crate::{
    access::gain_access,
    args::{LabArgs, LabCommand, VmArgs},
    failure::{Failure, Status},
    output::{printed, state_folder},
};

/// The exit status of timeout(1).
const TIMED_OUT: u8 = 124;
const LOST: u8 = 125;
/// The exit status that a shell reports after SIGINT.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(args: &LabArgs) -> Result<bool, Failure> {
    match &args.command {
        LabCommand::Vm(args) => run_vm(args),
    }
}

fn run_vm(args: &VmArgs) -> Result<bool, Failure> {
    let plan = plan(args);
    let problems = plan.problems();
    let problems = problems.iter().map(|problem| Failure::new(Status::Usage, problem));
    let problems =
        problems.chain(hosts_problem(args).map(|said| Failure::new(Status::Usage, said))).collect();
    if let Some(failure) = Failure::all(problems) {
        return Err(failure);
    }
    if args.get {
        let store = VmStore::of_user().map_err(|error| explain(&error, args))?;
        store.get(args.kernel, |step| eprintln!("{step}")).map_err(|error| explain(&error, args))?;
        eprintln!("Linux {} is installed in {}", args.kernel, store.path().display());
    }
    if args.command.is_empty() {
        return Ok(true);
    }
    if let Some(other) = args.other.as_deref() {
        return run_hosts(args, &plan, other);
    }
    let vm = Vm::prepare(&plan).map_err(|error| explain(&error, args))?;
    // The machine's files are opened with the rights of the calling user, before entering a user namespace.
    gain_access()?;
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let streams = VmStreams { stdout: &mut stdout, stderr: &mut stderr };
    let ended = vm.run(&script(args, &line(&args.command)), streams, || signal::caught() == 0);
    let status = match ended {
        Ok(status) => exit_status(status, "the virtual machine", args),
        Err(error) => return not_run(error, args),
    };
    exit(status)
}

/// Runs the commands of both machines. Returns the first one's exit status, or the second one's if the first one's is 0.
fn run_hosts(args: &VmArgs, plan: &VmPlan, other: &str) -> Result<bool, Failure> {
    let hosts = VmHosts::prepare(plan, &args.wires).map_err(|error| explain(&error, args))?;
    gain_access()?;
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let (mut other_stdout, mut other_stderr) = (io::stderr(), io::stderr());
    let ended = hosts.run(
        [
            VmHost {
                script: &script(args, &line(&args.command)),
                streams: VmStreams { stdout: &mut stdout, stderr: &mut stderr },
            },
            VmHost {
                script: &script(args, &format!("{other}\n")),
                streams: VmStreams { stdout: &mut other_stdout, stderr: &mut other_stderr },
            },
        ],
        || signal::caught() == 0,
    );
    match ended {
        Ok([first, second]) => {
            let first = exit_status(first, "the first virtual machine", args);
            let second = exit_status(second, "the second virtual machine", args);
            exit(if first == 0 { second } else { first })
        }
        Err(error) => not_run(error, args),
    }
}

/// What the user must change in options for one or two machines.
fn hosts_problem(args: &VmArgs) -> Option<&'static str> {
    let is_pair = args.hosts == 2;
    match (is_pair, args.wires.is_empty(), args.other.is_none()) {
        _ if args.command.is_empty() => None,
        (false, true, true) => None,
        (false, ..) => Some("--wire and --other need two machines: --hosts 2"),
        (true, true, _) => Some("two machines need a cable, for example --wire igb"),
        (true, _, true) => Some("two machines need a command for the second one: --other LINE"),
        (true, ..) if args.wires.len() > VmHosts::MAX_CABLES => {
            Some("two machines can have at most 8 cables")
        }
        (true, ..) if args.accel == Accel::Counting => Some("--accel counting needs a single machine"),
        (true, ..) => None,
    }
}

/// The command's own exit status, whatever it means.
fn exit_status(status: VmStatus, machine: &str, args: &VmArgs) -> u8 {
    match status {
        VmStatus::Exited(status) => status,
        VmStatus::TimedOut(words) => {
            eprint!("{words}");
            eprintln!("{machine} was stopped after {:?} (--timeout)", time_limit(args));
            TIMED_OUT
        }
        VmStatus::Stopped if signal::caught() == 0 => {
            eprintln!("{machine} did not end with the other one");
            TIMED_OUT
        }
        VmStatus::Stopped => INTERRUPTED,
        VmStatus::Lost(words) => {
            eprint!("{words}");
            eprintln!("{machine} ended without a status");
            LOST
        }
    }
}

fn not_run(error: VmError, args: &VmArgs) -> Result<bool, Failure> {
    match error {
        VmError::Output { source } => printed(Err(source)).map(|()| true),
        error => Err(explain(&error, args)),
    }
}

fn exit(status: u8) -> ! {
    io::stdout().flush().ok();
    std::process::exit(status.into())
}

/// Whether the guest's command is linerate.
fn runs_linerate(args: &VmArgs) -> bool {
    args.command.first().is_some_and(|program| program == "linerate")
}

fn plan(args: &VmArgs) -> VmPlan {
    VmPlan {
        kernel: args.kernel,
        pairs: args.pairs.clone(),
        cpus: args.cpus,
        memory_mib: args.memory,
        time_limit: time_limit(args),
        accel: args.accel,
        share: args.share.clone().or_else(|| runs_linerate(args).then(runs_folder)),
        iommu: args.iommu,
        kernel_options: args.kernel_options.clone(),
        ..VmPlan::default()
    }
}

fn explain(error: &VmError, args: &VmArgs) -> Failure {
    let kernel = args.kernel;
    match error {
        VmError::NotThere { .. } => Failure::of(Status::Missing, error)
            .hint(format!("download it once (up to 170 MB) with linerate lab vm --kernel {kernel} --get")),
        VmError::NoArchive { .. } => {
            Failure::of(Status::Missing, error).hint("--get works only on Debian on x86-64")
        }
        VmError::Wire { .. } | VmError::Bridge { .. } => {
            Failure::of(Status::Missing, error).hint("use a virtio card with one queue: --pair virtio")
        }
        _ => Failure::of(Status::Refused, error),
    }
}

/// The machine's time limit. A ladder takes minutes in full emulation.
fn time_limit(args: &VmArgs) -> Duration {
    const OF_LINERATE: Duration = Duration::from_secs(30 * 60);
    const OF_OTHERS: Duration = Duration::from_secs(2 * 60);
    args.timeout.unwrap_or(if runs_linerate(args) { OF_LINERATE } else { OF_OTHERS })
}

/// Creates the folder of saved runs and shares it with the guest: its runs are saved on this host even if it is cut off.
fn runs_folder() -> PathBuf {
    let folder = state_folder().join("runs");
    // Without the folder the plan reports the problem.
    std::fs::create_dir_all(&folder).ok();
    folder
}

/// The guest's script: links this program under its name, and binds this host's folder of runs.
fn script(args: &VmArgs, command: &str) -> String {
    let mut lines = String::new();
    if let Ok(program) = env::current_exe() {
        lines += &format!("mkdir -p /run/bin && ln -s {} /run/bin/linerate\n", quoted(program.as_os_str()));
        lines += "PATH=/run/bin:$PATH && export PATH\n";
    }
    if runs_linerate(args) && args.share.is_none() {
        let state = state_folder();
        let (parent, runs) = (state.parent().unwrap_or(&state), state.join("runs"));
        lines += &format!("mkdir -p {0} && mount --bind /share {0}\n", quoted(runs.as_os_str()));
        lines += &format!("XDG_STATE_HOME={} && export XDG_STATE_HOME\n", quoted(parent.as_os_str()));
    }
    lines + command
}

/// The command as a line of a shell script.
fn line(command: &[OsString]) -> String {
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
        let output = std::process::Command::new("sh").arg("-c").arg(line(&words)).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's|a b|$HOME||\\|");
    }
}
