//! A run as one self-contained page: no script, no network, light and dark, print, phone, screen reader.
//!
//! The images are our own SVG: plotting libraries write fixed sizes, fonts and colours, which neither shrink to
//! a phone with readable text, nor follow dark mode, nor carry text alternatives.

mod axes;
mod bar_chart;
mod bars;
mod charts;
mod conditions;
mod cpus;
mod curve;
mod drawing;
mod filters;
mod flame;
mod fleet;
mod flow;
mod lines;
mod page;
mod percentiles;
mod published;
mod reception;
mod scale;
mod standalone;
mod timeline;
mod tuned;

use std::io::{self, Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use measure::{Run, Timeline};
use page::Page;

pub use drawing::Drawing;

use crate::{
    capacity, escape, instructions,
    json::write_compact_json,
    ladder::{Rung, by_rate, of_searches},
    markdown::write_markdown,
    number, occasion, tables, verdict,
};

/// The most pairs whose bars are shown unfolded when plots show the same results.
const MOST_RUNGS: usize = 24;

/// Writes the whole page.
pub fn write_html(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let mut json = Vec::new();
    write_compact_json(run, &mut json)?;
    let mut page = Page::default();
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    // a page without an icon would request one from its host
    page.raw("<link rel=\"icon\" href=\"data:,\">\n");
    page.element("title", "", &format!("linerate {}, {}", run.start.command, run.start.started_at));
    page.raw(format!("<style>\n{}</style>\n</head>\n<body>\n", include_str!("html/page.css")));
    write_header(run, &mut page);
    page.raw("<main>\n");
    write_body(run, &mut page);
    conditions::write_asked(run, &mut page);
    conditions::write(run, &mut page);
    write_raw_data(run, &json, &mut page);
    page.raw("</main>\n</body>\n</html>\n");
    out.write_all(page.into_html().as_bytes())
}

/// The page's charts, each as a separate image.
pub fn drawings(run: &Run) -> Vec<Drawing> {
    let mut page = Page::default();
    write_body(run, &mut page);
    page.into_drawings()
}

fn write_header(run: &Run, page: &mut Page) {
    let start = &run.start;
    page.raw("<header>\n");
    page.element("h1", "", &format!("linerate {} {}", start.command, occasion::place(start.origin)));
    page.element("p", "verdict", &verdict::verdict(run));
    if !run.end.trials.is_empty() && run.end.tuning.is_none() {
        // A closed ledger is not a goal that the user set.
        let has_goal = !run.end.throughput.is_empty()
            || run.end.trials.iter().any(|trial| trial.asked_pps.is_some() && !trial.is_search_step());
        match (run.end.goals_met(), has_goal) {
            (false, _) => page.element("p", "missed", "a goal was missed"),
            (true, true) => page.element("p", "met", "goals met"),
            (true, false) => page.element("p", "meta", "no goal set"),
        }
    }
    page.element("p", "meta", &occasion::occasion(run));
    let remarks = verdict::remarks(run);
    if !remarks.is_empty() {
        page.raw("<ul class=\"remarks\">\n");
        remarks.iter().for_each(|remark| page.element("li", "", remark));
        page.raw("</ul>\n");
    }
    page.raw("</header>\n");
}

fn write_body(run: &Run, page: &mut Page) {
    let (searched, mut rungs) = of_searches(run);
    by_rate(&mut rungs);
    tuned::write(run, page);
    charts::write_throughput(run, page);
    filters::write(&run.end.points, &run.end.figures, page);
    fleet::write(run, page);
    // The plot before its tables.
    let is_ladder = !rungs.is_empty() && !instructions::is_counted(run);
    let is_about_filters = !crate::filters::rows(&run.end.points).is_empty();
    let many =
        !run.end.points.is_empty() && (rungs.len() > MOST_RUNGS || is_about_filters && !rungs.is_empty());
    if is_ladder && !many {
        charts::write_ladder(&rungs, page);
    }
    let capacities = capacity::table(run);
    if capacities.rows() > 0 {
        page.section("capacities", "Capacity of each side", |page| {
            page.table(&capacities);
            let scaling = capacity::scaling(run);
            if scaling.rows() > 0 {
                page.table(&scaling);
            }
        });
    }
    if !searched.is_empty() {
        write_search(run, searched, page);
    }
    published::write(&run.end.points, page);
    curve::write(&run.end.points, page);
    timeline::write(&traces(run), page);
    // The point of a sweep or model is how results depend on parameters.
    charts::write_points(run, page);
    if many {
        page.section("combinations", "All combinations", |page| {
            let count = number::count(rungs.len() as u64);
            page.details(
                &format!("{count} combinations: sent, delivered, and where packets were lost"),
                |page| {
                    if is_ladder {
                        charts::write_ladder(&rungs, page);
                    }
                    write_rungs(run, &rungs, page);
                    charts::write_times(run, &rungs, page);
                },
            );
        });
    } else if !rungs.is_empty() {
        write_rungs(run, &rungs, page);
    }
    reception::write(run, page);
    if !many && !rungs.is_empty() || run.end.trials.is_empty() {
        charts::write_times(run, &rungs, page);
    }
    if !run.end.skipped.is_empty() {
        page.section("skipped", "Skipped", |page| {
            page.raw("<dl class=\"facts\">\n");
            for skipped in &run.end.skipped {
                page.element("dt", "", &skipped.engine);
                page.element("dd", "", &skipped.reason);
            }
            page.raw("</dl>\n");
        });
    }
}

/// The timelines: of a model, and of the receivers' rings.
fn traces(run: &Run) -> Vec<Timeline> {
    let of_rings = run.end.trials.iter().enumerate().filter_map(|(at, trial)| {
        let trace = trial.ring.as_ref()?.trace.as_ref()?;
        let part = if trace.is_cut { ", beginning only" } else { "" };
        let title =
            format!("The receiver's ring, trial {}: {} → {}{part}", at + 1, trial.tx.label, trial.rx.label);
        Some(trace.timeline(title))
    });
    run.end.timelines.iter().cloned().chain(of_rings).collect()
}

/// The pairs, each with its bars.
fn write_rungs(run: &Run, rungs: &[Rung], page: &mut Page) {
    if instructions::is_counted(run) {
        charts::write_instructions(rungs, page);
    }
    charts::write_loads(rungs, page);
    charts::write_ledgers(rungs, page);
    charts::write_receipts(rungs, page);
    cpus::write(rungs, &run.start.machine, page);
    cpus::write_queues(rungs, page);
    cpus::write_profiles(rungs, page);
}

/// A search's loads are intermediate steps: the deciding ones are shown, the others on demand.
fn write_search(run: &Run, rungs: Vec<Rung>, page: &mut Page) {
    charts::write_loads(&rungs, page);
    let goals = || run.end.throughput.iter().flat_map(|found| &found.goals);
    let decided = |rung: &Rung| {
        let trials = goals().flat_map(|goal| &goal.trials);
        trials.map(|trial| *trial as usize).any(|trial| rung.indexes.contains(&trial))
    };
    let (at_bounds, others): (Vec<Rung>, Vec<Rung>) = rungs.into_iter().partition(decided);
    if !at_bounds.is_empty() {
        charts::write_ledgers(&at_bounds, page);
    }
    let mut all: Vec<Rung> = at_bounds.into_iter().chain(others).collect();
    all.sort_by_key(|rung| rung.indexes.first().copied());
    if all.is_empty() {
        return;
    }
    page.section("loads-tried", "All loads tried", |page| {
        page.details("Sent, delivered, lateness and CPU time at each load", |page| {
            charts::write_ladder(&all, page);
            charts::write_receipts(&all, page);
            cpus::write(&all, &run.start.machine, page);
            cpus::write_queues(&all, page);
            charts::write_times(run, &all, page);
        });
    });
}

fn write_raw_data(run: &Run, json: &[u8], page: &mut Page) {
    page.section("data", "Record of this run", |page| {
        let size = number::count(json.len() as u64);
        page.raw(format!(
            "<p><a class=\"download\" download=\"linerate-run.json\" href=\"data:application/json;base64,{}\">\
             Download this run as JSON</a> <small>({size} bytes)</small></p>\n",
            STANDARD.encode(json)
        ));
        let mut markdown = Vec::new();
        write_markdown(run, &mut markdown).expect("memory accepts everything");
        page.details("Copy as Markdown", |page| {
            page.raw("<pre class=\"copy\" tabindex=\"0\">");
            page.raw(escape::html(&String::from_utf8_lossy(&markdown)));
            page.raw("</pre>\n");
        });
        page.details("Every trial, with the names of the JSON", |page| page.table(&tables::trials(&run.end.trials)));
    });
    // in JSON `<` occurs only in strings, so that no text can end the element
    let inert = String::from_utf8_lossy(json).replace('<', "\\u003c");
    page.raw(format!("<script type=\"application/json\" id=\"run\">{}</script>\n", inert.trim_end()));
}
