//! `linerate nic flow`: from a flow to its queue, and from there to a CPU.

use std::io::{self, Write};

use nic::{Card, FlowError, Observed, Prediction, Steering, Unpredictable, Verifier, predict_with};
use serde::Serialize;
use wire::{Addresses, FlowKey, HashFields, IndirectionTable};

use super::card::{open, refused};
use crate::{
    args::{End, FlowArgs},
    failure::{Failure, Status},
    output::printed,
};

/// A prediction, and its check if it was tried.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    prediction: Prediction,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<Observed>,
}

pub(crate) fn run(args: &FlowArgs) -> Result<bool, Failure> {
    let answer = match &args.interface {
        Some(interface) => {
            let mut card = open(interface)?;
            let steering = Steering::read(&mut card).map_err(|error| refused(&error))?;
            let flow_key = flow(args)?;
            let prediction = steering.predict(&flow_key).map_err(|error| failure(&error))?;
            let fields = steering.scaling().ok().and_then(|scaling| scaling.fields_of(&flow_key));
            if let Some(fields) = fields.filter(|_| prediction.hash.is_some()) {
                with_ports(args, fields)?;
            }
            let observed = args.via.as_ref().map(|via| observe(&mut card, via, &flow(args)?)).transpose()?;
            Answer { prediction, observed }
        }
        None => Answer { prediction: offline(args)?, observed: None },
    };
    let mut out = io::stdout().lock();
    printed(if args.json { write_json(&answer, &mut out) } else { write_text(&answer, &mut out) })?;
    Ok(answer.observed.is_none_or(|observed| observed.queue == answer.prediction.queue))
}

/// Sends marked packets and finds the queue where they arrive.
fn observe(card: &mut Card, via: &str, flow: &FlowKey) -> Result<Observed, Failure> {
    const PACKETS: u32 = 64;
    let observed = Verifier::new(card, via, PACKETS).and_then(|mut verifier| verifier.observe(card, flow));
    observed.map_err(|error| {
        Failure::of(Status::Refused, &error)
            .hint("--via must be the interface at the other end of the cable, on this host")
    })
}

/// Why queues cannot be predicted.
pub(super) fn nothing_to_predict(interface: &str, reason: &Unpredictable) -> Failure {
    failure(&FlowError::Unpredictable { interface: interface.into(), reason: reason.clone() })
}

fn failure(error: &FlowError) -> Failure {
    match error {
        FlowError::Nic(error) => refused(error),
        FlowError::Unpredictable { .. } => Failure::of(Status::Missing, error)
            .hint("linerate nic show INTERFACE shows what its driver supports; --key, --table and --fields predict without an interface"),
    }
}

/// Predicts from a given key, table and fields.
fn offline(args: &FlowArgs) -> Result<Prediction, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::new(Status::Usage, error);
    let (Some(key), Some(spread), Some(fields)) = (&args.key, &args.table, args.fields) else {
        return Err(usage(&"without an interface, --key, --table and --fields are required"));
    };
    with_ports(args, fields)?;
    let table = IndirectionTable::new(spread, args.buckets).map_err(|error| usage(&error))?;
    predict_with(&flow(args)?, key, fields, table.queues())
        .ok_or_else(|| usage(&"the table must have at least one bucket"))
}

/// If ports are hashed, both must be given.
fn with_ports(args: &FlowArgs, fields: HashFields) -> Result<(), Failure> {
    if fields == HashFields::AddressesAndPorts && (args.src.port.is_none() || args.dst.port.is_none()) {
        return Err(Failure::new(Status::Usage, "fields sdfn hash the ports: both --src and --dst need one")
            .hint("write --src 10.0.0.1:9 --dst 10.0.0.2:53"));
    }
    Ok(())
}

fn flow(args: &FlowArgs) -> Result<FlowKey, Failure> {
    let End { address: src, port: src_port } = args.src;
    let End { address: dst, port: dst_port } = args.dst;
    let addresses = Addresses::new(src, dst).ok_or_else(|| {
        Failure::new(Status::Usage, format!("{src} and {dst} are of different IP versions"))
    })?;
    Ok(FlowKey {
        addresses,
        src_port: src_port.unwrap_or(0),
        dst_port: dst_port.unwrap_or(0),
        protocol: args.proto.number(),
    })
}

fn write_json(answer: &Answer, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, answer)?;
    writeln!(out)
}

fn write_text(answer: &Answer, out: &mut impl Write) -> io::Result<()> {
    let Answer { prediction, observed } = answer;
    writeln!(out, "{}", prediction.flow)?;
    let width = prediction.steps.iter().map(|step| step.what.len()).max().unwrap_or(0);
    let values = prediction.steps.iter().map(|step| step.value.len()).filter(|length| *length <= 40);
    let value_width = values.max().unwrap_or(0);
    for step in &prediction.steps {
        writeln!(out, "  {:<width$}  {:<value_width$}  ({})", step.what, step.value, step.source)?;
    }
    let Some(Observed { queue, sent, counted }) = observed else { return Ok(()) };
    match queue {
        Some(queue) if Some(*queue) == prediction.queue => {
            writeln!(out, "  verified: all {sent} packets sent were counted on queue {queue}")
        }
        Some(queue) => writeln!(out, "  wrong: all {sent} packets sent were counted on queue {queue}"),
        None => {
            writeln!(out, "  not verified: of {sent} packets sent, {counted} were counted, on several queues")
        }
    }
}
