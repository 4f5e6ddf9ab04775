//! Answers UDP from the queue on which it arrived, without the kernel: each datagram to a port returns to its
//! sender through the send side of the same socket.
//!
//! ```text
//! cargo run --release -p linerate-divert --example udp_echo -- eth0 7 10
//! ```
//! echoes datagrams to port 7 of eth0 for 10 seconds; all other packets go to the kernel.

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use divert::{BEAT, Diversion, DivertPlan, Fate, Frame, Verdict, Verdicts};

/// Sends datagrams back.
#[derive(Clone)]
struct Echo;

impl Verdicts for Echo {
    fn verdict(&mut self, frame: &mut Frame<'_>) -> Verdict {
        if turn_round(frame.bytes_mut()) { Verdict::Send } else { Verdict::Reinject }
    }
}

/// Swaps both ends of an IPv4 datagram in place. Its checksums stay right, because sums do not depend on the
/// order. False for anything but a whole IPv4 datagram without options.
fn turn_round(frame: &mut [u8]) -> bool {
    let is_udp = frame.len() >= 42
        && frame[12..14] == [0x08, 0x00]
        && frame[14] == 0x45
        && frame[20] & 0x3f == 0
        && frame[21] == 0
        && frame[23] == 17;
    if is_udp {
        let (to, rest) = frame.split_at_mut(6);
        to.swap_with_slice(&mut rest[..6]);
        let (from, to) = frame[26..34].split_at_mut(4);
        from.swap_with_slice(to);
        let (from, to) = frame[34..38].split_at_mut(2);
        from.swap_with_slice(to);
    }
    is_udp
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [interface, port, seconds] = &words[..] else { return Err("usage: INTERFACE PORT SECONDS".into()) };
    let port: u16 = port.parse()?;
    let plan = DivertPlan::of(interface, &format!("ip and udp dst port {port}"))?;
    let time = Duration::from_secs(seconds.parse()?);
    let mut diversion = Diversion::start_with(&plan, |_queue| Echo)?;
    let until = Instant::now() + time;
    while Instant::now() < until {
        diversion.beat()?;
        std::thread::sleep(BEAT / 2);
    }
    let ledger = diversion.finish()?.ledger;
    println!(
        "{} arrived, {} answered, {} unexplained",
        ledger.arrived,
        ledger.of(Fate::Sent),
        ledger.unexplained
    );
    Ok(())
}
