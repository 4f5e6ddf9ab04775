//! `linerate probe`: which engines are available, found by trying, and what each missing one needs.

use std::io::{self, Write};

use lab::{Access, Lab, LabPlan};
use port::PortError;
use serde::Serialize;
use sys::rtnetlink::RouteSocket;

use crate::{
    args::ProbeArgs,
    failure::{Failure, Status, in_words},
    output::printed,
    quiet,
};

/// One engine or part of it, and whether it works.
#[derive(Debug, Serialize)]
struct Finding {
    engine: &'static str,
    works: bool,
    /// What it provides, or what it needs.
    detail: String,
}

pub(crate) fn run(args: &ProbeArgs) -> Result<bool, Failure> {
    if args.quiet {
        return quiet::run(args.duration, args.json);
    }
    let access = lab::gain_access().map_err(|error| {
        Failure::of(Status::Missing, &error).hint("run as root, or allow user namespaces")
    })?;
    let (place, findings) = match &args.interface {
        None => {
            let lab = Lab::create(&LabPlan { gro: true, ..LabPlan::default() })
                .map_err(|error| Failure::of(Status::Refused, &error))?;
            let findings = lab.rx().run(|| findings(lab.rx().interface()));
            let words = match access {
                Access::Privileged => "a lab (veth)",
                Access::UserNamespace => "a lab (veth) in a user namespace",
            };
            (words.to_owned(), findings.map_err(|error| Failure::of(Status::Refused, &error))?)
        }
        Some(interface) if !args.try_it => {
            return Err(Failure::new(
                Status::Usage,
                format!("probing attaches XDP programs to {interface} for a moment, and some cards then reset their link"),
            )
            .hint("add --try to allow that, or omit the interface to probe a lab"));
        }
        Some(interface) => (interface.clone(), findings(interface)),
    };
    let findings = findings.map_err(|error| {
        Failure::of(Status::Refused, &error).hint("ip link lists the interfaces of this host")
    })?;
    let mut out = io::stdout().lock();
    printed(if args.json {
        write_json(&findings, &mut out)
    } else {
        write_text(&place, &findings, &mut out)
    })?;
    match findings.iter().filter(|finding| !finding.works).count() {
        0 => Ok(true),
        missing => Err(Failure::new(
            Status::Missing,
            format!(
                "{missing} of {} engines {} unavailable",
                findings.len(),
                if missing == 1 { "is" } else { "are" }
            ),
        )),
    }
}

/// Tries every engine on an interface of the calling thread's namespace.
fn findings(interface: &str) -> Result<Vec<Finding>, PortError> {
    let link = RouteSocket::open()
        .and_then(|mut route| route.link_by_name(interface))
        .map_err(|source| PortError::Link { interface: interface.into(), source })?;
    let found = traffic::engines().iter().flat_map(|engine| (engine.probe)(&link));
    Ok(found
        .map(|traffic::Finding { engine, outcome }| match outcome {
            Ok(detail) => Finding { engine, works: true, detail },
            Err(error) => Finding { engine, works: false, detail: in_words(&error) },
        })
        .collect())
}

fn write_text(place: &str, findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "Tried on {place}:")?;
    for Finding { engine, works, detail } in findings {
        writeln!(out, "  {engine:<16} {:<4} {detail}", if *works { "yes" } else { "no" })?;
    }
    Ok(())
}

fn write_json(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, findings)?;
    writeln!(out)
}
