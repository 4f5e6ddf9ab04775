//! Charts as separate images for documents: fixed size, light and dark, without script or embedded fonts.

use measure::Instructions;

use super::{
    axes::LineChart,
    bar_chart::{self, BarChart},
    scale::{Lengths, per_cent},
};
use crate::{escape::html, ladder::Rung, number::RateUnit};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 56.0;
const HEIGHT: f64 = 280.0;
const ROW: f64 = 20.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1c2430}.title{font-weight:600}.soft{fill:#5b6675}\
    .back{fill:#fff}.grid{stroke:#d9dee5}.whisker{stroke:#1c2430;stroke-width:1.5}.reference{stroke:#5b6675;stroke-dasharray:2 4}\
    .track,.idle{fill:#c9d6e6;--c:#c9d6e6}.delivered{--c:#2364aa}.unexplained{--c:#b3261e}.s0{--c:#2364aa}.s1{--c:#c2570c}.s2{--c:#1b8a5a}.s3{--c:#8e4ba8}.s4{--c:#0e8aa5}.s5{--c:#a8324e}\
    .s6{--c:#7a6a10}.s7{--c:#5b6675}circle,rect.bar{fill:var(--c)}polyline{fill:none;stroke-width:2;stroke:var(--c)}\
    polyline.reference{stroke:#5b6675}.s1,.s5{stroke-dasharray:7 3}.s2,.s6{stroke-dasharray:3 3}.s3,.s7{stroke-dasharray:9 3 2 3}\
    @media(prefers-color-scheme:dark){text{fill:#e6eaf0}.soft{fill:#a3adba}.back{fill:#12161c}.grid{stroke:#343d49}\
    .whisker{stroke:#e6eaf0}.track,.idle{fill:#35465c;--c:#35465c}\
    .delivered{--c:#6ea8e6}.unexplained{--c:#ff8a80}.s0{--c:#6ea8e6}.s1{--c:#f19a55}.s2{--c:#5cc796}.s3{--c:#c493dc}.s4{--c:#58c4dc}\
    .s5{--c:#ee8aa0}.s6{--c:#d2bf52}.s7{--c:#a3adba}}";

fn open(title: &str, description: &str, height: f64) -> String {
    let (title, description) = (html(title), html(description));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-labelledby=\"t d\"><title id=\"t\">{title}</title><desc id=\"d\">{description}</desc>\
         <style>{STYLE}</style><rect class=\"back\" width=\"100%\" height=\"100%\"/>\
         <text class=\"title\" x=\"16\" y=\"24\">{title}</text>\n"
    )
}

fn text(class: &str, anchor: &str, (x, y): (f64, f64), words: &str) -> String {
    format!(
        "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
        html(words)
    )
}

/// A line chart with its legend below.
pub(super) fn lines(chart: &LineChart) -> String {
    let drawn = chart.drawn();
    let has_ranges = drawn.iter().any(|series| !series.ranges.is_empty());
    let mut legend: Vec<(String, &str)> = drawn
        .iter()
        .enumerate()
        .filter(|(_, series)| !series.name.is_empty())
        .map(|(at, series)| {
            (format!("<polyline class=\"s{at}\" points=\"{{points}}\"/>"), series.name.as_str())
        })
        .collect();
    let extra = |class: &str| format!("<polyline class=\"{class}\" points=\"{{points}}\"/>");
    legend.extend(chart.reference().map(|words| (extra("reference"), words)));
    legend.extend(has_ranges.then(|| (extra("whisker"), chart.interval)));
    let bottom = TOP + HEIGHT;
    let height = bottom + 48.0 + ROW * legend.len() as f64 + 8.0;
    let place = |(x, y): (f64, f64)| (LEFT + x * (WIDTH - LEFT - RIGHT), bottom - y * HEIGHT);

    let mut svg = open(chart.title, &chart.description(drawn), height);
    svg += &text("soft", "start", (16.0, 44.0), &chart.y.title);
    for (at, words) in &chart.y.ticks {
        let (left, y) = place((0.0, *at));
        let right = WIDTH - RIGHT;
        svg += &format!("<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        svg += &text("soft", "end", (left - 6.0, y + 4.0), words);
    }
    for (at, words) in &chart.x.ticks {
        let (x, _) = place((*at, 0.0));
        svg += &format!("<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
        svg += &text("soft", "middle", (x, bottom + 18.0), words);
    }
    svg += &text("soft", "end", (WIDTH - RIGHT, bottom + 38.0), &chart.x.title);
    let path = |points: &[(f64, f64)]| {
        let corners = points.iter().filter_map(|point| chart.position(*point)).map(place);
        corners.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
    };
    for line in chart.references() {
        svg += &format!("<polyline class=\"reference\" points=\"{}\"/>\n", path(&line));
    }
    for (at, series) in drawn.iter().enumerate() {
        svg += &format!("<polyline class=\"s{at}\" points=\"{}\"/>\n", path(&series.points));
        for (x, low, high) in &series.ranges {
            let ends = [(*x, *low), (*x, *high)].map(|point| chart.position(point).map(place));
            if let [Some((x, from)), Some((_, to))] = ends {
                svg += &format!(
                    "<line class=\"whisker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\"/>"
                );
            }
        }
        if chart.has_marks(series) {
            for (x, y) in series.points.iter().filter_map(|point| chart.position(*point)).map(place) {
                svg += &format!("<circle class=\"s{at}\" r=\"3.5\" cx=\"{x:.1}\" cy=\"{y:.1}\"/>");
            }
        }
    }
    for (at, (line, words)) in legend.iter().enumerate() {
        let y = bottom + 48.0 + ROW * (at as f64 + 0.5);
        svg += &line.replace("{points}", &format!("16,{y:.1} 46,{y:.1}"));
        svg += &text("", "start", (54.0, y + 4.0), words);
    }
    svg + "</svg>\n"
}

/// The ladder: delivered in front of sent, with the smallest and the largest trial.
pub(super) fn ladder(title: &str, rungs: &[Rung], unit: RateUnit) -> String {
    let most = rungs.iter().flat_map(|r| [r.pair.sent_pps.max, r.pair.delivered_pps.max]).fold(1.0, f64::max);
    let lengths = Lengths::of(bar_chart::rates(rungs), most);
    let step = 38.0;
    let shown = |pps: f64| format!("{} {}", unit.figure(pps), unit.name());
    let words: Vec<String> = rungs
        .iter()
        .map(|rung| format!("{}: {} delivered", rung.name, shown(rung.pair.delivered_pps.median)))
        .collect();
    let mut svg = open(title, &words.join(", "), TOP + step * rungs.len() as f64 + 16.0);
    let about = "dark: delivered, median; light: sent; line: smallest to largest trial";
    let note =
        lengths.log_from().map(|from| format!("; logarithmic axis from {}", shown(from))).unwrap_or_default();
    svg += &text("soft", "start", (16.0, 44.0), &format!("{about}{note}"));
    for (at, rung) in rungs.iter().enumerate() {
        let (sent, delivered) = (&rung.pair.sent_pps, &rung.pair.delivered_pps);
        let y = TOP + step * at as f64;
        svg += &text("", "start", (16.0, y + 12.0), &rung.name);
        let figures = format!("{} of {}", shown(delivered.median), unit.figure(sent.median));
        svg += &text("", "end", (WIDTH - 16.0, y + 12.0), &figures);
        svg += &format!("<svg x=\"16\" y=\"{:.1}\" width=\"{}\" height=\"12\">", y + 17.0, WIDTH - 32.0);
        for (class, pps) in [("track", sent.median), ("bar s0", delivered.median)] {
            svg += &format!(
                "<rect class=\"{class}\" width=\"{}\" height=\"100%\"/>",
                per_cent(lengths.length(pps))
            );
        }
        let (from, to) = (per_cent(lengths.length(delivered.min)), per_cent(lengths.length(delivered.max)));
        svg += &format!("<line class=\"whisker\" x1=\"{from}\" x2=\"{to}\" y1=\"50%\" y2=\"50%\"/></svg>\n");
    }
    svg + "</svg>\n"
}

/// The width of a letter, roughly: the image has no browser to measure text.
const LETTER: f64 = 7.0;

fn width_of(words: &str) -> f64 {
    words.chars().count() as f64 * LETTER
}

/// Bars with their legend above; figures too long to fit beside a name are on a line of their own.
pub(super) fn bars(chart: &BarChart) -> String {
    let mut body = String::new();
    let (mut x, mut y) = (16.0, 44.0);
    for (class, words) in &chart.legend {
        let width = 18.0 + width_of(words) + 16.0;
        if x > 16.0 && x + width > WIDTH {
            (x, y) = (16.0, y + ROW);
        }
        body += &format!(
            "<rect class=\"bar {class}\" stroke=\"none\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>",
            y - 11.0
        );
        body += &text("soft", "start", (x + 18.0, y), words);
        x += width;
    }
    let mut line = String::new();
    for word in chart.note.split(' ').chain(["\n"]) {
        if !line.is_empty() && (word == "\n" || width_of(&line) + width_of(word) > WIDTH - 48.0) {
            y += ROW;
            body += &text("soft", "start", (16.0, y), line.trim_start());
            line.clear();
        }
        line += &format!(" {word}");
    }
    y += 12.0;
    let mut said = Vec::new();
    for row in &chart.rows {
        let words = format!("{} {}", row.figure, row.more);
        let words = words.trim();
        let label =
            if row.group.is_empty() { row.label.clone() } else { format!("{}, {}", row.group, row.label) };
        said.push(format!("{label}: {words}"));
        body += &text("", "start", (16.0, y + 12.0), &label);
        if width_of(&label) + width_of(words) + 24.0 > WIDTH - 32.0 {
            y += ROW - 2.0;
        }
        body += &text("", "end", (WIDTH - 16.0, y + 12.0), words);
        y += 17.0;
        for bar in &row.bars {
            body += &format!("<svg x=\"16\" y=\"{y:.1}\" width=\"{}\" height=\"12\">", WIDTH - 32.0);
            let mut from = 0.0;
            for part in bar.iter().filter(|part| part.share > 0.0) {
                let (x, width) = (per_cent(from), per_cent(part.share.min(1.0 - from)));
                body += &format!(
                    "<rect class=\"bar {}\" stroke=\"none\" x=\"{x}\" width=\"{width}\" height=\"100%\"/>",
                    part.class
                );
                from += part.share;
            }
            body += "</svg>\n";
            y += 13.0;
        }
        y += 8.0;
    }
    open(chart.title, &said.join(", "), y + 12.0) + &body + "</svg>\n"
}

/// Counted instructions: one bar per pair, divided by what executed them; the first three parts per packet sent, the
/// receiver's per packet delivered.
pub(super) fn instructions(title: &str, counted: &[(&str, &Instructions)]) -> String {
    const PARTS: [&str; 5] =
        ["sender, user", "sender, kernel", "softirq", "receiver, user", "receiver, kernel"];
    let parts = |counts: &Instructions| {
        [
            counts.sender_user_per_packet,
            counts.sender_kernel_per_packet,
            counts.softirq_per_packet,
            counts.receiver_user_per_packet,
            counts.receiver_kernel_per_packet,
        ]
        .map(|part| part.unwrap_or(0.0))
    };
    let whole = |counts: &Instructions| parts(counts).iter().sum::<f64>();
    let most = counted.iter().map(|(_, counts)| whole(counts)).fold(1.0, f64::max);
    let words = counted.iter().map(|(name, counts)| format!("{name}: {:.0}", whole(counts)));
    let words = words.collect::<Vec<_>>().join(", ");
    let step = 38.0;
    let top = TOP + 8.0;
    let mut svg = open(title, &words, top + step * counted.len() as f64 + 16.0);
    for (at, part) in PARTS.iter().enumerate() {
        let x = 16.0 + 148.0 * at as f64;
        svg += &format!(
            "<rect class=\"bar s{at}\" stroke=\"none\" x=\"{x}\" y=\"35\" width=\"12\" height=\"12\"/>"
        );
        svg += &text("soft", "start", (x + 18.0, 46.0), part);
    }
    for (at, (name, counts)) in counted.iter().enumerate() {
        let y = top + step * at as f64;
        svg += &text("", "start", (16.0, y + 12.0), name);
        svg += &text("", "end", (WIDTH - 16.0, y + 12.0), &format!("{:.0}", whole(counts)));
        svg += &format!("<svg x=\"16\" y=\"{:.1}\" width=\"{}\" height=\"12\">", y + 17.0, WIDTH - 32.0);
        let mut from = 0.0;
        for (at, part) in parts(counts).iter().enumerate() {
            let (x, width) = (per_cent(from / most), per_cent(part / most));
            svg += &format!(
                "<rect class=\"bar s{at}\" stroke=\"none\" x=\"{x}\" width=\"{width}\" height=\"100%\"/>"
            );
            from += part;
        }
        svg += "</svg>\n";
    }
    svg + "</svg>\n"
}
