//! From the counter's file to a trial's instructions by side, stage, function and stack.
//!
//! Format: `crates/lab/src/vm/counter/counter.c`.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
};

use measure::{FunctionInstructions, Instructions, Side, StackInstructions, Stage, StageInstructions};
use sys::profile::{KernelSymbols, OwnSymbols};
use thiserror::Error;

use crate::stages::stage_of;

/// Functions and stacks with fewer instructions per packet are left out or joined.
const RARE: f64 = 0.05;
/// The most functions in a record.
const MOST_FUNCTIONS: usize = 400;
/// The most stacks in a record.
const MOST_STACKS: usize = 400;

/// Why a count cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CountError {
    /// A line of another form.
    #[error("line {line} of the counter's file has an unknown format: {text}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// The guest's kernel hides its functions.
    #[error("the guest's table of functions has no addresses")]
    Hidden,
    /// This program's own functions.
    #[error("cannot read this program's file for the names of its functions")]
    Program(#[source] io::Error),
}

/// The counts of one trial.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrialCounts {
    /// The first three are the threads on whose behalf code runs: others, senders, receivers.
    nodes: Vec<Node>,
    blocks: Vec<Block>,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Node {
    parent: usize,
    /// The address behind the call; 0 if the kernel was entered from user space.
    caller: u64,
    target: u64,
}

/// Code that ran on behalf of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    node: usize,
    address: u64,
    instructions: u64,
    again: u64,
    bytes: u64,
}

const SENDERS: usize = 1;
const RECEIVERS: usize = 2;
const ROLES: usize = 3;

/// The names of the guest's functions.
#[derive(Debug)]
pub struct CountNames {
    kernel: KernelSymbols,
    program: OwnSymbols,
}

/// The address at which the kernel maps a program without randomisation (`norandmaps`): two thirds of the address space
/// (`ELF_ET_DYN_BASE`, arch/x86/include/asm/elf.h), rounded down to a page.
const PROGRAM_BASE: u64 = 0x5555_5555_4000;

impl CountNames {
    /// From the text of the guest's `/proc/kallsyms` and the file of the program that ran in the guest, which is this one.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn of(kallsyms: &str, program: &Path) -> Result<Self, CountError> {
        let kernel = KernelSymbols::of_text(kallsyms).ok_or(CountError::Hidden)?;
        let end = PROGRAM_BASE + std::fs::metadata(program).map_err(CountError::Program)?.len();
        let program = OwnSymbols::of_file(program, PROGRAM_BASE, end).map_err(CountError::Program)?;
        Ok(Self { kernel, program })
    }

    fn name(&self, address: u64) -> &str {
        if is_user(address) {
            return self.program.name(address).unwrap_or("library");
        }
        self.kernel.name(address).map_or("bpf_prog", source_name)
    }
}

/// A function's name in its source: compilers add suffixes, and since Linux 6.10 allocators have a twin without
/// profiling of allocations.
fn source_name(symbol: &str) -> &str {
    let name = symbol.split('.').next().unwrap_or(symbol);
    name.strip_suffix("_noprof").unwrap_or(name)
}

fn is_user(address: u64) -> bool {
    address >> 63 == 0
}

/// Every complete count of the counter's file, in order.
///
/// # Errors
/// A line of an unknown format. An incomplete count is left out.
pub fn read_counts(text: &str) -> Result<Vec<TrialCounts>, CountError> {
    let mut complete = Vec::new();
    let mut open: Option<TrialCounts> = None;
    for (at, line) in text.lines().enumerate() {
        let wrong = || CountError::Line { line: at + 1, text: line.chars().take(80).collect() };
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        let decimal = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let address = |text: &str| u64::from_str_radix(text, 16).map_err(|_| wrong());
        match (kind, words.as_slice(), &mut open) {
            ("count", [], _) => {
                open = Some(TrialCounts { nodes: vec![Node::default(); ROLES], blocks: Vec::new() });
            }
            ("node", [id, parent, caller, target], Some(counts)) => {
                let (id, parent) = (decimal(id)? as usize, decimal(parent)? as usize);
                // A call comes after the call that contains it.
                if id != counts.nodes.len() || parent >= id {
                    return Err(wrong());
                }
                counts.nodes.push(Node { parent, caller: address(caller)?, target: address(target)? });
            }
            ("block", [node, start, instructions, again, bytes], Some(counts)) => {
                let node = decimal(node)? as usize;
                if node >= counts.nodes.len() {
                    return Err(wrong());
                }
                counts.blocks.push(Block {
                    node,
                    address: address(start)?,
                    instructions: decimal(instructions)?,
                    again: decimal(again)?,
                    bytes: decimal(bytes)?,
                });
            }
            ("end", [], Some(_)) => complete.extend(open.take()),
            ("forget", [], None) => drop(complete.pop()),
            _ => return Err(wrong()),
        }
    }
    Ok(complete)
}

/// Softirqs run below one of these.
const SOFTIRQ: [&str; 5] =
    ["handle_softirqs", "__do_softirq", "net_rx_action", "napi_threaded_poll", "napi_threaded_poll_loop"];

fn is_interrupt(name: &str) -> bool {
    [
        "asm_sysvec_",
        "asm_common_interrupt",
        "asm_spurious_interrupt",
        "irq_entries_start",
        "spurious_entries_start",
    ]
    .iter()
    .any(|begin| name.starts_with(begin))
}

/// A function's instructions, and those of its stages.
type OfFunction = (Sum, BTreeMap<Stage, u64>);

/// The sums for a stage or a function.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    instructions: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, block: &Block) {
        self.instructions += block.instructions;
        self.bytes += block.bytes;
    }
}

impl TrialCounts {
    /// All instructions of senders' threads, including softirqs and interrupts on top of them.
    pub fn of_senders(&self) -> u64 {
        self.of_role(SENDERS)
    }

    /// The same of receivers' threads.
    pub fn of_receivers(&self) -> u64 {
        self.of_role(RECEIVERS)
    }

    /// The nanoseconds by which the emulator's clock advances in senders' threads: one per instruction, and one per
    /// repetition of a string instruction.
    pub fn ns_of_senders(&self) -> u64 {
        self.sum_of(SENDERS, |block| block.instructions + block.again)
    }

    /// All instructions that the machine executed, and those of them in user space.
    pub fn total(&self) -> [u64; 2] {
        let sum = |of: fn(&Block) -> bool| {
            self.blocks.iter().filter(|block| of(block)).map(|block| block.instructions).sum()
        };
        [sum(|_| true), sum(|block| is_user(block.address))]
    }

    fn of_role(&self, role: usize) -> u64 {
        self.sum_of(role, |block| block.instructions)
    }

    fn sum_of(&self, role: usize, of: impl Fn(&Block) -> u64) -> u64 {
        let roles = self.roles();
        self.blocks.iter().filter(|block| roles[block.node] == role).map(of).sum()
    }

    /// The kind of thread that each node ran in.
    fn roles(&self) -> Vec<usize> {
        let mut roles: Vec<usize> = (0..ROLES).collect();
        for node in self.nodes.iter().skip(ROLES) {
            roles.push(roles[node.parent]);
        }
        roles
    }

    /// The functions from the outermost to each node's own.
    fn paths<'n>(&self, names: &'n CountNames) -> Vec<Vec<&'n str>> {
        let mut paths: Vec<Vec<&str>> = vec![Vec::new(); ROLES];
        for node in self.nodes.iter().skip(ROLES) {
            let mut path = paths[node.parent].clone();
            if node.caller != 0 {
                let caller = names.name(node.caller - 1);
                if path.last() != Some(&caller) {
                    path.push(caller);
                }
            }
            path.push(names.name(node.target));
            paths.push(path);
        }
        paths
    }

    /// By side, stage, function and stack, per packet sent, on the receiving side per packet delivered.
    pub fn fold(&self, names: &CountNames, sent: u64, delivered: u64) -> Instructions {
        let (roles, paths) = (self.roles(), self.paths(names));
        let mut sides: BTreeMap<(Side, bool), Sum> = BTreeMap::new();
        let mut stages: BTreeMap<(Side, Stage), Sum> = BTreeMap::new();
        let mut functions: HashMap<(&str, Side), OfFunction> = HashMap::new();
        let mut stacks: HashMap<(Side, usize, &str), u64> = HashMap::new();
        for block in &self.blocks {
            let (path, function) = (&paths[block.node], names.name(block.address));
            let in_user = is_user(block.address);
            let side = side(roles[block.node], path, function);
            let inwards = || std::iter::once(function).chain(path.iter().rev().copied());
            let stage = if in_user { Some(Stage::User) } else { inwards().find_map(stage_of) };
            let stage = stage.unwrap_or(Stage::Other);
            sides.entry((side, in_user)).or_default().add(block);
            stages.entry((side, stage)).or_default().add(block);
            let (sum, by_stage) = functions.entry((function, side)).or_default();
            sum.add(block);
            *by_stage.entry(stage).or_default() += block.instructions;
            *stacks.entry((side, block.node, function)).or_default() += block.instructions;
        }
        let each = |side: Side, amount: u64| {
            let packets = if side == Side::Receiver { delivered } else { sent };
            if packets == 0 { 0.0 } else { amount as f64 / packets as f64 }
        };
        let known = |side: Side, in_user: bool| {
            let packets = if side == Side::Receiver { delivered } else { sent };
            let sum = sides.get(&(side, in_user)).copied().unwrap_or_default();
            (packets > 0).then(|| each(side, sum.instructions))
        };
        let both = |side: Side| Some(known(side, true)? + known(side, false)?);
        let strings = sides.iter().filter(|((side, _), _)| !matches!(side, Side::Interrupts | Side::Other));
        let strings = strings.map(|((side, _), sum)| each(*side, sum.bytes)).sum();
        let mut by_function: Vec<FunctionInstructions> = functions
            .into_iter()
            .filter_map(|((function, side), (sum, by_stage))| {
                let (stage, _) = by_stage.into_iter().max_by_key(|(_, count)| *count)?;
                Some(FunctionInstructions {
                    function: function.to_owned(),
                    side,
                    stage,
                    per_packet: each(side, sum.instructions),
                    string_bytes_per_packet: each(side, sum.bytes),
                })
            })
            .filter(|function| function.per_packet >= RARE)
            .collect();
        by_function.sort_by(|a, b| {
            b.per_packet
                .total_cmp(&a.per_packet)
                .then_with(|| (&a.function, a.side).cmp(&(&b.function, b.side)))
        });
        by_function.truncate(MOST_FUNCTIONS);
        Instructions {
            total: self.blocks.iter().map(|block| block.instructions).sum(),
            sender_user_per_packet: known(Side::Sender, true),
            sender_kernel_per_packet: known(Side::Sender, false),
            softirq_per_packet: both(Side::Softirq),
            receiver_user_per_packet: known(Side::Receiver, true),
            receiver_kernel_per_packet: known(Side::Receiver, false),
            interrupts_per_packet: both(Side::Interrupts),
            other_per_packet: both(Side::Other),
            string_bytes_per_packet: (sent > 0).then_some(strings),
            stages: stages
                .into_iter()
                .map(|((side, stage), sum)| StageInstructions {
                    side,
                    stage,
                    per_packet: each(side, sum.instructions),
                    string_bytes_per_packet: each(side, sum.bytes),
                })
                .collect(),
            functions: by_function,
            stacks: keep(stacks, &paths, sent),
        }
    }
}

/// On whose behalf code runs: the innermost softirq or interrupt decides, otherwise the thread.
fn side(role: usize, path: &[&str], function: &str) -> Side {
    let inwards = std::iter::once(function).chain(path.iter().rev().copied());
    for name in inwards {
        if SOFTIRQ.contains(&name) {
            return Side::Softirq;
        }
        if is_interrupt(name) {
            return Side::Interrupts;
        }
    }
    match role {
        SENDERS => Side::Sender,
        RECEIVERS => Side::Receiver,
        _ => Side::Other,
    }
}

/// The stacks with many instructions unchanged; all others joined into one per side.
fn keep(stacks: HashMap<(Side, usize, &str), u64>, paths: &[Vec<&str>], sent: u64) -> Vec<StackInstructions> {
    let mut by_frames: HashMap<String, (Side, u64)> = HashMap::new();
    for ((side, node, function), instructions) in stacks {
        let path = &paths[node];
        let own = (path.last() != Some(&function)).then_some(function);
        let frames = std::iter::once(side.name()).chain(path.iter().copied()).chain(own);
        by_frames.entry(frames.collect::<Vec<_>>().join(";")).or_insert((side, 0)).1 += instructions;
    }
    let mut stacks: Vec<(String, Side, u64)> =
        by_frames.into_iter().map(|(frames, (side, instructions))| (frames, side, instructions)).collect();
    stacks.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
    let least = (RARE * sent as f64) as u64;
    let many =
        stacks.iter().take(MOST_STACKS).take_while(|(_, _, instructions)| *instructions >= least).count();
    let rest = stacks.split_off(many);
    let mut kept: Vec<StackInstructions> = stacks
        .into_iter()
        .map(|(frames, _, instructions)| StackInstructions { frames, instructions })
        .collect();
    let mut joined: BTreeMap<Side, u64> = BTreeMap::new();
    for (_, side, instructions) in rest {
        *joined.entry(side).or_default() += instructions;
    }
    kept.extend(joined.into_iter().map(|(side, instructions)| StackInstructions {
        frames: format!("{};rarer stacks", side.name()),
        instructions,
    }));
    kept
}

#[cfg(test)]
mod tests;
