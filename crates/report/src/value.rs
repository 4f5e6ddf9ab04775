//! A value of a record as text.

use serde_json::Value;

/// A value without JSON's quotes and brackets: `0, 1`, `mode copy, queues 0`.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let known = fields.iter().filter(|(_, value)| !value.is_null());
            known.map(|(name, value)| format!("{name} {}", plain(value))).collect::<Vec<_>>().join(", ")
        }
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
        assert_eq!(
            plain(&json!({ "mode": "copy", "none": null, "queues": [0, 2] })),
            "mode copy, queues 0, 2"
        );
    }
}
