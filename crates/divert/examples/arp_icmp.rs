//! The published example of the single RX queue bypass: accepts ARP and ICMP, drops the rest, and prints packets per
//! second each second.
//!
//! ```text
//! cargo run --release -p linerate-divert --example arp_icmp -- eth0 4 10
//! ```
//! diverts every packet of queue 4 of eth0 for 10 seconds.

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use divert::{BEAT, Diversion, DivertPlan, Fate, Frame, Verdict, Verdicts};

const SECOND_NS: u64 = 1_000_000_000;

/// Accepts ARP and ICMP, and counts.
#[derive(Default)]
struct ArpAndIcmp {
    packets: u64,
    since_ns: u64,
}

impl Verdicts for ArpAndIcmp {
    fn verdict(&mut self, frame: &mut Frame<'_>) -> Verdict {
        self.packets += 1;
        let frame = frame.bytes();
        let is_arp = frame.get(12..14) == Some(&[0x08, 0x06]);
        let is_icmp = frame.get(12..14) == Some(&[0x08, 0x00]) && frame.get(23) == Some(&1);
        if is_arp || is_icmp { Verdict::Reinject } else { Verdict::Drop }
    }

    fn batch_done(&mut self, _packets: usize, now_ns: u64) {
        if self.since_ns == 0 {
            self.since_ns = now_ns;
        }
        let passed_ns = now_ns - self.since_ns;
        if passed_ns >= SECOND_NS {
            println!("[+] pps: {}", u128::from(self.packets) * u128::from(SECOND_NS) / u128::from(passed_ns));
            (self.packets, self.since_ns) = (0, now_ns);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [interface, queue, seconds] = &words[..] else { return Err("usage: INTERFACE QUEUE SECONDS".into()) };
    let plan = DivertPlan { queues: vec![queue.parse()?], ..DivertPlan::of(interface, divert::ALL)? };
    let time = Duration::from_secs(seconds.parse()?);
    let mut diversion = Diversion::start_with(&plan, |_queue| ArpAndIcmp::default())?;
    let until = Instant::now() + time;
    while Instant::now() < until {
        diversion.beat()?;
        std::thread::sleep(BEAT / 2);
    }
    let ledger = diversion.finish()?.ledger;
    println!(
        "{} arrived: {} dropped, {} accepted, {} lost, {} unexplained",
        ledger.arrived,
        ledger.of(Fate::Dropped),
        ledger.of(Fate::Reinjected),
        ledger.of(Fate::Lost),
        ledger.unexplained
    );
    Ok(())
}
