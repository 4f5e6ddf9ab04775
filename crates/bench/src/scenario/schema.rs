//! The JSON Schema of scenario files, for editors and for other programs.

use serde_json::{Map, Value, json};

use super::Program;

/// The schema of files that run these programs.
pub fn scenario_schema(programs: &[Program]) -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let tables: Map<String, Value> = programs
        .iter()
        .map(|program| (program.name.clone(), json!({ "$ref": format!("#/$defs/{}", program.name) })))
        .collect();
    let one_of: Vec<Value> = programs.iter().map(|program| json!({ "required": [program.name] })).collect();
    let mut step = Map::from_iter([
        ("name".to_owned(), text("The step's name in points")),
        ("title".to_owned(), text("Subject of the step")),
    ]);
    step.extend(tables.clone());
    let mut file = Map::from_iter([
        ("scenario".to_owned(), json!({ "const": 1, "description": "Version of the form" })),
        ("title".to_owned(), text("Subject, in a few words")),
        ("description".to_owned(), text("Purpose, in a sentence or two")),
        ("document".to_owned(), text("The published work that it repeats")),
        (
            "step".to_owned(),
            json!({
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": step,
                    "additionalProperties": false,
                    "oneOf": one_of.clone(),
                },
            }),
        ),
        ("published".to_owned(), json!({ "type": "array", "items": published() })),
    ]);
    file.extend(tables);
    let either: Vec<Value> = one_of.into_iter().chain([json!({ "required": ["step"] })]).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://linerate.invalid/schema/linerate.scenario.1.schema.json",
        "title": "linerate scenario, version 1",
        "type": "object",
        "required": ["scenario"],
        "properties": file,
        "additionalProperties": false,
        "oneOf": either,
        "$defs": programs.iter().map(|program| (program.name.clone(), options(program))).collect::<Map<_, _>>(),
    })
}

fn options(program: &Program) -> Value {
    let value = json!({
        "anyOf": [
            { "type": ["string", "number"] },
            { "type": "array", "items": { "type": ["string", "number"] } },
        ],
    });
    let properties: Map<String, Value> = program
        .options
        .iter()
        .map(|option| {
            let mut schema = if option.takes_value { value.clone() } else { json!({ "type": "boolean" }) };
            let forms = schema.get_mut("anyOf").and_then(Value::as_array_mut);
            if let Some(forms) = forms.filter(|_| option.has_on_and_off) {
                forms.push(json!({ "type": "boolean" }));
            }
            schema["description"] = json!(option.help);
            (option.name.clone(), schema)
        })
        .collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn published() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "anyOf": [{ "required": ["id"] }, { "required": ["figure", "value", "unit", "metric"] }],
        "additionalProperties": false,
        "properties": {
            "id": text("Name in scenarios/published.toml, which has figure, value, unit and conditions"),
            "over": { "type": "object", "description": "Parameters of a second point; the first point's value is divided by the second's" },
            "figure": text("The quantity"),
            "value": { "type": "number" },
            "unit": text("Unit of the value and of the metric"),
            "place": text("Place in the published work"),
            "step": text("The step that measures it"),
            "metric": text("Name of the result in the points"),
            "when": { "type": "object", "description": "Parameters that a point must have" },
        },
    })
}
