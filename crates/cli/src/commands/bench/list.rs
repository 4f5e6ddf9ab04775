//! `linerate bench list`: the built-in scenarios.

use bench::shipped;
use serde_json::json;

use crate::{args::ListArgs, failure::Failure, output, scenario::read_shipped};

pub(crate) fn run(args: &ListArgs) -> Result<bool, Failure> {
    let mut list = Vec::new();
    for found in shipped() {
        let scenario = read_shipped(found)?;
        list.push((found.name, scenario));
    }
    if args.json {
        let entry = |(name, scenario): &(&str, bench::Scenario)| {
            json!({
                "name": name,
                "title": scenario.title,
                "description": scenario.description,
                "document": scenario.document,
                "steps": scenario.steps.iter().map(|step| json!({
                    "name": step.name,
                    "title": step.title,
                    "program": step.program,
                    "arguments": step.arguments(|_| false),
                })).collect::<Vec<_>>(),
                "published": scenario.published,
            })
        };
        return output::print_plan(&list.iter().map(entry).collect::<Vec<_>>());
    }
    for (name, scenario) in &list {
        output::print_line(&format!("{name}: {}", scenario.title))?;
        output::print_line(&format!("    {}", scenario.description))?;
        if let Some(document) = &scenario.document {
            output::print_line(&format!("    after: {document}"))?;
        }
        for step in scenario.steps.iter().filter(|step| step.name.is_some()) {
            let name = step.name.as_deref().unwrap_or_default();
            output::print_line(&format!("    - {name}: {}", step.title))?;
        }
    }
    output::print_line("\nRun one: linerate bench NAME. Options on the command line override its own.")?;
    Ok(true)
}
