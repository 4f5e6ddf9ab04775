//! The page under construction: text, tables, figures.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::drawing::{self, Drawing};
use crate::{escape::html, style::Tone, table::Table};

/// Words longer than this may wrap in a table.
const LONG: usize = 40;

/// Charts in sight; further ones are folded.
pub(super) const IN_SIGHT: usize = 3;

/// HTML written so far; every method escapes its arguments.
#[derive(Default)]
pub(super) struct Page {
    html: String,
    images: u32,
    /// Charts outside of folded blocks.
    in_sight: usize,
    /// Folded blocks around the current position.
    folds: u32,
    drawings: Vec<Drawing>,
    /// The image of the chart that is being written.
    fresh: Option<String>,
    sections: Vec<String>,
    /// The step of a scenario that is being written.
    step: Option<String>,
}

impl Page {
    /// The finished text.
    pub(super) fn into_html(self) -> String {
        self.html
    }

    /// The charts as separate images.
    pub(super) fn into_drawings(self) -> Vec<Drawing> {
        self.drawings
    }

    /// Keeps a chart as a separate image.
    pub(super) fn keep(&mut self, title: &str, draw: impl FnOnce() -> String) {
        let name = drawing::name(title);
        let name = self.step.as_ref().map_or_else(|| name.clone(), |step| format!("{step}/{name}"));
        let is_again = |known: &&Drawing| {
            let rest = known.name.strip_prefix(&name);
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix('-').is_some_and(|count| count.parse::<u32>().is_ok())
            })
        };
        let again = self.drawings.iter().filter(is_again).count();
        let name = if again == 0 { name } else { format!("{name}-{}", again + 1) };
        let svg = draw();
        self.fresh = Some(svg.clone());
        self.drawings.push(Drawing { name, svg });
    }

    /// The following content belongs to this step.
    pub(super) fn enter_step(&mut self, step: Option<String>) {
        if let Some(step) = &step {
            self.element("h3", "", &format!("Step {step}"));
        }
        self.step = step;
    }

    /// Adds markup unescaped: only for literals and for text that went through [`html`].
    pub(super) fn raw(&mut self, markup: impl AsRef<str>) {
        self.html.push_str(markup.as_ref());
    }

    pub(super) fn element(&mut self, tag: &str, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.raw(format!("<{tag}{class}>{}</{tag}>\n", html(text)));
    }

    /// Preformatted lines; an item may have several.
    pub(super) fn lines(&mut self, lines: &[String]) {
        let lines: Vec<String> = lines.iter().flat_map(|text| text.lines()).map(html).collect();
        self.raw(format!("<pre>{}</pre>\n", lines.join("\n")));
    }

    /// A section with its heading.
    pub(super) fn section(&mut self, id: &str, title: &str, body: impl FnOnce(&mut Self)) {
        self.fresh = None;
        // A search and its other tests have sections of the same kind.
        let again = self.sections.iter().filter(|known| *known == id).count();
        self.sections.push(id.to_owned());
        let id = if again == 0 { id.to_owned() } else { format!("{id}-{}", again + 1) };
        self.raw(format!("<section id=\"{id}\">\n<h2>{}</h2>\n", html(title)));
        body(self);
        self.raw("</section>\n");
    }

    /// A chart with its caption and the table behind it; in sight if it is one of the first outside of folded blocks.
    pub(super) fn figure(&mut self, caption: &str, table: &Table, chart: impl FnOnce(&mut Self)) {
        if self.folds > 0 {
            self.write_figure(caption, table, chart);
        } else if self.in_sight == IN_SIGHT {
            self.details(caption, |page| page.write_figure(caption, table, chart));
        } else {
            self.in_sight += 1;
            self.write_figure(caption, table, chart);
        }
    }

    fn write_figure(&mut self, caption: &str, table: &Table, chart: impl FnOnce(&mut Self)) {
        self.raw("<figure>\n");
        self.element("figcaption", "", caption);
        chart(self);
        self.details("Table", |page| page.table(table));
        let name = drawing::name(caption);
        let links = [
            (table.rows() > 0).then(|| ("CSV", "text/csv", "csv", table.to_csv())),
            self.fresh.take().map(|svg| ("SVG", "image/svg+xml", "svg", svg)),
        ];
        if links.iter().any(Option::is_some) {
            self.raw("<p class=\"download\">Download:");
            for (words, kind, ending, content) in links.into_iter().flatten() {
                let content = STANDARD.encode(content);
                self.raw(format!(
                    " <a download=\"{}.{ending}\" href=\"data:{kind};base64,{content}\">{words}</a>",
                    html(&name)
                ));
            }
            self.raw("</p>\n");
        }
        self.raw("</figure>\n");
    }

    /// A block that unfolds on demand, and in print.
    pub(super) fn details(&mut self, summary: &str, body: impl FnOnce(&mut Self)) {
        self.folds += 1;
        self.unfolding("<details>", summary, body);
        self.folds -= 1;
    }

    /// A block that is open and can be folded.
    pub(super) fn open_details(&mut self, summary: &str, body: impl FnOnce(&mut Self)) {
        self.unfolding("<details open>", summary, body);
    }

    fn unfolding(&mut self, tag: &str, summary: &str, body: impl FnOnce(&mut Self)) {
        self.raw(format!("{tag}<summary>{}</summary>\n", html(summary)));
        body(self);
        self.raw("</details>\n");
    }

    /// Opens an image with its text for screen readers; the caller closes with `</svg>`.
    pub(super) fn open_svg(&mut self, class: &str, title: &str, description: &str) {
        self.images += 1;
        let (n, title, description) = (self.images, html(title), html(description));
        self.raw(format!(
            "<svg class=\"{class}\" role=\"img\" aria-labelledby=\"t{n} d{n}\"><title id=\"t{n}\">{title}</title>\
             <desc id=\"d{n}\">{description}</desc>"
        ));
    }

    /// The legend: colours and their meanings.
    pub(super) fn legend<'e>(&mut self, entries: impl IntoIterator<Item = (&'e str, &'e str)>) {
        self.raw("<ul class=\"legend\">");
        for (class, text) in entries {
            self.raw(format!("<li><i class=\"key {class}\"></i>{}</li>", html(text)));
        }
        self.raw("</ul>\n");
    }

    /// A table that scrolls separately when wider than the page; each number carries its exact value.
    pub(super) fn table(&mut self, table: &Table) {
        if table.rows() == 0 {
            return;
        }
        let title = html(&table.title);
        self.raw(format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n"
        ));
        self.raw(format!("<caption>{title}</caption>\n<thead><tr>"));
        for column in &table.columns {
            let unit = html(&column.unit);
            let unit = if unit.is_empty() { unit } else { format!(" <small>{unit}</small>") };
            let class = if column.right { " class=\"figure\"" } else { "" };
            self.raw(format!("<th scope=\"col\"{class}>{}{unit}</th>", html(&column.title)));
        }
        self.raw("</tr></thead>\n<tbody>\n");
        for row in 0..table.rows() {
            self.raw("<tr>");
            for column in &table.columns {
                let cell = &column.cells[row];
                let class = match (column.right, cell.tone) {
                    (true, Tone::Bad) => " class=\"figure bad\"",
                    (false, Tone::Bad) => " class=\"bad\"",
                    (true, _) => " class=\"figure\"",
                    (false, _) if cell.text.chars().count() > LONG => " class=\"long\"",
                    (false, _) => "",
                };
                self.raw(format!("<td{class}>{}</td>", value(cell.value, &cell.text)));
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n");
        if !table.legend.is_empty() {
            self.element("p", "note", &table.legend);
        }
    }
}

/// A shown figure with its exact value for machines.
pub(super) fn value(value: Option<f64>, shown: &str) -> String {
    let shown = html(shown);
    value.map_or_else(|| shown.clone(), |value| format!("<data value=\"{value}\">{shown}</data>"))
}
