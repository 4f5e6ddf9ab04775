//! The page as text; `chromium` checks its appearance.

use report::write_html;

use crate::samples;

pub(crate) fn html(run: &measure::Run) -> String {
    let mut out = Vec::new();
    write_html(run, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_page_needs_no_script_and_no_network() {
    for (name, run) in samples::all() {
        let page = html(&run);
        let scripts: Vec<_> = page.match_indices("<script").map(|(at, _)| &page[at..at + 31]).collect();
        assert_eq!(scripts, ["<script type=\"application/json\""], "{name}");
        for forbidden in ["http:", "https:", "src=\"", "@import", "url(", "<link rel=\"stylesheet"] {
            assert!(!page.contains(forbidden), "{name}: {forbidden}");
        }
    }
}

#[test]
fn every_chart_is_also_a_separate_image() {
    for (name, run) in samples::all() {
        let drawings = report::drawings(&run);
        let names: std::collections::BTreeSet<&str> =
            drawings.iter().map(|drawing| drawing.name.as_str()).collect();
        assert_eq!(names.len(), drawings.len(), "{name}: each name is that of one chart: {names:?}");
        for drawing in &drawings {
            assert!(
                drawing.svg.starts_with("<svg xmlns") && drawing.svg.ends_with("</svg>\n"),
                "{name} {}",
                drawing.name
            );
            assert!(
                !drawing.svg.contains("NaN") && !drawing.svg.contains("<script"),
                "{name} {}",
                drawing.name
            );
        }
    }
    let names = |run| report::drawings(&run).into_iter().map(|drawing| drawing.name).collect::<Vec<_>>();
    assert!(names(samples::swept()).contains(&"delivered-pps-against-threads".to_owned()));
    let searched = names(samples::searched());
    assert!(
        ["latency-by-percentile", "rate-delivered-against-rate-offered"]
            .iter()
            .all(|name| searched.contains(&(*name).into())),
        "{searched:?}"
    );
}

#[test]
fn counted_instructions_are_one_bar_per_pair() {
    let mut run = samples::counted();
    for (at, trial) in run.end.trials.iter_mut().enumerate() {
        trial.instructions = Some(measure::Instructions {
            sender_user_per_packet: Some(100.0),
            sender_kernel_per_packet: Some(2000.0),
            softirq_per_packet: Some(1000.0 + at as f64),
            ..Default::default()
        });
    }
    let drawings = report::drawings(&run);
    let drawing = drawings.iter().find(|drawing| drawing.name == "instructions").unwrap();
    assert!(
        drawing.svg.contains(">3100</text>") && drawing.svg.contains("receiver, kernel"),
        "{}",
        drawing.svg
    );
    let rungs = measure::PairSummary::of(&run.end.trials).len();
    assert_eq!(drawing.svg.matches("<svg x=").count(), rungs);
    assert!(!report::drawings(&samples::counted()).iter().any(|drawing| drawing.name == "instructions"));
}

#[test]
fn the_results_of_a_search_precede_its_loads() {
    let page = html(&samples::searched());
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words} is missing"));
    let order =
        ["id=\"found\"", "id=\"latency\"", "id=\"loads\"", "id=\"loads-tried\"", "id=\"ladder\""].map(at);
    assert!(order.is_sorted(), "{order:?}");
    let swept = html(&samples::swept());
    assert!(swept.contains("95 % confidence interval of the mean"), "intervals are drawn and named");
}

#[test]
fn hardware_counters_are_in_the_ladder_and_in_the_table_of_all_trials() {
    let page = html(&samples::counted());
    for shown in ["cyc/pkt", "ins/pkt", "miss/pkt", "rx_cost.cache_misses_per_packet"] {
        assert!(page.contains(shown), "{shown}");
        assert!(!html(&samples::ladder()).contains(&format!("{shown}<")), "{shown}");
    }
}

#[test]
fn a_profile_is_drawn_with_its_stages_and_stacks() {
    let page = html(&samples::profiled());
    for shown in [
        "Where the receive path spent its time",
        "UDP: 62.50 % ± 0.87, ",
        "class=\"flame\"",
        "udp_queue_rcv_skb: 7,500 samples",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(page.contains("no CONFIG_IRQ_TIME_ACCOUNTING"), "the page explains the shares");
    assert!(!html(&samples::ladder()).contains("id=\"profile\""));
}

#[test]
fn at_most_three_charts_are_in_sight() {
    let mut most = 0;
    for (name, run) in samples::all() {
        let page = html(&run);
        let (mut folds, mut in_sight) = (Vec::new(), 0);
        for tag in page.split('<') {
            match tag {
                _ if tag.starts_with("details") => folds.push(!tag.starts_with("details open")),
                _ if tag.starts_with("/details") => drop(folds.pop()),
                _ if tag.starts_with("figure>") && !folds.contains(&true) => in_sight += 1,
                _ => (),
            }
        }
        assert!(in_sight <= 3, "{name}: {in_sight}");
        most = most.max(in_sight);
    }
    assert_eq!(most, 3);
}

#[test]
fn only_ledgers_show_loss() {
    let page = html(&samples::profiled());
    let figures = |section: &str| {
        let begin =
            page.find(&format!("<section id=\"{section}\">")).unwrap_or_else(|| panic!("no {section}"));
        let section = &page[begin..];
        let words = section[..section.find("</section>").unwrap()].split("<b>").skip(1);
        words.map(|words| words.split('<').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(figures("ledger").iter().any(|figure| figure.ends_with("% lost")));
    assert!(figures("cpus").iter().all(|figure| figure.ends_with("% idle")), "{:?}", figures("cpus"));
    assert!(
        figures("profile").iter().all(|figure| figure.starts_with("UDP 62.50 %")),
        "{:?}",
        figures("profile")
    );
}

#[test]
fn tags_are_closed_in_the_order_they_were_opened() {
    const VOID: [&str; 3] = ["meta", "link", "!doctype"];
    for (name, run) in samples::all() {
        let page = html(&run);
        let mut open: Vec<&str> = Vec::new();
        for tag in page.split('<').skip(1) {
            let inside = tag.split('>').next().unwrap();
            let word = inside.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
            if inside.starts_with('/') {
                assert_eq!(open.pop(), Some(word), "{name}: </{inside}>");
            } else if !inside.ends_with('/') && !VOID.contains(&word) {
                open.push(word);
            }
        }
        assert!(open.is_empty(), "{name}: {open:?}");
    }
}

#[test]
fn a_hostile_name_is_not_markup() {
    let page = html(&samples::hostile());
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script").count(), 1);
}

#[test]
fn every_image_has_a_title_and_a_description() {
    for (name, run) in samples::all() {
        let page = html(&run);
        let images = page.matches("role=\"img\"").count();
        assert_eq!(images, page.matches("<title id=\"t").count(), "{name}");
        assert_eq!(images, page.matches("<desc id=\"d").count(), "{name}");
        assert!(!page.contains("NaN") && !page.contains("inf%"), "{name}");
    }
}

#[test]
fn a_fleet_shows_what_each_host_took_and_lost() {
    let run = samples::fleet();
    let mut text = Vec::new();
    report::write_text(&run, report::Style::default(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("2 senders sent"), "{text}");
    assert!(text.contains("a2 was furthest behind its rate"), "{text}");
    let row = text.lines().find(|line| line.starts_with("a3 ")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[..6], ["a3", "receiver", "200,000", "195,000", "5,000", "0"], "{text}");
    let page = html(&run);
    for part in ["Each host", "a3 (receiver)", "lost here: 5,000 packets"] {
        assert!(page.contains(part), "{part}");
    }
}
