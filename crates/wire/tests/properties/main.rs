//! Rules that hold for all frames, texts and bytes, on random ones.

mod frames;
mod fuzz;
mod specs;
mod texts;
