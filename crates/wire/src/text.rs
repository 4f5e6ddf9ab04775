//! How types with a text form are written in JSON and TOML.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

/// A text in a file; a bare number is read as its text, so that `dst_port = 53` needs no quotes.
pub(crate) struct Text(pub(crate) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl de::Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a whole number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.into()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }
}

/// Makes `#[serde(try_from = "Text", into = "String")]` work from `FromStr` and `Display`.
macro_rules! text_form {
    ($type:ty) => {
        impl TryFrom<$crate::text::Text> for $type {
            type Error = <$type as std::str::FromStr>::Err;
            fn try_from(text: $crate::text::Text) -> Result<Self, Self::Error> {
                text.0.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

pub(crate) use text_form;
