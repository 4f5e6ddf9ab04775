//! All knobs in the order of display: one file per kind, one row per knob.

mod card;
mod engine;
mod machine;
mod sockets;
mod workers;

use std::collections::BTreeMap;

use super::knob::{Knob, Row, Surroundings};

/// All rows except those that the registry of engines makes.
fn rows() -> impl Iterator<Item = &'static Row> {
    workers::ROWS.iter().chain(sockets::ROWS).chain(card::ROWS).chain(machine::ROWS)
}

/// The knobs, and those left out with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TuneSpace {
    /// The knobs with more than one value.
    pub knobs: Vec<Knob>,
    /// Knobs left out, by name, with the reason.
    pub left_out: BTreeMap<String, String>,
}

impl TuneSpace {
    /// The knobs that exist in these surroundings.
    pub fn of(around: &Surroundings<'_>) -> Self {
        let mut space = Self::default();
        space.knobs = engine::switches(around, &mut space.left_out);
        for row in rows() {
            match (row.values)(around) {
                Ok(mut values) => {
                    let mut seen = Vec::new();
                    values.retain(|value| {
                        let is_new = !seen.contains(&value.shown);
                        seen.push(value.shown.clone());
                        is_new
                    });
                    if values.len() > 1 {
                        space.knobs.push(Knob::of(row, values));
                    } else {
                        space.left_out.insert(row.name.into(), "only one value is available".into());
                    }
                }
                Err(reason) => {
                    space.left_out.insert(row.name.into(), reason.into());
                }
            }
        }
        space
    }

    /// Keeps only the knobs that one of the words matches, if any words are given.
    ///
    /// # Errors
    /// The first word that matches nothing.
    pub fn only(&mut self, words: &[String]) -> Result<(), String> {
        if words.is_empty() {
            return Ok(());
        }
        self.choose(words, true, "not among --only")
    }

    /// Removes the knobs that one of the words matches.
    ///
    /// # Errors
    /// The first word that matches nothing.
    pub fn never(&mut self, words: &[String]) -> Result<(), String> {
        self.choose(words, false, "excluded by --never")
    }

    fn choose(&mut self, words: &[String], keep: bool, reason: &str) -> Result<(), String> {
        let known = |word: &String| {
            let is_known = self.knobs.iter().any(|knob| knob.is_meant_by(word));
            is_known || self.left_out.contains_key(word)
        };
        if let Some(word) = words.iter().find(|word| !known(word)) {
            return Err(word.clone());
        }
        let (left_out, knobs) = std::mem::take(&mut self.knobs)
            .into_iter()
            .partition(|knob| words.iter().any(|word| knob.is_meant_by(word)) != keep);
        self.knobs = knobs;
        let left_out: Vec<Knob> = left_out;
        self.left_out.extend(left_out.into_iter().map(|knob| (knob.name, reason.to_owned())));
        Ok(())
    }

    /// The number of combinations.
    pub fn combinations(&self) -> f64 {
        self.knobs.iter().map(|knob| knob.values.len() as f64).product()
    }
}

#[cfg(test)]
mod tests;
