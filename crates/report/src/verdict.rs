//! The verdict on a run in one sentence, and the remarks that its numbers must be quoted with.

use measure::{Figure, Origin, Point, Run, Trial};

use crate::{
    answers, bends, capacity, filters, fleet, idle, instructions,
    ladder::{self, Rung, rungs},
    number,
    points::{self, Axes},
    policies, throughput, tuned,
};

/// The run in one sentence, raw, to be escaped.
pub fn verdict(run: &Run) -> String {
    let answer = answers::answer(run).map(|answer| {
        let mut letters = answer.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
        first + letters.as_str()
    });
    let parts = [answer, of_figures(&run.end.figures), Some(measured(run))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The measurements compared with published work.
fn of_figures(figures: &[Figure]) -> Option<String> {
    // figures that were given to a model or fitted prove nothing
    let compared = figures.iter().filter(|figure| !figure.given);
    let ratios: Vec<f64> = compared.filter_map(Figure::ratio).filter(|ratio| ratio.is_finite()).collect();
    let least = ratios.iter().copied().reduce(f64::min)?;
    let most = ratios.iter().copied().fold(least, f64::max);
    let (some, all) = (ratios.len(), figures.len());
    let times = if some == 1 { format!("{least:.2}") } else { format!("{least:.2} to {most:.2}") };
    let given = figures.iter().filter(|figure| figure.given).count();
    let but = if given == 0 { String::new() } else { format!(", {given} given to the model or fitted") };
    Some(format!(
        "{some} of {all} published figures have a counterpart here, at {times} times their value{but}."
    ))
}

fn measured(run: &Run) -> String {
    if let Some(found) = tuned::verdict(run) {
        return found;
    }
    if let Some(found) = filters::verdict(&run.end.points) {
        return found;
    }
    if let Some(found) = policies::verdict(&run.end.points) {
        return found;
    }
    if let Some(found) = throughput::verdict(&run.end.throughput) {
        return found;
    }
    let rungs = rungs(run);
    if let Some(known) = fleet::verdict(run) {
        return format!("{known}; {}.", ledgers(&rungs));
    }
    if let Some(found) = instructions::verdict(&rungs).filter(|_| instructions::is_counted(run)) {
        return found;
    }
    let scenario = bends::scenario(&run.start);
    let is_about_bits = bends::compares_bits(scenario, &run.end.points);
    let best = if is_about_bits { ladder::best_by_bits(&rungs) } else { ladder::best(&rungs) };
    let Some(best) = best else {
        return of_points(&run.end.points);
    };
    if rungs.iter().all(|rung| rung.trials.iter().all(|trial| trial.sent == 0)) {
        return "Nothing was sent, so nothing was measured.".into();
    }
    if let Some(sentences) = capacity::verdict(run) {
        return match rungs.iter().map(Rung::open_ledgers).sum::<usize>() {
            0 => sentences,
            _ => format!("{sentences} But {}.", ledgers(&rungs)),
        };
    }
    let known = delivered(best, rungs.len(), is_about_bits);
    match unobserved(&rungs) {
        0 => format!("{known}; {}, and {}.", ledgers(&rungs), rates(&rungs)),
        n if n == rungs.len() => format!("{known}; {}.", rates(&rungs)),
        _ => format!("{known}; the delivered packets of some others are unknown, and {}.", rates(&rungs)),
    }
}

fn of_points(points: &[Point]) -> String {
    let Axes { series, x, results } = points::axes(points);
    let count = number::count(points.len() as u64);
    match (points.len(), x) {
        (0, _) => "Nothing was measured.".into(),
        (_, None) => format!("{count} points."),
        (_, Some(x)) => {
            let by = if series.is_empty() { String::new() } else { format!(", by {}", series.join(" and ")) };
            format!("{count} points: {} against {x}{by}.", results.join(", "))
        }
    }
}

fn delivered(best: &Rung, pairs: usize, is_about_bits: bool) -> String {
    if let Some(why) = best.ledger().unknown_because() {
        let sent = number::rate(best.pair.sent_pps.median);
        return format!(
            "{} sent {sent} of {}-byte frames; the number of delivered packets is unknown: {why}",
            best.name, best.pair.frame_size_bytes
        );
    }
    let (rate, size) = (number::rate(best.pair.delivered_pps.median), best.pair.frame_size_bytes);
    let loss = number::percent(best.loss_ratio());
    if let Some(stream) = best.trials.first().and_then(|trial| trial.stream.as_ref()) {
        let bps =
            best.median(|trial| trial.stream.as_ref().map(|stream| stream.delivered_bps)).unwrap_or(0.0);
        let (rate, size) = (number::bits_per_second(bps), number::count(stream.message_bytes.into()));
        let name = &best.name;
        return match pairs {
            1 => format!("{name} delivered {rate} in messages of {size} bytes"),
            _ => format!(
                "Of {pairs} combinations, {name} delivered the most: {rate} in messages of {size} bytes"
            ),
        };
    }
    if is_about_bits {
        let (name, rate) = (&best.name, number::bits_per_second(best.payload_bps()));
        let size = best.pair.frame_size_bytes;
        return format!(
            "Of {pairs} combinations, {name} delivered the most: {rate} of payload in {size}-byte frames, {loss} % lost"
        );
    }
    if pairs == 1 {
        format!("{} delivered {rate} of {size}-byte frames and lost {loss} %", best.name)
    } else {
        format!(
            "Of {pairs} combinations, {} delivered the most: {rate} of {size}-byte frames, {loss} % lost",
            best.name
        )
    }
}

/// Pairs with unknown delivery.
fn unobserved(rungs: &[Rung]) -> usize {
    rungs.iter().filter(|rung| rung.ledger().unknown_because().is_some()).count()
}

fn ledgers(rungs: &[Rung]) -> String {
    match rungs.iter().map(Rung::open_ledgers).sum::<usize>() {
        0 => "every packet is accounted for".into(),
        1 => "packets of one trial are unexplained".into(),
        n => format!("packets of {n} trials are unexplained"),
    }
}

fn rates(rungs: &[Rung]) -> String {
    let paced = rungs.iter().filter(|rung| rung.pair.asked_pps.is_some()).count();
    match (paced, rungs.iter().filter(|rung| !rung.kept_up()).count()) {
        (0, 0) => "every sender ran at its maximum rate".into(),
        (_, 0) => "every requested rate was held".into(),
        (_, 1) => "the generator fell short in one combination".into(),
        (_, n) => format!("the generator fell short in {n} combinations"),
    }
}

/// The remarks needed to judge the numbers; raw, must be escaped.
pub(crate) fn remarks(run: &Run) -> Vec<String> {
    // A search tries rates that are not held, and each load once.
    let is_ladder = run.end.throughput.is_empty();
    // Trials of a simulation do not vary by chance.
    let is_measured = run.start.origin != Origin::Model;
    let disagreements = if is_ladder && is_measured { disagreements(&rungs(run)) } else { Vec::new() };
    let mut remarks = remarks_beside_marks(run);
    // The early end, if any, comes first.
    let at = usize::from(run.end.interrupted);
    remarks.splice(at..at, disagreements);
    remarks
}

/// The remarks next to a table that marks pairs whose trials disagree.
pub(crate) fn remarks_beside_marks(run: &Run) -> Vec<String> {
    let mut remarks = Vec::new();
    if run.end.interrupted {
        remarks.push("The run ended early; the results are those measured by then.".to_string());
    }
    remarks.extend(run.end.tuning.iter().flat_map(tuned::remarks));
    remarks.extend(bends::sentences(bends::scenario(&run.start), &run.end.points));
    if run.end.throughput.is_empty() {
        let rungs = rungs(run);
        match rungs.iter().filter(|rung| shortfall(rung).is_some()).count() {
            0..=MOST_SHORTFALLS => remarks.extend(rungs.iter().filter_map(shortfall)),
            count => remarks.extend(shortfalls(&rungs, count)),
        }
        remarks.extend(rungs.iter().flat_map(of_rung));
        remarks.extend(idle::remark(run, &rungs));
    }
    remarks.extend(stolen(&run.end.trials));
    remarks.extend(run.end.notes.iter().cloned());
    remarks
}

/// The most pairs with disagreeing trials to name.
const MOST_DISAGREEMENTS: usize = 4;

fn disagreements(rungs: &[Rung]) -> Vec<String> {
    let apart: Vec<&Rung> = rungs.iter().filter(|rung| !rung.agrees()).collect();
    if apart.len() > MOST_DISAGREEMENTS {
        let (some, all) = (apart.len(), rungs.len());
        return vec![format!(
            "The trials of {some} of {all} combinations disagree: quote their ranges (smallest to largest trial), not \
             their medians."
        )];
    }
    let one = |rung: &&Rung| {
        let (name, delivered) = (&rung.name, &rung.pair.delivered_pps);
        let (min, max) = (number::rate(delivered.min), number::rate(delivered.max));
        format!("{name}: the trials disagree ({min} to {max} delivered); quote the range, not the median.")
    };
    apart.iter().map(one).collect()
}

/// The most pairs whose generator fell short to name.
const MOST_SHORTFALLS: usize = 3;

fn shortfall(rung: &Rung) -> Option<String> {
    let short: Vec<_> = rung.trials.iter().filter(|trial| !trial.receipt.kept_up).collect();
    let worst = short.iter().map(|trial| trial.receipt.handed_pps).min_by(f64::total_cmp)?;
    let (asked, worst, of) =
        (number::rate(rung.pair.asked_pps?), number::rate(worst), of(short.len(), rung.trials.len()));
    Some(format!(
        "{}: the generator fell short of {asked} in {of}, {worst} at worst; this is not receiver loss.",
        rung.name
    ))
}

/// One remark for many pairs, with the smallest share of the requested rate.
fn shortfalls(rungs: &[Rung], count: usize) -> Option<String> {
    let held = |rung: &Rung| {
        let asked = rung.pair.asked_pps?;
        let short = rung.trials.iter().filter(|trial| !trial.receipt.kept_up);
        short.map(|trial| trial.receipt.handed_pps / asked).min_by(f64::total_cmp)
    };
    let (name, least) =
        rungs.iter().filter_map(|rung| Some((&rung.name, held(rung)?))).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (all, least) = (rungs.len(), number::percent(least));
    Some(format!(
        "The generator fell short of the requested rate in {count} of {all} combinations, at worst {least} % of it \
         ({name}); this is not receiver loss."
    ))
}

fn of_rung(rung: &Rung) -> Vec<String> {
    let name = &rung.name;
    let mut remarks = Vec::new();
    let idle = rung.trials.iter().filter(|trial| trial.asked_pps.is_none() && trial.sent == 0).count();
    if idle > 0 {
        let of = of(idle, rung.trials.len());
        remarks.push(format!("{name}: nothing was sent in {of}, so that it has no rate."));
    }
    let open: Vec<i64> = rung.trials.iter().map(|t| t.ledger.unexplained).filter(|n| *n != 0).collect();
    if let Some(worst) = open.iter().copied().max_by_key(|n| n.unsigned_abs()) {
        let (worst, of) = (number::signed_count(worst), of(open.len(), rung.trials.len()));
        remarks.push(format!(
            "{name}: the ledger does not close in {of}, {worst} packets unexplained at worst."
        ));
    }
    let early = rung.trials.iter().filter(|trial| trial.interrupted).count();
    if early > 0 {
        remarks.push(format!("{name}: {} ended early and covers less time.", of(early, rung.trials.len())));
    }
    remarks
}

fn of(some: usize, all: usize) -> String {
    if all == 1 { "the only trial".into() } else { format!("{some} of {all} trials") }
}

/// Stolen CPU time makes every rate a lower bound.
fn stolen(trials: &[Trial]) -> Option<String> {
    let worst = trials.iter().flat_map(|t| &t.cpus).map(|cpu| cpu.steal_ratio).fold(0.0, f64::max);
    let percent = number::percent(worst);
    (worst > 0.01)
        .then(|| format!("The hypervisor took up to {percent} % of a CPU: other guests slowed this machine."))
}
