//! Sends with the kernel's own generator, the module `pktgen`: its packets never reach user space, so this is not a
//! [`TxPort`](crate::TxPort).
//!
//! Commands and formats: `Documentation/networking/pktgen.rst` and `net/core/pktgen.c` of the kernel. Its packets
//! carry the probe header; the bytes behind it are 0, which is stream 0.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
};

use crate::PortError;

/// How to configure [`PktgenTx`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PktgenTxOptions {
    /// The interface's name in the calling thread's namespace.
    pub interface: String,
    /// The sending interface's address.
    pub src_mac: [u8; 6],
    /// The next station's address.
    pub dst_mac: [u8; 6],
    /// Bytes of a frame without FCS.
    pub frame_bytes: usize,
    /// The VLAN tag of the frames.
    pub vlan: Option<u16>,
    /// Frames passed to the driver before it notifies the card (`xmit_more`), at least 1. They are copies of one packet.
    pub burst: u32,
    /// How often a packet is repeated before the next one is built.
    pub clones: u32,
    /// What each of the kernel's threads sends.
    pub threads: Vec<PktgenThread>,
}

/// The packets of one kernel thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PktgenThread {
    /// The thread's CPU; each can be used once.
    pub cpu: u32,
    /// Source address and first source port.
    pub src: SocketAddr,
    /// Number of source ports, used round robin from the first.
    pub src_ports: u16,
    /// To where.
    pub dst: SocketAddr,
    /// Packets per second; `None` is as fast as possible.
    pub rate_pps: Option<u64>,
    /// Packets; 0 is unlimited.
    pub count: u64,
}

/// A configured generator. It stops and forgets its interface when dropped, which must happen in the namespace it
/// was opened in.
#[derive(Debug)]
pub struct PktgenTx {
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    cpu: u32,
    device: String,
}

/// The progress of a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PktgenProgress {
    /// Packets that the driver accepted.
    pub packets: u64,
    /// Packets dropped before the driver, and not sent again.
    pub errors: u64,
    /// When the first thread started, in monotonic nanoseconds; `None` before.
    pub started_ns: Option<u64>,
    /// When the last thread stopped; while they run, the time of this reading.
    pub stopped_ns: u64,
}

impl PktgenTx {
    /// Whether the calling thread can use the kernel's generator in its namespace.
    ///
    /// # Errors
    /// [`PortError::NoPktgen`], and [`PortError::Capability`] when its files belong to another user.
    pub fn probe() -> Result<(), PortError> {
        let opened = fs::File::options().write(true).open(path(CONTROL));
        opened.map(drop).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PortError::NoPktgen { source },
            io::ErrorKind::PermissionDenied => {
                PortError::Capability { path: "pktgen", capability: "root of the machine", source }
            }
            _ => PortError::Pktgen {
                command: "open".into(),
                file: CONTROL.into(),
                said: String::new(),
                source,
            },
        })
    }

    /// Configures the kernel's threads; nothing is sent yet.
    ///
    /// # Errors
    /// As [`PktgenTx::probe`]; [`PortError::PktgenInUse`] when another user has one of the threads;
    /// [`PortError::Pktgen`] with the kernel's message.
    pub fn open(options: &PktgenTxOptions) -> Result<Self, PortError> {
        Self::probe()?;
        for PktgenThread { cpu, .. } in &options.threads {
            let file = thread_file(*cpu);
            let text = read(&file)?;
            if let Some(device) = devices_of(&text).next() {
                return Err(PortError::PktgenInUse { thread: file, device: device.to_owned() });
            }
        }
        let mut port = Self { threads: Vec::new() };
        for (number, thread) in options.threads.iter().enumerate() {
            let device = format!("{}@{number}", options.interface);
            command(&thread_file(thread.cpu), &format!("add_device {device}"))?;
            port.threads.push(Thread { cpu: thread.cpu, device: device.clone() });
            for line in commands(options, thread) {
                command(&device, &line)?;
            }
        }
        Ok(port)
    }

    /// Sends, and returns when all threads have sent their packets or were stopped.
    ///
    /// # Errors
    /// [`PortError::Pktgen`].
    pub fn run(&self) -> Result<(), PortError> {
        command(CONTROL, "start")
    }

    /// Stops all threads, from another thread than the one that runs them.
    ///
    /// # Errors
    /// [`PortError::Pktgen`].
    pub fn stop(&self) -> Result<(), PortError> {
        command(CONTROL, "stop")
    }

    /// The progress of all threads together.
    ///
    /// # Errors
    /// [`PortError::Pktgen`].
    pub fn progress(&self) -> Result<PktgenProgress, PortError> {
        let mut all = PktgenProgress::default();
        for thread in &self.threads {
            let one = progress_of(&read(&thread.device)?);
            all.packets += one.packets;
            all.errors += one.errors;
            all.started_ns = [all.started_ns, one.started_ns].into_iter().flatten().min();
            all.stopped_ns = all.stopped_ns.max(one.stopped_ns);
        }
        Ok(all)
    }
}

impl Drop for PktgenTx {
    fn drop(&mut self) {
        // The kernel ends both with the namespace; errors are ignored.
        self.stop().ok();
        for thread in &self.threads {
            command(&thread_file(thread.cpu), "rem_device_all").ok();
        }
    }
}

/// The file that starts all threads.
const CONTROL: &str = "pgctrl";

fn thread_file(cpu: u32) -> String {
    format!("kpktgend_{cpu}")
}

/// Of the calling thread, not of its process: they may be in different namespaces.
fn path(file: &str) -> String {
    format!("/proc/thread-self/net/pktgen/{file}")
}

fn commands(options: &PktgenTxOptions, thread: &PktgenThread) -> Vec<String> {
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let last_port = thread.src.port().saturating_add(thread.src_ports.max(1) - 1);
    let mut lines = vec![
        format!("count {}", thread.count),
        format!("clone_skb {}", options.clones),
        format!("burst {}", options.burst.max(1)),
        format!("pkt_size {}", options.frame_bytes),
        format!("dst_mac {}", mac(options.dst_mac)),
        format!("src_mac {}", mac(options.src_mac)),
        format!("udp_src_min {}", thread.src.port()),
        // The kernel's upper bound is exclusive, unless both are equal.
        format!("udp_src_max {}", if last_port > thread.src.port() { last_port + 1 } else { last_port }),
        format!("udp_dst_min {}", thread.dst.port()),
        format!("udp_dst_max {}", thread.dst.port()),
    ];
    match (thread.src.ip(), thread.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => lines.extend([
            format!("src_min {src}"),
            format!("src_max {src}"),
            format!("dst_min {dst}"),
            format!("dst_max {dst}"),
        ]),
        // Without a checksum an IPv6 receiver must drop a datagram.
        (src, dst) => lines.extend([format!("src6 {src}"), format!("dst6 {dst}"), "flag UDPCSUM".into()]),
    }
    lines.extend(options.vlan.map(|vlan| format!("vlan_id {vlan}")));
    lines.extend(thread.rate_pps.map(|pps| format!("ratep {}", pps.max(1))));
    lines
}

fn read(file: &str) -> Result<String, PortError> {
    fs::read_to_string(path(file)).map_err(|source| PortError::Pktgen {
        command: "read".into(),
        file: file.into(),
        said: String::new(),
        source,
    })
}

fn command(file: &str, line: &str) -> Result<(), PortError> {
    // One command per write: the kernel parses each write as one command.
    fs::write(path(file), line).map_err(|source| {
        let said = fs::read_to_string(path(file)).unwrap_or_default();
        let said = said.lines().rev().find_map(|line| line.strip_prefix("Result: ")).unwrap_or_default();
        let said = if said.is_empty() || said.starts_with("OK") {
            String::new()
        } else {
            format!(" ({})", said.trim())
        };
        PortError::Pktgen { command: line.into(), file: file.into(), said, source }
    })
}

/// The devices that a thread's file names as running or stopped.
fn devices_of(text: &str) -> impl Iterator<Item = &str> {
    let lists =
        text.lines().filter_map(|line| line.strip_prefix("Running:").or(line.strip_prefix("Stopped:")));
    lists.flat_map(str::split_whitespace)
}

fn progress_of(text: &str) -> PktgenProgress {
    let number = |name: &str| {
        let (_, rest) = text.split_once(name)?;
        let rest = rest.trim_start();
        rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse::<u64>().ok()
    };
    PktgenProgress {
        packets: number("pkts-sofar:").unwrap_or(0),
        errors: number(" errors:").unwrap_or(0),
        started_ns: number("started:").filter(|us| *us > 0).map(|us| us * 1000),
        stopped_ns: number("stopped:").unwrap_or(0) * 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(src: &str, dst: &str) -> PktgenTxOptions {
        PktgenTxOptions {
            interface: "eth0".into(),
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            frame_bytes: 60,
            vlan: Some(42),
            burst: 32,
            clones: 1000,
            threads: vec![PktgenThread {
                cpu: 3,
                src: src.parse().unwrap(),
                src_ports: 4,
                dst: dst.parse().unwrap(),
                rate_pps: Some(5000),
                count: 7,
            }],
        }
    }

    #[test]
    fn a_thread_is_told_addresses_ports_size_rate_and_count() {
        let options = options("198.18.0.1:20000", "198.19.0.1:4321");
        let lines = commands(&options, &options.threads[0]);
        for line in [
            "count 7",
            "pkt_size 60",
            "dst_mac 02:00:00:00:00:02",
            "src_min 198.18.0.1",
            "dst_max 198.19.0.1",
            "udp_src_min 20000",
            "udp_src_max 20004",
            "udp_dst_min 4321",
            "vlan_id 42",
            "burst 32",
            "clone_skb 1000",
            "ratep 5000",
        ] {
            assert!(lines.iter().any(|told| told == line), "{line} in {lines:?}");
        }
    }

    #[test]
    fn ipv6_has_its_own_words_and_a_checksum() {
        let options = options("[2001:2::1]:1", "[2001:2:0:1::1]:2");
        let lines = commands(&options, &options.threads[0]);
        for line in ["src6 2001:2::1", "dst6 2001:2:0:1::1", "flag UDPCSUM"] {
            assert!(lines.iter().any(|told| told == line), "{line} in {lines:?}");
        }
    }

    #[test]
    fn progress_and_devices_are_read_from_the_kernels_words() {
        let text = "Params: count 1000  min_pkt_size: 60  max_pkt_size: 60\n\
                    Current:\n     pkts-sofar: 123456  errors: 7\n     started: 1000us  stopped: 251000us idle: 5us\n\
                    \x20    seq_num: 123457  cur_dst_mac_offset: 0\nResult: OK: 250000(c1+d2) usec, 123456 (60byte,0frags)\n";
        let progress = progress_of(text);
        assert_eq!((progress.packets, progress.errors), (123_456, 7));
        assert_eq!((progress.started_ns, progress.stopped_ns), (Some(1_000_000), 251_000_000));
        assert_eq!(progress_of(""), PktgenProgress::default());
        let thread = "Running: eth0@0 \nStopped: eth1@2 eth3 \nResult: OK: add_device\n";
        assert_eq!(devices_of(thread).collect::<Vec<_>>(), ["eth0@0", "eth1@2", "eth3"]);
        assert_eq!(devices_of("Running: \nStopped: \nResult: NA\n").count(), 0);
    }

    #[test]
    fn a_kernel_without_the_module_says_so() {
        if !fs::exists("/proc/thread-self/net/pktgen").unwrap() {
            let refused = PktgenTx::open(&options("198.18.0.1:1", "198.19.0.1:2")).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "the pktgen path needs the kernel module pktgen (modprobe pktgen)"
            );
        }
    }
}
