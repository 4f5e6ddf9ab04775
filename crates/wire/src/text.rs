//! One line for every type that is written as text in JSON.

/// Makes `#[serde(try_from = "String", into = "String")]` work from `FromStr` and `Display`.
macro_rules! text_form {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = <$type as std::str::FromStr>::Err;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
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
