//! `linerate lab`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use lab::{Accel, Kernel, NicModel, NicPair};

#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run a command in a virtual machine with real network drivers
    ///
    /// The emulated machine runs a stock Debian kernel. Its network cards are wired back to back in pairs: pair1a and
    /// pair1b, pair2a and pair2b, and so on. The command sees this host's files, and this program as linerate; what it
    /// writes stays in the machine's memory, except in /share. Runs that linerate saves go to this host's default folder,
    /// or, with --share and --save, to FOLDER. The command's output and exit status are passed on; 124: the time limit was
    /// reached; 125: the machine ended without a status. With --hosts 2, two machines are wired to each other: CMD runs in
    /// the first one, --other in the second; the exit status is the first one's, or the second one's if the first one's is
    /// 0.
    #[command(
        after_help = "Examples:\n  linerate lab vm --get\n  linerate lab vm --pair igb -- linerate bench \
                      --tx-interface pair1a --rx-interface pair1b\n  linerate lab vm --hosts 2 --wire igb --other 'linerate recv' -- \
                      linerate bench --peer 198.18.1.2\n\nExit status: the command's; 124 time limit reached; 125 the machine ended without a \
                      status; 2 usage error; 3 packages missing (--get downloads them), or no permission to \
                      create a network namespace; 4 the environment refused."
    )]
    Vm(VmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VmArgs {
    /// The guest's kernel: 6.1, 6.12 or latest
    #[arg(long, default_value = "latest", value_name = "SERIES")]
    pub(crate) kernel: Kernel,
    /// Two cards of a model, wired to each other: igb, e1000, e1000e, vmxnet3, virtio, or virtio:4 with 4 queues (needs
    /// /dev/net/tun); repeatable
    #[arg(long = "pair", value_name = "MODEL")]
    pub(crate) pairs: Vec<NicPair>,
    /// Number of machines: 1, or 2 with --wire and --other
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) hosts: u8,
    /// A cable between two machines, with a card of this model at both ends: wire1 with the addresses 198.18.1.1 and
    /// 198.18.1.2, and so on; `cable 1 off` and `cable 1 on` in either machine unplug it and plug it in; repeatable
    #[arg(long = "wire", value_name = "MODEL")]
    pub(crate) wires: Vec<NicModel>,
    /// The second machine's command, a line of /bin/sh; its output goes to standard error. CMD starts once that command
    /// listens on a TCP port, or after 10s; when CMD has ended, it gets SIGTERM
    #[arg(long, value_name = "LINE")]
    pub(crate) other: Option<String>,
    /// Virtual CPUs; igb and vmxnet3 use one queue for each
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) cpus: u32,
    /// Memory of the guest in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub(crate) memory: u32,
    /// Time limit, including the guest's boot [default: 2m; 30m if the command is linerate]
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// How to run the guest's instructions: tcg (the emulator), kvm (needs /dev/kvm) or counting (the emulator with one CPU,
    /// whose clock advances by 1 ns per instruction)
    #[arg(long, default_value = "tcg", value_name = "NAME")]
    pub(crate) accel: Accel,
    /// A folder that the guest may write to, mounted there as /share
    #[arg(long, value_name = "FOLDER")]
    pub(crate) share: Option<PathBuf>,
    /// Add an IOMMU that translates the cards' DMA, and the kernel's drivers of VFIO
    #[arg(long)]
    pub(crate) iommu: bool,
    /// An option for the kernel's command line; repeatable
    #[arg(long = "kernel-option", value_name = "WORD", allow_hyphen_values = true)]
    pub(crate) kernel_options: Vec<String>,
    /// First download missing packages with this machine's apt into a cache folder of the user
    #[arg(long)]
    pub(crate) get: bool,
    /// The command and its arguments; optional with --get
    #[arg(last = true, value_name = "CMD", required_unless_present = "get")]
    pub(crate) command: Vec<OsString>,
}
