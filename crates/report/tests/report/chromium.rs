//! The page in a real browser: at phone and desktop width, light, dark and in print, compared with the record.
//!
//! Skipped loudly where there is no Chromium; `LINERATE_REQUIRE_ALL=1` makes that a failure. With
//! `LINERATE_SCREENSHOTS=1` pictures stay next to the pages in the target folder, for people to look at.

use std::{env, fs, path::PathBuf};

use serde_json::{Value, json};
use testing::Browser;

use crate::{html::html, samples};

const WIDTHS: [u32; 2] = [360, 1400];

/// The browser, or `None` with a printed reason.
fn browser() -> Option<Browser> {
    let program = Browser::find();
    if program.is_none() {
        testing::skip("no Chromium found; install chromium to test the page in a browser");
    }
    program.map(|program| Browser::start(&program))
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes a sample's page and opens it.
fn open(browser: &mut Browser, name: &str, run: &measure::Run, width: u32) {
    let file = folder().join(format!("{name}.html"));
    fs::write(&file, html(run)).unwrap();
    browser.resize(width);
    browser.open(&file);
}

fn picture(browser: &mut Browser, file: &str) {
    if env::var_os("LINERATE_SCREENSHOTS").is_some() {
        browser.screenshot(&folder().join(file));
    }
}

fn look(browser: &mut Browser) -> Vec<String> {
    let checks = include_str!("chromium/checks.js");
    let found = browser.evaluate(checks);
    found.as_array().expect("a list of problems").iter().map(|problem| problem.to_string()).collect()
}

#[test]
fn nothing_overlaps_or_leaves_and_numbers_equal_the_record() {
    let Some(mut browser) = browser() else { return };
    for (name, run) in samples::all() {
        for width in WIDTHS {
            open(&mut browser, name, &run, width);
            assert_eq!(look(&mut browser), Vec::<String>::new(), "{name} at {width}");
            picture(&mut browser, &format!("{name}-{width}.png"));
            browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true), null");
            assert_eq!(look(&mut browser), Vec::<String>::new(), "{name} at {width}, all open");
            picture(&mut browser, &format!("{name}-{width}-open.png"));
        }
        let embedded = browser.evaluate("document.getElementById('run').textContent");
        assert_eq!(report::read_json(embedded.as_str().unwrap()).unwrap(), run, "{name}");
        let link = browser.evaluate(
            "new TextDecoder().decode(Uint8Array.from(atob(document.querySelector('a.download').href.split(',')[1]), c => c.charCodeAt(0)))",
        );
        assert_eq!(report::read_json(link.as_str().unwrap()).unwrap(), run, "{name}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.requests_that_leave("file:"), Vec::<String>::new());
}

#[test]
fn text_is_readable_in_light_and_dark_and_print_shows_everything() {
    let Some(mut browser) = browser() else { return };
    open(&mut browser, "modes", &samples::paced(), 1000);
    for scheme in ["light", "dark"] {
        browser.command(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
        let low = browser.evaluate(include_str!("chromium/contrast.js"));
        assert_eq!(low, json!([]), "{scheme}");
        picture(&mut browser, &format!("modes-{scheme}.png"));
    }
    browser.command("Emulation.setEmulatedMedia", json!({"media": "print", "features": []}));
    let hidden = browser.evaluate(
        "[...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().height < 20).length",
    );
    assert_eq!(hidden, Value::from(0), "tables hidden in print");
}

#[test]
fn the_checks_find_broken_pages() {
    let Some(mut browser) = browser() else { return };
    let run = samples::paced();
    let page = html(&run);
    let delivered = run.end.pairs[2].delivered_pps.median;
    let faults = [
        (
            "covered",
            "</h1>",
            "</h1><p style=\"position:absolute;top:1.2rem;left:1rem\">on top of the title</p>",
        ),
        ("the page is", "</h1>", "</h1><p style=\"width:2000px\">wide</p>"),
        ("a broken word: measurements", "</h1>", "</h1><p style=\"width:3rem\">the measurements</p>"),
        ("outside its figure", "<rect class=\"track\" x=\"0%\"", "<rect class=\"track\" x=\"-9%\""),
        ("an id occurs twice", "<h1>", "<h1 id=\"t1\">"),
        ("a silent image", "<title id=\"t1\">", "<title id=\"u1\">"),
        (
            "delivered: ",
            &format!("<td class=\"figure\"><data value=\"{delivered}\">"),
            "<td class=\"figure\"><data value=\"1\">",
        ),
        ("shown ", ">96,500<", ">96,400<"),
        ("trial 0 sent:", "<data value=\"20000\">20000<", "<data value=\"20001\">20001<"),
    ];
    for (at, (finding, from, to)) in faults.into_iter().enumerate() {
        let file = folder().join(format!("fault-{at}.html"));
        let broken = page.replace(from, to);
        assert_ne!(broken, page, "nothing to break: {from}");
        fs::write(&file, broken).unwrap();
        browser.resize(360);
        browser.open(&file);
        let found = look(&mut browser).join("\n");
        assert!(found.contains(finding), "{finding} not found in {found}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let file = folder().join("fault-leaving.html");
    fs::write(&file, page.replace("</h1>", "</h1><img src=\"http://page.invalid/x.png\">")).unwrap();
    browser.open(&file);
    assert_eq!(browser.requests_that_leave("file:"), ["http://page.invalid/x.png"]);
    assert!(!browser.complaints().is_empty(), "an image that cannot be loaded is an error");
}
