//! The ladder: a `Run`'s trials grouped by pair, for all outputs.

use measure::{CpuShare, Ledger, LedgerLine, PairSummary, Run, STAGE, Trial, median};

use crate::{number, value::plain};

/// One pair with its repeats.
pub(crate) struct Rung<'r> {
    /// Sender, receiver and everything else that distinguishes this pair; raw, must be escaped.
    pub(crate) name: String,
    /// The name without the load.
    pub(crate) name_without_load: String,
    pub(crate) pair: PairSummary,
    /// The indexes of `trials` in the run.
    pub(crate) indexes: Vec<usize>,
    pub(crate) trials: Vec<&'r Trial>,
}

/// CPU time as shares of the whole machine's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CpuUse {
    pub(crate) user: f64,
    pub(crate) system: f64,
    /// Hard and soft interrupts.
    pub(crate) interrupts: f64,
}

/// The settings that differ between the pairs of a run, and so belong in their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Varying {
    pub(crate) frame_size: bool,
    pub(crate) threads: bool,
    pub(crate) load: bool,
}

/// The run's pairs in the order they ran; summarised here when the run has no summary. Stages besides
/// the ladder are in the run's capacities.
pub(crate) fn rungs(run: &Run) -> Vec<Rung<'_>> {
    let trials = &run.end.trials;
    let mut pairs = if run.end.pairs.is_empty() { PairSummary::of(trials) } else { run.end.pairs.clone() };
    pairs.retain(|pair| !pair.parameters.contains_key(STAGE));
    let varying = Varying::among(&pairs);
    let rung = |pair: PairSummary| {
        let (indexes, trials) = trials.iter().enumerate().filter(|(_, trial)| pair.covers(trial)).unzip();
        let name_without_load = Varying { load: false, ..varying }.name(&pair);
        Rung { name: varying.name(&pair), name_without_load, pair, indexes, trials }
    };
    pairs.into_iter().map(rung).collect()
}

/// The pairs of a search's loads, which are intermediate steps, and the pairs measured as results.
pub(crate) fn of_searches(run: &Run) -> (Vec<Rung<'_>>, Vec<Rung<'_>>) {
    let found = &run.end.throughput;
    rungs(run).into_iter().partition(|rung| {
        let pair = &rung.pair;
        let is_of = |found: &measure::Throughput| {
            (&found.tx, &found.rx, found.frame_size_bytes, &found.parameters)
                == (&pair.tx, &pair.rx, pair.frame_size_bytes, &pair.parameters)
        };
        found.iter().any(is_of)
    })
}

/// The pairs with the highest delivered rates first if only the pair differs; a sweep keeps its order.
pub(crate) fn by_rate(rungs: &mut [Rung]) {
    let is_sweep = Varying::among(rungs.iter().map(|rung| &rung.pair)) != Varying::default()
        || rungs.iter().any(|rung| !rung.pair.parameters.is_empty());
    if !is_sweep {
        let rate = |rung: &Rung| rung.pair.delivered_pps.median;
        rungs.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    }
}

/// The pair that delivered the most.
pub(crate) fn best<'s, 'r>(rungs: &'s [Rung<'r>]) -> Option<&'s Rung<'r>> {
    rungs.iter().max_by(|a, b| a.pair.delivered_pps.median.total_cmp(&b.pair.delivered_pps.median))
}

/// The pair that delivered the most bits of payload.
pub(crate) fn best_by_bits<'s, 'r>(rungs: &'s [Rung<'r>]) -> Option<&'s Rung<'r>> {
    rungs.iter().max_by(|a, b| a.payload_bps().total_cmp(&b.payload_bps()))
}

impl Varying {
    pub(crate) fn among<'p>(pairs: impl IntoIterator<Item = &'p PairSummary>) -> Self {
        let pairs: Vec<&PairSummary> = pairs.into_iter().collect();
        let differs =
            |same: fn(&PairSummary, &PairSummary) -> bool| pairs.windows(2).any(|w| !same(w[0], w[1]));
        Self {
            frame_size: differs(|a, b| a.frame_size_bytes == b.frame_size_bytes),
            threads: differs(|a, b| (a.tx_threads, a.rx_threads) == (b.tx_threads, b.rx_threads)),
            load: differs(|a, b| a.asked_pps == b.asked_pps),
        }
    }

    pub(crate) fn name(self, pair: &PairSummary) -> String {
        let mut name = format!("{} → {}", pair.tx, pair.rx);
        if self.frame_size {
            name += &format!(", {} B", pair.frame_size_bytes);
        }
        if self.threads {
            name += &format!(", {}", threads(pair));
        }
        for (parameter, value) in &pair.parameters {
            name += &format!(", {parameter}={}", plain(value));
        }
        // A swept rate is among the parameters.
        if self.load && !pair.parameters.contains_key("rate") {
            name += &format!(", at {}", number::asked(pair.asked_pps));
        }
        name
    }
}

/// Sending and receiving threads: `1+2 threads`.
pub(crate) fn threads(pair: &PairSummary) -> String {
    format!("{}+{} threads", pair.tx_threads, pair.rx_threads)
}

impl Rung<'_> {
    /// The median over the trials that know the value.
    pub(crate) fn median(&self, value: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
        median(&self.trials.iter().filter_map(|trial| value(trial)).collect::<Vec<_>>())
    }

    /// Bits of payload delivered per second, median: of a stream its bytes, else of the packets.
    pub(crate) fn payload_bps(&self) -> f64 {
        let of = |trial: &Trial| match &trial.stream {
            Some(stream) => stream.delivered_bps,
            None => trial.delivered_pps * 8.0 * f64::from(trial.payload_bytes),
        };
        self.median(|trial| Some(of(trial))).unwrap_or(0.0)
    }

    /// Median loss, 0..=1.
    pub(crate) fn loss_ratio(&self) -> f64 {
        self.median(|trial| Some(trial.loss_ratio)).unwrap_or(0.0)
    }

    /// Whether enough trials exist and they agree; one trial neither agrees nor disagrees.
    pub(crate) fn agrees(&self) -> bool {
        self.pair.agrees || self.trials.len() < 2
    }

    /// Whether every trial held its rate.
    pub(crate) fn kept_up(&self) -> bool {
        self.trials.iter().all(|trial| trial.receipt.kept_up)
    }

    /// Trials whose ledger does not close.
    pub(crate) fn open_ledgers(&self) -> usize {
        self.trials.iter().filter(|trial| !trial.ledger.is_closed()).count()
    }

    /// The sum of all trials' ledgers, lines by place and counter.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut sum = Ledger { sent: 0, delivered: 0, lines: Vec::new(), unexplained: 0 };
        for ledger in self.trials.iter().map(|trial| &trial.ledger) {
            sum.sent = sum.sent.saturating_add(ledger.sent);
            sum.delivered = sum.delivered.saturating_add(ledger.delivered);
            sum.unexplained = sum.unexplained.saturating_add(ledger.unexplained);
            ledger.lines.iter().for_each(|line| add_line(&mut sum.lines, line));
        }
        sum
    }

    /// The whole machine's CPU time in the trials, medians.
    pub(crate) fn cpu_use(&self) -> Option<CpuUse> {
        let part = |share: fn(&CpuShare) -> f64| self.median(|trial| mean(&trial.cpus, share));
        Some(CpuUse {
            user: part(|cpu| cpu.user_ratio)?,
            system: part(|cpu| cpu.system_ratio)?,
            interrupts: part(|cpu| cpu.irq_ratio + cpu.softirq_ratio)?,
        })
    }
}

fn add_line(lines: &mut Vec<LedgerLine>, line: &LedgerLine) {
    match lines.iter_mut().find(|known| known.place == line.place && known.source == line.source) {
        Some(known) => known.packets = known.packets.saturating_add(line.packets),
        None => lines.push(line.clone()),
    }
}

fn mean(cpus: &[CpuShare], share: fn(&CpuShare) -> f64) -> Option<f64> {
    (!cpus.is_empty()).then(|| cpus.iter().map(share).sum::<f64>() / cpus.len() as f64)
}
