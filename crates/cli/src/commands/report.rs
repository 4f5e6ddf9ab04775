//! `linerate report`: a saved run in another form.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use measure::Run;
use report::Style;

use crate::{
    args::{ReportArgs, ReportForm},
    failure::{Failure, Status},
    output::{Output, printed, runs_folder, style},
};

pub(crate) fn run(args: &ReportArgs) -> Result<bool, Failure> {
    if args.chart.is_some() && args.format != ReportForm::Svg {
        return Err(Failure::new(Status::Usage, "--chart needs --format svg"));
    }
    let output = args.output.as_deref().map(|path| Output::prepare(path, "--output")).transpose()?;
    let path = match &args.run {
        Some(path) => path.clone(),
        None => newest_run()?,
    };
    let run = read_run(&path)?;
    let image = match args.format {
        ReportForm::Svg => chart(&run, args.chart.as_deref())?,
        _ => String::new(),
    };
    // A file has no width to fit, and is read from its top.
    let to_file = Style { width: style().width, ..Style::default() };
    let style = Style { verbose: args.verbose, ..if output.is_some() { to_file } else { style() } };
    let write = |out: &mut dyn Write| match args.format {
        ReportForm::Svg => out.write_all(image.as_bytes()),
        form => write(&run, (form, style), out),
    };
    match output {
        None => printed(write(&mut io::stdout().lock()))?,
        Some(output) => {
            let mut content = Vec::new();
            write(&mut content).expect("writing to memory cannot fail");
            output.write(&content)?;
        }
    }
    Ok(true)
}

/// The chart of that name, or the first.
fn chart(run: &Run, name: Option<&str>) -> Result<String, Failure> {
    let drawings = report::drawings(run);
    let found = drawings.iter().find(|drawing| name.is_none_or(|name| drawing.name == name));
    found.map(|drawing| drawing.svg.clone()).ok_or_else(|| {
        let names: Vec<&str> = drawings.iter().map(|drawing| drawing.name.as_str()).collect();
        let what = name
            .map_or_else(|| "that run has no chart".into(), |name| format!("this run has no chart '{name}'"));
        let failure = Failure::new(Status::Usage, what);
        if names.is_empty() { failure } else { failure.hint(format!("it has {}", names.join(", "))) }
    })
}

fn write(run: &Run, (form, style): (ReportForm, Style), mut out: &mut dyn Write) -> io::Result<()> {
    let out = &mut out;
    match form {
        // Drawn before the output file is opened.
        ReportForm::Svg => Ok(()),
        ReportForm::Text => report::write_text(run, style, out),
        ReportForm::Html => report::write_html(run, out),
        ReportForm::Json => report::write_json(run, out),
        ReportForm::JsonStream => report::write_json_stream(run, out),
        ReportForm::Csv => report::write_csv(run, out),
        ReportForm::PointsCsv => report::write_points_csv(&run.end.points, out),
        ReportForm::Markdown => report::write_markdown(run, out),
        ReportForm::Iperf3 => report::write_iperf3(run, out),
    }
}

/// Reads a saved run; `-` is standard input.
pub(crate) fn read_run(path: &Path) -> Result<Run, Failure> {
    let refused = |error: io::Error| {
        Failure::new(Status::Refused, format!("cannot read {}: {error}", path.display()))
            .hint("name a run that linerate saved; each command prints its path at the end")
    };
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin().read_to_string(&mut text).map_err(refused)?;
    } else {
        text = fs::read_to_string(path).map_err(refused)?;
    }
    report::read_json(&text).map_err(|error| {
        let words = crate::failure::in_words(&error);
        Failure::new(Status::Refused, format!("{}: {words}", path.display()))
    })
}

fn newest_run() -> Result<PathBuf, Failure> {
    let folder = runs_folder();
    newest_first(&folder).into_iter().next().ok_or_else(|| {
        Failure::new(Status::Refused, format!("no saved run in {}", folder.display()))
            .hint("create one with linerate bench")
    })
}

/// The runs of a folder, newest first; their names start with the time.
pub(crate) fn newest_first(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut runs: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    runs.sort_by(|a, b| b.file_name().cmp(&a.file_name()));
    runs
}
