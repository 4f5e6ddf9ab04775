//! Rules that hold for all frames, texts and bytes, checked on random ones.

mod frames;
mod fuzz;
mod specs;
mod texts;
