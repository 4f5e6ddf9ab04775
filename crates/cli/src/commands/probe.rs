//! `linerate probe`: which paths work here, found by trying, and what each missing one needs.

use std::io::{self, Write};

use lab::{Access, Lab, LabPlan};
use port::{
    PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, PktgenTx, PortError, XskRx, XskRxOptions, XskTx,
    XskTxOptions, probe_xdp,
};
use serde::Serialize;
use sys::{
    netns::NetNs,
    rtnetlink::RouteSocket,
    xsk::{CopyMode, Pages},
};

use crate::{
    args::ProbeArgs,
    failure::{Failure, Status, in_words},
    output::printed,
};

/// One path and whether it works.
#[derive(Debug, Serialize)]
struct Finding {
    path: &'static str,
    works: bool,
    /// What it got, or what it needs.
    detail: String,
}

pub(crate) fn run(args: &ProbeArgs) -> Result<bool, Failure> {
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
                format!("probing attaches XDP programs to {interface} for a moment, and some cards reset their link then"),
            )
            .hint("add --try if that may happen; without an interface a lab is probed"));
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
            format!("{missing} of {} paths do not work here", findings.len()),
        )),
    }
}

/// Tries every path on an interface of the calling thread's namespace.
fn findings(interface: &str) -> Result<Vec<Finding>, PortError> {
    let link = RouteSocket::open()
        .and_then(|mut route| route.link_by_name(interface))
        .map_err(|source| PortError::Link { interface: interface.into(), source })?;
    let opened = |path, outcome: Result<String, PortError>| match outcome {
        Ok(detail) => Finding { path, works: true, detail },
        Err(error) => Finding { path, works: false, detail: in_words(&error) },
    };
    let words = |text: &str| text.to_owned();
    let mut pages = None;
    let mut all = vec![
        Finding { path: "udp", works: NetNs::current().is_ok(), detail: words("sockets") },
        opened("packet send", PacketTx::open(&PacketTxOptions::on(link.index, 60)).map(|_| words("TX_RING"))),
        opened(
            "packet receive",
            PacketRx::open(&PacketRxOptions::on(link.index)).map(|_| words("TPACKET_V3")),
        ),
        opened(
            "xsk send",
            XskTx::open(&XskTxOptions::on(interface, 0)).map(|port| {
                let got = port.got().copy_mode;
                drop(port);
                let options =
                    XskTxOptions { copy_mode: CopyMode::ZeroCopy, ..XskTxOptions::on(interface, 0) };
                copies(got, || XskTx::open(&options).map(drop))
            }),
        ),
        opened(
            "xsk receive",
            XskRx::open(&XskRxOptions::on(interface, 0)).map(|ports| {
                let got = ports.first().map(|port| (port.got().copy_mode, port.mode()));
                pages = ports.first().map(|port| port.got().pages);
                drop(ports);
                let options =
                    XskRxOptions { copy_mode: CopyMode::ZeroCopy, ..XskRxOptions::on(interface, 0) };
                got.map_or_else(String::new, |(copy_mode, mode)| {
                    format!("{mode}, {}", copies(copy_mode, || XskRx::open(&options).map(drop)))
                })
            }),
        ),
    ];
    if let Some(pages) = pages {
        let detail = match pages {
            Pages::Huge => "on huge pages",
            Pages::Normal => {
                "on normal pages, joined where the kernel can: none is reserved (sysctl vm.nr_hugepages)"
            }
        };
        all.push(Finding { path: "xsk memory", works: true, detail: words(detail) });
    }
    let xdp = probe_xdp(link.index);
    for (path, outcome) in
        [("xdp native", xdp.native), ("xdp generic", xdp.generic), ("xdp live frames", xdp.live_frames)]
    {
        all.push(match outcome {
            Ok(()) => Finding { path, works: true, detail: String::new() },
            Err(error) => Finding { path, works: false, detail: in_words(&error) },
        });
    }
    all.push(opened("pktgen", PktgenTx::probe().map(|()| words("the kernel's generator"))));
    Ok(all)
}

/// Whether frames are copied, and if so why.
fn copies(got: CopyMode, without: impl FnOnce() -> Result<(), PortError>) -> String {
    match (got, without()) {
        (CopyMode::ZeroCopy, _) => "zero-copy".into(),
        (_, Err(error)) => {
            let words = in_words(&error);
            let reason = words.rsplit_once(": ").map_or(words.as_str(), |(_, cause)| cause);
            format!("with a copy of each frame; zero-copy is refused: {reason}")
        }
        (_, Ok(())) => "with a copy of each frame".into(),
    }
}

fn write_text(place: &str, findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "Tried on {place}:")?;
    for Finding { path, works, detail } in findings {
        writeln!(out, "  {path:<16} {:<4} {detail}", if *works { "yes" } else { "no" })?;
    }
    Ok(())
}

fn write_json(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, findings)?;
    writeln!(out)
}
