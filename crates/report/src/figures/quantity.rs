//! The value of a figure.

/// The value of a figure, exact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Quantity {
    Count(u64),
    Signed(i64),
    Real(f64),
    Yes(bool),
    Words(String),
}

impl Quantity {
    /// As in the record, without the quotes of JSON.
    pub(crate) fn exact(&self) -> String {
        match self {
            Self::Count(number) => number.to_string(),
            Self::Signed(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Yes(is) => is.to_string(),
            Self::Words(words) => words.clone(),
        }
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Count(number) => Some(*number as f64),
            Self::Signed(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            Self::Yes(_) | Self::Words(_) => None,
        }
    }
}
