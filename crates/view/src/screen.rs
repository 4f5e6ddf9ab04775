//! The terminal as a screen: a thread of its own draws the newest snapshot and reads keys.

mod draw;
mod keys;
mod look;
mod mask;
mod paint;
mod panes;
mod words;

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sys::{
    signal,
    terminal::{HeldOutput, Terminal},
};

use crate::{
    hub::{Bystander, Hub},
    snapshot::Snapshot,
};
use keys::Keys;
use look::Look;
use paint::Painter;

/// Time between two frames, and how long a key waits at most.
const FRAME: Duration = Duration::from_millis(100);
/// After it the same snapshot is drawn again: its counters have aged.
const AGED: Duration = Duration::from_secs(1);
/// Printed lines that are kept for the screen.
const MOST_MESSAGES: usize = 50;

/// A screen that is on. Dropped, the terminal is as it was, and what was printed meanwhile is on it.
pub struct Screen {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Turns the screen on.
    ///
    /// # Errors
    /// Where there is no terminal, or this process is in its background.
    pub fn open(hub: &Arc<Hub>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (hub, asked) = (Arc::clone(hub), Arc::clone(&stop));
        let terminal = Terminal::open()?;
        let held = HeldOutput::begin()?;
        let run = move || {
            // Dropped in this order: the terminal first, what was printed then.
            let mut held = held;
            let mut terminal = terminal;
            // A terminal that is gone needs no screen, and the run goes on.
            show(&hub, &asked, &mut terminal, &mut held).ok();
        };
        let thread = thread::Builder::new().name("screen".into()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Frames of a screen without a terminal, at 80 columns and 24 rows.
#[derive(Default)]
pub struct Frames {
    painter: Painter,
    look: Look,
}

impl Frames {
    /// The bytes that turn the last frame into this snapshot's.
    pub fn frame(&mut self, snapshot: &Snapshot) -> Vec<u8> {
        self.painter.frame(snapshot, &mut self.look, (80, 24))
    }
}

fn show(hub: &Hub, stop: &AtomicBool, terminal: &mut Terminal, held: &mut HeldOutput) -> io::Result<()> {
    let mut bystander = Bystander::new(hub);
    let mut painter = Painter::new(std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()));
    let mut keys = Keys::default();
    let mut messages: Vec<String> = Vec::new();
    let (mut shown, mut drawn_at, mut size) = (u64::MAX, Instant::now(), (0, 0));
    let mut paused = None;
    while !stop.load(Relaxed) {
        let pressed = terminal.keys(FRAME)?;
        let mut is_new = false;
        for key in pressed {
            is_new |= keys.press(key);
        }
        if keys.quits() {
            signal::ask_to_stop();
        }
        let newest = hub.newest();
        bystander.step_aside(&newest.snapshot.worker_cpus);
        let news = held.news();
        if !news.is_empty() {
            messages.extend(news.lines().map(str::to_owned));
            messages.drain(..messages.len().saturating_sub(MOST_MESSAGES));
            is_new = true;
        }
        let now = terminal.size()?;
        is_new |= std::mem::replace(&mut size, now) != now;
        is_new |= newest.number != shown || drawn_at.elapsed() >= AGED;
        if !is_new {
            continue;
        }
        if shown != u64::MAX {
            hub.note_missed(newest.number.saturating_sub(shown + 1));
        }
        (shown, drawn_at) = (newest.number, Instant::now());
        if !keys.look.is_paused {
            paused = None;
        } else if paused.is_none() {
            paused = Some(newest.aged());
        }
        let mut snapshot = paused.clone().unwrap_or_else(|| newest.aged());
        snapshot.messages.clone_from(&messages);
        snapshot.own = hub.own();
        let frame = painter.frame(&snapshot, &mut keys.look, size);
        terminal.write_all(&frame)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
