//! Frames go through a terminal's parser: what it shows, and what was written to get there.

use super::{look::Look, *};
use crate::{
    snapshot::{Phase, Place, Snapshot, Waterfall},
    story,
};

struct Terminal80 {
    painter: Painter,
    look: Look,
    parser: vt100::Parser,
    size: (u16, u16),
}

impl Terminal80 {
    fn new(size: (u16, u16), no_color: bool) -> Self {
        let parser = vt100::Parser::new(size.1, size.0, 0);
        Self { painter: Painter::new(no_color), look: Look::default(), parser, size }
    }

    fn frame(&mut self, snapshot: &Snapshot) -> Vec<u8> {
        let bytes = self.painter.frame(snapshot, &mut self.look, self.size);
        self.parser.process(&bytes);
        bytes
    }

    fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        self.parser.screen_mut().set_size(size.1, size.0);
    }

    fn text(&self) -> String {
        let contents = self.parser.screen().contents();
        contents.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

/// Whether bytes erase more than a cell.
fn clears(bytes: &[u8]) -> bool {
    [&b"\x1b[2J"[..], b"\x1b[J", b"\x1b[0J", b"\x1b[K", b"\x1b[2K", b"\x1bc", b"\x1b[3J"]
        .iter()
        .any(|sequence| bytes.windows(sequence.len()).any(|window| window == *sequence))
}

fn snapshots() -> Vec<Snapshot> {
    let mut story = story::tests::story();
    let mut all = Vec::new();
    story::tests::act(&mut story, |story, at_s| all.push(story.snapshot(at_s)));
    all
}

#[test]
fn between_frames_nothing_is_cleared_and_what_stayed_is_not_written_again() {
    let mut terminal = Terminal80::new((80, 24), false);
    let all = snapshots();
    let first = terminal.frame(&all[0]);
    assert!(clears(&first), "the first frame begins with an empty screen");
    let whole = first.len();
    let mut largest = 0;
    for snapshot in &all[1..] {
        let bytes = terminal.frame(snapshot);
        assert!(!clears(&bytes), "{:?}", String::from_utf8_lossy(&bytes));
        // The parser and a painter of this frame alone agree: differences lose nothing.
        let mut alone = Terminal80::new((80, 24), false);
        alone.frame(snapshot);
        assert_eq!(terminal.text(), alone.text());
        largest = largest.max(bytes.len());
    }
    assert!(largest < 4 * whole, "{largest} bytes for a frame");
    let again = terminal.frame(all.last().unwrap());
    assert_eq!(again, b"", "the same frame costs nothing");
}

#[test]
fn the_residual_and_both_ends_are_seen_however_many_places_there_are() {
    let place = |n: u64| Place { name: format!("place {n}"), packets: n, is_loss: true, ..Place::default() };
    let snapshot = Snapshot {
        waterfall: Some(Waterfall {
            of: "trial 1".into(),
            from: ("sent".into(), 10_000),
            places: (1..60).map(place).collect(),
            to: Some(("delivered".into(), 8_000)),
            to_unknown: String::new(),
            residual: 230,
            provisional: true,
        }),
        ..snapshots().remove(4)
    };
    for size in [(80, 24), (80, 18), (120, 50), (40, 16)] {
        let mut terminal = Terminal80::new(size, false);
        terminal.frame(&snapshot);
        let text = terminal.text();
        for words in ["unexplained", "230", "delivered", "more (tab"] {
            assert!(text.contains(words), "no '{words}' at {size:?}:\n{text}");
        }
        if size.0 >= 80 {
            assert!(text.contains("provisional until drained"), "{text}");
        }
    }
}

#[test]
fn every_part_of_a_bench_is_on_80_by_24() {
    let all = snapshots();
    let mut terminal = Terminal80::new((80, 24), false);
    terminal.frame(&all[all.len() - 4]);
    let text = terminal.text();
    for words in [
        "linerate bench",
        "trial 4/4",
        "running",
        "asked",
        "sent",
        "on the wire",
        "delivered",
        "ledger of trial 4",
        "unexplained",
        "sender × receiver",
        "▶",
        "udp",
        "xdp",
        "q stop and report",
        "% CPU",
        "rate",
    ] {
        assert!(text.contains(words), "no '{words}':\n{text}");
    }
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_resized_terminal_is_drawn_anew_and_none_is_too_small() {
    let all = snapshots();
    let mut terminal = Terminal80::new((80, 24), false);
    terminal.frame(&all[5]);
    for size in [(120, 40), (60, 12), (20, 5), (3, 2), (1, 1), (0, 0), (80, 24)] {
        terminal.resize((size.0.max(1), size.1.max(1)));
        terminal.size = size;
        let bytes = terminal.frame(&all[6]);
        assert!(clears(&bytes), "{size:?}");
        assert!(!clears(&terminal.frame(&all[7])), "{size:?}");
    }
    assert!(terminal.text().contains("unexplained"));
}

#[test]
fn without_colour_there_is_none_and_nothing_is_lost() {
    let all = snapshots();
    let mut colourless = Terminal80::new((80, 24), true);
    let mut coloured = Terminal80::new((80, 24), false);
    let plain = String::from_utf8(colourless.frame(&all[6])).unwrap();
    let colours = String::from_utf8(coloured.frame(&all[6])).unwrap();
    let has_colour = |bytes: &str| {
        bytes.split("\x1b[").skip(1).any(|rest| {
            let codes = rest.split('m').next().unwrap_or_default();
            codes.split(';').any(|code| code.len() == 2 && code.starts_with('3'))
        })
    };
    assert!(has_colour(&colours) && !has_colour(&plain));
    assert_eq!(colourless.text(), coloured.text());
}

#[test]
fn keys_change_what_is_seen() {
    let all = snapshots();
    let mut masked = Snapshot { messages: vec!["192.0.2.9:1234 joins".into()], ..all[3].clone() };
    let mut terminal = Terminal80::new((80, 40), false);
    terminal.frame(&masked);
    assert!(terminal.text().contains("192.0.2.9"));
    let mut keys = Keys::default();
    keys.press(b'm');
    std::mem::swap(&mut terminal.look, &mut keys.look);
    terminal.frame(&masked);
    assert!(terminal.text().contains("x.x.x.x:1234 joins"), "{}", terminal.text());
    // One pane alone, each in turn, and all of them again.
    let mut alone = Vec::new();
    for _ in 0..4 {
        terminal.look.next_pane();
        terminal.frame(&masked);
        alone.push(terminal.text().lines().filter(|line| line.contains("──")).count());
    }
    assert_eq!(alone, [1, 1, 1, 1]);
    terminal.look.next_pane();
    masked.phase = Phase::Running;
    terminal.frame(&masked);
    assert!(terminal.text().lines().filter(|line| line.contains("──")).count() > 1);
}
