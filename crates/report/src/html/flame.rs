//! Stacks as an image: callers above what they call, as wide as their share of the samples.

use std::collections::BTreeMap;

use measure::{Instructions, Profile};

use super::{page::Page, scale::per_cent};
use crate::{escape::html, number};

/// Pixels of a row.
const ROW: usize = 18;
/// Narrower functions are left out; a gap above their callers' boxes remains.
const NARROWEST: f64 = 0.002;
/// Functions wider than this show their name; narrower ones show it on hover.
const NAMED: f64 = 0.02;
/// Rows that are drawn.
const DEEPEST: usize = 60;

/// A function with everything that it called.
#[derive(Default)]
struct Node<'p> {
    samples: u64,
    called: BTreeMap<&'p str, Node<'p>>,
}

/// The stacks of a profile.
pub(super) fn write(name: &str, profile: &Profile, page: &mut Page) {
    let stacks = profile.stacks.iter().map(|stack| (stack.frames.as_str(), stack.samples));
    write_stacks(name, stacks, ("samples", "samples taken while receiving or sending"), page);
}

/// Counted instructions by stack.
pub(super) fn write_instructions(name: &str, counts: &Instructions, page: &mut Page) {
    let stacks = counts.stacks.iter().map(|stack| (stack.frames.as_str(), stack.instructions));
    write_stacks(name, stacks, ("instructions", "instructions of the trial"), page);
}

fn write_stacks<'p>(
    name: &str,
    stacks: impl Iterator<Item = (&'p str, u64)>,
    (unit, whole): (&str, &str),
    page: &mut Page,
) {
    let mut root = Node::default();
    for (frames, amount) in stacks {
        root.add(frames.split(';'), amount);
    }
    if root.samples == 0 {
        return;
    }
    let rows = root.depth().min(DEEPEST);
    let top = |node: &Node| {
        let mut first: Vec<_> = node.called.iter().collect();
        first.sort_by_key(|(_, node)| std::cmp::Reverse(node.samples));
        first.iter().map(|(name, node)| format!("{name} {}", node.samples)).collect::<Vec<_>>().join(", ")
    };
    let (first, rest) = unit.split_at(1);
    let title = format!("{}{rest}", first.to_uppercase());
    let words = format!("{title} by stack, {} in all: {}.", number::count(root.samples), top(&root));
    page.raw(format!("<div class=\"flame\" style=\"height:{}px\">", rows * ROW));
    page.open_svg("boxes", &format!("Stacks of {name}"), &words);
    root.write(0.0, 0, (root.samples as f64, unit), page);
    page.raw("</svg></div>\n");
    page.element(
        "p",
        "note",
        &format!(
            "Each box is a function with its callees below it; its width is its share of the {whole}. Point at a box for its \
             name and share."
        ),
    );
}

impl<'p> Node<'p> {
    fn add(&mut self, frames: impl Iterator<Item = &'p str>, samples: u64) {
        self.samples = self.samples.saturating_add(samples);
        let mut node = self;
        for frame in frames {
            node = node.called.entry(frame).or_default();
            node.samples = node.samples.saturating_add(samples);
        }
    }

    fn depth(&self) -> usize {
        self.called.values().map(|node| 1 + node.depth()).max().unwrap_or(0)
    }

    /// The callees, the most frequent first, from `left` on.
    fn write(&self, left: f64, row: usize, (whole, unit): (f64, &str), page: &mut Page) {
        if row >= DEEPEST {
            return;
        }
        let mut called: Vec<(&&str, &Node)> = self.called.iter().collect();
        called.sort_by_key(|(_, node)| std::cmp::Reverse(node.samples));
        let mut left = left;
        for (name, node) in called {
            let share = node.samples as f64 / whole;
            if share < NARROWEST {
                break;
            }
            let (x, width, y) = (per_cent(left), per_cent(share), row * ROW);
            let title = html(&format!(
                "{name}: {} {unit}, {} %",
                number::count(node.samples),
                number::percent(share)
            ));
            let tint = name.bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % 4;
            page.raw(format!(
                "<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\"><title>{title}</title>\
                 <rect class=\"t{tint}\" width=\"100%\" height=\"100%\"/>",
                ROW - 1
            ));
            if share > NAMED {
                page.raw(format!("<text x=\"3\" y=\"13\">{}</text>", html(name)));
            }
            page.raw("</svg>");
            node.write(left, row + 1, (whole, unit), page);
            left += share;
        }
    }
}

#[cfg(test)]
mod tests {
    use measure::FoldedStack;

    use super::*;

    #[test]
    fn callers_are_as_wide_as_all_that_they_called() {
        let stack = |frames: &str, samples| FoldedStack { frames: frames.into(), samples };
        let stacks = vec![
            stack("receiving;recv 0;a;b", 3),
            stack("receiving;recv 0;a;<c>", 1),
            stack("sending;send 0", 4),
        ];
        let mut page = Page::default();
        write("udp → udp", &Profile { stacks, ..Profile::default() }, &mut page);
        let html = page.into_html();
        assert!(html.contains("<title>a: 4 samples, 50"), "{html}");
        assert!(html.contains("<title>b: 3 samples, 37.5"), "{html}");
        assert!(html.contains("&lt;c&gt;: 1 samples") && !html.contains("<c>"), "names are escaped");
        assert_eq!(html.matches("<rect").count(), 7);
    }

    #[test]
    fn a_profile_without_stacks_is_no_image() {
        let mut page = Page::default();
        write("udp → udp", &Profile::default(), &mut page);
        assert_eq!(page.into_html(), "");
    }
}
