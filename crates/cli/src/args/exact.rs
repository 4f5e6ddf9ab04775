//! `linerate bench --exact`.

use std::path::PathBuf;

use clap::Args;
use lab::{Kernel, NicModel};

use super::trials::CARDS;

/// Instruction counts instead of times.
#[derive(Debug, Args)]
#[command(next_help_heading = "Exact cost")]
pub(crate) struct ExactArgs {
    /// Count instructions per packet in an emulated machine with one CPU, instead of measuring times; the counts are the
    /// same on every machine and every day. By default one trial of 100ms per pair
    #[arg(long, conflicts_with_all = ["profile", "resume", "peer", "tx_interface"])]
    pub(crate) exact: bool,
    /// Kernels to count on, downloaded by linerate lab vm --get: 6.1, 6.12, latest [default: latest]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "exact")]
    pub(crate) kernel: Vec<Kernel>,
    /// Count on a kernel of your own: a bzImage or vmlinux
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "modules")]
    pub(crate) kernel_image: Option<PathBuf>,
    /// Folder with that kernel's modules
    #[arg(long, hide_short_help = true, value_name = "FOLDER", requires = "kernel_image")]
    pub(crate) modules: Option<PathBuf>,
    /// Send and receive on two emulated cards wired to each other instead of a veth pair: igb, e1000, e1000e, vmxnet3 or
    /// virtio
    #[arg(long, hide_short_help = true, value_name = "MODEL", requires = "exact", group = CARDS)]
    pub(crate) card: Option<NicModel>,
    /// Also run the ladder on this machine, on one CPU, and show CPU time per packet beside the instructions; their ratio
    /// hints at stalls
    #[arg(long, requires = "exact", conflicts_with = "card")]
    pub(crate) beside_ns: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Cli;

    #[test]
    fn settings_of_cards_need_interfaces_or_an_emulated_card() {
        let settings = "--rx-ring 4096 --tx-ring 64 --rx-usecs 3 --tx-usecs 3 --copybreak 0 --take-device";
        for (cards, is_valid) in
            [("--exact --card igb", true), ("--tx-interface a --rx-interface b", true), ("--exact", false)]
        {
            let words = format!("linerate bench {cards} {settings}");
            let parsed = Cli::try_parse_from(words.split(' '));
            assert_eq!(parsed.is_ok(), is_valid, "{words}");
        }
    }
}
