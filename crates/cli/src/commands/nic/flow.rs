//! `linerate nic flow`: from a flow to its queue, and from there to a CPU.

use std::io::{self, Write};

use nic::{FlowError, Prediction, Steering, predict_with};
use wire::{Addresses, FlowKey, HashFields, IndirectionTable};

use super::{open, refused};
use crate::{
    args::{End, FlowArgs},
    failure::{Failure, Status},
    output::printed,
};

pub(crate) fn run(args: &FlowArgs) -> Result<bool, Failure> {
    let prediction = match &args.interface {
        Some(interface) => {
            let mut card = open(interface)?;
            let steering = Steering::read(&mut card).map_err(|error| refused(&error))?;
            steering.predict(&flow(args)?).map_err(|error| failure(&error))?
        }
        None => offline(args)?,
    };
    let mut out = io::stdout().lock();
    printed(if args.json { write_json(&prediction, &mut out) } else { write_text(&prediction, &mut out) })?;
    Ok(true)
}

fn failure(error: &FlowError) -> Failure {
    match error {
        FlowError::Nic(error) => refused(error),
        FlowError::Unpredictable { .. } => Failure::of(Status::Missing, error)
            .hint("linerate nic show INTERFACE tells what its driver has; --key, --table and --fields predict without one"),
    }
}

/// From key, table and fields that are given.
fn offline(args: &FlowArgs) -> Result<Prediction, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::new(Status::Usage, error);
    let (Some(key), Some(spread), Some(fields)) = (&args.key, &args.table, args.fields) else {
        return Err(usage(&"without an interface, --key, --table and --fields say how a queue is chosen"));
    };
    if fields == HashFields::AddressesAndPorts && (args.src.port.is_none() || args.dst.port.is_none()) {
        return Err(usage(&"fields sdfn hash the ports: both --src and --dst need one")
            .hint("write --src 10.0.0.1:9 --dst 10.0.0.2:53"));
    }
    let table = IndirectionTable::new(spread, args.buckets).map_err(|error| usage(&error))?;
    predict_with(&flow(args)?, key, fields, table.queues())
        .ok_or_else(|| usage(&"a table without buckets leads nowhere"))
}

fn flow(args: &FlowArgs) -> Result<FlowKey, Failure> {
    let End { address: src, port: src_port } = args.src;
    let End { address: dst, port: dst_port } = args.dst;
    let addresses = Addresses::new(src, dst)
        .ok_or_else(|| Failure::new(Status::Usage, format!("{src} and {dst} are not of one IP version")))?;
    Ok(FlowKey {
        addresses,
        src_port: src_port.unwrap_or(0),
        dst_port: dst_port.unwrap_or(0),
        protocol: args.proto.number(),
    })
}

fn write_json(prediction: &Prediction, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, prediction)?;
    writeln!(out)
}

fn write_text(prediction: &Prediction, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", prediction.flow)?;
    let width = prediction.steps.iter().map(|step| step.what.len()).max().unwrap_or(0);
    let values = prediction.steps.iter().map(|step| step.value.len()).filter(|length| *length <= 40);
    let value_width = values.max().unwrap_or(0);
    for step in &prediction.steps {
        writeln!(out, "  {:<width$}  {:<value_width$}  ({})", step.what, step.value, step.source)?;
    }
    Ok(())
}
