//! `cargo bench -p linerate-bpf --bench witness`: nanoseconds of CPU that the counting program takes for a packet, by
//! `BPF_PROG_RUN` on loopback in a namespace of its own, in rotation; medians and minima. The time of the measurement
//! with an empty program is a separate line and not part of the others. As root.
//!
//! The last lines are of attached programs: datagrams pass egress and ingress of loopback on one CPU, in a namespace with
//! both programs and in one without, in rotation; the difference includes the kernel's calls of both.

use std::{
    env,
    error::Error,
    net::{Ipv4Addr, UdpSocket},
};

use bpf::{Streams, Way as Direction, Witness};
use sys::{
    cpu,
    netns::NetNs,
    rtnetlink::{RouteSocket, flag},
};
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
    in_place(if rounds == 1 { 1 } else { TURNS })
}

/// Turns of each namespace, and datagrams in a turn.
const TURNS: usize = 1001;
const DATAGRAMS: u64 = 1000;

/// A namespace whose datagrams go to a socket of its own that nobody reads: full, it drops them at the least cost.
struct Way {
    socket: UdpSocket,
    _full: UdpSocket,
    witnesses: Vec<Witness>,
}

impl Way {
    fn prepare(programs: &[(Direction, u16)]) -> Outcome<Self> {
        RouteSocket::open()?.change_flags(LOOPBACK, flag::UP, flag::UP)?;
        let full = UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT))?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, PORT))?;
        let attach =
            |&(way, port): &(_, u16)| Witness::attach(LOOPBACK, way, &Streams { port, tags: vec![STREAM] });
        Ok(Self { socket, _full: full, witnesses: programs.iter().map(attach).collect::<Result<_, _>>()? })
    }

    /// CPU time of a datagram: the sending thread takes it through the receiving side, too.
    fn turn(&self, payload: &[u8]) -> Outcome<f64> {
        let before = cpu::thread_time();
        for _ in 0..DATAGRAMS {
            self.socket.send(payload)?;
        }
        Ok(cpu::thread_time().since(before).total_ns() as f64 / DATAGRAMS as f64)
    }
}

/// A packet of the trial.
fn ours() -> Outcome<FrameSpec> {
    Ok(FrameSpec {
        dst_port: Values::Fixed(PORT),
        stream: STREAM,
        sizes: Sizes::Payload("18".parse()?),
        ..FrameSpec::default()
    })
}

fn in_place(turns: usize) -> Outcome<()> {
    use Direction::{In, Out};
    cpu::pin_to(CPU)?;
    let ours = ours()?;
    let frame = frame(&ours)?;
    let payload = &frame[frame.len() - 18..];
    let kinds: [(&str, &[(Direction, u16)]); 8] = [
        ("no program", &[]),
        ("no program again, more", &[]),
        ("out, of another port, more", &[(Out, PORT + 1)]),
        ("in, of another port, more", &[(In, PORT + 1)]),
        ("both, of another port, more", &[(Out, PORT + 1), (In, PORT + 1)]),
        ("out, more", &[(Out, PORT)]),
        ("in, more", &[(In, PORT)]),
        ("both, more", &[(Out, PORT), (In, PORT)]),
    ];
    let prepare = |programs: &[(Direction, u16)]| -> Outcome<Way> {
        let programs = programs.to_vec();
        Ok(NetNs::create()?.run(move || Way::prepare(&programs).map_err(|error| error.to_string()))??)
    };
    let ways = kinds.iter().map(|(_, programs)| prepare(programs)).collect::<Outcome<Vec<_>>>()?;
    let mut values = vec![Vec::new(); ways.len()];
    for turn in 0..turns {
        // Which one comes first changes.
        let mut taken = vec![0.0; ways.len()];
        for step in 0..ways.len() {
            let which = (turn + step * 3) % ways.len();
            taken[which] = ways[which].turn(payload)?;
        }
        values[0].push(taken[0]);
        for (values, taken_with) in values.iter_mut().zip(&taken).skip(1) {
            values.push(taken_with - taken[0]);
        }
    }
    for (way, (_, programs)) in ways.iter().zip(&kinds) {
        for (witness, (_, port)) in way.witnesses.iter().zip(*programs) {
            let expected = if *port == PORT { turns as u64 * DATAGRAMS } else { 0 };
            assert_eq!(witness.read()?.packets, expected, "each program counts each datagram to its port");
        }
    }
    println!("ns a datagram through loopback, CPU {CPU}, median (quartiles) of {turns} turns of {DATAGRAMS}");
    for ((name, _), mut values) in kinds.iter().zip(values) {
        values.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| values[((values.len() - 1) as f64 * part) as usize];
        println!("  {name:<32}{:>7.1} ({:.1} to {:.1})", at(0.5), at(0.25), at(0.75));
    }
    Ok(())
}

fn measure(rounds: usize) -> Outcome<()> {
    cpu::pin_to(CPU)?;
    let ours = ours()?;
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
    let attach = |tags: Vec<u16>| Witness::attach(LOOPBACK, Direction::In, &Streams { port: PORT, tags });
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
