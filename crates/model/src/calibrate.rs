//! The parameters of a measured machine, from the trials of a run: nanoseconds per packet by stage, and what
//! the record says about rings, moderation, link and bus. The model predicts other loads with them.
//!
//! In the lab the sender's CPU also carries the receiving stack (veth hands frames over on the CPU that sends,
//! unless NAPI is threaded), and the reader has a CPU of its own:
//!
//! ```text
//! sender CPU: [ send ][ driver, stack ] ──> socket ──> [ read ] :reader CPU
//! ```

mod predict;

use measure::{Endpoint, Machine, NicFacts, Origin, Run, Trial};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::stages::{socket::Socket, stack::Path};

pub use predict::{Load, predict};

/// What a run shows about a machine, for each pair of sender and receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// CPU and kernel of the machine.
    pub machine: String,
    /// Where the packets went.
    pub origin: Origin,
    /// Every pair that could be calibrated.
    pub pairs: Vec<PairCalibration>,
    /// Pairs that could not, and why.
    pub notes: Vec<String>,
}

/// What a record does not say about a pair's engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairTraits {
    /// How far a frame goes on the receiving side.
    pub path: Path,
    /// The receiver reads a ring that it shares with the kernel; each frame in it follows a header.
    pub frame_ring: bool,
    /// A frame of the sender takes a whole page of the receiver's socket buffer.
    pub page_per_frame: bool,
}

/// One pair of sender and receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairCalibration {
    /// The sending side, as measured.
    pub tx: Endpoint,
    /// The receiving side, as measured.
    pub rx: Endpoint,
    /// How far a frame goes on the receiving side.
    pub path: Path,
    /// Frame size from Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// Time between frames that sending alone takes, all sending threads together, in nanoseconds; 0 when the
    /// sender is another machine.
    pub sender_ns: f64,
    /// CPU time of driver and stack for a frame, in nanoseconds.
    pub stack_ns: f64,
    /// CPU time of one reading CPU for a frame, in nanoseconds; `None` without a reader (XDP).
    pub reader_ns: Option<f64>,
    /// The socket's buffer as the kernel doubles it, or the packet socket's ring; `None` is the default.
    pub socket_bytes: Option<u64>,
    /// What a frame takes of it.
    pub truesize_bytes: u32,
    /// Seconds during which a trial sent. Packets in buffers at its end are delivered too, and count.
    pub duration_s: f64,
    /// CPUs that read.
    pub reader_cpus: u32,
    /// Reader and sender share a CPU.
    pub shared_cpu: bool,
    /// Driver and stack have a CPU of their own.
    pub threaded_napi: bool,
    /// The receiving card; `None` in the lab.
    pub card: Option<Card>,
    /// How each figure was found, in words.
    pub basis: Vec<String>,
}

/// What the record says about a receiving card; `None` where it says nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Card {
    /// Link speed in bits per second.
    pub link_bps: Option<u64>,
    /// Receive queues.
    pub queues: u32,
    /// Descriptors of a receive ring.
    pub ring: Option<u32>,
    /// rx-usecs.
    pub rx_usecs: Option<f64>,
    /// rx-frames.
    pub rx_frames: Option<u32>,
    /// PCI Express generation.
    pub pcie_generation: Option<u32>,
    /// PCI Express lanes.
    pub pcie_lanes: Option<u32>,
}

/// Why a run calibrates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CalibrateError {
    /// Nothing was measured.
    #[error("the run has no finished trial to calibrate from: measure one with linerate bench")]
    NoTrials,
    /// No trial shows what a packet costs.
    #[error("no trial of the run shows what a packet costs:\n{}", .reasons.iter().map(|r| format!("  {r}")).collect::<Vec<_>>().join("\n"))]
    NoCosts {
        /// Why not, trial by trial.
        reasons: Vec<String>,
    },
}

/// A worker that ran at least this share of the time was limited by its CPU.
const BUSY: f64 = 0.9;
/// A receiver that lost at least this share of the packets was limited.
const LOSING: f64 = 0.01;

/// The least time that one CPU can take to read a packet, in nanoseconds: less than any engine.
const LEAST_READING_NS: f64 = 5.0;
/// The same for all sending CPUs together: a thousand of them at 20 ns.
const LEAST_SENDING_NS: f64 = 0.02;
/// The most time that a packet can take, in nanoseconds: a second.
const MOST_NS: f64 = 1e9;

/// Takes a machine's parameters from a run; `traits_of` knows the engines of a trial.
///
/// # Errors
/// [`CalibrateError`] when no trial can be used.
pub fn calibrate(run: &Run, traits_of: impl Fn(&Trial) -> PairTraits) -> Result<Calibration, CalibrateError> {
    let finished: Vec<&Trial> =
        run.end.trials.iter().filter(|trial| !trial.interrupted && trial.sent > 0).collect();
    if finished.is_empty() {
        return Err(CalibrateError::NoTrials);
    }
    let mut groups: Vec<Vec<&Trial>> = Vec::new();
    for trial in finished {
        let same = |other: &Trial| {
            (&other.tx.label, &other.rx.label, other.frame_size_bytes, other.tx.threads, other.rx.threads)
                == (
                    &trial.tx.label,
                    &trial.rx.label,
                    trial.frame_size_bytes,
                    trial.tx.threads,
                    trial.rx.threads,
                )
        };
        match groups.iter_mut().find(|group| same(group[0])) {
            Some(group) => group.push(trial),
            None => groups.push(vec![trial]),
        }
    }
    let (mut pairs, mut notes) = (Vec::new(), Vec::new());
    for group in &groups {
        match calibrate_pair(group, run, traits_of(group[0])) {
            Ok(pair) => pairs.push(pair),
            Err(reason) => {
                notes.push(format!("{} to {}: {reason}", group[0].tx.label, group[0].rx.label));
            }
        }
    }
    if pairs.is_empty() {
        return Err(CalibrateError::NoCosts { reasons: notes });
    }
    let Machine { cpu_model, kernel, .. } = &run.start.machine;
    Ok(Calibration {
        machine: format!("{cpu_model}, Linux {kernel}"),
        origin: run.start.origin,
        pairs,
        notes,
    })
}

/// A figure and its source in words.
struct Found {
    ns: f64,
    how: String,
}

fn calibrate_pair(trials: &[&Trial], run: &Run, traits: PairTraits) -> Result<PairCalibration, String> {
    let first = trials[0];
    let here = run.start.origin != Origin::Hosts;
    let threaded_napi = here && is_threaded(first, &run.start.machine);
    let mut basis = Vec::new();
    let mut take = |found: Found, what: &str| {
        basis.push(format!("{what} {:.0} ns: {}", found.ns, found.how));
        found.ns
    };
    let nobody_reads = traits.path == Path::XdpDrop;
    let stack = best(trials, |trial| (threaded_napi && nobody_reads).then(|| program(trial))?)
        .or_else(|| best(trials, |trial| threaded_napi.then(|| napi_threads(trial))?))
        .unwrap_or_else(|| softirq(trials, here));
    let (sender_ns, stack_ns) = if here {
        let total = best(trials, sender).ok_or("no trial shows what sending costs")?;
        let total_ns = take(total, "sending");
        let on_senders_cpu = !threaded_napi;
        // softirq time of the sender's CPU is part of the sending cost
        let stack_ns = if on_senders_cpu { stack.ns.min(0.9 * total_ns) } else { stack.ns };
        let stack_ns = take(Found { ns: stack_ns, how: stack.how }, "of this, driver and stack");
        (if on_senders_cpu { total_ns - stack_ns } else { total_ns }, stack_ns)
    } else {
        if stack.ns <= 0.0 {
            return Err("no trial shows the softirq time of its packets".into());
        }
        (0.0, take(stack, "driver and stack"))
    };
    let reader_ns = if nobody_reads {
        None
    } else {
        let found = best(trials, |trial| reader(trial, traits)).ok_or("no trial shows what reading costs")?;
        Some(take(found, "reading"))
    };
    // A simulation of such a machine would take hours.
    for (ns, what) in [(sender_ns + stack_ns, "sending"), (reader_ns.unwrap_or(LEAST_READING_NS), "reading")]
    {
        let least = if what == "reading" { LEAST_READING_NS } else { LEAST_SENDING_NS };
        if !(least..=MOST_NS).contains(&ns) {
            return Err(format!("{what} a packet takes {ns:.3e} ns in its trials, which is impossible"));
        }
    }
    let receiver = run.start.machine.interfaces.iter().find(|nic| nic.role == "rx" || nic.role == "both");
    Ok(PairCalibration {
        tx: first.tx.clone(),
        rx: first.rx.clone(),
        path: traits.path,
        frame_size_bytes: first.frame_size_bytes,
        sender_ns,
        stack_ns,
        reader_ns,
        socket_bytes: socket_bytes(first),
        truesize_bytes: truesize_bytes(first.frame_size_bytes, traits),
        duration_s: first.duration_s,
        reader_cpus: cpus_of(&first.rx) as u32,
        shared_cpu: here && first.tx.cpus.iter().any(|cpu| first.rx.cpus.contains(cpu)),
        threaded_napi,
        card: receiver.filter(|_| !here).map(card),
        basis,
    })
}

/// The answer of the trials by the best method: `how` returns a rank, lower is better, and a figure.
fn best(trials: &[&Trial], how: impl Fn(&Trial) -> Option<(u32, Found)>) -> Option<Found> {
    let mut answers: Vec<(u32, Found)> = trials.iter().filter_map(|trial| how(trial)).collect();
    let surest = answers.iter().map(|answer| answer.0).min()?;
    answers.retain(|answer| answer.0 == surest);
    let ns = measure::median(&answers.iter().map(|answer| answer.1.ns).collect::<Vec<_>>())?;
    Some(Found { ns, how: format!("{}, median of {}", answers[0].1.how, answers.len()) })
}

/// CPUs that one side's threads can run on at the same time.
fn cpus_of(side: &Endpoint) -> f64 {
    let mut pinned = side.cpus.clone();
    pinned.sort_unstable();
    pinned.dedup();
    let threads = side.threads.max(1);
    f64::from(if pinned.is_empty() { threads } else { threads.min(pinned.len() as u32) })
}

/// The time between two frames of a sender that sends as fast as it can.
fn sender(trial: &Trial) -> Option<(u32, Found)> {
    let cpus = cpus_of(&trial.tx);
    let limited = trial.asked_pps.is_none() || !trial.receipt.kept_up;
    let cpu_s = trial.tx_cost.user_s + trial.tx_cost.system_s;
    let busy = cpu_s / (cpus * trial.duration_s);
    if limited && busy >= BUSY && trial.sent_pps > 0.0 {
        return Some((
            0,
            Found { ns: 1e9 / trial.sent_pps, how: "rate of a sender that was always busy".into() },
        ));
    }
    // a paced sender may wait by spinning, which is user time
    let spins = trial.asked_pps.is_some() && trial.tx.options.get("spin") == Some(&Value::Bool(true));
    let (cpu_s, what) = if spins { (trial.tx_cost.system_s, "system") } else { (cpu_s, "CPU") };
    let ns = cpu_s * 1e9 / trial.sent as f64 / cpus;
    let how = format!("{what} time of a sender that was busy {:.0} % of the time", busy.min(1.0) * 100.0);
    (ns > 0.0).then_some((if limited { 1 } else { 2 }, Found { ns, how }))
}

/// The time of one reading CPU for a frame.
fn reader(trial: &Trial, traits: PairTraits) -> Option<(u32, Found)> {
    let cpus = cpus_of(&trial.rx);
    let cpu_s = trial.rx_cost.user_s + trial.rx_cost.system_s;
    let busy = cpu_s / (cpus * trial.duration_s);
    let spins = trial.rx.options.get("spin") == Some(&Value::Bool(true));
    let losing = trial.loss_ratio >= LOSING;
    if losing && busy >= BUSY && trial.delivered_pps > 0.0 {
        // it continued after the sender's end with the packets in its buffer
        let during = trial.delivered as f64 - held(trial, traits).min(trial.delivered as f64 / 2.0);
        let ns = cpus * trial.duration_s * 1e9 / during;
        return Some((0, Found { ns, how: "rate of a reader that was always busy and lost packets".into() }));
    }
    let ns = cpu_s * 1e9 / trial.delivered.max(1) as f64;
    if ns <= 0.0 || spins {
        return None;
    }
    let how = format!("CPU time of a reader that was busy {:.0} % of the time", busy.min(1.0) * 100.0);
    // a reader that sleeps between packets also pays for wake-ups
    Some((if losing { 1 } else { 2 }, Found { ns, how }))
}

/// The time of a program on threaded NAPI for a frame; no softirq counter includes it.
fn program(trial: &Trial) -> Option<(u32, Found)> {
    let losing = trial.loss_ratio >= LOSING && trial.delivered_pps > 0.0;
    let ns = 1e9 / trial.delivered_pps;
    losing.then(|| (0, Found { ns, how: "rate of a program that lost packets".into() }))
}

/// Packets that fit into the buffer in front of a reader.
fn held(trial: &Trial, traits: PairTraits) -> f64 {
    if traits.path == Path::AfXdp {
        return f64::from(Socket::default().xsk_slots * trial.rx.threads.max(1));
    }
    let bytes = socket_bytes(trial).unwrap_or(Socket::default().bytes);
    bytes as f64 / f64::from(truesize_bytes(trial.frame_size_bytes, traits))
}

/// Bytes of a socket's buffer or ring, if the record has them.
fn socket_bytes(trial: &Trial) -> Option<u64> {
    let number = |name: &str| trial.rx.options.get(name).and_then(Value::as_u64);
    number("receive_buffer_bytes").map(|bytes| bytes * 2).or_else(|| number("ring_bytes"))
}

/// Bytes that a frame takes of it: its socket buffer with the head, or a page if an XDP program made it; in a
/// packet socket's ring, the frame with its header.
fn truesize_bytes(frame_size_bytes: u32, traits: PairTraits) -> u32 {
    // struct sk_buff and struct skb_shared_info of x86-64, aligned; NET_SKB_PAD
    const SKB: u32 = 256;
    const SHARED: u32 = 320;
    const PAD: u32 = 64;
    const PAGE: u32 = 4096;
    // struct tpacket3_hdr and sockaddr_ll, aligned, so that the network header is; TPACKET_ALIGNMENT
    const RING_HEADER: u32 = 82;
    const RING_ALIGN: u32 = 16;
    const FCS: u32 = 4;
    let frame_bytes = frame_size_bytes - FCS;
    match traits {
        PairTraits { frame_ring: true, .. } => (RING_HEADER + frame_bytes).next_multiple_of(RING_ALIGN),
        PairTraits { page_per_frame: true, .. } => PAGE + SKB,
        _ => (PAD + frame_bytes + SHARED).next_power_of_two() + SKB,
    }
}

/// Softirq time per packet: all of the trial's, because nothing else is received.
fn softirq(trials: &[&Trial], here: bool) -> Found {
    let of = |trial: &Trial| {
        let share: f64 = trial.cpus.iter().map(|cpu| cpu.softirq_ratio).sum();
        let packets = if here { trial.sent } else { trial.delivered };
        let ns = share * trial.duration_s * 1e9 / packets.max(1) as f64;
        Some((0, Found { ns, how: "softirq share of the CPUs".into() }))
    };
    best(trials, of).unwrap_or(Found { ns: 0.0, how: "no CPU shares in the run".into() })
}

/// The time of NAPI's threads for a frame: system time of the receiver's CPUs beyond that of its workers.
fn napi_threads(trial: &Trial) -> Option<(u32, Found)> {
    let threads = napi_cpus(&trial.rx);
    let readers = trial.rx.cpus.iter().filter(|cpu| !threads.contains(cpu));
    let own: Vec<u32> = readers.chain(&threads).copied().collect();
    let are_apart = !own.is_empty() && own.iter().all(|cpu| !trial.tx.cpus.contains(cpu));
    let busy: f64 =
        trial.cpus.iter().filter(|cpu| own.contains(&cpu.cpu)).map(|cpu| 1.0 - cpu.idle_ratio).sum();
    let ns = (busy * trial.duration_s - trial.rx_cost.user_s - trial.rx_cost.system_s) * 1e9
        / trial.sent.max(1) as f64;
    let how = "time of the receiver's CPUs beyond its workers'".into();
    (are_apart && ns > 0.0).then_some((0, Found { ns, how }))
}

/// The CPUs of NAPI's threads, where the record has them.
fn napi_cpus(receiver: &Endpoint) -> Vec<u32> {
    let cpus = receiver.options.get("napi_cpus").and_then(Value::as_array);
    cpus.into_iter().flatten().filter_map(Value::as_u64).filter_map(|cpu| cpu.try_into().ok()).collect()
}

/// Whether NAPI threads processed a trial's packets. Older records say it about the interface only.
fn is_threaded(trial: &Trial, machine: &Machine) -> bool {
    let of_interface = |nic: &NicFacts| {
        setting(nic, &["threaded_napi", "threaded"]).is_some_and(|value| matches!(value, "on" | "1" | "true"))
    };
    match trial.rx.options.get("threaded_napi") {
        Some(Value::Bool(threaded)) => *threaded,
        _ => machine.interfaces.iter().any(of_interface),
    }
}

fn card(nic: &NicFacts) -> Card {
    let number = |names: &[&str]| setting(nic, names).and_then(|value| value.parse().ok());
    let whole = |names: &[&str]| number(names).map(|value: f64| value as u32);
    let giga_transfers = setting(nic, &["current_link_speed", "pcie_speed"])
        .and_then(|text| text.split(' ').next()?.parse().ok());
    Card {
        link_bps: nic.speed_bps,
        queues: nic.rx_queues,
        ring: whole(&["rx_ring", "ring_rx"]),
        rx_usecs: number(&["rx_usecs"]),
        rx_frames: whole(&["rx_frames", "rx_max_frames"]),
        pcie_generation: giga_transfers.and_then(|speed: f64| match speed {
            2.5 => Some(1),
            5.0 => Some(2),
            8.0 => Some(3),
            16.0 => Some(4),
            32.0 => Some(5),
            _ => None,
        }),
        pcie_lanes: whole(&["current_link_width", "pcie_width"]),
    }
}

/// A setting under any of its names, written with `_`, `-` or spaces.
fn setting<'n>(nic: &'n NicFacts, names: &[&str]) -> Option<&'n str> {
    nic.settings.iter().find_map(|(name, value)| {
        let name = name.to_lowercase().replace(['-', ' '], "_");
        names.contains(&name.as_str()).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests;
