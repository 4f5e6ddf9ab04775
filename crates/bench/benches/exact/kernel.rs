//! Programs in the kernel, executed by `BPF_PROG_RUN`, and bare loops around the ports whose workers the ladder counts.

use std::time::Duration;

use bpf::{Streams, Way, Witness};
use divert::{Card, DivertPlan, FilterAt};
use lab::{Lab, LabPlan};
use ledger::{DropScope, DropWatch};
use port::{
    CountOptions, Layer, PacketTx, PacketTxOptions, RxPort, TxPort, UdpRx, UdpRxOptions, UdpTx, UdpTxOptions,
    XdpMode, XdpRx, XskTx, XskTxOptions,
};
use wire::{FrameSpec, MacAddr, Sizes, Template};

use super::{
    counted::{Count, Outcome, Part},
    loops::{RULES, diverting},
};

const PORT: u16 = 4321;
const STREAM: u16 = 7;
/// As in the ladder's workers.
const BATCH: usize = 1024;

pub(super) fn count_all(count: &mut Count<'_>) -> Outcome<()> {
    let lab = Lab::create(&LabPlan { queues: 1, ..LabPlan::default() })?;
    witnesses(&lab, count)?;
    diversions(&lab, count)?;
    drops(&lab, count)?;
    // In the build of the tests this crate is not optimised, but the workers' crate is: the two cannot be compared.
    if cfg!(debug_assertions) { Ok(()) } else { bare_loops(&lab, count) }
}

fn spec(lab: &Lab) -> FrameSpec {
    FrameSpec {
        src_addr: lab.tx().ipv4()[0].to_string().parse().expect("an address"),
        dst_addr: lab.rx().ipv4()[0].to_string().parse().expect("an address"),
        src_mac: MacAddr(lab.tx().mac()),
        dst_mac: MacAddr(lab.rx().mac()),
        src_port: 20_000.into(),
        dst_port: PORT.into(),
        stream: STREAM,
        sizes: Sizes::Payload("18".parse().expect("a size")),
        ..FrameSpec::default()
    }
}

/// The counting programs on both hosts' cards.
fn witnesses(lab: &Lab, count: &mut Count<'_>) -> Outcome<()> {
    const RUNS: u32 = 200;
    let frame = |spec: &FrameSpec| -> Outcome<Vec<u8>> {
        let template = Template::new(spec)?;
        let mut frame = vec![0; template.max_frame_len()];
        template.stamp_frame(&mut frame, 0, 0);
        Ok(frame)
    };
    let ours = frame(&spec(lab))?;
    let foreign = frame(&FrameSpec { dst_port: (PORT + 1).into(), ..spec(lab) })?;
    let side = lab.rx();
    let streams = Streams { port: PORT, tags: vec![STREAM] };
    let witness = side.run(|| Witness::attach(side.index(), Way::In, &streams))??;
    for (name, frame) in [("of the stream", &ours), ("of another port", &foreign)] {
        count(&format!("witness: a packet {name}"), Part::Thread, RUNS, &mut |runs| {
            witness.run(frame, runs).expect("the program runs");
        });
    }
    count("witness: a run of an empty program", Part::Thread, RUNS, &mut |runs| {
        witness.run_empty(&ours, runs).expect("the program runs");
    });
    Ok(())
}

/// A packet that matches no rule, on a diverted queue.
fn diversions(lab: &Lab, count: &mut Count<'_>) -> Outcome<()> {
    const RUNS: u32 = 200;
    let side = lab.rx();
    let card = side.run(|| Card::read(side.interface()))??;
    for (kind, rule, numbers) in RULES {
        for rules in *numbers {
            let plan = DivertPlan {
                rules: diverting(rule, *rules)?,
                ..DivertPlan::bare(side.interface(), [0], FilterAt::Xdp)
            };
            let loaded = side.run(|| plan.loaded_program(&card))?;
            let mut program = loaded.map_err(|errors| {
                let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
                words.join("; ")
            })?;
            program.divert_for(0, Duration::from_secs(60))?;
            count(&format!("divert in XDP: {kind}, {rules}"), Part::Thread, RUNS, &mut |runs| {
                program.run(runs).expect("the program runs");
            });
            if *rules == 1 && kind.contains("table") {
                program.give_back(0)?;
                count("divert in XDP: a queue of the kernel", Part::Thread, RUNS, &mut |runs| {
                    program.run(runs).expect("the program runs");
                });
            }
        }
    }
    Ok(())
}

/// The cost of the ledger's program for a packet that the kernel drops.
fn drops(lab: &Lab, count: &mut Count<'_>) -> Outcome<()> {
    const PACKETS: u32 = 256;
    const A_CALL: u32 = 64;
    let scope = DropScope { only_udp: true, ..DropScope::default() };
    let watch = DropWatch::over(&[lab.tx().namespace(), lab.rx().namespace()], &scope)?;
    let at = (lab.rx().ipv4()[0], 0).into();
    let options = UdpRxOptions { receive_buffer_bytes: Some(4096), ..UdpRxOptions::at(at) };
    let mut full = lab.rx().run(|| UdpRx::open(&options))??;
    let to = UdpTxOptions::to(full.local_address()?, 18);
    let mut tx = lab.tx().run(|| UdpTx::open(&to))??;
    while full.lost()? == 0 {
        tx.send(A_CALL as usize, |_| 18)?;
    }
    count("ledger: a drop is named", Part::Traced, PACKETS, &mut |packets| {
        for _ in 0..packets / A_CALL {
            tx.send(A_CALL as usize, |_| 18).expect("the lab is there");
        }
    });
    drop(watch);
    Ok(())
}

fn bare_loops(lab: &Lab, count: &mut Count<'_>) -> Outcome<()> {
    let (side, template) = (lab.tx(), Template::new(&spec(lab))?);
    let (bytes, payload) = (template.max_frame_len(), template.max_payload_len());
    let open = || XdpRx::open(lab.rx().index(), XdpMode::Native, &CountOptions::default());
    let _sink = lab.rx().run(open)??;
    let to = (lab.rx().ipv4()[0], PORT).into();
    let options = UdpTxOptions { batch_size: BATCH, ..UdpTxOptions::to(to, payload) };
    let udp = side.run(|| UdpTx::open(&options))??;
    let packet = side.run(|| PacketTx::open(&PacketTxOptions::on(side.index(), bytes)))??;
    let xsk = side.run(|| XskTx::open(&XskTxOptions::on(side.interface(), 0)))??;
    bare_loop("udp", udp, &template, count);
    bare_loop("packet", packet, &template, count);
    bare_loop("xsk", xsk, &template, count);
    Ok(())
}

fn bare_loop<P: TxPort>(engine: &str, mut port: P, template: &Template, count: &mut Count<'_>) {
    /// Whole batches of every port.
    const PACKETS: u32 = 2048;
    port.prime(|slot| match P::LAYER {
        Layer::Payload => template.prime_payload(slot),
        Layer::Frame => template.prime_frame(slot),
    });
    let (mut sequence, batch) = (0u32, port.batch_size().min(BATCH));
    count(&format!("bare loop: {engine} sender"), Part::OwnOfKernel, PACKETS, &mut |packets| {
        let mut left = packets as usize;
        while left > 0 {
            let sent = port.send(batch.min(left), |slot| {
                sequence = sequence.wrapping_add(1);
                match P::LAYER {
                    Layer::Payload => template.restamp_payload(slot, sequence, 0),
                    Layer::Frame => template.restamp_frame(slot, sequence, 0),
                }
            });
            left -= sent.expect("the lab is there").taken;
        }
    });
}
