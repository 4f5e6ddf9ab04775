//! A ladder as a matrix, senders × receivers, and the losses of its pairs, one line each.

use std::collections::BTreeMap;

use crate::{
    ladder::{Rung, Varying},
    number::{self, RateUnit},
    table::{Cell, Column, Table},
    tables::ladder_title,
};

/// A pair that lost more than this share of its packets is marked.
const MARKED: f64 = 0.01;

/// The delivered rate from each sender to each receiver; `None` if pairs differ in more than their engines, or only one
/// sender or receiver exists.
pub(crate) fn matrix(rungs: &[Rung]) -> Option<Table> {
    let varying = Varying::among(rungs.iter().map(|rung| &rung.pair));
    let is_plain = |rung: &Rung| {
        rung.pair.parameters.is_empty()
            && rung.pair.asked_pps.is_none()
            && rung.trials.first().is_some_and(|trial| trial.stream.is_none())
    };
    let (senders, receivers) = (in_order(rungs, |rung| &rung.pair.tx), in_order(rungs, |rung| &rung.pair.rx));
    if varying != Varying::default()
        || !rungs.iter().all(is_plain)
        || senders.len() < 2
        || receivers.len() < 2
    {
        return None;
    }
    let unit = RateUnit::of(rungs.iter().map(|rung| rung.pair.delivered_pps.median));
    let of = |tx: &str, rx: &str| rungs.iter().find(|rung| rung.pair.tx == tx && rung.pair.rx == rx);
    let title = ladder_title(rungs);
    let of_what = title.strip_prefix("Ladder: ").unwrap_or_default();
    let mut table = Table::titled(format!("Delivered: {of_what}"));
    let corner = format!("{} from \\ to", unit.name());
    table.push(Column::words(&corner, senders.iter().map(|tx| Cell::words(*tx))));
    for rx in receivers {
        let cells: Vec<Cell> = senders.iter().map(|tx| cell(of(tx, rx), unit)).collect();
        table.push(Column::figures(rx, "", cells));
    }
    let cells = table.columns.iter().flat_map(|column| &column.cells);
    let marks: String = cells.map(|cell| cell.text.as_str()).collect();
    let legend = [
        ("!", "! more than 1 % lost"),
        ("~", "~ the trials differ by more than 10 %"),
        ("?", "? packets unexplained"),
    ];
    let used: Vec<&str> =
        legend.iter().filter(|(mark, _)| marks.contains(mark)).map(|(_, words)| *words).collect();
    table.legend = used.join("; ");
    Some(table)
}

fn cell(rung: Option<&Rung>, unit: RateUnit) -> Cell {
    let Some(rung) = rung else { return Cell::figure(None, number::plain) };
    if rung.pair.delivered_pps.trials == 0 {
        return Cell::words("unknown");
    }
    let delivered = rung.pair.delivered_pps.median;
    let marks = [(rung.loss_ratio() > MARKED, '!'), (!rung.agrees(), '~'), (rung.open_ledgers() > 0, '?')];
    // A blank for each mark of a neighbouring cell keeps figures aligned.
    let mut text = unit.figure(delivered);
    text.extend(marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark));
    text.extend(std::iter::repeat_n(' ', 2usize.saturating_sub(marks.iter().filter(|(is, _)| *is).count())));
    Cell { value: Some(delivered), ..Cell::words(text) }.bad_if(rung.open_ledgers() > 0)
}

fn in_order<'r>(rungs: &'r [Rung], label: fn(&'r Rung<'r>) -> &'r String) -> Vec<&'r str> {
    let mut seen: Vec<&str> = Vec::new();
    for rung in rungs {
        let label = label(rung).as_str();
        if !seen.contains(&label) {
            seen.push(label);
        }
    }
    seen
}

/// A line for each pair that lost packets or has unexplained ones, the largest share first, at most `most`.
pub(crate) fn losses(rungs: &[Rung], most: usize) -> Table {
    let mut lossy: Vec<(&Rung, measure::Ledger)> = rungs.iter().map(|rung| (rung, rung.ledger())).collect();
    lossy.retain(|(_, ledger)| ledger.lost() > 0 || ledger.unexplained != 0);
    lossy.sort_by(|a, b| b.1.loss_ratio().total_cmp(&a.1.loss_ratio()));
    let (all, whole) = (lossy.len(), rungs.len() - lossy.len());
    lossy.truncate(most);
    let lost_nothing = match whole {
        0 => String::new(),
        1 => "; 1 pair lost nothing".into(),
        n => format!("; {n} pairs lost nothing"),
    };
    let mut table =
        Table::titled(format!("Where packets were lost (all trials of a pair together{lost_nothing})"));
    table.push(Column::words("pair", lossy.iter().map(|(rung, _)| Cell::words(&rung.name))));
    table.push(Column::figures(
        "lost",
        "% of sent",
        lossy.iter().map(|(_, ledger)| Cell::figure(ledger.loss_ratio(), number::percent)),
    ));
    table.push(Column::words("places", lossy.iter().map(|(_, ledger)| Cell::words(places(ledger)))));
    let unexplained = lossy.iter().map(|(_, ledger)| {
        let cell = Cell::figure(ledger.unexplained as f64, |_| number::signed_count(ledger.unexplained));
        cell.bad_if(ledger.unexplained != 0)
    });
    table.push(Column::figures("unexplained", "packets", unexplained).gives_way(1));
    if all > most {
        let more = all - most;
        let noun = if more == 1 { "pair" } else { "pairs" };
        table.legend = format!("{more} more {noun} lost less: --verbose shows all.");
    }
    table
}

/// All losses in a sentence.
pub(crate) fn losses_in_short(rungs: &[Rung]) -> String {
    let lossy: Vec<(&Rung, f64)> = rungs
        .iter()
        .map(|rung| (rung, rung.ledger()))
        .filter(|(_, ledger)| ledger.lost() > 0)
        .map(|(rung, ledger)| (rung, ledger.loss_ratio()))
        .collect();
    let (some, all) = (lossy.len(), rungs.len());
    match lossy.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
        None => format!("All {all} pairs lost nothing."),
        Some((worst, loss)) => {
            let (name, loss) = (&worst.name, number::percent(loss));
            format!("{some} pairs lost packets, {name} the most ({loss} %); {} lost nothing.", all - some)
        }
    }
}

/// The places that lost the most, with their shares of the loss if there are several.
fn places(ledger: &measure::Ledger) -> String {
    const MOST: usize = 2;
    let mut by_place: BTreeMap<String, u64> = BTreeMap::new();
    for line in ledger.lines.iter().filter(|line| line.packets > 0) {
        let packets = by_place.entry(line.place.to_string()).or_default();
        *packets = packets.saturating_add(line.packets);
    }
    let mut places: Vec<(String, u64)> = by_place.into_iter().collect();
    places.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
    if let [(only, _)] = &places[..] {
        return only.clone();
    }
    let lost = ledger.lost().max(1) as f64;
    let named = places
        .iter()
        .take(MOST)
        .map(|(place, packets)| format!("{place} {} %", number::percent(*packets as f64 / lost)));
    let mut words = named.collect::<Vec<_>>().join(", ");
    if places.len() > MOST {
        words += &format!(", {} more", places.len() - MOST);
    }
    words
}
