//! The command line as typed, one file per command. Each command's plan interprets it.

use clap::{Parser, Subcommand};

mod bench;
mod cpus;
mod divert;
mod engines;
mod exact;
#[cfg(feature = "fleet")]
mod fleet;
mod help;
mod hold;
mod interval;
mod lab;
mod ledger;
mod load;
mod model;
mod ndr;
mod nic;
mod output;
mod packets;
mod probe;
mod recv;
mod replay;
mod report;
mod send;
mod stats;
mod targets;
mod trials;
mod tune;
mod view;

pub(crate) use bench::{
    Apu4d4Args, BenchArgs, BenchCommand, BenchRdrArgs, DiskArgs, ListArgs, RealRdrArgs, SingleRxQueueArgs,
    StageArgs,
};
pub(crate) use cpus::CpuList;
pub(crate) use divert::{
    DivertArgs, DivertCommand, DivertQueueArgs, DivertStatusArgs, DivertStopArgs, DivertTestArgs, PlaceArg,
    QueueList, SteerArg,
};
pub(crate) use engines::{
    engine_names, frame_senders, listed, packet_senders, returning_senders, sends_packets,
};
pub(crate) use exact::ExactArgs;
#[cfg(feature = "fleet")]
pub(crate) use fleet::{
    AgentArgs, FleetArgs, FleetCollectArgs, FleetCommand, FleetDivertArgs, FleetDivertCommand, FleetRunArgs,
    FleetStatusArgs, FleetUpArgs, ServerArgs,
};
pub(crate) use hold::HoldArgs;
pub(crate) use lab::{LabArgs, LabCommand, VmArgs};
pub(crate) use ledger::LedgerArgs;
pub(crate) use load::{LoadArgs, PatternArgs};
pub(crate) use model::{ModelArgs, ModelCommand, PlanArgs, PolicyArg, RdrArgs};
pub(crate) use ndr::{NdrArgs, TestArg};
pub(crate) use nic::{
    AdviseArgs, ApplyArgs, End, FlowArgs, GoalArg, NicArgs, NicCommand, RestoreArgs, ShowArgs, SpreadArgs,
    WatchArgs,
};
pub(crate) use output::{JsonArg, OutputArgs};
pub(crate) use packets::{FrameArgs, PacketArgs};
pub(crate) use probe::ProbeArgs;
pub(crate) use recv::{
    AskArgs, ClocksArg, Display, MeasureArgs, ReceiverChange, RecvArgs, RecvCommand, SetArgs, StampArg,
};
pub(crate) use replay::ReplayArgs;
pub(crate) use report::{CompareArgs, CompareForm, CompareMetric, ReportArgs, ReportForm};
pub(crate) use send::SendArgs;
pub(crate) use stats::LevelArg;
pub(crate) use targets::{Listen, Target};
pub(crate) use trials::{
    CardArgs, NapiArg, OffloadArg, PathArgs, RingArgs, RxRingArgs, SettingArgs, SocketArgs, SweepArgs,
};
pub(crate) use tune::{GoalOfTuneArg, TuneArgs};
pub(crate) use view::ViewArgs;

/// Measures how many packets per second this machine can send and receive, and where every other packet went.
#[derive(Debug, Parser)]
#[command(
    name = "linerate",
    version,
    args_override_self = true,
    max_term_width = 100,
    after_help = "Exit status: 0 success; 1 completed, but missed a goal (rate not held, ledger not closed, receiver lost, \
                  --max-loss exceeded); 2 usage error; 3 missing capability or kernel feature; 4 the \
                  environment refused (address in use, interface missing, no consent, disk); 5 bug in linerate."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure every sending path against every receiving path, in a private lab or to another host
    Bench(Box<BenchArgs>),
    /// Find the fastest settings for a path, and verify them
    Tune(Box<TuneArgs>),
    /// Send to receivers that consent
    Send(Box<SendArgs>),
    /// Receive and count packets, and answer senders' requests
    Recv(Box<RecvArgs>),
    /// Join a fleet: send and receive at a coordinator's request, within the owner's limits
    #[cfg(feature = "fleet")]
    Agent(Box<AgentArgs>),
    /// Measure with many machines at once, coordinated over NATS
    #[cfg(feature = "fleet")]
    Fleet(FleetArgs),
    /// Take chosen packets off the kernel's receive path, filter them, and re-inject the valid ones
    Divert(Box<DivertArgs>),
    /// Test which paths are available, and show what each missing one needs
    Probe(ProbeArgs),
    /// Show, explain and change a card's receive path: queues, flows, settings
    Nic(Box<NicArgs>),
    /// Run a command in a lab of its own: a virtual machine with real network drivers
    Lab(LabArgs),
    /// Watch where packets are lost on this machine, without sending any
    Ledger(LedgerArgs),
    /// Simulate a NIC's receive path: presets, sweeps, predictions, fleets, the RDR paper
    Model(Box<ModelArgs>),
    /// Show a saved run as text, JSON, CSV, Markdown or one HTML page
    Report(ReportArgs),
    /// Replay a recorded run in the live views
    Replay(ReplayArgs),
    /// Compare runs statistically; the exit status is a regression gate
    Compare(CompareArgs),
    /// Print the manual page (troff)
    Man,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether the user wants the CPUs held while it runs; a dry run holds nothing.
    pub(crate) fn holds_cpus(&self) -> bool {
        let (hold, output) = match self {
            Self::Bench(bench) => match &bench.command {
                None => (&bench.sockets.hold, &bench.output),
                Some(BenchCommand::Ndr(ndr)) => (&ndr.sockets.hold, &ndr.output),
                Some(BenchCommand::Apu4d4(args)) => (&args.hold, &args.output),
                Some(BenchCommand::SingleRxQueue(args)) => (&args.hold, &args.output),
                Some(BenchCommand::Disk(args)) => (&args.hold, &args.output),
                Some(BenchCommand::List(_) | BenchCommand::Rdr(_)) => return false,
            },
            Self::Tune(tune) => (&tune.sockets.hold, &tune.output),
            Self::Send(send) => (&send.hold, &send.output),
            Self::Recv(recv) => (&recv.hold, &recv.output),
            _ => return false,
        };
        hold.hold_cpu && !output.dry_run
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A command's arguments, split as a shell does.
    fn words(command: &str) -> Vec<std::ffi::OsString> {
        let script = format!("set -- {command}\nprintf '%s\\0' \"$@\"");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_terminator('\0').map(Into::into).collect()
    }

    /// The examples in a command's help, and in those of its subcommands: command lines without the words behind them.
    fn examples(command: &clap::Command, found: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  linerate "));
        found.extend(lines.map(|line| format!("linerate {}", line.split("  ").next().unwrap())));
        command.get_subcommands().for_each(|command| examples(command, found));
    }

    #[test]
    fn examples_in_help_are_right_and_before_the_options() {
        let mut found = Vec::new();
        examples(&Cli::command(), &mut found);
        for example in &found {
            let example = example.trim_end_matches(" &");
            assert!(crate::scenario::parse(words(example)).is_ok(), "{example}");
        }
        assert!(found.len() > 25, "{found:?}");
        for name in ["bench", "send", "recv", "tune", "ledger", "divert", "report", "compare", "model"] {
            let mut cli = Cli::command();
            let help = cli.find_subcommand_mut(name).unwrap().render_help().to_string();
            let place =
                |words: &str| help.find(words).unwrap_or_else(|| panic!("{name}: no {words}: {help}"));
            assert!(place("Examples:") < place("Options:"), "{name}: {help}");
        }
    }

    #[test]
    fn commands_in_the_documents_are_right() {
        let mut wrong = String::new();
        let mut right = 0;
        for shown in testing::shown_commands() {
            let command = shown.command.split(" > ").next().unwrap_or_default();
            let mut command = words(command);
            // What follows `--` may be a linerate command, too: `lab vm` runs it in the guest.
            while command.first().is_some_and(|word| word == "linerate") {
                let inner = command.iter().position(|word| word == "--");
                let rest = inner.map(|at| command[at + 1..].to_vec());
                match crate::scenario::parse(command) {
                    Ok(_) => right += 1,
                    Err(failure) => wrong.push_str(&format!("{shown}\n  {failure:?}\n")),
                }
                command = rest.unwrap_or_default();
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(right > 50, "{right} commands");
    }

    #[test]
    fn the_setting_in_contributing_is_the_source() {
        let root = testing::repository();
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        let (guide, mark) = (read("CONTRIBUTING.md"), "<!-- crates/nic/src/settings/pause.rs -->\n```text\n");
        let block = guide.split_once(mark).and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
        assert_eq!(block, read("crates/nic/src/settings/pause.rs"));
    }
}
