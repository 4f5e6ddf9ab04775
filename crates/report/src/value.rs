//! A value of a record as text.

use serde_json::{Number, Value};

/// A value without JSON's quotes and brackets: `0, 1`, `mode copy, queues 0`.
pub(crate) fn plain(value: &Value) -> String {
    with_numbers(value, |number| number.to_string())
}

/// The same with numbers rounded for people.
pub(crate) fn rounded(value: &Value) -> String {
    with_numbers(value, |number| number.as_f64().map_or_else(|| number.to_string(), crate::number::plain))
}

fn with_numbers(value: &Value, shown: fn(&Number) -> String) -> String {
    let plain = |value: &Value| with_numbers(value, shown);
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let known = fields.iter().filter(|(_, value)| !value.is_null());
            known.map(|(name, value)| format!("{name} {}", plain(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Number(number) => shown(number),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_read_without_json() {
        assert_eq!(plain(&json!("copy")), "copy");
        assert_eq!(plain(&json!([0, 1.5])), "0, 1.5");
        assert_eq!(plain(&json!([0.8666666666666667, 1])), "0.8666666666666667, 1");
        assert_eq!(rounded(&json!([0.8666666666666667, 1])), "0.867, 1");
        assert_eq!(
            plain(&json!({ "mode": "copy", "none": null, "queues": [0, 2] })),
            "mode copy, queues 0, 2"
        );
    }
}
