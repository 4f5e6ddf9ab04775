//! `linerate recv`.

use std::time::Duration;

use clap::Args;

use super::{CpuList, Listen, OutputArgs, cpus::parse_cpus};

#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// Where to listen, UDP for packets and TCP for senders' handshakes: ADDRESS, ADDRESS:PORT or PORT
    #[arg(default_value = "4321", value_name = "LISTEN")]
    pub(crate) listen: Listen,
    /// Receiving threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) threads: u16,
    /// A socket a thread on the same port instead of one that all share
    #[arg(long)]
    pub(crate) reuseport: bool,
    /// Let the kernel join datagrams of a flow (UDP GRO); each is still counted
    #[arg(long)]
    pub(crate) gro: bool,
    /// SO_RCVBUF in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) receive_buffer: Option<usize>,
    /// Messages a system call, at most
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) batch_size: u32,
    /// Look again at once instead of sleeping until a packet comes
    #[arg(long)]
    pub(crate) spin: bool,
    /// CPUs of the workers, for example 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,
    /// Stop after this time [default: when interrupted]
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Stop when the first sender has finished
    #[arg(long)]
    pub(crate) once: bool,
    /// Sample what the CPUs do: where receiving takes its time, by stage
    #[arg(long)]
    pub(crate) profile: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
