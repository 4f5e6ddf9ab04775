//! `linerate replay`: a recorded run in the live views.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use sys::signal;
use view::moments;

use crate::{
    args::ReplayArgs,
    failure::{Failure, Status, in_words},
    live::Live,
    output::{Form, print_line},
};

/// How often signals are checked and snapshots shown.
const LOOK: Duration = Duration::from_millis(20);
/// Interval of lines without a screen.
const LINE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &ReplayArgs) -> Result<bool, Failure> {
    let name = args.run.display();
    let refused = |words: String| Failure::new(Status::Refused, words);
    let text = fs::read_to_string(&args.run)
        .map_err(|error| refused(format!("cannot read {name}: {error}")).hint("linerate bench saves runs"))?;
    let run = report::read_json(&text).map_err(|error| refused(format!("{name}: {}", in_words(&error))))?;
    let moments = moments(&run);
    if moments.is_empty() {
        return Err(refused(format!("{name}: this run has no trial to replay"))
            .hint("linerate report shows its contents"));
    }
    let mut live = Live::open(&args.view, Form::Text, &run.start)?;
    let began = Instant::now();
    let played_s = || began.elapsed().as_secs_f64() * args.speed;
    let mut said: Option<Instant> = None;
    let mut is_stopped = false;
    for moment in &moments {
        while played_s() < moment.at_s && !is_stopped {
            let left = Duration::from_secs_f64(((moment.at_s - played_s()) / args.speed).clamp(0.0, 1.0));
            thread::sleep(LOOK.min(left));
            is_stopped = signal::caught() > 0;
            live.play(played_s().min(moment.at_s), false);
        }
        if is_stopped {
            break;
        }
        moment.tell(&mut live.story, moment.at_s);
        live.play(moment.at_s, false);
        if !live.views.has_screen() && said.is_none_or(|said| said.elapsed() >= LINE) {
            said = Some(Instant::now());
            print_line(&view::line(&live.story.snapshot(moment.at_s)))?;
        }
    }
    let end_s = moments.last().map_or(0.0, |last| last.at_s);
    live.story.ends(if is_stopped { String::new() } else { report::verdict(&run) });
    let last = live.story.snapshot(if is_stopped { played_s() } else { end_s });
    live.play(end_s, true);
    // The end stays in the browser and on the terminal until the reader has seen it.
    while live.views.has_screen() && signal::caught() == 0 {
        thread::sleep(LOOK);
    }
    drop(live);
    print_line(&last.verdict)?;
    Ok(true)
}
