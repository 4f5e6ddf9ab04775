//! `linerate nic spread`: flows for all queues, or a change for given flows.

use std::io::{self, Write};

use nic::{Remedy, Scaling, Steering, imbalance, remedies, spread_flows};
use serde::Serialize;
use wire::{Addresses, FlowKey};

use super::{
    card::{open, refused},
    flow::nothing_to_predict,
};
use crate::{
    args::SpreadArgs,
    failure::{Failure, Status},
    output::printed,
};

/// Flows and their queues.
#[derive(Debug, Serialize)]
struct Picked {
    flows: Vec<PickedFlow>,
    imbalance: f64,
}

#[derive(Debug, Serialize)]
struct PickedFlow {
    #[serde(flatten)]
    flow: FlowKey,
    queue: u32,
}

/// Flows to try before giving up: far more than any table needs.
const MOST_OFFERED: usize = 4_000_000;

pub(crate) fn run(args: &SpreadArgs) -> Result<bool, Failure> {
    let mut card = open(&args.interface)?;
    let steering = Steering::read(&mut card).map_err(|error| refused(&error))?;
    let scaling = steering.scaling().map_err(|reason| nothing_to_predict(&args.interface, reason))?;
    let offered = offered(args)?;
    let mut out = io::stdout().lock();
    if args.given {
        let flows: Vec<FlowKey> = offered.take(args.flows as usize).collect();
        let queues = scaling.table.iter().max().map_or(1, |most| most + 1).max(card_queues(&mut card));
        let found = remedies(scaling, &flows, queues);
        return print(args.json, &found, &mut out, |out| write_remedies(&args.interface, &found, out));
    }
    let flows = pick(scaling, offered, args.flows as usize)?;
    print(args.json, &flows, &mut out, |out| write_flows(&flows, out))
}

fn print<T: Serialize, W: Write>(
    json: bool,
    value: &T,
    out: &mut W,
    text: impl FnOnce(&mut W) -> io::Result<()>,
) -> Result<bool, Failure> {
    printed(if json {
        serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from).and_then(|()| writeln!(out))
    } else {
        text(out)
    })?;
    Ok(true)
}

/// The number of active receive queues.
fn card_queues(card: &mut nic::Card) -> u32 {
    nic::read_queue_counts(card).map_or(1, |counts| counts.rx.len() as u32)
}

/// Every combination of the ranges; source ports vary fastest.
fn offered(args: &SpreadArgs) -> Result<impl Iterator<Item = FlowKey> + use<>, Failure> {
    let (src_addr, dst_addr) = (args.src_addr.listed(), args.dst_addr.listed());
    let (src_port, dst_port) = (args.src_port.listed(), args.dst_port.listed());
    if src_addr.iter().chain(&dst_addr).any(|address| address.is_ipv4() != src_addr[0].is_ipv4()) {
        return Err(Failure::new(Status::Usage, "the addresses are of different IP versions"));
    }
    let protocol = args.proto.number();
    let count = [src_addr.len(), dst_addr.len(), src_port.len(), dst_port.len()]
        .iter()
        .fold(1usize, |product, length| product.saturating_mul(*length));
    Ok((0..count.min(MOST_OFFERED)).filter_map(move |number| {
        let (port, rest) = (number % src_port.len(), number / src_port.len());
        let (src, rest) = (rest % src_addr.len(), rest / src_addr.len());
        let (dst, rest) = (rest % dst_addr.len(), rest / dst_addr.len());
        let addresses = Addresses::new(src_addr[src], dst_addr[dst])?;
        Some(FlowKey {
            addresses,
            src_port: src_port[port],
            dst_port: dst_port[rest % dst_port.len()],
            protocol,
        })
    }))
}

fn pick(scaling: &Scaling, offered: impl Iterator<Item = FlowKey>, count: usize) -> Result<Picked, Failure> {
    let picked = spread_flows(scaling, offered, count).map_err(|error| {
        Failure::of(Status::GoalMissed, &error).hint(
            "widen the ranges with --src-addr and --src-port; linerate nic advise shows whether ports are hashed",
        )
    })?;
    let mut shares = vec![0u64; scaling.table.iter().max().map_or(0, |most| *most as usize + 1)];
    picked.iter().for_each(|(_, queue)| shares[*queue as usize] += 1);
    shares.retain(|share| *share > 0);
    let flows = picked.into_iter().map(|(flow, queue)| PickedFlow { flow, queue }).collect();
    Ok(Picked { flows, imbalance: imbalance(&shares) })
}

fn write_flows(picked: &Picked, out: &mut impl Write) -> io::Result<()> {
    picked.flows.iter().try_for_each(|PickedFlow { flow, queue }| writeln!(out, "queue {queue:<3}  {flow}"))
}

fn write_remedies(interface: &str, found: &[Remedy], out: &mut impl Write) -> io::Result<()> {
    for remedy in found {
        let flows = remedy.flows_per_queue.iter().enumerate();
        let flows: Vec<String> = flows.map(|(queue, count)| format!("queue {queue} {count}")).collect();
        writeln!(
            out,
            "{:.2} times an even share: {}; flows: {}",
            remedy.imbalance,
            remedy.what,
            flows.join(", ")
        )?;
        if !remedy.settings.is_empty() {
            let settings = remedy.settings.iter().map(|setting| format!(" --set '{setting}'"));
            writeln!(out, "    linerate nic apply {interface}{}", settings.collect::<String>())?;
        }
    }
    Ok(())
}
