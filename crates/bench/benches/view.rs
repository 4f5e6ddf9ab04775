//! `make bench-view`: what live views cost the measured rate. In one lab, short trials with all views on (the terminal's
//! screen, a browser's stream of events, metrics that are read every second) and with none take turns; the ratio of the
//! delivered rates with its 95 % interval. Differences between runs, which are larger than the cost, cancel out.
//!
//! Usage: `bench-view [TURNS [TX RX]]`, on a terminal (`scripts/bench-view` makes one).

#[path = "plans/one_thread.rs"]
mod one_thread;

use std::{
    error::Error,
    io::{self, IsTerminal, Read, Write},
    net::TcpStream,
    thread::{self, JoinHandle},
    time::Instant,
};

use lab::{Lab, LabPlan};
use measure::{Effect, EffectScale, Machine, Origin, Start, Trial, median};
use trial::{Pair, Tick, TrialPlan, run_trial_in};
use view::{Ahead, Hub, Screen, Seen, Story, Web, WebPlan};

use one_thread::one_thread;

type Outcome<T> = Result<T, Box<dyn Error>>;

const TRIAL_NS: u64 = 250_000_000;
/// The largest change that is accepted.
const MOST: f64 = 0.01;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let turns: u32 = words.first().map_or(Ok(300), |word| word.parse())?;
    let [tx, rx] = [1, 2].map(|at| words.get(at).map_or("xdp", String::as_str));
    if !io::stderr().is_terminal() {
        return Err("the screen needs a terminal: scripts/bench-view makes one".into());
    }
    lab::gain_access()?;
    let pair = Pair { tx: tx.parse()?, rx: rx.parse()? };
    let lab = Lab::create(&LabPlan::default())?;
    let plan = one_thread(TRIAL_NS, 100_000_000);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut events = 0;
    for turn in 0..=turns {
        // The order changes with each turn, so that a drift of the machine's speed cancels out.
        for on in [turn % 2 == 0, turn % 2 != 0] {
            let (trial, seen) =
                if on { watched(&lab, &plan, &pair)? } else { (alone(&lab, &plan, &pair)?, 0) };
            // The first turn warms up.
            if turn > 0 && trial.delivered_pps > 0.0 {
                let rates = if on { &mut with } else { &mut without };
                rates.push(trial.delivered_pps);
                events += seen;
            }
        }
    }
    let pairs: Vec<f64> = without.iter().zip(&with).map(|(without, with)| with / without).collect();
    let effect = Effect::of(&without, &with, EffectScale::Ratio, 0.95).ok_or("too few trials")?;
    println!(
        "{tx} -> {rx}, {turns} turns of {} ms, {events} events read by the browser, {:.3} Mpps without views",
        TRIAL_NS / 1_000_000,
        median(&without).unwrap_or(0.0) / 1e6
    );
    println!(
        "all trials:  {:.4} of the rate with views (95 %: {:.4} to {:.4})",
        1.0 + effect.estimate,
        1.0 + effect.low,
        1.0 + effect.high
    );
    let [ratio, low, high] = paired(&pairs);
    println!("turn by turn: {ratio:.4} of the rate with views (95 %: {low:.4} to {high:.4})");
    println!(
        "{}",
        match (low, high) {
            (low, _) if low > 1.0 - MOST => "shown: views cost less than 1 %",
            (_, high) if high < 1.0 - MOST => "shown: views cost more than 1 %",
            _ => "neither more nor less than 1 % is shown: more turns are needed",
        }
    );
    Ok(())
}

/// Median of the ratios, and the range in which it lies with 95 % confidence (order statistics).
fn paired(ratios: &[f64]) -> [f64; 3] {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let half = 0.98 * count.sqrt();
    let at = |place: f64| sorted[(place.max(0.0) as usize).min(sorted.len() - 1)];
    [median(&sorted).unwrap_or(0.0), at(count / 2.0 - half), at(count / 2.0 + half)]
}

fn alone(lab: &Lab, plan: &TrialPlan, pair: &Pair) -> Outcome<Trial> {
    Ok(run_trial_in(lab, plan, pair, 1, |_| true)?.trial)
}

/// A trial with every view on, as the command has them, and the number of events that the browser read.
fn watched(lab: &Lab, plan: &TrialPlan, pair: &Pair) -> Outcome<(Trial, usize)> {
    let hub = Hub::new();
    let open = |metrics_only: bool| {
        Web::open(WebPlan { address: ([127, 0, 0, 1], 0).into(), clients: 4, metrics_only }, &hub)
    };
    let (page, metrics) = (open(false)?, open(true)?);
    let screen = Screen::open(&hub)?;
    let browser = browse(&page.url().replace("/?", "/events?"))?;
    let scraped = browse(&metrics.url())?;
    let began = Instant::now();
    let start = Start {
        command: "bench".into(),
        version: String::new(),
        started_at: "2026-01-01T00:00:00Z".into(),
        origin: Origin::Lab,
        machine: Machine::default(),
        asked: Default::default(),
    };
    let mut story = Story::new(&start, 0.0);
    story.trial_begins(
        Ahead {
            tx: pair.tx.to_string(),
            rx: pair.rx.to_string(),
            of: Some(1),
            worker_cpus: vec![0, 1],
            ..Ahead::default()
        },
        0.0,
    );
    hub.publish(story.snapshot(0.0));
    let look = |tick: Tick| {
        let now_s = began.elapsed().as_secs_f64();
        story.looks(
            Seen {
                done_ratio: tick.done_ratio,
                sent: tick.look.sent,
                delivered: tick.look.delivered,
                rx_dropped: tick.look.rx_dropped,
                sent_pps: tick.sent_pps,
                delivered_pps: tick.delivered_pps,
            },
            now_s,
        );
        hub.publish(story.snapshot(now_s));
        true
    };
    let trial = run_trial_in(lab, plan, pair, 1, look)?.trial;
    story.trial_ends(&trial, began.elapsed().as_secs_f64());
    story.ends(String::new());
    hub.publish(story.snapshot(began.elapsed().as_secs_f64()));
    drop(screen);
    drop((page, metrics));
    scraped.join().map_err(|_| "the scraper failed")?;
    Ok((trial, browser.join().map_err(|_| "the browser failed")?))
}

/// Reads an address of a server until it ends; the number of events.
fn browse(url: &str) -> Outcome<JoinHandle<usize>> {
    let rest = url.strip_prefix("http://").ok_or("no address")?;
    let (host, path) = rest.split_once('/').ok_or("no path")?;
    let mut stream = TcpStream::connect(host)?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    Ok(thread::spawn(move || {
        let mut text = Vec::new();
        stream.read_to_end(&mut text).ok();
        text.windows(6).filter(|bytes| *bytes == b"data: ").count()
    }))
}
