//! `cargo bench -p linerate-search`: this search against the reference MLRsearch (1.2.1), whose results on the same
//! simulated devices are recorded in `mlrsearch/reference.csv` (`mlrsearch/record.py` makes them).
//!
//! No clock is read: trials, seconds of trial time and errors are the same on every machine.

use std::{collections::BTreeMap, fmt};

use search::{Goal, Measured, Search, SearchPlan, Step};

const REFERENCE: &str = include_str!("mlrsearch/reference.csv");

/// `SplitMix64` (Steele, Lea and Flood 2014), as in `record.py`.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A tail drop at `limit_pps`; `jitter` moves the limit from trial to trial, a share `hiccups` of the trials loses 0.1 %.
struct Device {
    limit_pps: f64,
    jitter: f64,
    hiccups: f64,
    random: Random,
}

impl Device {
    fn measure(&mut self, load_pps: f64, duration_s: f64) -> Measured {
        let (moved, hiccup) = (self.random.unit(), self.random.unit());
        let limit_pps = self.limit_pps * (1.0 + self.jitter * (moved - 0.5));
        let ratio = (1.0 - limit_pps / load_pps).max(0.0) + if hiccup < self.hiccups { 0.001 } else { 0.0 };
        let sent = (load_pps * duration_s).round();
        let lost = (sent * ratio.min(1.0)).round() as u64;
        Measured { duration_s, scheduled: sent as u64, sent: sent as u64, lost }
    }
}

/// A search's goals by the name of its group, with the device's jitter and hiccups: the table of `record.py`.
fn group(name: &str) -> (Vec<Goal>, f64, f64) {
    let goal = Goal {
        duration_sum_s: 21.0,
        final_duration_s: 1.0,
        initial_duration_s: 1.0,
        width_ratio: 0.005,
        ..Goal::ndr()
    };
    match name {
        "hard" => (vec![goal], 0.0, 0.0),
        "two goals" => {
            (vec![Goal { loss_ratio: 0.005, name: "PDR".into(), ..goal.clone() }, goal], 0.01, 0.0)
        }
        "jitter" => (vec![goal], 0.02, 0.0),
        "hiccups 20" => (vec![goal], 0.0, 0.2),
        "hiccups 40" => (vec![goal], 0.0, 0.4),
        "long" => {
            let long = Goal { exceed_ratio: 0.0, final_duration_s: 60.0, duration_sum_s: 60.0, ..goal };
            (vec![long], 0.0, 0.0)
        }
        "short" => {
            let short = Goal { initial_duration_s: 0.25, duration_sum_s: 3.0, width_ratio: 0.01, ..goal };
            (vec![short], 0.01, 0.1)
        }
        name => panic!("no group {name}"),
    }
}

/// What searches cost and found.
#[derive(Default, Clone, Copy)]
struct Total {
    searches: u32,
    trials: u32,
    seconds: f64,
    /// The sum of the shares by which results miss the limit.
    missed: f64,
    /// Results below 90 % of the limit.
    far_below: u32,
    /// Results above the limit by more than its jitter and the goal's width.
    above: u32,
}

impl Total {
    fn add(&mut self, (trials, seconds, found_pps): (u32, f64, f64), limit_pps: f64) {
        self.searches += 1;
        self.trials += trials;
        self.seconds += seconds;
        self.missed += (found_pps / limit_pps - 1.0).abs();
        self.far_below += u32::from(found_pps < 0.9 * limit_pps);
        self.above += u32::from(found_pps > 1.02 * limit_pps);
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missed = 100.0 * self.missed / f64::from(self.searches);
        write!(f, "{:6} {:8.0} {missed:6.2} {:4} {:4}", self.trials, self.seconds, self.far_below, self.above)
    }
}

fn search(name: &str, limit_pps: f64, seed: u64) -> (u32, f64, f64) {
    let (goals, jitter, hiccups) = group(name);
    let plan = SearchPlan { goals, min_pps: 10e3, most_trials: 100_000, ..SearchPlan::up_to(10e6) };
    let mut device = Device { limit_pps, jitter, hiccups, random: Random(seed) };
    let mut search = Search::new(plan).expect("the goals are sound");
    let mut seconds = 0.0;
    while let Step::Measure { load_pps, duration_s } = search.next() {
        search.record(load_pps, duration_s, device.measure(load_pps, duration_s));
        seconds += duration_s;
    }
    let outcomes = search.outcomes();
    let found =
        outcomes.last().and_then(|outcome| outcome.lower.as_ref()).map_or(0.0, |lower| lower.load_pps);
    (search.trials(), seconds, found)
}

fn main() {
    let mut totals: BTreeMap<&str, [Total; 2]> = BTreeMap::new();
    for line in REFERENCE.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let [name, limit, seed, trials, seconds, found] = fields[..] else { panic!("six fields: {line}") };
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let (limit_pps, seed) = (number(limit), number(seed) as u64);
        let ours = search(name, limit_pps, seed);
        let reference = (number(trials) as u32, number(seconds), number(found));
        for group in [name, "all"] {
            let [our_total, their_total] = totals.entry(group).or_default();
            our_total.add(ours, limit_pps);
            their_total.add(reference, limit_pps);
        }
    }
    println!("error: mean distance from the limit; low: below 90 % of it; high: above 102 %");
    let columns = "trials  seconds  err % low high";
    println!("{:12} {:>8}  {columns}    {columns}   ratio of trials, seconds", "", "searches");
    println!("{:12} {:8}  {:32}  {:32}", "", "", "linerate", "MLRsearch 1.2.1");
    for (name, [ours, reference]) in totals {
        println!(
            "{name:12} {:8}  {ours}    {reference}   {:.2}  {:.2}",
            ours.searches,
            f64::from(ours.trials) / f64::from(reference.trials),
            ours.seconds / reference.seconds
        );
    }
}
