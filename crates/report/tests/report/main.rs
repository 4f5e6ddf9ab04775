//! What every format makes of the same sample runs; goldens change only by `make bless`.

mod golden;
mod json;
mod samples;
mod schema;
mod text;
