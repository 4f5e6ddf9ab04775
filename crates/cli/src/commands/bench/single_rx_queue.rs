//! `linerate bench single-rx-queue`: valid packets during a flood, for each way to drop the flood.

use std::{
    io::{self, Write},
    time::Instant,
};

use bench::{
    DivertedQueues, FLOOD_FACTOR, FloodFilter, FloodLoad, FloodWithoutLoss, LimitedBy, OtherFlows,
    SINGLE_RX_QUEUE, SingleRxQueueError, SingleRxQueueEvent, SingleRxQueuePlan, SingleRxQueueRow,
    VALID_SHARE, read_lab_interfaces, run_single_rx_queue, single_rx_queue_figures,
};
use lab::{Access, Interfaces, Taken};
use measure::{End, Origin, PairSummary, Point, PublishedFigure, Run, SCHEMA, Skipped};
use serde_json::json;
use sys::signal;
use trial::{TrialError, place};
use wire::Rate;

use super::{experiment::explain as explain_lab, plan::cpu_order};
use crate::{
    access::gain_access,
    args::{SingleRxQueueArgs, frame_senders},
    failure::{Failure, Status},
    output::{self, Form, printed},
    pipeline::{Ending, Pipeline},
    start::opening,
};

pub(super) fn run(args: &SingleRxQueueArgs) -> Result<bool, Failure> {
    let plan = plan(args)?;
    let asked = (&plan, SINGLE_RX_QUEUE);
    let Some(pipeline) = Pipeline::open(&args.output, "bench", &asked)? else { return Ok(true) };
    if gain_access()? != Access::Privileged {
        return Err(Failure::new(Status::Missing, "XDP programs need root").hint("run as root"));
    }
    let form = pipeline.form();
    let mut start = opening("bench single-rx-queue", Origin::Lab, &plan);
    start.machine.interfaces =
        read_lab_interfaces(&plan.lab()).map_err(|error| explain_lab(&TrialError::from(error)))?;
    pipeline.begin(&start)?;
    let mut rows: Vec<SingleRxQueueRow> = Vec::new();
    let mut without_loss: Vec<FloodWithoutLoss> = Vec::new();
    let mut end = End::default();
    let mut broken_output = None;
    let began = Instant::now();
    let mut live = pipeline.live(&start)?;
    let outcome = run_single_rx_queue(&plan, |event| {
        match event {
            SingleRxQueueEvent::Row(row, trial) => {
                let name = format!("{}, {}", load_words(row.load), row.filter);
                live.row(&name, trial, (rows.len() as u32, SINGLE_RX_QUEUE.len() as u32));
                if form == Form::Text {
                    let mut out = io::stdout().lock();
                    let head = if rows.is_empty() { write_head(&mut out) } else { Ok(()) };
                    broken_output = printed(head.and_then(|()| write_row(row, &mut out))).err();
                }
                rows.push(row.clone());
                end.trials.push(trial.clone());
            }
            SingleRxQueueEvent::Searched(row, trial) => {
                let rate = row.asked_pps.unwrap_or(0.0);
                let name = format!("without loss? {rate:.0} pps, {}", row.filter);
                live.row(&name, trial, (rows.len() as u32, SINGLE_RX_QUEUE.len() as u32));
                end.trials.push(trial.clone());
            }
            SingleRxQueueEvent::WithoutLoss(found) => without_loss.push(found),
            SingleRxQueueEvent::Skipped(filter, reason) => {
                end.skipped.push(Skipped { engine: filter.to_string(), reason });
            }
        }
        broken_output.is_none() && signal::caught() == 0
    });
    live.end();
    end.duration_s = began.elapsed().as_secs_f64();
    end.pairs = PairSummary::of(&end.trials);
    end.points =
        rows.iter().map(SingleRxQueueRow::point).chain(without_loss.iter().map(lossless_point)).collect();
    end.figures = single_rx_queue_figures(&rows);
    let skips = |filter| end.skipped.iter().any(|skipped| skipped.engine == filter);
    let expected = SINGLE_RX_QUEUE.iter().filter(|(_, filter)| !skips(filter.to_string())).count();
    if rows.len() < expected {
        end.interrupted = true;
        end.notes.push(format!("cut short after {} of {expected} rows", rows.len()));
    }
    end.notes.extend(remarks(&rows));
    end.notes.extend(without_loss.iter().map(lossless_words));
    let run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end };
    let failure = broken_output.or(outcome.err().map(explain));
    let text = |run: &Run, out: &mut dyn Write| {
        write_others(&rows, out)?;
        write_end(&run.end, out)
    };
    pipeline.conclude(&run, Ending { failure, text: Some(&text), ..Ending::default() })
}

fn plan(args: &SingleRxQueueArgs) -> Result<SingleRxQueuePlan, Failure> {
    let usage = |message: &str, hint: &str| Failure::new(Status::Usage, message).hint(hint);
    if args.duration.is_zero() {
        return Err(usage("--duration must be above zero", "try --duration 2s"));
    }
    let Rate::Pps(valid_pps) = args.valid_rate else {
        return Err(usage("--valid-rate must be in packets per second", "try --valid-rate 1kpps"));
    };
    let Rate::Bps(transfer_bps) = args.transfer_rate else {
        return Err(usage("--transfer-rate must be in bits per second", "try --transfer-rate 200Mbps"));
    };
    if !args.tx.facts().makes_frames || args.tx.facts().takes_device {
        return Err(usage(
            "a flood needs an engine that builds whole frames, because its source address is not the sender's own",
            &format!("try --tx {}", frame_senders()),
        ));
    }
    let interfaces = args.tx_interface.as_ref().zip(args.rx_interface.as_ref());
    Ok(SingleRxQueuePlan {
        interfaces: interfaces.map(|(tx, rx)| Interfaces {
            tx: tx.clone(),
            rx: rx.clone(),
            ipv6: false,
            taken: Taken::default(),
        }),
        queue: args.queue,
        state: output::state_folder(),
        without_loss: args.ndr,
        tx: args.tx.clone(),
        valid_pps,
        transfer_bps,
        row_ns: args.duration.as_nanos() as u64,
        cpus: place(&cpu_order(&[]), 1, 2),
    })
}

/// What a reader must know to judge the rows.
fn remarks(rows: &[SingleRxQueueRow]) -> Vec<String> {
    let mut remarks = Vec::new();
    let transfer = |is_diverted: bool| {
        let flooded = rows.iter().filter(|row| row.load != FloodLoad::None);
        let alike = flooded.filter(|row| row.filter.is_diversion() == is_diverted);
        measure::median(&alike.map(|row| row.transfer_bps / 1e6).collect::<Vec<f64>>())
    };
    if let (Some(with), Some(without)) = (transfer(true), transfer(false)) {
        remarks.push(format!(
            "The unrelated transfer reached {with:.0} Mb/s during a flood that was diverted and {without:.0} Mb/s during one \
             that was not (medians of rows)."
        ));
    }
    remarks.extend(isolation_words(rows));
    let mut shown: Vec<(FloodFilter, String)> = Vec::new();
    for (filter, diverted) in rows.iter().filter_map(|row| Some((row.filter, row.diverted.as_ref()?))) {
        let words = (filter, diverted_words(diverted));
        if !shown.contains(&words) {
            remarks.push(format!("{filter}: {}.", words.1));
            shown.push(words);
        }
    }
    let checks = rows.iter().filter_map(|row| row.diverted.as_ref()?.other_queues_ns);
    if let Some(ns) = measure::median(&checks.map(|ns| ns as f64).collect::<Vec<_>>()) {
        remarks.push(format!(
            "The diversion's program takes {ns:.0} ns of each packet on a queue that is not diverted, with the packet in the CPU's cache."
        ));
    }
    for row in rows {
        let lost: Vec<String> =
            row.lost.iter().map(|(place, packets)| format!("{packets} {place}")).collect();
        if row.filter.is_diversion() && !lost.is_empty() {
            let load = load_words(row.load);
            remarks.push(format!("{load}, {}: lost {}.", row.filter, lost.join(", ")));
        }
    }
    let missed = rows.iter().filter_map(|row| {
        let asked = row.asked_pps.filter(|asked| row.flood_pps < asked * 0.99)?;
        Some(row.flood_pps * FLOOD_FACTOR / asked)
    });
    if let Some(least) = missed.min_by(f64::total_cmp) {
        remarks.push(format!(
            "The sender did not reach {FLOOD_FACTOR:.0} times the service's rate: at least one row reached only {least:.1} times."
        ));
    }
    remarks
}

/// Which queues were diverted, how packets came to the filter, and what picked them.
fn diverted_words(diverted: &DivertedQueues) -> String {
    let queues: Vec<String> = diverted.queues.iter().map(u32::to_string).collect();
    let mode = diverted.copy_mode.as_ref().map_or(String::new(), |mode| format!(" through AF_XDP ({mode})"));
    let picked = match (&diverted.card_rules[..], &diverted.selected[..]) {
        ([], _) => "the program selects the packets".to_owned(),
        (rules, []) => format!("the card steers the packets there ({})", rules.join(", ")),
        (rules, selected) => {
            format!(
                "the card steers some ({}), the program selects {}",
                rules.join(", "),
                selected.join(", ")
            )
        }
    };
    format!("diverted queue {}{mode}; {picked}", queues.join(", "))
}

/// What the diversions did to the flows on other queues.
fn isolation_words(rows: &[SingleRxQueueRow]) -> Option<String> {
    let calm = rows.iter().find(|row| row.load == FloodLoad::None && row.filter == FloodFilter::Service)?;
    let diverted = rows.iter().filter(|row| row.load != FloodLoad::None && row.filter.is_diversion());
    let flows: Vec<(&OtherFlows, f64)> = diverted
        .filter_map(|row| Some((row.others.as_ref()?, row.transfer_bps / calm.transfer_bps.max(1.0))))
        .collect();
    let exact = flows.iter().filter(|(others, _)| others.is_exact()).count();
    let least = flows.iter().map(|(_, ratio)| *ratio).min_by(f64::total_cmp)?;
    let most = flows.iter().map(|(_, ratio)| *ratio).max_by(f64::total_cmp)?;
    Some(format!(
        "Other queues during a diverted flood: in {exact} of {} rows every packet of the UDP flow arrived and was counted \
         once by its queue; the transfer had {least:.3} to {most:.3} times its rate without flood and diversion.",
        flows.len()
    ))
}

fn lossless_words(found: &FloodWithoutLoss) -> String {
    let FloodWithoutLoss { filter, flood_pps, limit } = found;
    let rate = flood_pps.map_or("none".to_owned(), |pps| format!("{:.3} Mpps", pps / 1e6));
    let limit = match limit {
        LimitedBy::Loss => "above it packets are lost",
        LimitedBy::Generator | LimitedBy::MaxLoad => "the sender makes no more",
        LimitedBy::MinLoad => "a hundredth of the full flood loses packets, too",
        LimitedBy::Unfinished => "the search was not finished",
    };
    format!("Highest flood without loss, {filter}: {rate}; {limit}.")
}

fn lossless_point(found: &FloodWithoutLoss) -> Point {
    let values = [
        ("flood", json!(FloodLoad::WithoutLoss)),
        ("filter", json!(found.filter.to_string())),
        ("flood_pps", json!(found.flood_pps)),
        ("limited_by", json!(found.limit)),
    ];
    Point { values: values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
}

fn explain(error: SingleRxQueueError) -> Failure {
    match error {
        SingleRxQueueError::Lab(error) => explain_lab(&TrialError::from(error)),
        error => Failure::of(Status::Refused, &error),
    }
}

/// The least and the most that the document's queue filtered.
fn published_pps() -> (f64, f64) {
    PublishedFigure::shipped("single-rx-queue.filtered").range()
}

fn write_head(out: &mut impl Write) -> io::Result<()> {
    let (least, most) = published_pps();
    writeln!(
        out,
        "Published: {:.2} to {:.2} Mpps through the filter of one queue (netmap on ixgbe, one core, of 6 Mpps offered)",
        least / 1e6,
        most / 1e6
    )?;
    writeln!(
        out,
        "{:<10} {:<27} {:>10} {:>7} {:>9} {:>8} {:>8} {:>9} {:>10} {:>9} {:>9}  busy by CPU",
        "flood",
        "dropped by",
        "flood Mpps",
        "x path",
        "drop Mpps",
        "of flood",
        "of 5.84",
        "valid",
        "arrived",
        "delivered",
        "TCP Mb/s"
    )
}

fn write_row(row: &SingleRxQueueRow, out: &mut impl Write) -> io::Result<()> {
    let load = load_words(row.load);
    let busy: Vec<String> =
        row.cpus.iter().map(|cpu| format!("{:.0}%", (1.0 - cpu.idle_ratio) * 100.0)).collect();
    writeln!(
        out,
        "{:<10} {:<27} {:>10.3} {:>7} {:>9.3} {:>8} {:>8.2} {:>8.3}% {:>10} {:>9} {:>9.0}  {}",
        load,
        row.filter.to_string(),
        row.flood_pps / 1e6,
        row.flood_of_path.map_or("-".into(), |multiple| format!("{multiple:.1}")),
        row.filtered_pps / 1e6,
        row.filtered_of_flood().map_or("-".into(), |share| format!("{:.1}%", share * 100.0)),
        row.filtered_pps / published_pps().0,
        row.valid_ratio() * 100.0,
        row.valid_arrived
            .map_or("-".into(), |arrived| percent(arrived as f64 / row.valid_sent.max(1) as f64)),
        row.valid_of_arrived().map_or("-".into(), percent),
        row.transfer_bps / 1e6,
        busy.join(" ")
    )
}

fn load_words(load: FloodLoad) -> String {
    match load {
        FloodLoad::None => "none".to_owned(),
        FloodLoad::Full => "full".to_owned(),
        FloodLoad::TenTimes => format!("{FLOOD_FACTOR:.0} x path"),
        FloodLoad::WithoutLoss => "no loss".to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}

/// The flows on other queues, one line a row.
fn write_others(rows: &[SingleRxQueueRow], out: &mut dyn Write) -> io::Result<()> {
    let flows = rows.iter().filter_map(|row| Some((row, row.others.as_ref()?)));
    for (number, (row, others)) in flows.enumerate() {
        let OtherFlows {
            beside_queue, beside_sent, beside_delivered, beside_counted, transfer_queue, ..
        } = others;
        if number == 0 {
            writeln!(
                out,
                "Flows on other queues: packets of a UDP flow on queue {beside_queue}, and the transfer"
            )?;
            writeln!(
                out,
                "{:<10} {:<27} {:>9} {:>9} {:>9} {:>9} {:>5}  packets by queue",
                "flood", "dropped by", "UDP sent", "counted", "arrived", "TCP Mb/s", "queue"
            )?;
        }
        let by_queue: Vec<String> = others.packets_by_queue.iter().map(u64::to_string).collect();
        writeln!(
            out,
            "{:<10} {:<27} {beside_sent:>9} {:>9} {beside_delivered:>9} {:>9.1} {transfer_queue:>5}  {}",
            load_words(row.load),
            row.filter.to_string(),
            beside_counted.map_or("-".into(), |packets| packets.to_string()),
            row.transfer_bps / 1e6,
            by_queue.join(" ")
        )?;
    }
    Ok(())
}

fn write_end(end: &End, out: &mut dyn Write) -> io::Result<()> {
    for skipped in &end.skipped {
        writeln!(out, "skipped: {}: {}", skipped.engine, skipped.reason)?;
    }
    for note in &end.notes {
        writeln!(out, "note: {note}")?;
    }
    writeln!(
        out,
        "{FLOOD_FACTOR:.0} x path: that many times the service's rate under the full flood; of the valid packets that \
         arrive at the filter, {}% should be delivered; the others are lost on the wire",
        VALID_SHARE * 100.0
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn row(flood_pps: f64) -> SingleRxQueueRow {
        SingleRxQueueRow {
            load: FloodLoad::TenTimes,
            filter: FloodFilter::XdpDrop,
            asked_pps: Some(5e6),
            flood_pps,
            flood_of_path: Some(flood_pps / 5e5),
            filtered_pps: 4e6,
            valid_sent: 2000,
            valid_arrived: Some(1000),
            valid_delivered: 999,
            lost: BTreeMap::new(),
            diverted: None,
            transfer_bps: 2e9,
            others: None,
            cpus: Vec::new(),
        }
    }

    #[test]
    fn a_row_shows_rates_and_shares() {
        let mut out = Vec::new();
        write_row(&row(5e6), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "10", "x", "path", "plain", "XDP", "drop", "5.000", "10.0", "4.000", "80.0%", "0.68",
                "49.950%", "50.000%", "99.900%", "2000"
            ]
        );
    }

    #[test]
    fn a_filter_that_does_not_count_valid_packets_has_no_share_of_them() {
        let mut out = Vec::new();
        write_row(&SingleRxQueueRow { valid_arrived: None, ..row(5e6) }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[11..], ["49.950%", "-", "-", "2000"]);
    }

    #[test]
    fn remarks_give_the_transfer_with_and_without_a_diversion_and_the_losses() {
        let with = |filter, transfer_bps, lost: &[(&str, u64)]| SingleRxQueueRow {
            filter,
            transfer_bps,
            lost: lost.iter().map(|(place, packets)| ((*place).to_owned(), *packets)).collect(),
            ..row(5e6)
        };
        let told = remarks(&[
            with(FloodFilter::XdpDrop, 1e8, &[]),
            with(FloodFilter::DivertUser, 2e8, &[("RX ring full", 3)]),
        ]);
        assert!(told[0].contains(" 200 Mb/s during a flood that was diverted and 100 Mb/s "), "{told:?}");
        let queues = DivertedQueues {
            queues: vec![0, 1],
            copy_mode: Some("copy".into()),
            other_queues_ns: None,
            card_rules: Vec::new(),
            selected: Vec::new(),
        };
        let diverted = SingleRxQueueRow { diverted: Some(queues), ..with(FloodFilter::DivertUser, 1e8, &[]) };
        let words = "divert --where user: diverted queue 0, 1 through AF_XDP (copy); the program selects the packets.";
        assert_eq!(remarks(&[diverted.clone(), diverted]), [words]);
        assert_eq!(told[1], "10 x path, divert --where user: lost 3 RX ring full.");
    }

    #[test]
    fn a_steered_queue_has_its_rules_and_the_other_queues_their_counts() {
        let others = |counted| OtherFlows {
            beside_queue: 3,
            beside_sent: 400,
            beside_delivered: 400,
            beside_counted: Some(counted),
            transfer_queue: 2,
            packets_by_queue: vec![1, 90_000, 700, counted],
        };
        let calm = SingleRxQueueRow {
            load: FloodLoad::None,
            filter: FloodFilter::Service,
            others: Some(others(400)),
            ..row(0.0)
        };
        let queues = DivertedQueues {
            queues: vec![1],
            copy_mode: Some("zero-copy".into()),
            other_queues_ns: Some(9),
            card_rules: vec!["rss.table bucket 7 of 128 to queue 1".into()],
            selected: Vec::new(),
        };
        let flooded = |counted, transfer_bps| SingleRxQueueRow {
            filter: FloodFilter::DivertUser,
            others: Some(others(counted)),
            diverted: Some(queues.clone()),
            transfer_bps,
            ..row(5e6)
        };
        let rows = [calm, flooded(400, 1.98e9), flooded(401, 2e9)];
        let told = remarks(&rows);
        assert!(told[0].contains(" in 1 of 2 rows ") && told[0].contains("0.990 to 1.000 times"), "{told:?}");
        assert_eq!(
            told[1],
            "divert --where user: diverted queue 1 through AF_XDP (zero-copy); the card steers the packets there (rss.table \
             bucket 7 of 128 to queue 1)."
        );
        assert!(told[2].contains(" takes 9 ns of each packet"), "{told:?}");
        let mut out = Vec::new();
        write_others(&rows, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[last.len() - 8..], ["401", "400", "2000.0", "2", "1", "90000", "700", "401"]);
        assert!(text.starts_with("Flows on other queues: packets of a UDP flow on queue 3,"), "{text}");
    }

    #[test]
    fn a_flood_without_loss_has_what_limits_it() {
        let found = |flood_pps, limit| {
            lossless_words(&FloodWithoutLoss { filter: FloodFilter::DivertXdp, flood_pps, limit })
        };
        assert_eq!(
            found(Some(1.5e6), LimitedBy::Loss),
            "Highest flood without loss, divert --where xdp: 1.500 Mpps; above it packets are lost."
        );
        assert!(found(None, LimitedBy::MinLoad).contains(": none; a hundredth"));
    }

    #[test]
    fn a_sender_that_is_too_slow_is_reported() {
        assert_eq!(remarks(&[row(4.99e6)]), [""; 0]);
        assert!(remarks(&[row(5e6), row(2.5e6)])[0].ends_with("reached only 5.0 times."));
    }
}
