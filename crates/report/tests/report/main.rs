//! Every format's output for the same sample runs; goldens change only by `make bless`.

mod chromium;
mod compare;
mod csv;
mod golden;
mod html;
mod iperf3;
mod json;
mod markdown;
mod records;
mod samples;
mod schema;
mod text;
