//! `cargo bench -p linerate-bpf --bench witness`: nanoseconds of CPU that the counting program takes for a packet, by
//! `BPF_PROG_RUN` on loopback in a namespace of its own, in rotation; medians and minima. The time of the measurement
//! with an empty program is a separate line and not part of the others. As root.

use std::{env, error::Error};

use bpf::{Streams, Way, Witness};
use sys::{cpu, netns::NetNs};
use wire::{FrameSpec, Sizes, Template, Values};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 101;
const CPU: u32 = 0;
const LOOPBACK: u32 = 1;
const PORT: u16 = 4321;
const STREAM: u16 = 7;

fn main() -> Outcome<()> {
    // `cargo test --benches` only asks whether it runs.
    let rounds = if env::args().any(|word| word == "--bench") { ROUNDS } else { 1 };
    lab::gain_access()?;
    let namespace = NetNs::create()?;
    namespace.run(move || measure(rounds).map_err(|error| error.to_string()))??;
    Ok(())
}

fn measure(rounds: usize) -> Outcome<()> {
    cpu::pin_to(CPU)?;
    let ours = FrameSpec {
        dst_port: Values::Fixed(PORT),
        stream: STREAM,
        sizes: Sizes::Payload("18".parse()?),
        ..FrameSpec::default()
    };
    let vlan = FrameSpec { vlan: vec!["5".parse()?], ..ours.clone() };
    let mut no_ip = frame(&ours)?;
    no_ip[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
    let frames = [
        ("ours", frame(&ours)?),
        ("ours, VLAN", frame(&vlan)?),
        ("another stream", frame(&FrameSpec { stream: STREAM + 1, ..ours.clone() })?),
        ("another port", frame(&FrameSpec { dst_port: Values::Fixed(PORT + 1), ..ours })?),
        ("no IP", no_ip),
    ];
    let attach = |tags: Vec<u16>| Witness::attach(LOOPBACK, Way::In, &Streams { port: PORT, tags });
    let witnesses =
        [("tags in a row", attach(vec![STREAM])?), ("tags with gaps", attach(vec![STREAM, STREAM + 9])?)];
    let mut figures = vec![Vec::new(); frames.len() * witnesses.len()];
    let mut calling = Vec::new();
    for _ in 0..rounds {
        calling.push(witnesses[0].1.calling_cost(&frames[0].1)?.as_nanos());
        let all =
            witnesses.iter().flat_map(|(_, witness)| frames.iter().map(move |(_, frame)| (witness, frame)));
        for ((witness, frame), figures) in all.zip(&mut figures) {
            figures.push(witness.cost(frame)?.as_nanos());
        }
    }
    println!("ns a packet, CPU {CPU}, median (lowest) of {rounds} turns of 10000 runs");
    let names =
        witnesses.iter().flat_map(|(tags, _)| frames.iter().map(move |(what, _)| format!("{tags}: {what}")));
    let names = names.chain(["an empty program".to_owned()]);
    for (name, mut figures) in names.zip(figures.into_iter().chain([calling])) {
        figures.sort_unstable();
        println!("  {name:<32}{:>4} ({})", figures[figures.len() / 2], figures[0]);
    }
    Ok(())
}

fn frame(spec: &FrameSpec) -> Outcome<Vec<u8>> {
    let template = Template::new(spec)?;
    let mut frame = vec![0; template.max_frame_len()];
    template.stamp_frame(&mut frame, 0, 0);
    Ok(frame)
}
