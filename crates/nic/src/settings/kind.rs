//! The interface that all kinds of settings implement.

use crate::{Card, NicError};

/// One kind of setting. Keys are names without the kind and its dot.
pub(crate) trait Kind: Sync {
    /// The part of the name before the first dot.
    fn prefix(&self) -> &'static str;

    /// Whether many cards take their link down to change it.
    fn interrupts_the_link(&self) -> bool {
        false
    }

    /// Everything of this kind that can be changed, with its current value.
    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError>;

    /// A value as [`Kind::read`] would return it, or what to write instead.
    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong>;

    /// Changes some of them.
    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError>;
}

/// Why a value cannot be used.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// It must have this form.
    Expected(String),
    /// No such setting here.
    NoSuchKey,
    /// What it depends on cannot be read.
    Unreadable(NicError),
}

/// A number up to a limit.
pub(super) fn number(value: &str, limit: Option<u64>) -> Result<String, Wrong> {
    let expected = || {
        Wrong::Expected(match limit {
            Some(limit) => format!("a number up to {limit}"),
            None => "a number".into(),
        })
    };
    let number: u64 = value.parse().map_err(|_| expected())?;
    if limit.is_some_and(|limit| number > limit) { Err(expected()) } else { Ok(number.to_string()) }
}
